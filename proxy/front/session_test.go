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
		before.delete(id, ann.Principal, before.forgetAt(time.Now(), &sealedSession{})) // as an earlier version

		after := newSessions(key.Box("test"), 10, Sessions{Idle: time.Hour, MaxAge: 2 * time.Hour})
		after.deleted = before.deleted
		time.Sleep(20 * time.Minute)
		other, _ := after.create("2025-11-25", "a", ann, client.Profile{})
		after.delete(other, ann.Principal, after.forgetAt(time.Now(), &sealedSession{}))
		if _, err := after.open(id, ann); err != errUnknownSession {
			t.Errorf("the deleted session is opened again: %v", err)
		}
	})
}

// TestALargerMaxAgeRevivesNoSession: the operator raises max_age and restarts, or two members have different ones
// during a rollout. A session that has expired by the one with which it began stays expired, and a deleted one stays
// deleted, wherever it was deleted. A smaller max_age counts at once.
func TestALargerMaxAgeRevivesNoSession(t *testing.T) {
	key, err := seal.NewKey(seal.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	const short, long, deletion = time.Hour, 10 * time.Hour, 30 * time.Minute
	for name, test := range map[string]struct {
		began, deleted, later time.Duration // max_age of the process; deleted is 0 for a session that is not
		at                    time.Duration // of the request, after the begin; a deletion is at 30 minutes
		lives                 bool
	}{
		"it has expired":                          {short, 0, long, 2 * time.Hour, false},
		"it has not":                              {long, 0, long, 2 * time.Hour, true},
		"max_age is smaller now":                  {long, 0, short, 2 * time.Hour, false},
		"it was deleted":                          {short, short, long, 90 * time.Minute, false},
		"the deletion is forgotten":               {short, short, long, 5 * time.Hour, false},
		"it was deleted where max_age is smaller": {long, short, long, 9 * time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ann := budget.Account{Principal: "ann"}
				with := func(maxAge time.Duration) *sessions {
					return newSessions(key.Box("test"), 10, Sessions{Idle: time.Hour, MaxAge: maxAge})
				}
				id, _ := with(test.began).create("2025-11-25", "a", ann, client.Profile{})
				later := with(test.later)
				time.Sleep(deletion)
				if test.deleted > 0 {
					here := with(test.deleted)
					sealed, err := here.open(id, ann)
					if err != nil {
						t.Fatal(err)
					}
					until := here.forgetAt(time.Now(), &sealed)
					here.delete(id, ann.Principal, until)
					if time.Now().Add(test.at - deletion).Before(until) { // else no process and no database has it
						later.deleted = here.deleted
					}
				}
				time.Sleep(test.at - deletion)
				if _, err := later.open(id, ann); (err == nil) != test.lives {
					t.Errorf("the request is answered %v", err)
				}
			})
		})
	}
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
