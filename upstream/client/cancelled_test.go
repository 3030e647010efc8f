package client

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"junction/upstream/jsonrpc"
)

// cancel ends the subscriptions to a resource, or to the lists if uri is "", as a server does that has lost
// them. The id is as written by form.
func (s *teller) cancel(uri, form string) {
	s.mu.Lock()
	of := s.lists
	if uri != "" {
		of = s.uris[uri]
	}
	var ids []jsonrpc.ID
	for id := range of {
		ids = append(ids, id)
		delete(of, id)
		delete(s.open, id)
	}
	s.mu.Unlock()
	for _, id := range ids {
		s.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+form+`}}`, id))
	}
}

// heard returns what the client was told so far.
func (d *told) heard() (updates []string, changes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.updates), d.changes
}

// TestServerCancelsASubscription: a subscription that the server has ended by notifications/cancelled is
// opened again after the pause of a broken one, and what it was about counts as changed. Other
// subscriptions go on.
func TestServerCancelsASubscription(t *testing.T) {
	for _, form := range []string{`%s`, `"%s"`, `%s.0`} {
		synctest.Test(t, func(t *testing.T) {
			s := &teller{}
			d := subscribers(t, s)
			d.subscribe(t, "note:1")
			d.subscribe(t, "note:2")
			d.cost()
			s.cancel("note:1", form)
			synctest.Wait()
			if updates, changes := d.heard(); len(updates) > 0 || changes > 1 {
				t.Errorf("updates %q and %d changes before the subscription was opened again", updates, changes)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			updates, before := d.heard()
			if !slices.Equal(updates, []string{"note:1"}) {
				t.Errorf("after the end of its subscription, note:1 counts as changed: %q", updates)
			}
			if messages, _ := d.cost(); messages != 1 {
				t.Errorf("the server got %d messages, want one subscription again", messages)
			}
			s.cancel("", form)
			time.Sleep(time.Minute)
			synctest.Wait()
			if _, changes := d.heard(); changes != before+1 {
				t.Errorf("the lists count as changed %d times, want once", changes-before)
			}
			d.updates = nil
			s.updated("note:1")
			s.updated("note:2")
			s.renamed()
			if synctest.Wait(); !slices.Equal(slices.Sorted(slices.Values(d.updates)), []string{"note:1", "note:2"}) || d.changes != before+2 {
				t.Errorf("the subscriptions that were opened again get %q and %d changes", d.updates, d.changes-before-1)
			}
		})
	}
}

// ignoring is an Observer that counts ignored notifications.
type ignoring struct {
	Observer
	count int
}

func (o *ignoring) Ignored(string) { o.count++ }

// TestServerMayNotCancelACall: notifications/cancelled of a modern server about anything but a subscription
// is ignored, and counted. The number may be that of something of its own.
func TestServerMayNotCancelACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, o := &teller{}, new(ignoring)
		d := subscribers(t, s)
		d.conn.observed = observed{Observer: o, upstream: "x"}
		f := &flight{id: "777", peer: new(hearing)}
		d.conn.track(f)
		for _, params := range []string{`{"requestId":777}`, `{"requestId":"x"}`, `{"requestId":null}`, `{}`, `[1]`} {
			s.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":` + params + `}`)
		}
		s.say(`{"jsonrpc":"2.0","method":"notifications/cancelled"}`)
		if d.cost(); o.count != 6 || d.conn.flights["777"] != f {
			t.Errorf("%d notifications were counted, want 6", o.count)
		}
		time.Sleep(time.Minute)
		if messages, _ := d.cost(); messages > 0 {
			t.Errorf("the server got %d messages", messages)
		}
	})
}
