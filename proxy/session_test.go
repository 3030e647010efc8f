package proxy

import (
	"testing"
	"time"
	"unsafe"

	"junction/auth/seal"
	"junction/proxy/budget"
	"junction/upstream"
)

// TestSessionKeepsNoHeader: a session that comes back holds its id, and not the header of the
// request that brought it, which may be many times as long.
func TestSessionKeepsNoHeader(t *testing.T) {
	key, err := seal.NewKey(seal.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	id, _ := newSessions(key.Box("test"), 10, Sessions{Idle: time.Hour, MaxAge: time.Hour}).create("2025-11-25", "a", budget.Account{Principal: "b"}, upstream.Profile{})
	header := "Mcp-Session-Id: " + id
	sent := header[len(header)-len(id):]
	after := newSessions(key.Box("test"), 10, Sessions{Idle: time.Hour, MaxAge: time.Hour})
	sealed, err := after.open(sent, budget.Account{Principal: "b"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := after.load(sent, sealed, budget.Account{Principal: "b"}); err != nil {
		t.Fatal(err)
	}
	for kept := range after.byID {
		if kept != id || unsafe.StringData(kept) == unsafe.StringData(sent) {
			t.Error("the header is kept")
		}
	}
}
