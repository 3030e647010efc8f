package entries

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"junction/auth/authtest"
	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
)

// TestSecondFileHasItsOwnDatabase: the first file of a user has the default database of sign-ins, whichever
// file it is. A file that is made after it has another one, so that both can be served. A file that exists
// keeps its database.
func TestSecondFileHasItsOwnDatabase(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("XDG_STATE_HOME", "")
	state := filepath.Join(home, ".local/state/junction")
	add := func(file, name string) *config.Config {
		t.Helper()
		var stdout, stderr bytes.Buffer
		args := []string{"add", name, "--disabled", "--", "sh"} // sh would be started
		out, errs := authtest.Command(t, args, &stdout, &stderr)
		root := &cobra.Command{Use: "junction", SilenceErrors: true, SilenceUsage: true}
		root.AddCommand(Commands(out, &file)...)
		if code := cli.Run(t.Context(), root, args, strings.NewReader(""), out, errs); code != 0 {
			t.Fatalf("add gave %d: %s", code, stderr.String())
		}
		if file == "" {
			file = filepath.Join(home, ".config/junction/config.yaml")
		}
		c, _, err := config.Load(file, os.LookupEnv)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	alone := filepath.Join(home, "alone.yaml")
	if c := add(alone, "a"); c.Storage.DSN != "" {
		t.Errorf("the only file has the database %s", c.Storage.DSN)
	}
	if c := add("", "a"); c.Storage.DSN != "" {
		t.Errorf("the user's file has the database %s", c.Storage.DSN)
	}
	work, other := filepath.Join(home, "work.yaml"), filepath.Join(home, "other/work.yaml")
	first, second := add(work, "a").Storage.DSN, add(other, "a").Storage.DSN
	if filepath.Dir(first) != state || filepath.Dir(second) != state || first == second || !strings.HasPrefix(filepath.Base(first), "work-") {
		t.Errorf("the files have the databases %q and %q", first, second)
	}
	if again := add(work, "b").Storage.DSN; again != first {
		t.Errorf("a second change gives the database %q, want %q", again, first)
	}
	if c := add(alone, "b"); c.Storage.DSN != "" {
		t.Errorf("a file that existed has got the database %s", c.Storage.DSN)
	}
	if info, err := os.Stat(state); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder of the databases: %v, %v", info, err)
	}
}
