package entries

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"junction/auth/authtest"
	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/desk/clients"
	"junction/upstream"
	"junction/upstream/client"
)

// TestAddAsks: add asks a new URL once, with the first request of each era, unless the person has said how to sign in.
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
		{[]string{"add", "asked", s.URL + "/a"}, 2, "\nSign in with: junction login asked\n"},
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

// TestAddHasTheModeOfTheFlag: --auth writes each mode that a URL may have, without asking the server, and says what
// comes next. A mode that does not exist, or that contradicts the short form, is a mistake of usage.
func TestAddHasTheModeOfTheFlag(t *testing.T) {
	var requests atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(s.Close)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("XDG_STATE_HOME", "")
	words := strings.Join(upstream.ModeWords(), ", ")
	type story struct {
		name string
		args []string
		code int
		said string
	}
	tests := []story{
		{"an unknown mode", []string{s.URL, "--auth", "magic"}, 2, "--auth: \"magic\" is none of " + words},
		{"the short form, and another mode", []string{s.URL, "--oauth", "--auth", "none"}, 2, "--oauth is short for --auth oauth"},
		{"the short form, and its mode", []string{s.URL, "--oauth", "--auth", "oauth"}, 0, "auth: {mode: oauth}"},
		{"a mode of a URL, and a command", []string{"--auth", "oauth", "--", "program"}, 2, "--auth oauth and --transport are for a URL"},
		{"the short form, and a command", []string{"--oauth", "--", "program"}, 2, "--oauth and --transport are for a URL"},
	}
	for _, row := range upstream.Modes() {
		code, said := 0, "auth: {mode: "+row.Word.String()+"}"
		if row.Needs != upstream.SectionNone { // the checks of the file find what the entry or the file lacks
			code, said = 1, "needs "+string(row.Needs)
		} else if len(row.AuthNeeds) > 0 {
			code, said = 2, "needs auth."+row.AuthNeeds[0]
		}
		if row.Has(client.Remote) {
			tests = append(tests, story{row.Word.String(), []string{s.URL, "--auth", row.Word.String()}, code, said})
		}
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			home := t.TempDir()
			t.Setenv("HOME", home)
			var stdout, stderr bytes.Buffer
			args := append([]string{"add", "x"}, test.args...)
			out, errs := authtest.Command(t, args, &stdout, &stderr)
			root := &cobra.Command{Use: "junction", SilenceErrors: true, SilenceUsage: true}
			root.AddCommand(Commands(out, new(string))...)
			code := cli.Run(t.Context(), root, args, strings.NewReader(""), out, errs)
			text, _ := os.ReadFile(filepath.Join(home, ".config/junction/config.yaml")) // none after a mistake
			if all := string(text) + stderr.String(); code != test.code || !strings.Contains(all, test.said) {
				t.Errorf("the exit code is %d, want %d, and %q:\n%s%s", code, test.code, test.said, stdout.String(), all)
			}
		})
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("the server got %d requests", n)
	}
}

// TestREADMEHasTheModesOfTheFlag: the page of the command names the modes that --auth sets, and those that need keys
// which no flag gives.
func TestREADMEHasTheModesOfTheFlag(t *testing.T) {
	text, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	readme := strings.Join(strings.Fields(string(text)), " ")
	listed := func(words []string) string {
		last := len(words) - 1
		if last == 0 {
			return "`mode: " + words[0] + "`"
		}
		return "`mode: " + strings.Join(words[:last], "`, `mode: ") + "` or `mode: " + words[last] + "`"
	}
	can := flagModes(upstream.Modes())
	cannot := slices.DeleteFunc(upstream.ModeWords(), func(word string) bool { return slices.Contains(can, word) })
	for _, want := range []string{"the requests have: " + listed(can) + ".",
		". " + listed(cannot) + " needs further keys, which no flag gives"} {
		if !strings.Contains(readme, want) {
			t.Errorf("cmd/README.md does not say of --auth %q", want)
		}
	}
}

// TestAddOffersNoModeThatLacksAKey: --auth has no mode that needs another key of auth, and the error about such a
// mode names the key and how to give it.
func TestAddOffersNoModeThatLacksAKey(t *testing.T) {
	rows := []upstream.Mode{{Word: "easy"}, {Word: "hard", AuthNeeds: []string{"token", "place"}}}
	if words := flagModes(rows); strings.Join(words, " ") != "easy" {
		t.Errorf("--auth offers %q", words)
	}
	const want = "--auth hard needs auth.token and auth.place, which no flag gives; add the server without --auth, and " +
		"write auth: { mode: hard, token: …, place: … } into its entry"
	if err := lackedKeys(rows[1]); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if err := lackedKeys(rows[0]); err != nil {
		t.Errorf("a mode without such keys: %v", err)
	}
}

// full is an output that cannot be written.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestSecretStaysWithItsEntry: if the output cannot be written, the file has the entry, with its secret, and the
// error says so.
func TestSecretStaysWithItsEntry(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("HOME", folder)
	t.Setenv("XDG_STATE_HOME", "")
	file := filepath.Join(folder, "config.yaml")
	e, err := Edit(full{}, file, false, true)
	if err != nil {
		t.Fatal(err)
	}
	entry, err := e.Entry(clients.Given{Command: []string{"x"}, Env: map[string]string{"API_TOKEN": "canary-token"}})
	if err != nil {
		t.Fatal(err)
	}
	err = e.Add(t.Context(), "notes", entry, "x", nil, "")
	if err == nil || errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "config.yaml was changed") {
		t.Errorf("the error is %v; want that the file was changed, without a remedy that runs the command again", err)
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), "${file:secrets/notes.API_TOKEN}") {
		t.Errorf("the configuration is, %v:\n%s", err, text)
	}
	secret, err := os.ReadFile(filepath.Join(folder, "secrets/notes.API_TOKEN"))
	if err != nil || string(secret) != "canary-token\n" {
		t.Errorf("the secret is %q, %v", secret, err)
	}
}
