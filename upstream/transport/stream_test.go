package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"junction/upstream/jsonrpc"
)

func TestHTTPResume(t *testing.T) {
	const note = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}`
	prime := "id: e1\nretry: 1\ndata:\n\n"
	for _, tt := range []struct {
		name  string
		req   *Request
		posts string   // the answer to the POST
		gets  []string // the answers to GETs; a number is a status
		want  string   // the error
		ids   string   // that were given back
	}{
		{"the rest comes later", call("7", "tools/call"), prime, []string{event("e2", note) + event("e3", answer7)}, "", "e1"},
		{"in several parts", call("7", "tools/call"), prime + event("e2", note), []string{event("e3", note), "503", event("e4", answer7)}, "", "e2 e3 e3"},
		{"nothing comes", call("7", "tools/call"), prime, []string{"", "", "", ""}, "the stream ended before the answer, and brought nothing in 4 attempts to take it up again", "e1 e1 e1 e1"},
		{"not offered", call("7", "tools/call"), prime, []string{"405"}, "the stream ended before the answer, and cannot be taken up again: the server answered 405 Method Not Allowed", "e1"},
		{"session gone", call("7", "tools/call"), prime, []string{"404"}, "the stream ended before the answer, and cannot be taken up again: the server answered 404 Not Found", "e1"},
		{"no ids", call("7", "tools/call"), event("", note), nil, "the stream ended before the answer: EOF", ""},
		{"modern", modernCall("7", "tools/call"), prime + event("e2", note), nil, "the stream ended before the answer: EOF", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var ids []string
			srv, _ := legacyRemote(t, "s-1", func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					sayEvents(w, tt.posts)
					return
				}
				if r.Header.Get("Mcp-Session-Id") != "s-1" || r.Header.Get("Accept") != "text/event-stream" || r.Header.Get("X-Api-Key") != "canary-k" {
					t.Errorf("got header %v", r.Header)
				}
				ids = append(ids, r.Header.Get("Last-Event-ID"))
				if len(ids) > len(tt.gets) {
					t.Errorf("got GET number %d", len(ids))
					return
				}
				status := 0
				if _, err := fmt.Sscanf(tt.gets[len(ids)-1], "%d", &status); err == nil {
					w.WriteHeader(status)
				} else {
					sayEvents(w, tt.gets[len(ids)-1])
				}
			})
			w := mustHTTP(t, HTTPOptions{URL: srv.URL, Headers: map[string]string{"X-Api-Key": "canary-k"}}, nil)
			if _, err := w.Call(short(t), call("1", "initialize"), nil); err != nil {
				t.Fatal(err)
			}
			m, err := w.Call(short(t), tt.req, func(m *jsonrpc.Message) {})
			if tt.want == "" && (err != nil || string(m.Append(nil)) != answer7) || tt.want != "" && fmt.Sprint(err) != tt.want {
				t.Errorf("got %v, %v; want %s", m, err, tt.want)
			}
			if errors.Is(err, ErrNotSent) || errors.Is(err, ErrSessionGone) {
				t.Errorf("got %v, which says that the request was not received", err)
			}
			if got := strings.Join(ids, " "); got != tt.ids {
				t.Errorf("got GETs after %s, want %s", got, tt.ids)
			}
			if w.Ended() != (tt.name == "session gone") {
				t.Errorf("ended: %v", w.Ended())
			}
		})
	}
}

// TestHTTPCancel guards that the server sees the end of the request's stream, which is the
// cancellation of the modern era.
func TestHTTPCancel(t *testing.T) {
	gaveUp := errors.New("gave up")
	for _, tt := range []struct {
		name string
		h    func(w http.ResponseWriter)
	}{
		{"before the header", func(w http.ResponseWriter) {}},
		{"in a stream", func(w http.ResponseWriter) { sayEvents(w, ": hi\n\n") }},
		{"in a body", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, "{")
			w.(http.Flusher).Flush()
		}},
		{"in a failure", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(500)
			io.WriteString(w, "{")
			w.(http.Flusher).Flush()
		}},
	} {
		for _, start := range []func(*httptest.Server){(*httptest.Server).Start, func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() }} {
			t.Run(tt.name, func(t *testing.T) {
				arrived, ended := make(chan bool, 1), make(chan bool, 1)
				srv := startRemote(t, func(w http.ResponseWriter, r *http.Request) {
					io.Copy(io.Discard, r.Body)
					tt.h(w)
					arrived <- true
					<-r.Context().Done()
					ended <- true
				}, start)
				w := mustHTTP(t, HTTPOptions{URL: srv.URL, Pool: trustingPool(t)}, nil)
				ctx, cancel := context.WithCancelCause(t.Context())
				go func() {
					<-arrived
					cancel(gaveUp)
				}()
				if _, err := w.Call(ctx, modernCall("7", "tools/call"), nil); err != gaveUp {
					t.Errorf("got error %v, want the cause", err)
				}
				<-ended
			})
		}
	}
}

func TestHTTPListen(t *testing.T) {
	const note = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
	const question = `{"jsonrpc":"2.0","id":1,"method":"roots/list","params":{"x":1.0}}`
	var gets atomic.Int32
	hang := make(chan bool, 1)
	srv, _ := legacyRemote(t, "s-1", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") != "text/event-stream" || r.Header.Get("Mcp-Session-Id") != "s-1" || r.Header.Get("Mcp-Protocol-Version") != "2025-11-25" {
			t.Errorf("got header %v", r.Header)
		}
		n, want := gets.Add(1), ""
		switch n {
		case 1:
			sayEvents(w, "retry: 1\n\n"+event("e1", note)+event("e2", answer7)) // a response has no place here
		case 2:
			want = "e2"
			w.WriteHeader(503)
		case 3:
			want = "e2"
			sayEvents(w, event("e3", question))
			hang <- true
			<-r.Context().Done()
		}
		if got := r.Header.Get("Last-Event-ID"); got != want {
			t.Errorf("GET %d: got Last-Event-ID %q, want %q", n, got, want)
		}
	})
	heard, gaps := make(chan string, 10), make(chan bool, 10)
	w := mustHTTP(t, HTTPOptions{URL: srv.URL}, func(m *jsonrpc.Message) { heard <- string(m.Append(nil)) })
	if _, err := w.Call(short(t), call("1", "initialize"), nil); err != nil {
		t.Fatal(err)
	}
	w.SetVersion("2025-11-25")
	w.Listen(func() { gaps <- true })
	<-gaps // what happened before there was a stream
	if got := <-heard; got != note {
		t.Errorf("got %s, want %s", got, note)
	}
	<-gaps
	if got := <-heard; got != question {
		t.Errorf("got %s, want %s", got, question)
	}
	<-hang
	w.Close()
	if len(gaps) != 0 || len(heard) != 0 {
		t.Errorf("got %d more gaps and %d more messages", len(gaps), len(heard))
	}
}

func TestHTTPListenRefused(t *testing.T) {
	for _, tt := range []struct {
		name string
		gets []int // statuses; 200 is a stream that ends
		gone bool
	}{
		{"405", []int{405}, false},
		{"401", []int{401}, false},
		{"501", []int{501}, false},
		{"400", []int{400}, false},
		{"404", []int{404}, true},
		{"501 later", []int{200, 503, 429, 501}, false},
		{"404 later", []int{200, 404}, true},
		{"400 later", []int{200, 400}, true},
		{"no events", []int{204}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var n atomic.Int32
			srv, _ := legacyRemote(t, "s-1", func(w http.ResponseWriter, r *http.Request) {
				i := int(n.Add(1)) - 1
				switch {
				case i >= len(tt.gets):
					t.Errorf("got GET number %d", i+1)
					w.WriteHeader(405)
				case tt.gets[i] == 200:
					sayEvents(w, "retry: 1\n\n")
				default:
					w.WriteHeader(tt.gets[i])
				}
			})
			w := mustHTTP(t, HTTPOptions{URL: srv.URL}, nil)
			if _, err := w.Call(short(t), call("1", "initialize"), nil); err != nil {
				t.Fatal(err)
			}
			w.listening(func() {}) // returns by itself
			if got := int(n.Load()); got != len(tt.gets) {
				t.Errorf("got %d GETs, want %d", got, len(tt.gets))
			}
			if w.Ended() != tt.gone || tt.gone && !errors.Is(w.Wait(), ErrSessionGone) {
				t.Errorf("ended: %v, want %v", w.Ended(), tt.gone)
			}
		})
	}
}

// TestRefusedStreamsRaiseDoubts: a GET that is refused as in a lost session does not end the session if
// the owner of the transport wants to find out itself. The owner hears of each refusal, a stream that was
// open is asked for again, and a call in flight gets its own answer.
func TestRefusedStreamsRaiseDoubts(t *testing.T) {
	for _, tt := range []struct {
		name   string
		gets   []int // statuses; 200 is a stream that ends
		doubts int
	}{
		{"404", []int{404}, 1},
		{"400", []int{400}, 0},
		{"404 later", []int{200, 404, 404, 501}, 2},
		{"400 later", []int{200, 400, 501}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var gets, doubts atomic.Int32
			called, refused := make(chan bool), make(chan bool)
			srv, _ := legacyRemote(t, "s-1", func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					close(called)
					<-refused
					w.WriteHeader(404)
					return
				}
				switch i := int(gets.Add(1)) - 1; {
				case i >= len(tt.gets):
					t.Errorf("got GET number %d", i+1)
					w.WriteHeader(405)
				case tt.gets[i] == 200:
					sayEvents(w, "retry: 1\n\n")
				default:
					w.WriteHeader(tt.gets[i])
				}
			})
			w := mustHTTP(t, HTTPOptions{URL: srv.URL, Doubted: func(error) { doubts.Add(1) }}, nil)
			if _, err := w.Call(short(t), call("1", "initialize"), nil); err != nil {
				t.Fatal(err)
			}
			answer := make(chan error, 1)
			go func() {
				_, err := w.Call(short(t), call("7", "tools/call"), nil)
				answer <- err
			}()
			<-called
			w.listening(func() {}) // returns by itself
			if got := int(gets.Load()); got != len(tt.gets) || int(doubts.Load()) != tt.doubts || w.Ended() {
				t.Errorf("%d GETs, %d doubts, ended: %v; want %d and %d, and no end", got, doubts.Load(), w.Ended(),
					len(tt.gets), tt.doubts)
			}
			close(refused)
			if err := <-answer; !errors.Is(err, ErrSessionGone) || !errors.Is(err, ErrNotSent) {
				t.Errorf("the call in flight = %v, want its own 404", err)
			}
			if !w.Ended() {
				t.Error("the answer 404 to a POST has not ended the session")
			}
		})
	}
}

// TestRefusedResumptionRaisesADoubt: the rest of a broken stream is refused with 404.
func TestRefusedResumptionRaisesADoubt(t *testing.T) {
	doubts := 0
	srv, _ := legacyRemote(t, "s-1", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			sayEvents(w, "retry: 1\nid: e1\ndata:\n\n")
			return
		}
		w.WriteHeader(404)
	})
	w := mustHTTP(t, HTTPOptions{URL: srv.URL, Doubted: func(error) { doubts++ }}, nil)
	if _, err := w.Call(short(t), call("1", "initialize"), nil); err != nil {
		t.Fatal(err)
	}
	_, err := w.Call(short(t), call("7", "tools/call"), nil)
	if err == nil || errors.Is(err, ErrNotSent) || doubts != 1 || w.Ended() {
		t.Errorf("Call = %v, with %d doubts, ended: %v; want one doubt, and a call that may have been carried out", err,
			doubts, w.Ended())
	}
}

// TestForeignMethodNotAllowedAfterAStream has a server answer 405 for a while after a stream that
// worked.
func TestForeignMethodNotAllowedAfterAStream(t *testing.T) {
	var n atomic.Int32
	srv, _ := legacyRemote(t, "s-1", func(w http.ResponseWriter, r *http.Request) {
		switch n.Add(1) {
		case 1:
			sayEvents(w, "retry: 1\n\n")
		case 5:
			sayEvents(w, event("e1", `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`))
		case 7:
			w.WriteHeader(404) // the session ends, and the test with it
		default:
			w.WriteHeader(405)
		}
	})
	heard := make(chan string, 2)
	w := mustHTTP(t, HTTPOptions{URL: srv.URL}, func(m *jsonrpc.Message) { heard <- m.Method })
	if _, err := w.Call(short(t), call("1", "initialize"), nil); err != nil {
		t.Fatal(err)
	}
	w.listening(func() {})
	if len(heard) != 1 || n.Load() != 7 {
		t.Errorf("%d messages in %d GETs, want one in 7", len(heard), n.Load())
	}
}

func TestPause(t *testing.T) {
	for _, tt := range []struct {
		p         position
		low, high time.Duration
	}{
		{position{}, time.Second, 3 * time.Second / 2},
		{position{tries: 2}, 4 * time.Second, 6 * time.Second},
		{position{tries: 1000}, 30 * time.Second, 45 * time.Second},
		{position{retry: 10 * time.Millisecond}, 10 * time.Millisecond, 15 * time.Millisecond},
		{position{retry: time.Minute, tries: 9}, time.Minute, 90 * time.Second},
		{position{retry: 24 * time.Hour}, 5 * time.Minute, 450 * time.Second},
		{position{least: 10 * time.Second}, 10 * time.Second, 10 * time.Second},
	} {
		for range 100 {
			if got := tt.p.pause(); got < tt.low || got > tt.high {
				t.Fatalf("%+v: got %v, want %v to %v", tt.p, got, tt.low, tt.high)
			}
		}
	}
}

// TestHTTPClose guards that Close breaks off everything and waits for it.
func TestHTTPClose(t *testing.T) {
	arrived := make(chan bool, 10)
	srv, _ := legacyRemote(t, "s-1", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodGet:
			sayEvents(w, ": hi\n\n")
		case r.URL.Path == "/":
			sayEvents(w, "id: e1\nretry: 60000\ndata:\n\n")
		}
		arrived <- true
		if r.Method == http.MethodGet {
			<-r.Context().Done()
		}
	})
	w := mustHTTP(t, HTTPOptions{URL: srv.URL}, nil)
	if _, err := w.Call(short(t), call("1", "initialize"), nil); err != nil {
		t.Fatal(err)
	}
	w.Listen(func() {})
	errs := make(chan error, 1)
	go func() {
		_, err := w.Call(t.Context(), call("7", "tools/call"), nil) // waits to take up its stream
		errs <- err
	}()
	<-arrived
	<-arrived
	w.Close()
	if err := <-errs; !errors.Is(err, ErrClosed) {
		t.Errorf("got error %v, want errClosed", err)
	}
	if err := w.Send(t.Context(), call("8", "x")); !errors.Is(err, ErrClosed) {
		t.Errorf("Send: got error %v, want errClosed", err)
	}
	w.Listen(func() { t.Error("listens after Close") })
	if err := w.Wait(); err != nil {
		t.Errorf("Wait: got %v, want nil", err)
	}
}

// slowEnd is a transport whose requests end only when they are cancelled, and then need until
// release is closed.
type slowEnd struct {
	arrived, ending, release chan bool
	ended                    atomic.Bool
}

func (s *slowEnd) RoundTrip(r *http.Request) (*http.Response, error) {
	s.arrived <- true
	<-r.Context().Done()
	s.ending <- true
	<-s.release
	s.ended.Store(true)
	return nil, r.Context().Err()
}

// TestHTTPCloseWaits guards that Close returns when what it broke off has ended, and not before.
func TestHTTPCloseWaits(t *testing.T) {
	for _, start := range []func(w *streamable){
		func(w *streamable) { w.Listen(func() {}) },
		func(w *streamable) { go w.Call(context.Background(), call("7", "tools/call"), nil) },
	} {
		s := &slowEnd{arrived: make(chan bool), ending: make(chan bool), release: make(chan bool)}
		rt := new(http.Transport)
		rt.RegisterProtocol("https", s)
		pool := &Pool{http: rt}
		pool.shared.Store(&secure{Transport: rt})
		w := mustHTTP(t, HTTPOptions{URL: "https://nowhere.invalid", Pool: pool}, nil)
		start(w)
		<-s.arrived
		closed := make(chan bool)
		go func() {
			w.Close()
			closed <- s.ended.Load()
		}()
		<-s.ending
		close(s.release)
		if !<-closed {
			t.Error("Close returned before what it broke off had ended")
		}
	}
}

// TestResumedStreamNeedsMemory: a large answer counts for its caller also if it comes on the
// stream that continues a broken one.
func TestResumedStreamNeedsMemory(t *testing.T) {
	text := strings.Repeat("x", 4<<20)
	srv, _ := legacyRemote(t, "s-1", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			sayEvents(w, "id: e1\nretry: 1\ndata:\n\n")
			return
		}
		sayEvents(w, event("e2", `{"jsonrpc":"2.0","id":7,"result":{"text":"`+text+`"}}`))
	})
	w := mustHTTP(t, HTTPOptions{URL: srv.URL}, nil)
	if _, err := w.Call(short(t), call("1", "initialize"), nil); err != nil {
		t.Fatal(err)
	}
	for left, want := range map[int64]error{16 << 20: nil, 1 << 20: errFull} {
		req, memory := call("7", "tools/call"), &thrifty{left: left}
		req.Memory = memory
		if _, err := w.Call(short(t), req, nil); !errors.Is(err, want) || memory.asked <= 1<<20 {
			t.Errorf("an answer of 4 MiB where there is memory for %d: %v, and %d bytes were asked for", left, err, memory.asked)
		}
	}
}
