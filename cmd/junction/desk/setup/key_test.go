package setup

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"junction/auth"
	"junction/auth/authtest"
	"junction/cmd/junction/desk/clients"
)

// mustKeyed returns a connector at a home with files, whose only client of the desktop is Cursor. answers are
// what a person types at the terminal; none means that there is no terminal.
func mustKeyed(t *testing.T, files map[string]string, answers ...string) (*connector, *bytes.Buffer, *int) {
	t.Helper()
	atHome(t, files)
	t.Setenv(clients.KeyVariable, "")
	var stdout bytes.Buffer
	asked := 0
	c := &connector{stdout: &stdout, stderr: &stdout, name: "junction", file: ""}
	if answers != nil {
		c.typed = &typedKey{hidden: func(string) (string, error) {
			asked++
			return answers[asked-1], nil
		}}
	}
	return c, &stdout, &asked
}

// TestAPersonTypesTheKeyOnce: what is no key is asked again, the clients share the answer, an empty answer
// counts for all, and the key is in none of the texts.
func TestAPersonTypesTheKeyOnce(t *testing.T) {
	for _, left := range []bool{false, true} {
		key := newKey()
		guarded := mustGuarded(t, eras["modern"], key, "")
		answers := []string{"jct_key_half", key}
		if left {
			answers = []string{""}
		}
		c, stdout, asked := mustKeyed(t, map[string]string{".cursor/mcp.json": "{}", ".codeium/windsurf/mcp_config.json": "{}"},
			answers...)
		c.url, c.probes = guarded.url, newProbes()
		var said string
		for _, id := range []string{"cursor", "windsurf"} {
			one := *c
			result, text, err := one.connect(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			said += text
			got, err := os.ReadFile(result.KeyFile)
			if result.Key != "file" || left != os.IsNotExist(err) || !left && string(got) != key {
				t.Errorf("connect %s = %+v, %v", id, result, err)
			}
		}
		if said += stdout.String(); *asked != len(answers) || strings.Contains(said, key) || strings.Contains(said, "half") ||
			left != strings.Contains(said, "That file does not exist yet.") {
			t.Errorf("asked %d times:\n%s", *asked, said)
		}
		if guarded.rejected.Load() == 0 {
			t.Error("the first request has a credential")
		}
	}
}

// TestTheEndpointSaysWhetherItNeedsAKey: a Junction elsewhere is asked. One that offers a sign-in, needs
// nothing or is not there gets no key, unless the environment has one.
func TestTheEndpointSaysWhetherItNeedsAKey(t *testing.T) {
	key := auth.NewKey()
	authtest.Secret("an API key", key)
	for _, test := range []struct {
		name      string
		status    int // 0: nothing answers
		challenge string
		variable  bool
		want      string
	}{
		{"a key at the address of the own file", 401, "Bearer own", false, "input"},
		{"a key", 401, "Bearer", false, "input"},
		{"a sign-in", 401, `Bearer resource_metadata="http://x/"`, true, ""},
		{"nothing", 200, "", true, ""},
		{"nothing is there", 0, "", false, ""},
		{"nothing is there, and there is a key", 0, "", true, "input"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, _, _ := mustKeyed(t, map[string]string{".config/Code/User/mcp.json": "{}"})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Www-Authenticate", test.challenge)
				w.WriteHeader(test.status)
			}))
			defer server.Close()
			c.url = server.URL + "/mcp"
			if home, _ := os.UserHomeDir(); test.challenge == "Bearer own" {
				c.file = filepath.Join(home, "config.yaml")
				mustWrite(t, c.file, "listen: "+server.Listener.Addr().String()+"\nadmin: 127.0.0.1:0\nupstreams: {}\n")
			}
			switch test.status {
			case 0:
				c.url = "http://127.0.0.1:1/mcp"
			case http.StatusOK:
				c.url = mustGuarded(t, eras["legacy"], "", "").url
			}
			if test.variable {
				t.Setenv(clients.KeyVariable, key)
			}
			result, text, err := c.connect(t.Context(), "vscode")
			if err != nil || result.Key != test.want || strings.Contains(text, "API key: ") != (test.want != "") {
				t.Errorf("connect = %+v, %v\n%s", result, err, text)
			}
		})
	}
}

// TestAKeyDoesNotCrossTheNetworkInPlainText: junction stdio would not send it, so that nothing is written.
func TestAKeyDoesNotCrossTheNetworkInPlainText(t *testing.T) {
	key := auth.NewKey()
	authtest.Secret("an API key", key)
	c, _, _ := mustKeyed(t, map[string]string{".cursor/mcp.json": "{}", "key": key})
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	c.url, c.keyFile = "http://192.0.2.1/mcp", filepath.Join(home, "key")
	ctx := t.Context()
	if _, _, err := c.connect(ctx, "cursor"); err == nil || !strings.Contains(err.Error(), "is not https") {
		t.Errorf("connect = %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(home, ".cursor", "mcp.json")); err != nil || string(text) != "{}" {
		t.Errorf("the file is %s, %v", text, err)
	}
}

// TestAGivenKeyFileIsRead: --key-file works for each client, a wrong file is an error, and one that others
// can read is named.
func TestAGivenKeyFileIsRead(t *testing.T) {
	key := auth.NewKey()
	authtest.Secret("an API key", key)
	for _, test := range []struct {
		text string
		mode os.FileMode
		want string // of the notes or the error
		ok   bool
	}{
		{key + "\n", 0o600, "starts junction stdio, which reads the key from ~/key.", true},
		{key + "\n", 0o644, "Other users of this machine can read the key; run: chmod 600 ~/key", true},
		{"half", 0o600, "this is not a key; copy the whole of it", false},
		{"", 0o600, "this is not a key; copy the whole of it", false},
	} {
		c, _, _ := mustKeyed(t, map[string]string{".codex/config.toml": "", "key": test.text})
		home, _ := os.UserHomeDir()
		c.url, c.keyFile = "http://127.0.0.1:1/mcp", filepath.Join(home, "key")
		if err := os.Chmod(c.keyFile, test.mode); err != nil {
			t.Fatal(err)
		}
		_, text, err := c.connect(t.Context(), "codex")
		if err != nil {
			text = err.Error()
		}
		if (err == nil) != test.ok || !strings.Contains(text, test.want) || strings.Contains(text, "chmod") != (test.mode == 0o644) {
			t.Errorf("%q %v: %v\n%s", test.text[:min(4, len(test.text))], test.mode, err, text)
		}
	}
}

// TestSetupSaysHowClientsGetTheKey: before a person chooses clients, each way is named once, with its reason.
func TestSetupSaysHowClientsGetTheKey(t *testing.T) {
	got := strings.Join(keyPlan(clients.All()), "\n")
	for _, want := range []string{"  Claude Code, Codex, Gemini CLI, Copilot CLI, opencode: from the variable JUNCTION_KEY",
		"  VS Code: by a question of the client", "  Claude Desktop, Cursor, Windsurf, Zed, Goose: by junction stdio "} {
		if strings.Count(got, want) != 1 {
			t.Errorf("the plan is\n%s\nwant %q", got, want)
		}
	}
}
