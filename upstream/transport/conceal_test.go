package transport

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"junction/auth/authtest"
	"junction/upstream/jsonrpc"
)

// TestErrorsShowNoSecrets: a server repeats in its errors the id of the session, and the token or the header
// Authorization. The errors have none of them, in each form of an answer and on both wires.
func TestErrorsShowNoSecrets(t *testing.T) {
	const session, token = "canary-session-1", "canary-token-1"
	words := "no " + session + " for " + token
	said := func(id string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32001,"message":%q,"data":{"words":%q}}}`, id, words, words)
	}
	configured := HTTPOptions{Headers: map[string]string{"Authorization": "Bearer " + token}}
	signedIn := HTTPOptions{Token: func(context.Context, ...string) (string, error) { return token, nil }, Doubted: func(error) {}}
	for name, answer := range map[string]http.HandlerFunc{
		"a text":           func(w http.ResponseWriter, _ *http.Request) { http.Error(w, words, http.StatusGone) },
		"a page":           func(w http.ResponseWriter, _ *http.Request) { sayPage(w, words) },
		"an error":         func(w http.ResponseWriter, _ *http.Request) { sayJSON(w, 200, said("7")) },
		"an error of HTTP": func(w http.ResponseWriter, _ *http.Request) { sayJSON(w, 400, said("7")) },
		"no id":            func(w http.ResponseWriter, _ *http.Request) { sayJSON(w, 400, said("null")) },
		"an event": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "data: %s\n\n", said("7"))
		},
		"401": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, words, http.StatusUnauthorized) },
		"a redirect": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "https://other.example/"+session)
			w.WriteHeader(http.StatusTemporaryRedirect)
		},
	} {
		for _, options := range []HTTPOptions{configured, signedIn} {
			t.Run(name, func(t *testing.T) {
				srv, _ := legacyRemote(t, session, answer)
				options.URL = srv.URL
				w := mustHTTP(t, options, nil)
				if _, err := w.Call(short(t), call("1", "initialize"), nil); err != nil {
					t.Fatal(err)
				}
				m, err := w.Call(short(t), call("7", "tools/call"), nil)
				mustConceal(t, m, err, session, token)
			})
		}
	}
	for _, inEvent := range []bool{true, false} {
		posted := make(chan struct{}, 1)
		srv := newRemote(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				if posted <- struct{}{}; inEvent {
					w.WriteHeader(http.StatusAccepted)
					return
				}
				http.Error(w, words, http.StatusGone)
				return
			}
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "event: endpoint\ndata: /messages?session=%s\n\n", session)
			w.(http.Flusher).Flush()
			select {
			case <-posted:
				if inEvent {
					fmt.Fprintf(w, "data: %s\n\n", said("7"))
					w.(http.Flusher).Flush()
				}
				<-r.Context().Done()
			case <-r.Context().Done():
			}
		})
		options := signedIn
		options.URL, options.Log = srv.URL, authtest.Log(t)
		w, err := OpenSSE(short(t), options, func(*jsonrpc.Message) {})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.Close() })
		m, err := w.Call(short(t), call("7", "tools/call"), nil)
		mustConceal(t, m, err, session, token)
	}
}

func sayPage(w http.ResponseWriter, title string) {
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(http.StatusInternalServerError)
	fmt.Fprintf(w, "<title>%s</title>", title)
}

// mustConceal checks that an error has none of the secrets.
func mustConceal(t *testing.T, m *jsonrpc.Message, err error, secrets ...string) {
	t.Helper()
	if err == nil && (m == nil || m.Error == nil) {
		t.Fatalf("Call = %v, %v; want an error", m, err)
	}
	text := fmt.Sprint(err)
	if err == nil {
		text = string(jsonrpc.AppendError(nil, "7", m.Error))
	}
	for _, secret := range secrets {
		if strings.Contains(text, secret) {
			t.Errorf("the error has the secret %s: %s", secret, text)
		}
	}
	if !strings.Contains(text, "…") && !strings.Contains(text, url.PathEscape("…")) {
		t.Errorf("the error does not show that something was removed: %s", text)
	}
}

// TestConcealedErrorsStayJSON: a session id is a number, without which the data of an error would be no JSON. A short id may be
// a part of other words, and stays.
func TestConcealedErrorsStayJSON(t *testing.T) {
	for id, want := range map[string]string{
		"1234567890": `{"code":-32001,"message":"no …","data":"…"}`,
		"session":    `{"code":-32001,"message":"no session","data":"session"}`,
	} {
		data := fmt.Sprintf("%q", id)
		if id == "1234567890" {
			data = `{"id":` + id + `}`
		}
		srv, _ := legacyRemote(t, id, func(w http.ResponseWriter, _ *http.Request) {
			sayJSON(w, 200, fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"no %s","data":%s}}`, id, data))
		})
		w := mustHTTP(t, HTTPOptions{URL: srv.URL}, nil)
		if _, err := w.Call(short(t), call("1", "initialize"), nil); err != nil {
			t.Fatal(err)
		}
		m, err := w.Call(short(t), call("7", "tools/call"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(jsonrpc.AppendError(nil, "7", m.Error)); !strings.Contains(got, want) {
			t.Errorf("the error is %s, want %s", got, want)
		}
	}
}

// TestErrorsShowNoSecretsHoweverTheyAreWritten: a server repeats the token in JSON that escapes characters, as PHP (/)
// and Go (&) write it, or in place of the id or the method of its answer. The error has none of it.
func TestErrorsShowNoSecretsHoweverTheyAreWritten(t *testing.T) {
	const token = "canary/token&1"
	for name, answer := range map[string]string{
		"data of PHP": `{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"no","data":{"sent":"canary\/token&1"}}}`,
		"data of Go":  `{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"no","data":{"sent":"canary/token\u00261"}}}`,
		"an id":       `{"jsonrpc":"2.0","id":"canary/token&1","result":{}}`,
		"a method":    `{"jsonrpc":"2.0","method":"canary/token&1"}`,
		"a batch":     `[{"jsonrpc":"2.0","id":"canary/token&1","result":{}}]`,
	} {
		t.Run(name, func(t *testing.T) {
			srv, _ := legacyRemote(t, "canary-session-1", func(w http.ResponseWriter, _ *http.Request) { sayJSON(w, 200, answer) })
			w := mustHTTP(t, HTTPOptions{URL: srv.URL, Headers: map[string]string{"Authorization": "Bearer " + token}}, nil)
			if _, err := w.Call(short(t), call("1", "initialize"), nil); err != nil {
				t.Fatal(err)
			}
			m, err := w.Call(short(t), call("7", "tools/call"), nil)
			text := fmt.Sprint(err)
			if err == nil && m != nil && m.Error != nil {
				var data any
				if err := json.Unmarshal(m.Error.Data, &data); err != nil {
					t.Fatal(err)
				}
				text = fmt.Sprint(data)
			}
			if strings.Contains(text, token) {
				t.Errorf("the error has the token: %s", text)
			}
		})
	}
}
