package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"junction/auth/authtest"
	"junction/upstream/jsonrpc"
)

// oldRemote is a server of HTTP+SSE: GET /sse is a stream that begins with first, then carries what
// is sent to say and ends when that is closed. POSTs go to post.
type oldRemote struct {
	*remote
	say  chan string
	gone chan bool // gets a value when a stream has ended
}

func newOld(t testing.TB, first string, post func(o *oldRemote, w http.ResponseWriter, m jsonrpc.Message)) *oldRemote {
	t.Helper()
	o := &oldRemote{say: make(chan string), gone: make(chan bool, 10)}
	o.remote = newRemote(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Api-Key") != "canary-k" {
			t.Errorf("%s: got header %v, want the headers of the configuration", r.Method, r.Header)
		}
		switch r.Method {
		case http.MethodGet:
			defer func() { o.gone <- true }()
			sayEvents(w, first)
			for {
				select {
				case s, ok := <-o.say:
					if !ok {
						return
					}
					io.WriteString(w, s)
					w.(http.Flusher).Flush()
				case <-r.Context().Done():
					return
				}
			}
		case http.MethodPost:
			if r.URL.RequestURI() != "/messages?session=1" || r.Header.Get("Content-Type") != "application/json" {
				t.Errorf("got POST %s with %v", r.URL, r.Header)
			}
			post(o, w, mustParse(t, r))
		}
	})
	return o
}

func mustSSE(t testing.TB, o *oldRemote, in Receiver) *sse {
	t.Helper()
	if in == nil {
		in = func(m *jsonrpc.Message) {
			if !m.IsResponse() { // a late one
				t.Errorf("unexpected message %s", m.Append(nil))
			}
		}
	}
	ctx, cancel := context.WithCancel(short(t))
	defer cancel() // it is for opening only
	w, err := OpenSSE(ctx, HTTPOptions{URL: o.URL + "/sse", Headers: map[string]string{"X-Api-Key": "canary-k"}, MessageLimit: 1 << 16, Log: authtest.Log(t)}, in)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		mustBeGone(t)
	})
	return w.(*sse)
}

const named = "event: endpoint\ndata: /messages?session=1\n\n"

// echo accepts a message, and answers a request on the stream.
func echo(o *oldRemote, w http.ResponseWriter, m jsonrpc.Message) {
	w.WriteHeader(http.StatusAccepted)
	w.(http.Flusher).Flush()
	if m.IsRequest() {
		o.say <- event("", `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":`+string(m.Params)+`}`)
	}
}

