package serve

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"junction/auth/authtest"
	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/desk/call"
	"junction/cmd/junction/ops/admin"
)

func TestMain(m *testing.M) {
	// The configuration of the person who runs the tests must not be used.
	if err := os.Setenv("XDG_CONFIG_HOME", filepath.Join(os.TempDir(), "junction-tests-have-no-configuration")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// ran is what a command gave.
type ran struct {
	code           int
	stdout, stderr string
}

func runProgram(t testing.TB, stdin string, args ...string) ran {
	t.Helper()
	var stdout, stderr bytes.Buffer
	out, errs := authtest.Command(t, args, &stdout, &stderr)
	var file string
	root := &cobra.Command{Use: "junction", SilenceErrors: true, SilenceUsage: true}
	root.PersistentFlags().StringVar(&file, "config", "", "")
	root.AddCommand(admin.Commands(out, "", &file, call.CompleteTools(&file), Foresight(), admin.Connected{})...)
	root.AddCommand(call.Commands(out, &file)...)
	code := cli.Run(t.Context(), root, args, strings.NewReader(stdin), out, errs)
	return ran{code, stdout.String(), stderr.String()}
}

func mustWrite(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// environment returns a getenv that knows vars and nothing else.
func environment(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := vars[name]
		return v, ok
	}
}
