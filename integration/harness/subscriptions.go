package harness

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// ListChanges reads the list_changed notifications of a stream until there are n.
func ListChanges(t *testing.T, stream *Answering, n int) (list []jsonrpc.Message) {
	t.Helper()
	for len(list) < n {
		m, ok := stream.Next(t)
		if !ok {
			t.Fatalf("the stream ended: %v", stream.Err)
		}
		if m.Method != "notifications/tools/list_changed" {
			t.Fatalf("the stream has %s, want tools/list_changed", m.Append(nil))
		}
		list = append(list, m)
	}
	return list
}

// HearTools opens the stream on which the client learns of changed tools.
func (c *Talker) HearTools(t *testing.T) *Answering {
	t.Helper()
	if c.Era == client.EraLegacy {
		return c.Get(t)
	}
	a, _ := Subscribe(t, c, `"tools"`, `{"toolsListChanged":true}`)
	return a
}

// Subscribe begins a subscription, and returns it with its acknowledgement.
func Subscribe(t *testing.T, c *Talker, id, notifications string) (a *Answering, honoured string) {
	t.Helper()
	a = c.Begin(t, Query{ID: id, Method: "subscriptions/listen", Params: `"notifications":` + notifications})
	m, ok := a.Next(t)
	if !ok || m.Method != "notifications/subscriptions/acknowledged" {
		t.Fatalf("the subscription begins with %s, %v, want its acknowledgement", m.Append(nil), a.Err)
	}
	if got := Member(m.Params, "_meta", "io.modelcontextprotocol/subscriptionId"); got != id {
		t.Errorf("subscriptionId = %s, want %s", got, id)
	}
	return a, Member(m.Params, "notifications")
}

// EventStream is an open stream of events.
type EventStream struct {
	Header http.Header
	Reader *jsonrpc.EventReader
	Drop   context.CancelFunc // hangs up
}

// Read returns the next event, for which it is patient.
func (s *EventStream) Read() (jsonrpc.Event, error) {
	defer time.AfterFunc(Patience, s.Drop).Stop()
	return s.Reader.Next()
}

// MustOpen opens the stream on which the client hears of changes: GET in the legacy era,
// subscriptions/listen in the modern one. The test's end closes it.
func (c *Client) MustOpen(t testing.TB, changes ...HeaderChange) *EventStream {
	t.Helper()
	verb, body := http.MethodGet, ""
	if c.era == client.EraModern {
		c.serial++
		var own []HeaderChange
		verb = http.MethodPost
		body, own = c.Request(strconv.Itoa(c.serial), "subscriptions/listen",
			`{"notifications":{"toolsListChanged":true}}`)
		changes = append(own, changes...)
	}
	ctx, cancel := context.WithCancel(t.Context())
	late := time.AfterFunc(Patience, cancel)
	r, err := c.Send(ctx, verb, body, changes...)
	late.Stop()
	if err != nil {
		cancel()
		t.Fatalf("open a stream: %v", err)
	}
	t.Cleanup(func() {
		cancel()
		r.Body.Close()
	})
	if r.StatusCode != http.StatusOK || r.Header.Get("Content-Type") != "text/event-stream" {
		text, _ := io.ReadAll(io.LimitReader(r.Body, 4096))
		t.Fatalf("open a stream: HTTP %d %s", r.StatusCode, text)
	}
	return &EventStream{r.Header, jsonrpc.NewEventReader(r.Body, 64<<20), cancel}
}

// Get opens the listening stream of a legacy client, and waits until it is open.
func (c *Talker) Get(t *testing.T, header ...string) *Answering {
	t.Helper()
	p := c.send(t, "", func(ctx context.Context) *http.Request {
		r, err := http.NewRequestWithContext(ctx, "GET", c.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "text/event-stream")
		c.Own(r.Header)
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		return r
	})
	select {
	case <-p.begun:
	case <-Patient(t).Done():
		t.Fatal("the stream does not open")
	}
	if p.Status != http.StatusOK {
		t.Fatalf("GET = status %d, want a stream", p.Status)
	}
	return p
}

// WantNotes takes so many notifications of a stream, in any order, and compares them: each is the
// method and the uri, if it has one.
func WantNotes(t *testing.T, a *Answering, want ...string) {
	t.Helper()
	var got []string
	for range want {
		m, ok := a.Next(t)
		if !ok {
			t.Fatalf("the stream ended after %q, want %q", got, want)
		}
		if a.ID != "" && Member(m.Params, "_meta", "io.modelcontextprotocol/subscriptionId") != a.ID {
			t.Errorf("%s on the subscription %s", m.Append(nil), a.ID)
		}
		note := strings.TrimPrefix(m.Method, "notifications/")
		if uri, err := raw.Get(m.Params, "uri"); len(m.Params) > 0 && err == nil {
			s, _ := raw.String(uri)
			note += " " + s
		}
		got = append(got, note)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("heard %q, want %q", got, want)
	}
}

// WantSilentEnd ends the proxy's streams, and wants nothing more to have been on them.
func WantSilentEnd(t *testing.T, j *Junction, streams ...*Answering) {
	t.Helper()
	j.Shutdown()
	for _, a := range streams {
		for {
			m, ok := a.Next(t)
			if !ok {
				break
			}
			if !m.IsResponse() {
				t.Errorf("the stream %q has further %s", a.ID, m.Append(nil))
			}
		}
	}
}

// Next returns the next message on a stream.
func (s *EventStream) Next(t *testing.T) string {
	t.Helper()
	for {
		v, err := s.Read()
		if err != nil {
			t.Fatalf("read the stream: %v", err)
		}
		if len(v.Data) > 0 {
			return string(v.Data)
		}
	}
}
