package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"junction/upstream/http1"
	"junction/upstream/jsonrpc"
)

// TestRefusedTokensAreShownOnce is a request whose tokens are refused: each is shown once, the body arrives whole
// each time, and the number of tries is bounded.
func TestRefusedTokensAreShownOnce(t *testing.T) {
	for _, secure := range []bool{false, true} { // our own transport, and that of the library
		t.Run(fmt.Sprint(secure), func(t *testing.T) {
			var mu sync.Mutex
			var shown, bodies []string
			good := ""
			handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				mu.Lock()
				defer mu.Unlock()
				shown, bodies = append(shown, strings.Join(r.Header["Authorization"], "|")), append(bodies, string(body))
				if r.Header.Get("Authorization") != "Bearer "+good {
					http.Error(w, "who are you?", http.StatusUnauthorized)
					return
				}
				sayJSON(w, 200, answer7)
			})
			var srv *httptest.Server
			options := HTTPOptions{}
			if secure {
				srv = httptest.NewTLSServer(handler)
				options.Pool = &Pool{Dial: dial, http: srv.Client().Transport.(*http.Transport)}
			} else {
				srv = httptest.NewServer(handler)
			}
			t.Cleanup(srv.Close)
			options.URL = srv.URL
			options.Token = func(_ context.Context, refused ...string) (string, error) {
				if len(refused) > 1 && refused[0] != "canary-stubborn-0" {
					return "", errSignIn
				}
				if slices.Contains(refused, "canary-stubborn-0") || good == "no user has it" {
					return fmt.Sprint("canary-stubborn-", len(refused)), nil
				}
				return fmt.Sprint("canary-token-", len(refused)), nil
			}
			w := mustHTTP(t, options, nil)
			req := &Request{Message: jsonrpc.Message{ID: "7", Method: "tools/call", Params: []byte(`{"long":"` + strings.Repeat("x", 48<<10) + `"}`)}}
			for _, test := range []struct {
				good string
				want []string
				err  func(error) bool
			}{
				{"canary-token-0", []string{"Bearer canary-token-0"}, func(err error) bool { return err == nil }},
				{"canary-token-1", []string{"Bearer canary-token-0", "Bearer canary-token-1"}, func(err error) bool { return err == nil }},
				{"none", []string{"Bearer canary-token-0", "Bearer canary-token-1"}, func(err error) bool { return errors.Is(err, errSignIn) }},
				{"no user has it", []string{"Bearer canary-stubborn-0", "Bearer canary-stubborn-1", "Bearer canary-stubborn-2"}, unauthorized},
			} {
				mu.Lock()
				shown, bodies, good = nil, nil, test.good
				mu.Unlock()
				if _, err := w.Call(short(t), req, nil); !test.err(err) {
					t.Errorf("%s: Call = %v", test.good, err)
				}
				if !slices.Equal(shown, test.want) {
					t.Errorf("%s: shown were %q, want %q", test.good, shown, test.want)
				}
				for _, body := range bodies {
					if body != bodies[0] || len(body) < 48<<10 {
						t.Errorf("%s: bodies of %d and %d bytes", test.good, len(bodies[0]), len(body))
					}
				}
			}
		})
	}
}

// TestRefusedHeadersAreReadAgain is a request whose headers are refused: it is sent once more with those that differ
// now, whole, and no more. A header of the caller stays, one that the request did not have is not added, and an error
// of the server has neither secret.
func TestRefusedHeadersAreReadAgain(t *testing.T) {
	for _, secure := range []bool{false, true} { // our own transport, and that of the library
		t.Run(fmt.Sprint(secure), func(t *testing.T) {
			var shown []string
			good := ""
			handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				shown = append(shown, fmt.Sprint(r.Header["X-Key"], r.Header["X-Caller"], r.Header["X-Called"], len(body) > 48<<10))
				if r.Header.Get("X-Key") != good {
					http.Error(w, "not "+r.Header.Get("X-Key"), http.StatusUnauthorized)
					return
				}
				sayJSON(w, 200, answer7)
			})
			var srv *httptest.Server
			options := HTTPOptions{Headers: map[string]string{"x-key": "canary-old-key", "X-Caller": "a", "X-Called": "b"},
				Callers: []http1.Field{{Name: "x-caller", Value: "own"}}, Forward: []string{"x-called"}}
			if secure {
				srv = httptest.NewTLSServer(handler)
				options.Pool = &Pool{Dial: dial, http: srv.Client().Transport.(*http.Transport)}
			} else {
				srv = httptest.NewServer(handler)
			}
			t.Cleanup(srv.Close)
			options.URL = srv.URL
			var now map[string]string
			asked := 0
			options.Others = func(_ context.Context, sent map[string]string) map[string]string {
				if asked++; sent["x-key"] != "canary-old-key" {
					t.Errorf("Others is asked for %v", sent)
				}
				return now
			}
			w := mustHTTP(t, options, nil)
			req := &Request{Called: true, Message: jsonrpc.Message{ID: "7", Method: "tools/call",
				Params: []byte(`{"long":"` + strings.Repeat("x", 48<<10) + `"}`)}}
			const old, other = "[canary-old-key] [own] [] true", "[canary-new-key] [own] [] true"
			renewed := map[string]string{"x-key": "canary-new-key", "X-Caller": "c", "X-Called": "d"}
			for _, test := range []struct {
				good  string
				now   map[string]string
				want  []string
				asked int
				works bool
			}{
				{"canary-old-key", renewed, []string{old}, 0, true},
				{"canary-new-key", renewed, []string{old, other}, 1, true},
				{"another", renewed, []string{old, other}, 1, false},
				{"another", map[string]string{"x-key": "canary-old-key"}, []string{old}, 1, false},
				{"another", nil, []string{old}, 1, false},
			} {
				shown, good, now, asked = nil, test.good, test.now, 0
				_, err := w.Call(short(t), req, nil)
				if (err == nil) != test.works || !test.works && (!unauthorized(err) || strings.Contains(err.Error(), "canary")) {
					t.Errorf("%+v: Call = %v", test, err)
				}
				if !slices.Equal(shown, test.want) || asked != test.asked {
					t.Errorf("%+v: shown were %q, and Others was asked %d times", test, shown, asked)
				}
			}
		})
	}
}

