package entries

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spf13/cobra"

	"junction/auth/authtest"
	"junction/cmd/junction/cli"
)

// TestAddAsks: add asks a new URL once, unless the person has said how to sign in.
func TestAddAsks(t *testing.T) {
	var requests atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="https://mcp.example.com/metadata"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(s.Close)
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("XDG_STATE_HOME", "")
	for _, test := range []struct {
		args []string
		want int32 // requests
		said string
	}{
		{[]string{"add", "asked", s.URL + "/a"}, 1, "\nSign in with: junction login asked\n"},
		{[]string{"add", "told", s.URL + "/b", "--oauth"}, 0, "\nSign in with: junction login told\n"},
		{[]string{"add", "token", s.URL + "/c", "-H", "Authorization: Bearer canary-1"}, 0, "\nAdded token to "},
		{[]string{"add", "off", s.URL + "/d", "--disabled"}, 0, "\nAdded off to "},
	} {
		requests.Store(0)
		var stdout, stderr bytes.Buffer
		out, errs := authtest.Command(t, test.args, &stdout, &stderr)
		root := &cobra.Command{Use: "junction", SilenceErrors: true, SilenceUsage: true}
		root.AddCommand(Commands(out, new(string))...)
		code := cli.Run(t.Context(), root, test.args, strings.NewReader(""), out, errs)
		if n := requests.Load(); code != 0 || n != test.want || !strings.Contains("\n"+stdout.String(), test.said) {
			t.Errorf("%v gave %d after %d requests, want %d and %q\n%s%s", test.args, code, n, test.want, test.said,
				stdout.String(), stderr.String())
		}
	}
	text, err := os.ReadFile(filepath.Join(home, ".config/junction/config.yaml"))
	if err != nil || strings.Count(string(text), "auth: {mode: oauth}") != 2 {
		t.Errorf("the configuration is, %v:\n%s", err, text)
	}
}