func TestSSEOpen(t *testing.T) {
	foreign := newRemote(t, func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the other server got %s with %v", r.Method, r.Header)
	})
	for _, tt := range []struct {
		name string
		h    http.HandlerFunc
		to   string // the endpoint
		err  string
	}{
		{"absolute", func(w http.ResponseWriter, r *http.Request) {
			sayEvents(w, "event: endpoint\ndata: http://"+r.Host+"/x/y?z\n\n")
			<-r.Context().Done()
		}, "/x/y?z", ""},
		{"path", func(w http.ResponseWriter, r *http.Request) {
			sayEvents(w, ": hi\n\ndata: {}\n\nevent: endpoint\ndata: /m?s=1\n\n")
			<-r.Context().Done()
		}, "/m?s=1", ""},
		{"relative", func(w http.ResponseWriter, r *http.Request) {
			sayEvents(w, "event: endpoint\ndata: m\n\n")
			<-r.Context().Done()
		}, "/a/m", ""},
		{"query", func(w http.ResponseWriter, r *http.Request) {
			sayEvents(w, "event: endpoint\ndata: ?s=1\n\n")
			<-r.Context().Done()
		}, "/a/sse?s=1", ""},
		{"another origin", func(w http.ResponseWriter, r *http.Request) {
			sayEvents(w, "event: endpoint\ndata: "+foreign.URL+"/m?s=secret\n\n")
		},
			"", "invalid answer: the server names an endpoint of another origin, " + foreign.URL},
		{"another scheme", func(w http.ResponseWriter, r *http.Request) {
			sayEvents(w, "event: endpoint\ndata: https://"+r.Host+"\n\n")
		},
			"", "invalid answer: the server names an endpoint of another origin, https://"},
		{"no host", func(w http.ResponseWriter, r *http.Request) { sayEvents(w, "event: endpoint\ndata: file:x\n\n") },
			"", "invalid answer: the endpoint that the server names is no URL"},
		{"no URL", func(w http.ResponseWriter, r *http.Request) { sayEvents(w, "event: endpoint\ndata: http://[\n\n") },
			"", "invalid answer: the endpoint that the server names is no URL"},
		{"no endpoint", func(w http.ResponseWriter, r *http.Request) { sayEvents(w, "data: {}\n\n") },
			"", "invalid answer: the stream ended before the event that names the endpoint: EOF"},
		{"405", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(405) }, "", "the server answered 405 Method Not Allowed"},
		{"a page", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "<html><title>Hi</title>") }, "",
			"the server answered 200 OK with text/html and no message: Hi"},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, foreign.URL, http.StatusTemporaryRedirect)
		}, "",
			"the server redirects to " + foreign.URL + "; put that into url"},
		{"endless", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			pour(w, []byte("event: "+strings.Repeat("x", 1000)+"\n"))
		}, "", "enough"},
		{"silent", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "", "enough"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			arrived := make(chan bool, 1)
			srv := newRemote(t, func(w http.ResponseWriter, r *http.Request) {
				arrived <- true
				tt.h(w, r)
			})
			ctx, cancel := context.WithCancelCause(short(t))
			defer cancel(nil)
			if tt.err == "enough" {
				go func() {
					<-arrived
					cancel(errors.New("enough"))
				}()
			}
			w, err := OpenSSE(ctx, HTTPOptions{URL: srv.URL + "/a/sse", Headers: map[string]string{"Authorization": "Bearer canary-t"}, Log: authtest.Log(t)}, func(*jsonrpc.Message) {})
			if tt.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tt.err) {
					t.Errorf("got error %v, want %s", err, tt.err)
				}
				mustBeGone(t)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, want := w.(*sse).endpoint.String(), srv.URL+tt.to; got != want {
				t.Errorf("got endpoint %s, want %s", got, want)
			}
			w.Close()
			mustBeGone(t)
			if err := w.Wait(); err != nil {
				t.Errorf("Wait: got %v, want nil", err)
			}
		})
	}
}

func TestSSECall(t *testing.T) {
	o := newOld(t, named, echo)
	heard := make(chan string, 10)
	w := mustSSE(t, o, func(m *jsonrpc.Message) { heard <- string(m.Append(nil)) })
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 20 {
				id, params := fmt.Sprint(100*i+j), fmt.Sprintf(`{"i": %d.0}`, i)
				m, err := w.Call(short(t), &Request{Message: jsonrpc.Message{ID: jsonrpc.ID(id), Method: "tools/call", Params: []byte(params)}}, nil)
				if err != nil || string(m.ID) != id || string(m.Result) != params {
					t.Errorf("got %v, %v; want the id %s and %s", m, err, id, params)
				}
			}
		})
	}
	wg.Wait()
	if err := w.Send(short(t), &Request{Message: jsonrpc.Message{Method: "notifications/initialized"}}); err != nil {
		t.Error(err)
	}
	if n := o.conns.Load(); n > 60 {
		t.Errorf("got %d connections for 160 calls of 8 at once", n)
	}
}

