package client

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/transport"
)

// teller is a modern server on stdio that only tells of changes.
type teller struct {
	transport.Duplex
	in transport.Receiver

	// as the official Go SDK 1.8: one subscription of a connection for each resource and each list,
	// and the end of any forgets the lists
	forgets bool
	mute    bool            // as the official TypeScript SDK 2: it does not answer the end of a subscription
	most    int             // subscriptions at once; 0 is any number
	bad     map[string]bool // resources that it refuses

	mu       sync.Mutex
	lists    map[jsonrpc.ID]bool            // that hear of changed lists
	uris     map[string]map[jsonrpc.ID]bool // that hear of a resource
	open     map[jsonrpc.ID]chan struct{}   // closed when the subscription has ended
	messages int                            // received
	bytes    int
}

func (s *teller) Ended() bool { return false }

func (s *teller) Call(ctx context.Context, req *transport.Request, _ func(*jsonrpc.Message)) (*jsonrpc.Message, error) {
	ended := make(chan struct{})
	refusal, acknowledgement := s.subscribe(req, ended)
	if refusal != nil {
		return refusal, nil
	}
	s.say(acknowledgement)
	select {
	case <-ended:
		return &jsonrpc.Message{ID: req.ID, Result: []byte(`{"resultType":"complete"}`)}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *teller) subscribe(req *transport.Request, ended chan struct{}) (refusal *jsonrpc.Message, acknowledgement string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages, s.bytes = s.messages+1, s.bytes+len(req.Params)
	refusal = &jsonrpc.Message{ID: req.ID, Error: &jsonrpc.Error{Code: -32603, Message: "no"}}
	if s.most > 0 && len(s.open) >= s.most {
		return refusal, ""
	}
	wanted, _ := raw.Get(req.Params, "notifications")
	var quoted []byte
	if v, err := raw.Get(wanted, "resourceSubscriptions"); err == nil {
		quoted = v
	}
	list, _ := raw.Elements(quoted)
	for _, v := range list {
		if uri, _ := raw.String(v); s.bad[uri] {
			if s.forgets {
				clear(s.lists)
			}
			return refusal, ""
		}
	}
	s.open[req.ID] = ended
	if v, _ := raw.Get(wanted, "toolsListChanged"); string(v) == "true" {
		if s.forgets {
			clear(s.lists)
		}
		s.lists[req.ID] = true
	}
	for _, v := range list {
		uri, _ := raw.String(v)
		if s.uris[uri] == nil || s.forgets {
			s.uris[uri] = map[jsonrpc.ID]bool{}
		}
		s.uris[uri][req.ID] = true
	}
	return nil, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"resourceSubscriptions":%s},%s}}`,
		append(append([]byte(nil), quoted...), "[]"[min(2, len(quoted)):]...), subscriptionOf(req.ID))
}

func subscriptionOf(id jsonrpc.ID) string {
	return fmt.Sprintf(`"_meta":{"io.modelcontextprotocol/subscriptionId":%s}`, id)
}

// Send takes the end of a subscription.
func (s *teller) Send(_ context.Context, m *transport.Request) error {
	v, _ := raw.Get(m.Params, "requestId")
	id := jsonrpc.ID(v)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages, s.bytes = s.messages+1, s.bytes+len(m.Params)
	ended, there := s.open[id]
	if !there {
		return nil
	}
	delete(s.open, id)
	delete(s.lists, id)
	if s.forgets {
		clear(s.lists)
	}
	for _, of := range s.uris {
		delete(of, id)
	}
	if !s.mute {
		close(ended)
	}
	return nil
}

func (s *teller) Wait() error  { return nil }
func (s *teller) Close() error { return nil }

func (s *teller) say(text string) {
	m, err := jsonrpc.Parse([]byte(text), raw.DefaultDepth)
	if err != nil {
		panic(err)
	}
	s.in(&m)
}

// updated tells of a resource.
func (s *teller) updated(uri string) {
	s.mu.Lock()
	var to []jsonrpc.ID
	for id := range s.uris[uri] {
		to = append(to, id)
	}
	s.mu.Unlock()
	for _, id := range to {
		s.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":%q,%s}}`, uri, subscriptionOf(id)))
	}
}

