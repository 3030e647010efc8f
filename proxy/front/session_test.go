package front

import (
	"context"
	"errors"
	"math"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"junction/auth/seal"
	"junction/proxy/budget"
	"junction/proxy/proxytest"
	"junction/proxy/streams"
	"junction/upstream/client"
)

// TestSessionKeepsNoHeader: a session that comes back holds its id, and not the header of the
// request that brought it, which may be many times as long.
func TestSessionKeepsNoHeader(t *testing.T) {
	key, err := seal.NewKey(seal.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	id, _ := newSessions(key.Box("test"), 10, Sessions{Idle: time.Hour, MaxAge: time.Hour}).create("2025-11-25", "a", budget.Account{Principal: "b"}, client.Profile{})
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

// TestSessionExpires: the first request after max_age ends the streams of the session, which would
// otherwise stay open without any message. A call in progress goes on.
func TestSessionExpires(t *testing.T) {
	key, err := seal.NewKey(seal.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ann := budget.Account{Principal: "ann"}
		all := newSessions(key.Box("test"), 10, Sessions{Idle: time.Hour, MaxAge: time.Hour})
		id, s := all.create("2025-11-25", "a", ann, client.Profile{})
		call, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		stream, end := context.WithCancel(t.Context())
		if err := errors.Join(s.register("1", cancel), s.join(new(streams.Listener), end)); err != nil {
			t.Fatal(err)
		}
		if got, err := all.find(id, ann); got != s || err != nil {
			t.Fatalf("before max_age: %v, %v", got, err)
		}
		time.Sleep(time.Hour + time.Second)
		if got, err := all.find(id, ann); got != nil || err != errUnknownSession {
			t.Errorf("after max_age: %v, %v", got, err)
		}
		if stream.Err() == nil || call.Err() != nil {
			t.Errorf("the stream has ended: %v, the call has ended: %v", stream.Err(), call.Err())
		}
	})
}

// TestDeletedSessionStaysDeletedWithALongerMaxAge: the operator raises max_age from one hour to two, and
// restarts. A session that was deleted near its end would now live for another hour. It stays deleted, also
// when a further deletion of the principal removes those that need not be remembered.
func TestDeletedSessionStaysDeletedWithALongerMaxAge(t *testing.T) {
	key, err := seal.NewKey(seal.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ann := budget.Account{Principal: "ann"}
		before := newSessions(key.Box("test"), 10, Sessions{Idle: time.Hour, MaxAge: time.Hour})
		id, _ := before.create("2025-11-25", "a", ann, client.Profile{})
		time.Sleep(50 * time.Minute)
		before.delete(id, ann.Principal, before.forgetAt(time.Now()))

		after := newSessions(key.Box("test"), 10, Sessions{Idle: time.Hour, MaxAge: 2 * time.Hour})
		after.deleted = before.deleted
		time.Sleep(20 * time.Minute)
		other, _ := after.create("2025-11-25", "a", ann, client.Profile{})
		after.delete(other, ann.Principal, after.forgetAt(time.Now()))
		if _, err := after.open(id, ann); err != errUnknownSession {
			t.Errorf("the deleted session is opened again: %v", err)
		}
	})
}

func TestReplayOfAnIDOutOfRange(t *testing.T) {
	s := &session{sealedSession: sealedSession{Version: "2025-11-25"}}
	r := s.record(proxytest.NewBudget(t, [budget.Quotas]int64{budget.Bytes: 1 << 20}).Grant(budget.Account{}, ""))
	r.Add([]byte(`{}`))
	for _, n := range []int{1, 2, math.MaxInt} {
		rec, number := s.recorded(r.Name + "-" + strconv.Itoa(n))
		if rec != r {
			t.Fatalf("the id with the number %d is of no record", n)
		}
		if events, ended, _ := rec.After(number); len(events) > 0 || ended {
			t.Errorf("after the number %d there are %q, ended: %t; want nothing yet", n, events, ended)
		}
	}
}