// TestSSESameID guards that a request of the server's is not taken for the answer to the request of
// ours that has the same id.
func TestSSESameID(t *testing.T) {
	const question = `{"jsonrpc":"2.0","id":7,"method":"roots/list"}`
	heard := make(chan string, 10)
	o := newOld(t, named, func(o *oldRemote, w http.ResponseWriter, m jsonrpc.Message) {
		w.WriteHeader(202)
		w.(http.Flusher).Flush()
		if m.IsRequest() {
			o.say <- "data: no message\n\nevent: other\ndata: {}\n\n" + event("", question) + event("", strings.Replace(answer7, `:7`, `:8`, 1))
			o.say <- event("", answer7)
		}
	})
	w := mustSSE(t, o, func(m *jsonrpc.Message) { heard <- string(m.Append(nil)) })
	m, err := w.Call(short(t), call("7", "tools/call"), nil)
	if err != nil || string(m.Append(nil)) != answer7 {
		t.Errorf("got %v, %v; want %s", m, err, answer7)
	}
	if got := <-heard; got != question {
		t.Errorf("got %s, want %s", got, question)
	}
}

// TestSSEOddAnswers: an answer whose id has another form, or that is in a batch of one or behind a byte
// order mark, reaches its call.
func TestSSEOddAnswers(t *testing.T) {
	odd := []string{strings.Replace(answer7, `:7`, `:"7"`, 1), strings.Replace(answer7, `:7`, `:7.0`, 1), "[" + answer7 + "]", "\ufeff" + answer7}
	o := newOld(t, named, func(o *oldRemote, w http.ResponseWriter, m jsonrpc.Message) {
		w.WriteHeader(202)
		o.say <- event("", odd[0])
		odd = odd[1:]
	})
	w := mustSSE(t, o, nil)
	for range len(odd) {
		if m, err := w.Call(short(t), call("7", "tools/call"), nil); err != nil || string(m.Result) == "" {
			t.Errorf("got %v, %v", m, err)
		}
	}
}

func TestSSEPostHeldBack(t *testing.T) {
	o := newOld(t, named, func(o *oldRemote, w http.ResponseWriter, m jsonrpc.Message) {
		o.say <- event("", answer7)
		<-o.say // never: closed at the end of the test
	})
	w := mustSSE(t, o, nil)
	if _, err := w.Call(short(t), call("7", "tools/call"), nil); err != nil {
		t.Errorf("got %v, want the answer that came before the response to the POST", err)
	}
	w.Close()
	close(o.say)
}

func TestSSEPostFails(t *testing.T) {
	for _, tt := range []struct {
		status int
		gone   bool
	}{{400, false}, {404, true}, {500, false}} {
		t.Run(fmt.Sprint(tt.status), func(t *testing.T) {
			o := newOld(t, named, func(o *oldRemote, w http.ResponseWriter, m jsonrpc.Message) { http.Error(w, "no", tt.status) })
			w := mustSSE(t, o, nil)
			_, err := w.Call(short(t), call("7", "tools/call"), nil)
			status := new(StatusError)
			if !errors.As(err, &status) || status.Status != tt.status {
				t.Errorf("%d: got error %v", tt.status, err)
			}
			if got := errors.Is(err, ErrSessionGone) && errors.Is(err, ErrNotSent); got != tt.gone || w.Ended() != tt.gone {
				t.Errorf("%d: got error %v and ended %v; the session is gone: %v", tt.status, err, w.Ended(), tt.gone)
			}
			if tt.gone {
				<-o.gone // the stream is of no use
				if err := w.Wait(); !errors.Is(err, ErrSessionGone) || !strings.HasSuffix(err.Error(), http.StatusText(tt.status)) {
					t.Errorf("Wait: got %v, want errSessionGone without the words, which are the caller's", err)
				}
			}
		})
	}
}

