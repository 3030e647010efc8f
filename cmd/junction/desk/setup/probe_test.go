package setup

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mark3labs/mcp-go/server"

	"junction/auth"
	"junction/auth/authtest"
	"junction/cmd/junction/demo"
	"junction/cmd/junction/desk/clients"
)

// eras are the newest version of each.
var eras = map[string]string{"legacy": "2025-11-25", "modern": "2026-07-28"}

// guarded is an endpoint with API keys.
type guarded struct {
	url      string
	requests atomic.Int32
	rejected atomic.Int32 // requests without one of the keys
}

// mustGuarded starts an endpoint of an era at /mcp. It accepts requests with a key for a list of tools, and with
// empty for an empty one. No policy gives those with a key of denied access. "" for key accepts all requests.
func mustGuarded(t *testing.T, version, key, empty string, denied ...string) *guarded {
	t.Helper()
	serve := func(s *server.MCPServer) http.Handler {
		return server.NewStreamableHTTPServer(s, server.WithStreamableHTTPProtocolVersions(version))
	}
	full := serve(demo.NewServer(io.Discard, authtest.Searched(t, "the log of the demo server", t.Output())))
	none := serve(server.NewMCPServer("none", "1", server.WithToolCapabilities(true)))
	g := &guarded{}
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		g.requests.Add(1)
		switch given := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "); {
		case key == "" || given == key:
			full.ServeHTTP(w, r)
		case given == empty && empty != "":
			none.ServeHTTP(w, r)
		case slices.Contains(denied, given):
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"error":"access_denied","error_description":"connected as key:ben; no policy grants access"}`)
		default:
			g.rejected.Add(1)
			w.Header().Set("Www-Authenticate", "Bearer")
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"error":"invalid_token","error_description":"The API key was revoked."}`)
		}
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	g.url = s.URL + "/mcp"
	return g
}

func newKey() string {
	key := auth.NewKey()
	authtest.Secret("an API key", key)
	return key
}

// TestConnectAsksWithTheKey: connect asks the URL as the client will. A key that is revoked or wrong fails, and
// changes no file, also not the file with the key that worked before. A key that no policy allows anything is
// told from one that works.
func TestConnectAsksWithTheKey(t *testing.T) {
	for era, version := range eras {
		for id, file := range map[string]string{"cursor": ".cursor/mcp.json", "codex": ".codex/config.toml"} {
			t.Run(era+"/"+id, func(t *testing.T) {
				works, empty, denied, revoked := newKey(), newKey(), newKey(), newKey()
				g := mustGuarded(t, version, works, empty, denied)
				home := atHome(t, map[string]string{file: ""})
				connect := func(key string) ran {
					t.Setenv(clients.KeyVariable, key)
					return runProgram(t, "", "connect", id, "--url", g.url)
				}
				got := connect(revoked)
				want := g.url + " does not accept the API key in JUNCTION_KEY (The API key was revoked); ask the operator of " +
					"Junction for another one; nothing was changed"
				if got.code != 1 || !strings.Contains(got.stderr, want) {
					t.Errorf("a revoked key: %+v, want %q", got, want)
				}
				if text := mustRead(t, home, file); text != "" {
					t.Errorf("a revoked key has changed the file of the client:\n%s", text)
				}
				if _, err := os.Stat(filepath.Join(home, ".local/state/junction")); err == nil {
					t.Error("a revoked key was written")
				}
				if got = connect(works); got.code != 0 || !strings.Contains(got.stdout, "Junction accepts the API key, and offers it 3 tools.\n") {
					t.Errorf("a key that works: %+v", got)
				}
				before, keys := mustRead(t, home, file), keysIn(t, home)
				if got = connect(revoked); got.code != 1 || mustRead(t, home, file) != before || keysIn(t, home) != keys {
					t.Errorf("a revoked key after one that works: %+v", got)
				}
				if got = connect(empty); got.code != 0 || !strings.Contains(got.stdout, "and offers it no tools: no policy allows it any, or ") {
					t.Errorf("a key without tools: %+v", got)
				}
				want = "Junction accepts the API key, and no policy gives it access: connected as key:ben; no policy grants access.\n"
				if got = connect(denied); got.code != 0 || !strings.Contains(got.stdout, want) {
					t.Errorf("a key without rights: %+v, want %q", got, want)
				}
			})
		}
	}
}

