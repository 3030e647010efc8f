package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"junction/auth/authtest"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// TestProbe: a server is asked as the proxy asks it, and its session is ended. A server that answers
// initialize may ask for a sign-in at a list.
func TestProbe(t *testing.T) {
	challenge := func(status int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("WWW-Authenticate", text)
			w.WriteHeader(status)
		}
	}
	const bearer = `Bearer scope="read", resource_metadata=https://mcp.example/place`
	for _, test := range []struct {
		name                       string
		initialize, list           http.HandlerFunc // nil answers
		asks, later, fails, inform bool
		sessions                   int
	}{
		{"asks at once", challenge(401, bearer), nil, true, false, true, true, 0},
		{"asks at once, without a challenge", challenge(401, ""), nil, true, false, true, false, 0},
		{"asks for the list", nil, challenge(401, bearer), true, false, true, true, 1},
		{"asks by 403", nil, challenge(403, bearer), true, false, true, true, 1},
		{"refuses unknown programs", challenge(403, ""), nil, false, false, true, false, 0},
		{"asks nothing", nil, nil, false, false, false, false, 1},
		{"is not there now", challenge(503, ""), nil, false, true, true, false, 0},
		{"limits the rate", challenge(429, ""), nil, false, true, true, false, 0},
		{"a challenge in a good answer", nil, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("WWW-Authenticate", bearer)
			w.Header().Set("Content-Type", "application/json")
			var m struct{ ID json.RawMessage }
			json.NewDecoder(r.Body).Decode(&m)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[]}}`, m.ID)
		}, false, false, false, false, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			var mu sync.Mutex
			var opened, ended int
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				if r.Header.Get("Authorization") != "" {
					t.Error("a token was sent")
				}
				if r.Method != "POST" {
					if r.Method == "DELETE" {
						ended++
					}
					w.WriteHeader(http.StatusMethodNotAllowed)
					return
				}
				if accept := r.Header.Get("Accept"); !strings.Contains(accept, "application/json") ||
					!strings.Contains(accept, "text/event-stream") {
					t.Errorf("Accept is %q", accept)
				}
				var m struct {
					ID     json.RawMessage
					Method string
				}
				body, _ := io.ReadAll(r.Body)
				json.Unmarshal(body, &m)
				r.Body = io.NopCloser(bytes.NewReader(body))
				w.Header().Set("Content-Type", "application/json")
				switch {
				case m.Method == "server/discover" && test.initialize == nil:
					w.WriteHeader(http.StatusNotFound)
				case m.Method == "server/discover", m.Method == "initialize" && test.initialize != nil:
					test.initialize(w, r)
				case m.Method == "initialize":
					opened++
					w.Header().Set("Mcp-Session-Id", "one")
					fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},`+
						`"serverInfo":{"name":"s","version":"1"}}}`, m.ID)
				case m.Method == "tools/list" && test.list != nil:
					test.list(w, r)
				case m.Method == "tools/list":
					fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[]}}`, m.ID)
				default:
					w.WriteHeader(http.StatusAccepted)
				}
			}))
			defer s.Close()
			p := Probe(t.Context(), Options{URL: s.URL + "/mcp", Version: "0", Log: authtest.Log(t)})
			if p.Asks() != test.asks || p.Later() != test.later || (p.Err != nil) != test.fails {
				t.Errorf("it is %+v: asks %v, later %v", p, p.Asks(), p.Later())
			}
			if informed := p.Metadata == "https://mcp.example/place" && p.Scope == "read"; informed != test.inform {
				t.Errorf("it is %+v", p)
			}
			mu.Lock()
			defer mu.Unlock()
			if opened != test.sessions || ended != test.sessions {
				t.Errorf("%d sessions were opened, and %d ended", opened, ended)
			}
		})
	}
}
