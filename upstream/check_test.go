package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

func (r *Report) stepNames() (names []string) {
	for _, s := range r.Steps {
		names = append(names, s.Name)
	}
	return names
}

// check is Check over the rig's own network.
func (r *rig) check(ctx context.Context) Report {
	return check(ctx, r.name, r.connConfig, r.options, r.conns, nil)
}

// TestCheckOfAServer: a check goes through everything on a connection of its own, and leaves
// nothing of it.
func TestCheckOfAServer(t *testing.T) {
	for _, era := range []string{"legacy", "modern", "both"} {
		t.Run(era, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, upstreamtest.Script{Era: era, Tools: tools("a", "b"), PageSize: 1, Name: "shop"}, Config{})
				settle(time.Second)
				states, catalogs := len(r.states), r.catalogs
				got := r.check(t.Context())
				want := client.EraModern
				if era == "legacy" {
					want = client.EraLegacy
				}
				if got.Err != nil || got.Era != want || got.Version == "" || !strings.HasPrefix(got.Server, "shop") {
					t.Errorf("Check = %+v, want no error and the era %s", got, want)
				}
				if names := got.stepNames(); !slices.Equal(names, []string{"handshake", "list", "ping"}) {
					t.Errorf("the steps are %q", names)
				}
				if len(got.Catalog.Tools) != 2 || got.Bytes == 0 || len(got.Findings) != 4 {
					t.Errorf("%d tools of %d bytes, and %v, want 2 without descriptions and properties", len(got.Catalog.Tools), got.Bytes, got.Findings)
				}
				settle(time.Second)
				if len(r.states) != states || r.catalogs != catalogs || r.Status().Links != 1 {
					t.Errorf("the check was noticed: %v", r.states[states:])
				}
			})
		})
	}
}