func mustRead(t *testing.T, home, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(home, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// keysIn returns the content of all files with keys.
func keysIn(t *testing.T, home string) (all string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(home, ".local/state/junction/keys/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all += name + ": " + string(text) + "\n"
	}
	return all
}

// TestConnectChecksTheKeyOfTheFile: a client whose file with the key is kept is not reported as connected when
// the endpoint rejects that key. If nothing answers, the entry is written, and connect says that it has not
// checked the key.
func TestConnectChecksTheKeyOfTheFile(t *testing.T) {
	for era, version := range eras {
		t.Run(era, func(t *testing.T) {
			g, key := mustGuarded(t, version, newKey(), ""), newKey()
			home := atHome(t, map[string]string{".cursor/mcp.json": "{}", "key": key})
			file := filepath.Join(home, "key")
			t.Setenv(clients.KeyVariable, "")
			got := runProgram(t, "", "connect", "cursor", "--url", g.url, "--key-file", file)
			if got.code != 1 || !strings.Contains(got.stderr, "does not accept the API key in ~/key (") || mustRead(t, home, ".cursor/mcp.json") != "{}" {
				t.Errorf("a wrong key in a file: %+v", got)
			}
			got = runProgram(t, "", "connect", "cursor", "--url", "http://127.0.0.1:2/mcp", "--key-file", file)
			want := "Nothing answers at http://127.0.0.1:2/mcp now. The API key was not checked.\n"
			if got.code != 0 || !strings.Contains(got.stdout, want) || !strings.Contains(mustRead(t, home, ".cursor/mcp.json"), ":2/mcp") {
				t.Errorf("nothing answers: %+v, want %q", got, want)
			}
		})
	}
}

// TestConnectAsksOnce: the clients of one run share the answer of the URL, also that about the key.
func TestConnectAsksOnce(t *testing.T) {
	counts := map[int]int32{}
	for n := range 2 {
		key := newKey()
		g := mustGuarded(t, eras["modern"], key, "")
		files := map[string]string{".cursor/mcp.json": "{}"}
		if n > 0 {
			files[".codeium/windsurf/mcp_config.json"], files[".codex/config.toml"] = "{}", ""
		}
		atHome(t, files)
		t.Setenv(clients.KeyVariable, key)
		t.Setenv("PATH", "")
		got := runProgram(t, "", "connect", "--all", "--url", g.url)
		if counts[n] = g.requests.Load(); got.code != 0 || strings.Count(got.stdout, "Junction accepts the API key, and offers it 3 tools.") != 1 {
			t.Errorf("%d: %+v", n, got)
		}
	}
	if counts[0] == 0 || counts[0] != counts[1] {
		t.Errorf("one client sends %d requests, and three send %d", counts[0], counts[1])
	}
}

// TestAURLThatDoesNotAnswerIsAskedOnce: connect does not wait for it again with the key.
func TestAURLThatDoesNotAnswerIsAskedOnce(t *testing.T) {
	var requests atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer s.Close()
	counts := map[string]int32{}
	for _, key := range []string{"", newKey()} {
		requests.Store(0)
		atHome(t, map[string]string{".codex/config.toml": ""})
		t.Setenv(clients.KeyVariable, key)
		got := runProgram(t, "", "connect", "codex", "--url", s.URL+"/mcp")
		if counts[key] = requests.Load(); got.code != 0 || strings.Contains(got.stdout, "was not checked") != (key != "") {
			t.Errorf("%+v", got)
		}
		if counts[key] == 0 || counts[key] != counts[""] {
			t.Errorf("%d requests, and %d without a key", counts[key], counts[""])
		}
	}
}

// TestAnErrorOfTheURLIsShownOnce: what the URL answers concerns all clients, so that the error names them once.
func TestAnErrorOfTheURLIsShownOnce(t *testing.T) {
	g := mustGuarded(t, eras["modern"], newKey(), "")
	atHome(t, map[string]string{".cursor/mcp.json": "{}", ".codeium/windsurf/mcp_config.json": "{}", ".config/zed/settings.json": "no"})
	t.Setenv(clients.KeyVariable, newKey())
	t.Setenv("PATH", "")
	got := runProgram(t, "", "connect", "--all", "--url", g.url)
	if got.code != 1 || strings.Count(got.stderr, "does not accept the API key") != 1 || !strings.Contains(got.stderr, "Cursor, Windsurf") {
		t.Errorf("%+v", got)
	}
}

// TestAKeyOfAnotherJunctionStaysThere: the API key in the present entry is for the Junction of that entry. It is
// not sent to the URL that the person gives.
func TestAKeyOfAnotherJunctionStaysThere(t *testing.T) {
	key := newKey()
	atHome(t, map[string]string{".cursor/mcp.json": `{"mcpServers": {"junction": {"url": "http://127.0.0.1:8420/mcp",
		"headers": {"Authorization": "Bearer ` + key + `"}}}}`})
	t.Setenv(clients.KeyVariable, "")
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Authorization"), key) {
			t.Error("the key was sent to another server")
		}
		w.Header().Set("Www-Authenticate", "Bearer")
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer other.Close()
	got := runProgram(t, "", "connect", "cursor", "--url", other.URL+"/mcp")
	if home, _ := os.UserHomeDir(); got.code != 1 || keysIn(t, home) != "" || !strings.Contains(got.stderr, "needs an API key") {
		t.Errorf("%+v", got)
	}
}

// TestAKeyThatIsTypedIsChecked: VS Code asks for its key. The command asks the URL with the key of JUNCTION_KEY, which
// the person will type: a wrong one is an error that changes nothing, and without one, the command says what it lacks.
func TestAKeyThatIsTypedIsChecked(t *testing.T) {
	key, wrong := auth.NewKey(), auth.NewKey()
	authtest.Secret("an API key", key)
	authtest.Secret("a wrong API key", wrong)
	g := mustGuarded(t, eras["legacy"], key, "")
	for _, test := range []struct{ key, want, failure string }{
		{key, "Junction accepts the API key, and offers it 3 tools.", ""},
		{wrong, "", "does not accept the API key in JUNCTION_KEY"},
		{"", "The key was not checked: with the key in JUNCTION_KEY, this command checks it: junction connect vscode --url " + g.url, ""},
	} {
		c, _, _ := mustKeyed(t, map[string]string{".config/Code/User/mcp.json": "{}"})
		c.url = g.url
		t.Setenv(clients.KeyVariable, test.key)
		_, text, err := c.connect(t.Context(), "vscode")
		if test.failure != "" && (err == nil || !strings.Contains(err.Error(), test.failure)) ||
			test.failure == "" && (err != nil || !strings.Contains(strings.Join(strings.Fields(text), " "), test.want)) {
			t.Errorf("%s, %s: connect = %v\n%s", test.want, test.failure, err, text)
		}
		home, _ := os.UserHomeDir()
		file, err := os.ReadFile(filepath.Join(home, ".config/Code/User/mcp.json"))
		if err != nil || (string(file) == "{}") != (test.failure != "") {
			t.Errorf("the file is %s, %v", file, err)
		}
	}
}