func TestSSEStreamEnds(t *testing.T) {
	for _, tt := range []struct{ name, last, want string }{
		{"cleanly", "", "the event stream ended: EOF"},
		{"within an event", "data: {", "the event stream ended: unexpected EOF"},
		{"too large", "data: " + strings.Repeat("x", 1<<17), "the event stream ended: event too large"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := newOld(t, named, func(o *oldRemote, w http.ResponseWriter, m jsonrpc.Message) {
				w.WriteHeader(202)
				w.(http.Flusher).Flush()
				o.say <- tt.last
				close(o.say)
			})
			w := mustSSE(t, o, nil)
			_, err := w.Call(short(t), call("7", "tools/call"), nil)
			if !errors.Is(err, errStreamEnded) || errors.Is(err, ErrNotSent) || !strings.HasSuffix(fmt.Sprint(err), tt.want) {
				t.Errorf("got error %v, want that the stream ended before the answer: %s", err, tt.want)
			}
			if err := w.Wait(); fmt.Sprint(err) != tt.want {
				t.Errorf("Wait: got %v, want %s", err, tt.want)
			}
			if _, err := w.Call(short(t), call("8", "tools/call"), nil); !errors.Is(err, ErrNotSent) {
				t.Errorf("the next call: got %v, want errNotSent", err)
			}
			if err := w.Send(short(t), call("8", "tools/call")); !errors.Is(err, ErrNotSent) {
				t.Errorf("Send: got %v, want errNotSent", err)
			}
		})
	}
}

// TestSSEInvalidAnswer guards that a response that cannot be read fails its call, and not the
// transport.
func TestSSEInvalidAnswer(t *testing.T) {
	o := newOld(t, named, func(o *oldRemote, w http.ResponseWriter, m jsonrpc.Message) {
		w.WriteHeader(202)
		w.(http.Flusher).Flush()
		o.say <- event("", `{"jsonrpc":"2.0","id":`+string(m.ID)+`}`)
	})
	w := mustSSE(t, o, nil)
	for range 2 {
		if _, err := w.Call(short(t), call("7", "tools/call"), nil); !errors.Is(err, ErrInvalid) {
			t.Errorf("got error %v, want errInvalid", err)
		}
	}
}

func TestSSECancel(t *testing.T) {
	gaveUp := errors.New("gave up")
	arrived := make(chan bool)
	o := newOld(t, named, func(o *oldRemote, w http.ResponseWriter, m jsonrpc.Message) {
		if m.ID == "9" {
			echo(o, w, m)
			return
		}
		w.WriteHeader(202)
		w.(http.Flusher).Flush()
		arrived <- true
	})
	w := mustSSE(t, o, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-arrived
		cancel(gaveUp)
	}()
	if _, err := w.Call(ctx, call("7", "tools/call"), nil); err != gaveUp {
		t.Errorf("got error %v, want the cause", err)
	}
	o.say <- event("", answer7) // too late, and dropped
	if _, err := w.Call(short(t), call("9", "tools/call"), nil); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

func TestSSEClose(t *testing.T) {
	arrived := make(chan bool)
	o := newOld(t, named, func(o *oldRemote, w http.ResponseWriter, m jsonrpc.Message) {
		w.WriteHeader(202)
		w.(http.Flusher).Flush()
		arrived <- true
	})
	w := mustSSE(t, o, nil)
	errs := make(chan error, 1)
	go func() {
		_, err := w.Call(t.Context(), call("7", "tools/call"), nil)
		errs <- err
	}()
	<-arrived
	w.Close()
	<-o.gone
	if err := <-errs; !errors.Is(err, ErrClosed) {
		t.Errorf("got error %v, want errClosed", err)
	}
	if err := w.Wait(); err != nil {
		t.Errorf("Wait: got %v, want nil", err)
	}
}

func TestSSENotSent(t *testing.T) {
	t.Parallel() // the call waits for the connection of the stream
	o := newOld(t, named, echo)
	w := mustSSE(t, o, nil)
	w.plain.Address = "127.0.0.1:1" // no listener
	if _, err := w.Call(short(t), call("7", "tools/call"), nil); !errors.Is(err, ErrNotSent) {
		t.Errorf("got error %v, want errNotSent", err)
	}
	if w.Ended() {
		t.Error("the wire is over although its stream is open")
	}
	down := httptest.NewServer(nil)
	down.Close()
	if _, err := OpenSSE(short(t), HTTPOptions{URL: down.URL, Log: authtest.Log(t)}, nil); !errors.Is(err, ErrNotSent) {
		t.Errorf("openSSE: got error %v, want errNotSent", err)
	}
}
