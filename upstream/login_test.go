package upstream

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/upstream/client"
	"junction/upstream/transport"
	"junction/upstream/upstreamtest"
)

// operatorsToken is what the operator has at an upstream; "" is nothing.
type operatorsToken struct {
	mu           sync.Mutex
	token        string
	ended        bool
	everAsked    bool
	otherPersons []string
}

func (o *operatorsToken) set(token string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.token, o.ended = token, false
}

func (o *operatorsToken) Apply(_ context.Context, c Caller, refused ...string) (Credential, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.everAsked = true
	if c.User != "" {
		o.otherPersons = append(o.otherPersons, c.User)
	}
	if len(refused) > 0 {
		o.token, o.ended = "", true
	}
	if o.token == "" {
		return Credential{}, &LackError{Upstream: c.Upstream, Mode: c.Mode, Again: o.ended}
	}
	return Credential{Token: o.token}, nil
}

// TestOperatorSignsIn follows an upstream with auth.mode oauth: it is blocked and names the
// command, connects after the sign-in, and names the command again when the server has revoked the
// token. A server that asks for OAuth without auth.mode is told apart from one that refuses a
// header.
func TestOperatorSignsIn(t *testing.T) {
	for _, script := range []upstreamtest.Script{{Era: "legacy", Tools: tools("whoami")}, {Era: "modern", Tools: tools("whoami")}} {
		t.Run(script.Era, func(t *testing.T) {
			t.Parallel()
			s := upstreamtest.New(script)
			t.Cleanup(s.Close)
			handler := s.Handler()
			var mu sync.Mutex
			good := "Bearer first"
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				ok := r.Header.Get("Authorization") == good
				mu.Unlock()
				if !ok {
					w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="https://linear.example/place"`)
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				handler.ServeHTTP(w, r)
			}))
			t.Cleanup(srv.Close)
			operator := &operatorsToken{}
			states := make(chan State, 100)
			options := Options{Credentials: operator, Log: authtest.Log(t), Hooks: Hooks{
				StateChanged: func(c Change) { states <- c.State },
			}}
			until := func(want State) {
				t.Helper()
				for {
					select {
					case got := <-states:
						if got == want {
							return
						}
					case <-time.After(time.Minute):
						t.Fatalf("the state is never %v", want)
					}
				}
			}
			var set Set
			defer set.Close()
			config := Config{URL: srv.URL, Auth: Auth{Mode: AuthOAuth}}
			u := set.Apply(map[string]Config{"linear": config}, options, nil)[0]
			until(StateSignIn)
			if r := u.Check(t.Context()); !needsLogin(r.Err) || len(r.Steps) != 1 {
				t.Errorf("before the sign-in a check says %v", r.Err)
			}
			if text := u.Status().Err; text != "nobody has signed in yet; run: junction login linear" {
				t.Errorf("the reason is %q", text)
			}
			call := &Call{Call: client.Call{Method: "tools/call", Name: "whoami"}}
			_, err := u.Call(t.Context(), call)
			wantLogin(t, err, "nobody has signed in yet; run: junction login linear")

			operator.set("first")
			until(StateReady)
			if _, err := u.Call(t.Context(), call); err != nil || u.Catalog().Tool("whoami") == nil {
				t.Errorf("after the sign-in: %v", err)
			}
			if r := u.Check(t.Context()); r.Err != nil {
				t.Errorf("after the sign-in a check says %v", r.Err)
			}

			mu.Lock()
			good = "Bearer second"
			mu.Unlock()
			_, err = u.Call(t.Context(), call)
			wantLogin(t, err, "the sign-in has ended; run: junction login linear")
			until(StateSignIn)
			operator.set("second")
			until(StateReady)
			if _, err := u.Call(t.Context(), call); err != nil {
				t.Errorf("after the second sign-in: %v", err)
			}
			if operator.otherPersons != nil {
				t.Errorf("tokens of %q were asked for", operator.otherPersons)
			}

			unset := &operatorsToken{}
			options.Credentials, options.Hooks.StateChanged = unset, func(c Change) {
				if c.State == StateSignIn && !needsLogin(c.Err) {
					t.Errorf("an upstream without auth.mode needs a sign-in for %v", c.Err)
				}
				states <- c.State
			}
			var plain Set
			defer plain.Close()
			plain.Apply(map[string]Config{"linear": {URL: srv.URL}}, options, nil)
			until(StateSignIn)
			if unset.everAsked {
				t.Error("an upstream without auth.mode is given the operator's token")
			}
		})
	}
}

func wantLogin(t *testing.T, err error, text string) {
	t.Helper()
	e, own := errors.AsType[*Error](err)
	if !own || e.Kind != client.KindUnavailable || !needsLogin(err) || !strings.Contains(err.Error(), text) {
		t.Errorf("Call = %v, want an unavailable upstream: %s", err, text)
	}
}

// TestLackingScope: a call that needs another scope fails with the command to run. Other calls go on,
// and the upstream stays ready.
func TestLackingScope(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			challenge := `Bearer error="insufficient_scope", scope="files:write $(id) repo", resource_metadata="https://a.example/b"`
			_, url := upstreamtest.Start(t, upstreamtest.Script{Era: era, Tools: tools("read", "write"), Rules: []upstreamtest.Rule{
				{Method: "tools/call", Times: 1, Status: 403, Header: map[string]string{"WWW-Authenticate": challenge}},
			}})
			operator := &operatorsToken{}
			operator.set("first")
			ready := make(chan State, 10)
			var set Set
			defer set.Close()
			u := set.Apply(map[string]Config{"linear": {URL: url, Auth: Auth{Mode: AuthOAuth}}}, Options{Credentials: operator,
				Log: authtest.Log(t), Hooks: Hooks{StateChanged: func(c Change) { ready <- c.State }}}, nil)[0]
			for <-ready != StateReady {
			}
			_, err := u.Call(t.Context(), &Call{Call: client.Call{Method: "tools/call", Name: "write"}})
			wantLogin(t, err, "the sign-in lacks a scope of files:write, repo; run: junction login linear --scope files:write --scope repo")
			if _, err := u.Call(t.Context(), &Call{Call: client.Call{Method: "tools/call", Name: "read"}}); err != nil || u.Status().State != StateReady {
				t.Errorf("afterwards: %v, %v", err, u.Status().State)
			}
		})
	}
}

// needsLogin reports whether the operator has to sign in, by a LackError, or because the server asks
// for OAuth and auth.mode is not set.
func needsLogin(err error) bool {
	status, ok := errors.AsType[*transport.StatusError](err)
	return errors.As(err, new(*LackError)) || ok && status.WantsOAuth()
}