// renamed tells of changed tools.
func (s *teller) renamed() {
	s.mu.Lock()
	var to []jsonrpc.ID
	for id := range s.lists {
		to = append(to, id)
	}
	s.mu.Unlock()
	for _, id := range to {
		s.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{` + subscriptionOf(id) + `}}`)
	}
}

// cost returns what the server has received since it was last called.
func (s *teller) cost() (messages, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	messages, bytes = s.messages, s.bytes
	s.messages, s.bytes = 0, 0
	return messages, bytes
}

// told is subscribers, and what they are told.
type told struct {
	*teller
	wanted  map[string]int // subscribers by resource
	conn    *modernConn
	mu      sync.Mutex // held while wanted changes
	updates []string
	changes int // of the lists
}

// subscribers connects subscribers with a server.
func subscribers(t *testing.T, s *teller) *told { return subscribersOver(t, s, s) }

// subscribersOver connects subscribers with a server over another transport.
func subscribersOver(t *testing.T, s *teller, over transport.Transport) *told {
	s.lists, s.uris, s.open = map[jsonrpc.ID]bool{}, map[string]map[jsonrpc.ID]bool{}, map[jsonrpc.ID]chan struct{}{}
	d := &told{teller: s, wanted: map[string]int{}, conn: &modernConn{self: []byte(`{"name":"junction","version":"1"}`)}}
	updated := func(uri string, _ func(string) bool) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.updates = append(d.updates, uri)
	}
	missed := func(uris []string) {
		for _, uri := range uris {
			d.mu.Lock()
			wanted := d.wanted[uri] > 0
			d.mu.Unlock()
			if wanted {
				updated(uri, nil)
			}
		}
	}
	d.conn.init(authtest.Log(t), Hooks{Missed: missed, Updated: updated, Changed: func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.changes++
	}}, EraModern)
	capabilities, err := raw.Parse([]byte(`{"tools":{"listChanged":true},"resources":{"subscribe":true}}`))
	if err != nil {
		t.Fatal(err)
	}
	d.conn.info.Capabilities = capabilities
	s.in = d.conn.receive
	d.conn.start(over)
	d.conn.Watch()
	synctest.Wait()
	d.conn.listed.Store(true)
	s.cost()
	t.Cleanup(func() { d.conn.Close() })
	return d
}

// all returns the resources with subscribers.
func (d *told) all() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.wanted))
}

// subscribe adds a subscriber to each of the resources.
func (d *told) subscribe(t *testing.T, uris ...string) {
	t.Helper()
	added := slices.DeleteFunc(slices.Clone(uris), func(uri string) bool { return d.wanted[uri] > 0 })
	if len(added) > 0 {
		accepted, err := d.conn.Follow(t.Context(), func() []string { return append(d.all(), added...) }, added, nil)
		for _, uri := range added {
			if !slices.Contains(accepted, uri) {
				t.Fatalf("%s is not followed: %v", uri, err)
			}
		}
	}
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, uri := range uris {
		d.wanted[uri]++
	}
}

// leave removes a subscriber from each of the resources.
func (d *told) leave(t *testing.T, uris ...string) {
	t.Helper()
	var gone []string
	d.mu.Lock()
	for _, uri := range uris {
		if d.wanted[uri]--; d.wanted[uri] == 0 {
			delete(d.wanted, uri)
			gone = append(gone, uri)
		}
	}
	d.mu.Unlock()
	if len(gone) > 0 {
		if _, err := d.conn.Follow(t.Context(), d.all, nil, gone); err != nil {
			t.Fatal(err)
		}
	}
}

// hears has the server tell of a resource and of its lists, and wants this alone to be told.
func (d *told) hears(t *testing.T, uri string) {
	t.Helper()
	synctest.Wait()
	before, changes := len(d.updates), d.changes
	d.teller.updated(uri)
	d.renamed()
	if got := d.updates[before:]; !slices.Equal(got, []string{uri}) {
		t.Errorf("after a change of %s told %q", uri, got)
	}
	if d.changes == changes {
		t.Error("a change of the tools was not told")
	}
}

// tellers are the servers that subscribers must be right for.
func tellers(t *testing.T, f func(t *testing.T, s *teller)) {
	for _, test := range []struct {
		name string
		s    *teller
	}{
		{"as the specification says", &teller{}},
		{"as the Go SDK", &teller{forgets: true}},
		{"as the TypeScript SDK", &teller{mute: true, most: 1024}},
	} {
		t.Run(test.name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { f(t, test.s) }) })
	}
}

// TestForeignSubscribersOnStdioCostTheSame has a thousand subscribers come one after the other and
// go again.
func TestForeignSubscribersOnStdioCostTheSame(t *testing.T) {
	tellers(t, func(t *testing.T, s *teller) {
		const many = 1000
		d := subscribers(t, s)
		began := time.Now()
		uri := func(i int) string { return fmt.Sprintf("file:///%04d", i) }
		for i := range many {
			d.subscribe(t, uri(i))
			if n, size := s.cost(); n != 1 || size > 500 {
				t.Fatalf("subscriber %d cost %d messages of %d bytes, want 1 of at most 500", i, n, size)
			}
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("they waited %v for the server", took)
		}
		if len(d.updates) > 0 || d.changes > 0 {
			t.Errorf("%d false updates, and the lists were read %d times", len(d.updates), d.changes)
		}
		d.hears(t, uri(0))
		d.hears(t, uri(many-1))
		d.changes = 0
		for i := range many - 1 {
			d.leave(t, uri(i))
			if n, _ := s.cost(); n != 0 {
				t.Fatalf("the server received %d messages when a subscriber went", n)
			}
		}
		before := len(d.updates)
		d.teller.updated(uri(5))
		if len(d.updates) > before {
			t.Errorf("told %q without a subscriber", d.updates[before:])
		}
		d.subscribe(t, uri(7)) // as it is not too late for
		if n, _ := s.cost(); n != 0 {
			t.Errorf("a subscriber who came back at once cost %d messages", n)
		}
		settle(listenTidy + listenEnd)
		if n, size := s.cost(); n > many+1 || size > 100*many {
			t.Errorf("the end of %d subscriptions cost %d messages of %d bytes", many-2, n, size)
		}
		if len(s.open) != 3 || len(d.updates) > before || d.changes > 1 {
			t.Errorf("%d subscriptions are left, want 3; %d false updates; the lists were read %d times", len(s.open), len(d.updates)-before, d.changes)
		}
		d.hears(t, uri(7))
		d.hears(t, uri(many-1))
	})
}

// TestForeignEndOfSubscriptionsOnStdio has subscribers come and go. The first end shows whether the
// server answers; later ones do not wait.
func TestForeignEndOfSubscriptionsOnStdio(t *testing.T) {
	tellers(t, func(t *testing.T, s *teller) {
		d := subscribers(t, s)
		d.subscribe(t, "file:///stays")
		for i := range 10 {
			d.subscribe(t, "file:///goes")
			d.leave(t, "file:///goes")
			settle(listenTidy)
			began := time.Now()
			d.subscribe(t, fmt.Sprintf("file:///%d", i))
			if took := time.Since(began); took > 0 && (i > 0 || took > listenEnd) {
				t.Errorf("a subscriber waited %v for the end of another subscription", took)
			}
			d.hears(t, "file:///stays")
		}
		if len(d.updates) != 10 {
			t.Errorf("told %q", d.updates)
		}
	})
}

// TestForeignServerWithFewSubscriptions has a server refuse more than some subscriptions: then they
// are put together, and only then something may be missed.
func TestForeignServerWithFewSubscriptions(t *testing.T) {
	for _, most := range []int{1, 2, 10} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := subscribers(t, &teller{most: most})
				changes := 0
				for i := range 40 {
					before := len(d.updates)
					d.subscribe(t, fmt.Sprintf("file:///%d", i))
					if len(d.updates) > before {
						changes++
					}
				}
				if atMost := 40 / max(1, most-1); changes > atMost {
					t.Errorf("something may have been missed %d times, want at most %d", changes, atMost)
				}
				for i := range 40 {
					d.hears(t, fmt.Sprintf("file:///%d", i))
				}
			})
		})
	}
}

// TestForeignRefusedResource subscribes to resources that the server refuses. The others are
// followed, and hear of nothing.
func TestForeignRefusedResource(t *testing.T) {
	for _, forgets := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d := subscribers(t, &teller{forgets: forgets, bad: map[string]bool{"file:///bad": true}})
			d.subscribe(t, "file:///a")
			d.subscribe(t, "file:///b")
			d.leave(t, "file:///b")
			settle(2 * listenTidy)
			uris := []string{"file:///bad"}
			for i := range 20 {
				uris = append(uris, fmt.Sprintf("file:///%d", i))
			}
			accepted, err := d.conn.Follow(t.Context(), func() []string { return append(d.all(), uris...) }, uris, nil)
			if err == nil {
				t.Error("the server has refused one, and that is not reported")
			}
			for _, uri := range uris {
				if followed := slices.Contains(accepted, uri); followed != (uri != "file:///bad") {
					t.Errorf("%s is followed: %v", uri, followed)
				}
			}
			if len(d.updates) > 0 {
				t.Errorf("told %q", d.updates)
			}
			settle(2 * listenTidy)
			d.hears(t, "file:///a")
		})
	}
}

// TestForeignSubscriptionsThatAreMostlyUnwanted has most of the resources of one subscription, as
// it is opened on a new connection, be unwanted.
func TestForeignSubscriptionsThatAreMostlyUnwanted(t *testing.T) {
	tellers(t, func(t *testing.T, s *teller) {
		d := subscribers(t, s)
		var uris []string
		for i := range 200 {
			uris = append(uris, fmt.Sprintf("file:///%d/x", i))
		}
		d.subscribe(t, append(uris, "file:///dir", "file:///dir/part")...)
		d.leave(t, uris[0])
		d.leave(t, "file:///dir/part")
		d.teller.updated(uris[0])
		if len(d.updates) > 0 {
			t.Errorf("told %q without a subscriber", d.updates)
		}
		d.teller.updated("file:///dir/part")
		if !slices.Equal(d.updates, []string{"file:///dir/part"}) {
			t.Errorf("told %q, want the part of a resource that is wanted", d.updates)
		}
		d.leave(t, uris[1:]...)
		settle(2*listenTidy + listenEnd)
		if n := len(s.uris[uris[5]]); n > 0 {
			t.Errorf("the server follows a resource without a subscriber")
		}
		d.updates = nil
		d.hears(t, "file:///dir")
	})
}