// TestCheckSaysWhatToDo breaks servers in the ways in which they break, and reads the step that
// fails, why, and what a person can do.
func TestCheckSaysWhatToDo(t *testing.T) {
	answer := func(status int, contentType, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(status)
			w.Write([]byte(body))
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	const closed = "http://127.0.0.1:1" // no test gets this port
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	secure.Config.ErrorLog = nil
	confused := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct{ ID json.RawMessage }
		json.NewDecoder(r.Body).Decode(&q)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(400)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[]}}`, q.ID)
	}))
	t.Cleanup(confused.Close)
	redirects := httptest.NewServer(http.RedirectHandler("/login", http.StatusFound))
	t.Cleanup(redirects.Close)
	script := func(s upstreamtest.Script) Config {
		c := upstreamtest.Command(t, s)
		return Config{Command: c.Command, Env: c.Env}
	}
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name                string
		config              Config
		steps, said, advice string
	}{
		{"well", script(upstreamtest.Script{}), "start handshake list ping", "", ""},
		{"no program", Config{Command: []string{"there-is-no-such-program"}}, "start", "not found", "install there-is-no-such-program"},
		{"no file", Config{Command: []string{"/there/is/no/program"}}, "start", "no such file", "install /there/is/no/program, or correct its path in command"},
		{"a relative path", Config{Command: []string{"./bin/notes-mcp"}}, "start", "no such file", "there is no " + here + "/bin/notes-mcp (relative to " + here + ", where Junction runs): write the full path into command, or set dir"},
		{"a relative path in dir", Config{Command: []string{"./bin/notes-mcp"}, Dir: "/"}, "start", "no such file", "there is no /bin/notes-mcp (relative to /): write the full path into command, or correct dir"},
		{"a path below ~", Config{Command: []string{"~/bin/notes-mcp"}}, "start", "no such file", "write its full path into command, because ~ is not expanded"},
		{"a folder below ~", Config{Command: []string{"sh"}, Dir: "~/repo"}, "start", "no such file", "write its full path into dir, because ~ is not expanded"},
		{"a relative folder", Config{Command: []string{"sh"}, Dir: "repo"}, "start", "no such file",
			"create the folder " + here + "/repo (repo is relative to " + here + ", where Junction runs), or write the full path into dir"},
		{"not to be run", Config{Command: []string{file}}, "start", "permission denied", "Junction may not run"},
		{"ends at once", Config{Command: []string{"sh", "-c", "echo Error: no token >&2; exit 3"}}, "start handshake", "exited with status 3: Error: no token", "run the command by hand"},
		{"lacks a variable", Config{Command: []string{"sh", "-c", "echo API_KEY environment variable is required >&2; exit 1"}}, "start handshake",
			"exited with status 1: API_KEY environment variable is required", "set env: { API_KEY: … }"},
		{"has no folder", Config{Command: []string{"sh"}, Dir: "/there/is/no/folder"}, "start", "no such file", "create the folder /there/is/no/folder"},
		{"rejects the token", Config{URL: answer(403, "text/plain", ""), Headers: map[string]string{"authorization": "Bearer canary-old"}}, "handshake",
			"403", "the server rejects the header Authorization"},
		{"says nothing", Config{Command: []string{"sleep", "100"}, ConnectTimeout: 200 * time.Millisecond}, "start handshake", "no answer within 200ms (connect_timeout)", "run the command by hand"},
		{"a banner", Config{Command: []string{"sh", "-c", "echo Welcome to the server; sleep 100"}, ConnectTimeout: 500 * time.Millisecond}, "start handshake",
			"wrote a line that is no message to its standard output: Welcome to the server", "start the server for MCP over stdio"},
		{"framed messages", Config{Command: []string{"sh", "-c", `printf 'Content-Length: 36\r\n\r\n{"jsonrpc":"2.0","id":1,"result":{}}'; sleep 100`}, ConnectTimeout: 500 * time.Millisecond},
			"start handshake", "wrote Content-Length before its messages", "update the server"},
		{"indented messages", Config{Command: []string{"sh", "-c", `printf '{\n  "jsonrpc": "2.0",\n  "id": 1\n}\n'; sleep 100`}, ConnectTimeout: 500 * time.Millisecond},
			"start handshake", "wrote JSON over several lines", "have the server write each message in one line"},
		{"cannot resolve a host", Config{Command: []string{"sh", "-c", "echo Error: getaddrinfo ENOTFOUND db.example.com >&2; exit 1"}}, "start handshake", "ENOTFOUND", "the server cannot resolve the host db.example.com"},
		{"no list", script(upstreamtest.Script{Rules: []upstreamtest.Rule{{Method: "tools/list", Result: []byte(`{}`)}}}), "start handshake list", "no tools", "the server violates the protocol"},
		{"no ping", script(upstreamtest.Script{Era: "legacy", Rules: []upstreamtest.Rule{{Method: "ping", Error: []byte(`{"code":-32601,"message":"x"}`)}}}),
			"start handshake list ping", "", ""},
		{"no listener", Config{URL: closed}, "handshake", "connection refused", "no server listens there"},
		{"no host", Config{URL: "http://there-is-no-such-host.invalid"}, "handshake", "there-is-no-such-host.invalid", ""},
		{"the sign-in of the operator is not enough", Config{URL: answer(403, "text/plain", ""), Auth: Auth{Mode: AuthOAuth}}, "handshake",
			"403", "the server requires authentication: sign in with an account that may use it; run: junction login up"},
		{"the sign-in of a user is not enough", Config{URL: answer(403, "text/plain", ""), Auth: Auth{Mode: AuthOAuthUser}}, "handshake",
			"403", "the server requires authentication: each user signs in to up with an account that may use it"},
		{"a page for signing in", Config{URL: redirects.URL, Auth: Auth{Mode: AuthOAuth}}, "handshake", "looks like a page for signing in",
			"the server requires authentication: sign in with an account that may use it; run: junction login up; if it does not offer MCP"},
		{"no credential but a user's", Config{URL: answer(401, "text/plain", ""), Auth: Auth{Mode: AuthOAuthUser}}, "handshake",
			"401", "the server requires authentication: each user signs in to up in the browser"},
		{"no credentials", Config{URL: answer(401, "text/plain", "who are you?")}, "handshake", "401 Unauthorized: who are you?", "the server requires authentication: set headers, such as Authorization: \"Bearer ${TOKEN}\", or replace an expired token; if the server has an OAuth sign-in, run: junction login"},
		{"another path", Config{URL: answer(404, "text/plain", "")}, "handshake", "404", "the path of url is probably wrong"},
		{"out of order", Config{URL: answer(503, "text/plain", "")}, "handshake", "503", "the server failed"},
		{"too many requests", Config{URL: answer(429, "text/plain", "slow down")}, "handshake", "429", "the server limits the rate of requests: Junction tries again by itself"},
		{"a result with status 400", Config{URL: confused.URL, Era: client.EraLegacy}, "handshake", "400 Bad Request, with a result in it", "the server violates HTTP"},
		{"a web page", Config{URL: answer(200, "text/html", "<title>Hello</title>")}, "handshake", "Hello", "the url leads to a web page"},
		{"no trust", Config{URL: secure.URL}, "handshake", "certificate", "this machine does not trust"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := new(Set).Check(t.Context(), "up", tt.config, Options{Log: authtest.Log(t), Credentials: &wallet{token: "canary-wallet"}})
			said := ""
			if strings.Contains(got.Advice, "headers") && tt.config.Auth.Mode != AuthNone {
				t.Errorf("the advice %q names headers, which the mode forbids", got.Advice)
			}
			if got.Err != nil {
				said = describe(got.Err)
			}
			if steps := strings.Join(got.stepNames(), " "); steps != tt.steps || !strings.Contains(said, tt.said) || (tt.said == "") != (said == "") ||
				!strings.HasPrefix(got.Advice, tt.advice) || (said != "") != (got.Advice != "") {
				t.Errorf("steps %q, error %q, advice %q; want %q, %q, %q", steps, said, got.Advice, tt.steps, tt.said, tt.advice)
			}
		})
	}
}

// TestTheStateHasWhatAServerWrites: the state of a command that writes a banner and no message has the
// line and the advice, as a check has. Clients do not read the line.
func TestTheStateHasWhatAServerWrites(t *testing.T) {
	var s Set
	t.Cleanup(s.Close)
	config := Config{Command: []string{"sh", "-c", "echo Welcome to the server; cat >/dev/null"}, ConnectTimeout: 300 * time.Millisecond}
	s.Apply(map[string]Config{"up": config}, Options{Log: authtest.Log(t)}, nil)
	u := s.All()[0]
	<-u.Met()
	if got := u.Status(); !strings.Contains(got.Err, "no connection within 300ms") || !strings.Contains(got.Err, ": Welcome to the server") ||
		!strings.HasPrefix(got.Advice, "start the server for MCP over stdio") {
		t.Errorf("the state has %q and the advice %q", got.Err, got.Advice)
	}
	var e *Error
	if _, err := u.Call(t.Context(), toolCall("echo", `{}`)); !errors.As(err, &e) {
		t.Fatalf("the call ended with %v", err)
	}
	for _, text := range []string{e.Public(), e.Clean(func(text string) string { return text })} {
		if strings.Contains(text, "Welcome") || !strings.Contains(text, "no message to its standard output") {
			t.Errorf("the client reads %q", text)
		}
	}
}

// TestAdviceWithoutANetwork: a name that cannot be looked up says nothing about the host.
func TestAdviceWithoutANetwork(t *testing.T) {
	for _, tt := range []struct {
		err  net.DNSError
		want string
	}{
		{net.DNSError{Err: "no such host", Name: "mcp.example.com", IsNotFound: true}, "the host does not exist: check url"},
		{net.DNSError{Err: "Temporary failure in name resolution", Name: "mcp.example.com", IsTemporary: true}, "this machine cannot look up names now: check its network and its name server"},
		{net.DNSError{Err: "i/o timeout", Name: "mcp.example.com", IsTimeout: true}, "this machine cannot look up names now: check its network and its name server"},
	} {
		if got := advice(fmt.Errorf("dial: %w", &tt.err), "up", &Config{URL: "https://mcp.example.com"}); got != tt.want {
			t.Errorf("the advice for %v is %q, want %q", &tt.err, got, tt.want)
		}
	}
}

// TestCheckEndsWithTheLimitOfAll: the limit of a diagnosis is shorter than that of a command. The
// operator reads the same advice.
func TestCheckEndsWithTheLimitOfAll(t *testing.T) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, errors.New("the check has ended"))
	defer cancel()
	got := new(Set).Check(ctx, "up", Config{Command: []string{"sleep", "100"}}, Options{Log: authtest.Log(t)})
	if got.Err == nil || got.Err.Error() != "no answer: the check has ended" || !strings.HasPrefix(got.Advice, "run the command by hand") {
		t.Errorf("error %v, advice %q", got.Err, got.Advice)
	}
}

// TestCheckEndsWithItsContext: a check ends when its caller gives it up.
func TestCheckEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, upstreamtest.Script{Rules: []upstreamtest.Rule{{Method: "tools/list", Skip: 1, Hang: true}}}, Config{})
		settle(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		got := r.check(ctx)
		if took := time.Since(began); got.Err == nil || took < 3*time.Second || took > 10*time.Second {
			t.Errorf("Check has ended after %v with %v, want an error after 3s", took, got.Err)
		}
		if s := r.Status(); s.State != StateReady {
			t.Errorf("the upstream is %v", s.State)
		}
	})
}

// TestCheckHasBothRejectedHandshakes: the report has the error of each handshake, without secrets.
func TestCheckHasBothRejectedHandshakes(t *testing.T) {
	_, url := upstreamtest.Start(t, upstreamtest.Script{Rules: []upstreamtest.Rule{
		{Method: "server/discover", Status: 403, Body: "canary-secret is not welcome"}, {Method: "initialize", Status: 502, Body: "bad gateway"}}})
	config := Config{URL: url, Headers: map[string]string{"Authorization": "Bearer canary-secret"}}
	got := new(Set).Check(t.Context(), "up", config, Options{Log: authtest.Log(t)})
	if said := describe(got.Err); !strings.Contains(said, "502 Bad Gateway: bad gateway") ||
		got.Other != "server/discover: the server answered 403 Forbidden: … is not welcome" {
		t.Errorf("the errors are %q and %q", said, got.Other)
	}
}

// TestAdviceAboutWhatListensThere: an https URL of a plain http port, and a server that closes each
// connection, have a next step of their own.
func TestAdviceAboutWhatListensThere(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	closes := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	}))
	defer closes.Close()
	for url, want := range map[string]string{
		strings.Replace(plain.URL, "http:", "https:", 1): "the server does not speak TLS at this port: write http:// in url",
		closes.URL: "the server or a proxy before it closed the connection without an answer",
	} {
		for _, way := range []client.Transport{"", client.TransportHTTP, client.TransportSSE} {
			got := new(Set).Check(t.Context(), "up", Config{URL: url, Transport: way}, Options{Log: authtest.Log(t)})
			if got.Err == nil || !strings.HasPrefix(got.Advice, want) {
				t.Errorf("%s by %q: error %v, advice %q, want %q", url, way, got.Err, got.Advice, want)
			}
		}
	}
}
