package entries

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"junction/auth"
	"junction/auth/authserver"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/desk/clients"
	"junction/upstream"
	"junction/upstream/prose"
)

const metadata = `Bearer resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource"`

// mustAsk asks a server, whose URL ends with path.
func mustAsk(t *testing.T, c *config.Config, transport, path string, h http.HandlerFunc) *New {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	n := &New{Name: "s", Entry: &clients.Entry{URL: clients.Literal(s.URL + path), Transport: transport}}
	if err := Ask(t.Context(), c, []*New{n}, nil); err != nil {
		t.Fatal(err)
	}
	return n
}

func unauthorized(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("WWW-Authenticate", metadata)
	w.WriteHeader(http.StatusUnauthorized)
}

// open answers as a modern server without a sign-in.
func open(w http.ResponseWriter, r *http.Request) {
	var m struct{ ID json.RawMessage }
	_ = json.NewDecoder(r.Body).Decode(&m)
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private",`+
		`"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"},"tools":[]}}`, m.ID)
}

// TestAskMode: the mode of a sign-in depends on who uses this Junction.
func TestAskMode(t *testing.T) {
	keys := auth.Config{APIKeys: []auth.Key{{Name: "ann"}, {Name: "ben"}}}
	for _, test := range []struct {
		name string
		auth config.Auth
		want string
		note string
	}{
		{"one user", config.Auth{}, "oauth", ""},
		{"one key", config.Auth{Config: auth.Config{APIKeys: keys.APIKeys[:1]}}, "oauth", ""},
		{"users who sign in", config.Auth{OAuth: &authserver.Config{}}, "oauth_user", ""},
		{"several keys", config.Auth{Config: keys}, "", "all callers would act with your account"},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := mustAsk(t, &config.Config{Auth: test.auth}, "", "/mcp", unauthorized)
			if n.Entry.Auth != test.want || !strings.Contains(n.Note, test.note) || (n.Note == "") != (test.note == "") {
				t.Errorf("auth is %q with the note %q, want %q and %q", n.Entry.Auth, n.Note, test.want, test.note)
			}
		})
	}
}

// TestAskAnswers: a redirect to another server is not followed, and no answer blocks the command.
func TestAskAnswers(t *testing.T) {
	var reached atomic.Int32
	private := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	t.Cleanup(private.Close)
	for _, test := range []struct {
		name      string
		transport string
		answer    http.HandlerFunc
		auth      string
		note      string // "" for none
	}{
		{"no sign-in", "", func(http.ResponseWriter, *http.Request) {}, "", ""},
		{"redirect to another server", "", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, private.URL+"/admin", http.StatusTemporaryRedirect)
		}, "", "redirects to another address, which was not asked"},
		{"redirect to itself", "", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path+"x", http.StatusPermanentRedirect)
		}, "", "redirects to another address"},
		{"redirect to a folder", "", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/mcp" {
				http.Redirect(w, r, "/mcp/", http.StatusTemporaryRedirect)
				return
			}
			unauthorized(w, r)
		}, "oauth", ""},
		{"HTTP+SSE found by GET", "", func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				http.NotFound(w, r)
				return
			}
			unauthorized(w, r)
		}, "oauth", ""},
		{"HTTP+SSE", "sse", func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				unauthorized(w, r)
			}
		}, "oauth", ""},
		{"a body without end", "", func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		}, "", ""},
		{"large headers", "", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Large", strings.Repeat("x", 128<<10))
			unauthorized(w, r)
		}, "", "could not be asked whether it needs a sign-in, because "},
		{"a sign-in at its own origin, without a challenge", "", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/.well-known/oauth-authorization-server" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			fmt.Fprintf(w, `{"issuer":"http://%s"}`, r.Host)
		}, "oauth", ""},
		{"a sign-in that it does not ask for", "", func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/.well-known/oauth-protected-resource/mcp":
				fmt.Fprintf(w, `{"resource":"http://%s/mcp","authorization_servers":["https://as.example"]}`, r.Host)
			case r.Method == http.MethodPost:
				open(w, r)
			default:
				http.NotFound(w, r)
			}
		}, "", "offers one, for some calls or for more tools; to use it, run: junction login s"},
		{"a sign-in that it asks for at the list", "", func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Mcp-Method") == "tools/list" {
				unauthorized(w, r)
				return
			}
			open(w, r)
		}, "oauth", ""},
		{"broken", "", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, "",
			"answered 502"},
		{"no word about a sign-in", "", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		}, "", "it needs a token; set headers"},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := mustAsk(t, &config.Config{}, test.transport, "/mcp", test.answer)
			if n.Entry.Auth != test.auth || !strings.Contains(n.Note, test.note) || (n.Note == "") != (test.note == "") {
				t.Errorf("auth is %q with the note %q, want %q and %q", n.Entry.Auth, n.Note, test.auth, test.note)
			}
		})
	}
	if n := reached.Load(); n > 0 {
		t.Errorf("a redirect led to another server, %d times", n)
	}
}

// TestAskEnds: a server that accepts a connection and is silent is given up when the command ends,
// and has a note.
func TestAskEnds(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		if c, err := l.Accept(); err == nil {
			cancel()
			_, _ = c.Read(make([]byte, 1<<10))
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-closed })
	n := &New{Name: "s", Entry: &clients.Entry{URL: clients.Literal("http://" + l.Addr().String())}}
	if err := Ask(ctx, &config.Config{}, []*New{n}, nil); err == nil || !strings.Contains(n.Note, "could not be asked") {
		t.Errorf("the error is %v, and the note %q", err, n.Note)
	}
}

// TestAskInsecure: a sign-in by http is not configured, because the configuration refuses it.
func TestAskInsecure(t *testing.T) {
	for address, want := range map[string]bool{"http://mcp.example.com/": false, "https://mcp.example.com/": true,
		"http://127.0.0.1:1/": true, "http://localhost/": true, "http://[::1]/": true, "http://10.0.0.1/": false} {
		n := &New{Entry: &clients.Entry{URL: clients.Literal(address)}}
		if got := n.secure(); got != want {
			t.Errorf("secure(%s) = %v", address, got)
		}
	}
}

// TestReadmeSaysHowServersAreAsked: the README has how long servers are asked, and in the row of an answer that names no
// sign-in the key of each mode that takes a token of the server.
func TestReadmeSaysHowServersAreAsked(t *testing.T) {
	text, err := os.ReadFile("../clients/README.md")
	if err != nil {
		t.Fatal(err)
	}
	want := "It waits " + prose.Duration(askTime) + " for a server, and " + prose.Duration(askAll) + " for all."
	if !strings.Contains(strings.Join(strings.Fields(string(text)), " "), want) {
		t.Errorf("clients/README.md does not say %q", want)
	}
	row := regexp.MustCompile(`(?m)^\| another 401, and 403 \|.*$`).FindString(string(text))
	for _, mode := range upstream.Modes() {
		keys := []string{"headers"}
		if mode.Owner != upstream.OwnerNobody {
			keys = nil
			for _, key := range mode.AuthKeys {
				if strings.HasSuffix(key, "token") {
					keys = append(keys, "auth."+key)
				}
			}
		}
		for _, key := range keys {
			if mode.Token != "" && !strings.Contains(row, "`"+key+"`") {
				t.Errorf("the row %q does not name `%s` of mode: %s", row, key, mode.Word)
			}
		}
	}
}