// TestTokenIsRenewedOnceInASession: a server that has lost a session refuses each token. One renewal
// shows that the token is not the reason. It is not renewed again for a while, and the sign-in stays, which
// a second refusal outside of a session would end.
func TestTokenIsRenewedOnceInASession(t *testing.T) {
	number := 1
	token := func(_ context.Context, refused ...string) (string, error) {
		if len(refused) > 1 {
			t.Error("the sign-in ends")
			return "", errSignIn
		}
		number += len(refused)
		return fmt.Sprint("canary-token-", number), nil
	}
	var shown []string
	srv, _ := legacyRemote(t, "s-1", func(w http.ResponseWriter, r *http.Request) {
		shown = append(shown, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer canary-token-"))
		w.Header().Set("WWW-Authenticate", "Bearer")
		w.WriteHeader(http.StatusUnauthorized)
	})
	w := mustHTTP(t, HTTPOptions{URL: srv.URL, Token: token, Doubted: func(error) {}}, nil)
	if _, err := w.Call(short(t), call("1", "initialize"), nil); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		after time.Duration
		shown string
	}{{0, "1 2"}, {0, "2"}, {freshToken - time.Minute/4, "2"}, {freshToken, "2 3"}} {
		w.renewals.at = w.renewals.at.Add(-row.after)
		shown = nil
		_, err := w.Call(short(t), call("7", "tools/call"), nil)
		if status, ok := errors.AsType[*StatusError](err); !ok || !status.Renewed || status.Status != 401 {
			t.Errorf("Call = %v, want a 401 to a renewed token", err)
		}
		if got := strings.Join(shown, " "); got != row.shown {
			t.Errorf("the server got the tokens %s, want %s", got, row.shown)
		}
	}
}

var errSignIn = errors.New("the person has to sign in")

func unauthorized(err error) bool {
	status, ok := errors.AsType[*StatusError](err)
	return ok && status.Status == http.StatusUnauthorized
}

// TestTokensStayAtTheirOrigin has a server send us elsewhere: the token does not go there, and to
// another path of the same origin it does.
func TestTokensStayAtTheirOrigin(t *testing.T) {
	var elsewhere []http.Header
	other := newRemote(t, func(w http.ResponseWriter, r *http.Request) {
		elsewhere = append(elsewhere, r.Header)
		sayJSON(w, 200, answer7)
	})
	var paths []string
	srv := newRemote(t, func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.URL.Path+" "+r.Header.Get("Authorization"))
		switch r.URL.Path {
		case "/mcp":
			http.Redirect(w, r, "/here", http.StatusTemporaryRedirect)
		case "/here":
			http.Redirect(w, r, other.URL+"/there", http.StatusPermanentRedirect)
		}
	})
	w := mustHTTP(t, HTTPOptions{URL: srv.URL + "/mcp", Token: func(context.Context, ...string) (string, error) { return "canary-secret", nil }}, nil)
	_, err := w.Call(short(t), &Request{Message: jsonrpc.Message{ID: "7", Method: "ping"}}, nil)
	if err == nil || !slices.Equal(paths, []string{"/mcp Bearer canary-secret", "/here Bearer canary-secret"}) || len(elsewhere) > 0 {
		t.Errorf("Call = %v; the server saw %q, the other one %v", err, paths, elsewhere)
	}
}

// TestTokensThatNobodyKnows is a request that nothing can be said for, and one whose token no
// header can carry: neither is sent, and the connection stays.
func TestTokensThatNobodyKnows(t *testing.T) {
	srv := newRemote(t, func(http.ResponseWriter, *http.Request) { t.Error("something was sent") })
	down := errors.New("the store is away")
	for _, token := range []func(context.Context, ...string) (string, error){
		func(context.Context, ...string) (string, error) { return "", &TokenError{Err: down} },
		func(context.Context, ...string) (string, error) { return "a\r\nb: c", nil },
		func(context.Context, ...string) (string, error) { return "", nil },
	} {
		w := mustHTTP(t, HTTPOptions{URL: srv.URL, Token: token}, nil)
		_, err := w.Call(short(t), &Request{Message: jsonrpc.Message{ID: "7", Method: "ping"}}, nil)
		if _, none := errors.AsType[*TokenError](err); !none || errors.Is(err, ErrNotSent) || w.Ended() {
			t.Errorf("Call = %v, want one about the token", err)
		}
	}
}
