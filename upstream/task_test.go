package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"junction/auth/authtest"
	"junction/upstream/client"
	"junction/upstream/pace"
	"junction/upstream/raw"
)

// TestTaskIsBegunOnce has the session end while a task is in progress: the call was received, and
// is not made again. Nor is it if the server answers 400 to all requests in the lost session.
func TestTaskIsBegunOnce(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusBadRequest} {
		t.Run(fmt.Sprint(status), func(t *testing.T) { taskIsBegunOnce(t, status) })
	}
}

func taskIsBegunOnce(t *testing.T, status int) {
	var begun, sessions atomic.Int64
	var lost atomic.Value // the session that is lost
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
		}
		if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&m) != nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		result, session := "", r.Header.Get("Mcp-Session-Id")
		if m.Method == "tasks/get" {
			lost.Store(session)
		}
		if session != "" && lost.Load() == session {
			http.Error(w, "no session", status)
			return
		}
		switch m.Method {
		case "initialize":
			w.Header().Set("Mcp-Session-Id", fmt.Sprint("s", sessions.Add(1)))
			result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"x","version":"1"}}`
		case "tools/list":
			result = `{"tools":[{"name":"pay","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}]}`
		case "tools/call":
			result = fmt.Sprintf(`{"task":{"taskId":"t%d","status":"working"}}`, begun.Add(1))
		default:
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	}))
	t.Cleanup(server.Close)
	listed := make(chan struct{}, 1)
	u := Start("x", Config{URL: server.URL, Era: client.EraLegacy}, Options{Log: authtest.Log(t), Hooks: Hooks{CatalogChanged: func(string) { pace.Wake(listed) }}})
	t.Cleanup(u.Close)
	<-listed
	params, err := raw.Parse([]byte(`{"name":"pay"}`))
	if err != nil {
		t.Fatal(err)
	}
	if r, err := u.Call(context.Background(), &Call{Call: client.Call{Method: "tools/call", Name: "pay", Params: params}, Era: client.EraLegacy}); err == nil {
		t.Errorf("the call succeeded with %s", r.Text())
	}
	if n := begun.Load(); n != 1 {
		t.Errorf("%d tasks were begun, want 1", n)
	}
}
