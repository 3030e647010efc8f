package client

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"junction/upstream/jsonrpc"
)

// TestServerRejectsInitialized: a server that answers notifications/initialized with an error status, and
// serves all the same, is used. What asks for a sign-in, or ends the session, is no such error.
func TestServerRejectsInitialized(t *testing.T) {
	for _, row := range []struct {
		status  int
		session string
		works   bool
	}{{202, "s", true}, {400, "s", true}, {500, "s", true}, {405, "", true}, {404, "", true}, {404, "s", false}, {401, "s", false}, {403, "", false}} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text, _ := io.ReadAll(r.Body)
			m, _ := jsonrpc.Parse(text, 10)
			switch {
			case m.IsNotification():
				w.WriteHeader(row.status)
			case m.Method == "initialize":
				if row.session != "" {
					w.Header().Set("Mcp-Session-Id", row.session)
				}
				w.Header().Set("Content-Type", "application/json")
				io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(m.ID)+
					`,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}`)
			}
		}))
		got, err := dialed(t.Context(), testDialer(t, target{URL: srv.URL, Era: EraLegacy}, nil))
		if works := err == nil && got == "legacy 2025-11-25"; works != row.works {
			t.Errorf("status %d in the session %q: %s, %v", row.status, row.session, got, err)
		}
		srv.Close()
	}
}
