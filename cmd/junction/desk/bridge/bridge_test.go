package bridge

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/transport"
)

const (
	hello   = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","x":1}}`
	ready   = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	welcome = `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}}}}`
	meta    = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`
)

// server is a scripted endpoint. Its fields are guarded by mu.
type server struct {
	mu       sync.Mutex
	received []string // messages, with the number of their connection, and headers
	conns    []*fake
	// answer answers requests; nil is an endpoint that nothing listens at
	answer func(ctx context.Context, f *fake, req *transport.Request, on func(*jsonrpc.Message)) (string, error)
}

// fake is one connection to the endpoint.
type fake struct {
	*server
	number int
	in     transport.Receiver
	gap    func()
	once   sync.Once
	gone   chan struct{}
}

func (s *server) open(in transport.Receiver) transport.Transport {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &fake{server: s, number: len(s.conns), in: in, gone: make(chan struct{})}
	s.conns = append(s.conns, f)
	return f
}

func (f *fake) note(req *transport.Request) {
	text := fmt.Sprintf("%d %s", f.number, req.Append(nil))
	for _, h := range req.Header {
		text += " " + h.Name + ":" + h.Value
	}
	f.received = append(f.received, text)
}

func (f *fake) Call(ctx context.Context, req *transport.Request, on func(*jsonrpc.Message)) (*jsonrpc.Message, error) {
	f.mu.Lock()
	answer := f.server.answer
	if answer != nil {
		f.note(req)
	}
	f.mu.Unlock()
	if answer == nil {
		return nil, errors.Join(transport.ErrNotSent, syscall.ECONNREFUSED)
	}
	text, err := answer(ctx, f, req, on)
	if err != nil {
		return nil, err
	}
	m, err := jsonrpc.Parse([]byte(text), 100)
	return &m, err
}

func (f *fake) Send(_ context.Context, m *transport.Request) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.note(m)
	return nil
}

func (f *fake) Listen(gap func()) <-chan struct{} {
	f.mu.Lock()
	f.gap = gap
	f.mu.Unlock()
	gap()
	return nil
}

func (f *fake) end()              { f.once.Do(func() { close(f.gone) }) }
func (f *fake) Close() error      { f.end(); return nil }
func (f *fake) Wait() error       { <-f.gone; return transport.ErrSessionGone }
func (f *fake) PerRequest() bool  { return true }
func (f *fake) HasSession() bool  { return true }
func (f *fake) SetVersion(string) {}
func (f *fake) Ended() bool {
	select {
	case <-f.gone:
		return true
	default:
		return false
	}
}

// set replaces the script.
func (s *server) set(answer func(ctx context.Context, f *fake, req *transport.Request, on func(*jsonrpc.Message)) (string, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// seen returns the received messages since the last call.
func (s *server) seen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := strings.Join(s.received, "\n")
	s.received = nil
	return text
}

// stage is a running bridge in a synctest bubble.
type stage struct {
	t          *testing.T
	server     *server
	in         *io.PipeWriter
	out, notes authtest.Text
	done       chan error
}

// taken returns what was written since the last call, without the end of its last line.
func taken(t *authtest.Text) string { return strings.TrimSuffix(t.Take(), "\n") }

// perform runs a story in a bubble.
func perform(t *testing.T, story func(*stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		from, to := io.Pipe()
		s := &stage{t: t, server: &server{}, in: to, done: make(chan error, 1)}
		s.server.set(polite)
		go func() {
			s.done <- Run(t.Context(), Options{URL: "http://x/mcp", In: from, Out: &s.out, Notes: &s.notes, Open: s.server.open})
		}()
		story(s)
		to.Close()
		if err := <-s.done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

// say writes lines of the client, and waits until nothing moves.
func (s *stage) say(lines ...string) {
	s.t.Helper()
	for _, l := range lines {
		if _, err := io.WriteString(s.in, l+"\n"); err != nil {
			s.t.Fatalf("write: %v", err)
		}
		synctest.Wait()
	}
}

func (s *stage) want(what, got, want string) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("%s is\n%s\nwant\n%s", what, got, want)
	}
}

// polite answers initialize, and every other request with an empty result.
func polite(_ context.Context, _ *fake, req *transport.Request, _ func(*jsonrpc.Message)) (string, error) {
	if req.Method == "initialize" {
		return strings.Replace(welcome, `"id":0`, `"id":`+string(req.ID), 1), nil
	}
	return `{"jsonrpc":"2.0","id":` + string(req.ID) + `,"result":{}}`, nil
}

// TestBytes: ids, params and results pass through as they were written.
func TestBytes(t *testing.T) {
	perform(t, func(s *stage) {
		s.server.set(func(_ context.Context, _ *fake, req *transport.Request, _ func(*jsonrpc.Message)) (string, error) {
			return `{"jsonrpc":"2.0","id":` + string(req.ID) + `,"result":{"n": 1e400, "x":[ 1.0 ],` + "\n" + `"é":"\u00e9"}}`, nil
		})
		s.say(`{ "method":"tools/list", "params":{ "a": 12345678901234567890, "a b":"\u00e9" , ` + meta + `},"id":"x\u0041","jsonrpc":"2.0"}`)
		s.want("the request", s.server.seen(), `0 {"jsonrpc":"2.0","id":"x\u0041","method":"tools/list","params":{ "a": 12345678901234567890, `+
			`"a b":"\u00e9" , `+meta+`}} Mcp-Protocol-Version:2026-07-28 Mcp-Method:tools/list`)
		s.want("the response", taken(&s.out), `{"jsonrpc":"2.0","id":"x\u0041","result":{"n": 1e400, "x":[ 1.0 ], "é":"\u00e9"}}`)
	})
}

// TestUnknownPasses: capabilities, methods and members that Junction does not know reach the endpoint,
// in both eras.
func TestUnknownPasses(t *testing.T) {
	perform(t, func(s *stage) {
		const strange = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"experimental":{"x":1},"later":{}},"x":1}}`
		s.say(strange, `{"jsonrpc":"2.0","id":1,"method":"x/legacy","params":{"a":1}}`, `{"jsonrpc":"2.0","method":"notifications/x"}`,
			`{"jsonrpc":"2.0","id":2,"method":"x/modern","params":{"a":1,`+meta+`}}`)
		s.want("what the endpoint received", s.server.seen(), "1 "+strange+"\n"+
			`1 {"jsonrpc":"2.0","id":1,"method":"x/legacy","params":{"a":1}}`+"\n"+`1 {"jsonrpc":"2.0","method":"notifications/x"}`+"\n"+
			`0 {"jsonrpc":"2.0","id":2,"method":"x/modern","params":{"a":1,`+meta+`}} Mcp-Protocol-Version:2026-07-28 Mcp-Method:x/modern`)
	})
}

// TestNoListener: a request fails with an error and a line for the person, and the next one
// works when the endpoint is there.
func TestNoListener(t *testing.T) {
	const text = "no Junction is running at http://x/mcp; start it with: junction service start"
	perform(t, func(s *stage) {
		s.server.set(nil)
		s.say(hello)
		s.want("the note", taken(&s.notes), "junction stdio: "+text)
		s.want("the early output", taken(&s.out), "")
		time.Sleep(defaultPatience)
		synctest.Wait()
		s.want("the error", taken(&s.out), `{"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"`+text+`","data":{"junction":{"kind":"unavailable"}}}}`)
		s.want("further notes", taken(&s.notes), "")
		s.server.set(polite)
		s.say(hello)
		s.want("the response", taken(&s.out), welcome)
		s.want("the last note", taken(&s.notes), "junction stdio: connected to http://x/mcp")
	})
}

// TestPrivateAuthority: a team often has a certificate of its own CA, and a program of the desktop does not see
// SSL_CERT_FILE of a shell. The client shows what to do.
func TestPrivateAuthority(t *testing.T) {
	perform(t, func(s *stage) {
		s.server.set(func(context.Context, *fake, *transport.Request, func(*jsonrpc.Message)) (string, error) {
			return "", fmt.Errorf("%w: %w", transport.ErrNotSent, x509.UnknownAuthorityError{})
		})
		s.say(hello)
		time.Sleep(defaultPatience)
		synctest.Wait()
		if got := taken(&s.out); !strings.Contains(got, "install its CA, or name a file with the CA in SSL_CERT_FILE") {
			t.Errorf("the client gets %s", got)
		}
	})
}

// TestStartsMeanwhile: a request that meets an endpoint that is starting is sent again.
func TestStartsMeanwhile(t *testing.T) {
	perform(t, func(s *stage) {
		s.server.set(nil)
		s.say(hello)
		s.server.set(polite)
		time.Sleep(maxPause)
		synctest.Wait()
		s.want("the response", taken(&s.out), welcome)
	})
}

// TestRestart: after the endpoint has lost the session, the bridge opens another one with the client's
// words, sets its state again, and tells the client to look at the lists.
func TestRestart(t *testing.T) {
	perform(t, func(s *stage) {
		s.say(hello, ready, `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"info"}}`,
			`{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"a:b"}}`,
			`{"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{"uri":"a:c"}}`,
			`{"jsonrpc":"2.0","id":4,"method":"resources/unsubscribe","params":{"uri":"a:c"}}`)
		s.server.seen()
		taken(&s.out)
		s.server.mu.Lock()
		old := s.server.conns[1]
		s.server.mu.Unlock()
		old.in(&jsonrpc.Message{ID: "1", Method: "roots/list"})
		taken(&s.out)
		s.server.set(nil)
		old.end()
		time.Sleep(3 * time.Minute)
		s.server.set(polite)
		time.Sleep(time.Minute)
		synctest.Wait()
		got := s.server.seen()
		for _, want := range []string{`{"jsonrpc":"2.0","id":"junction-initialize","method":"initialize","params":{"protocolVersion":"2025-11-25","x":1}}`,
			ready, `"method":"logging/setLevel","params":{"level":"info"}}`, `"method":"resources/subscribe","params":{"uri":"a:b"}}`} {
			if strings.Count(got, want) != 1 {
				t.Errorf("the endpoint received\n%s\nwant once %s", got, want)
			}
		}
		if strings.Contains(got, "a:c") {
			t.Errorf("the endpoint received a subscription that was ended:\n%s", got)
		}
		s.want("the output", taken(&s.out), `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"junction-1","reason":"the request was withdrawn"}}`+
			"\n"+`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		s.say(`{"jsonrpc":"2.0","id":"junction-1","result":{"roots":[]}}`)
		s.want("what a late answer sends", s.server.seen(), "")
		s.say(`{"jsonrpc":"2.0","id":5,"method":"ping"}`)
		s.want("the next response", taken(&s.out), `{"jsonrpc":"2.0","id":5,"result":{}}`)
	})
}

// TestSessionGone: the request that finds out that the session is gone succeeds in the next session.
func TestSessionGone(t *testing.T) {
	perform(t, func(s *stage) {
		s.say(hello)
		taken(&s.out)
		s.server.set(func(ctx context.Context, f *fake, req *transport.Request, on func(*jsonrpc.Message)) (string, error) {
			if f.number == 1 {
				f.end()
				return "", errors.Join(transport.ErrNotSent, transport.ErrSessionGone)
			}
			return polite(ctx, f, req, on)
		})
		s.say(`{"jsonrpc":"2.0","id":5,"method":"tools/list"}`)
		s.want("the response", taken(&s.out), `{"jsonrpc":"2.0","id":5,"result":{}}`)
		s.want("the notes", taken(&s.notes), "")
	})
}

// TestQuestions: server requests get ids of the bridge, their answers reach the endpoint under its own
// ids, and what is left when the call ends is withdrawn.
func TestQuestions(t *testing.T) {
	perform(t, func(s *stage) {
		end := make(chan struct{})
		s.server.set(func(ctx context.Context, f *fake, req *transport.Request, on func(*jsonrpc.Message)) (string, error) {
			if req.Method == "tools/call" {
				on(&jsonrpc.Message{ID: "1", Method: "elicitation/create", Params: []byte(`{"message":"?"}`)})
				on(&jsonrpc.Message{ID: "2", Method: "roots/list"})
				<-end
			}
			return polite(ctx, f, req, on)
		})
		s.say(hello, ready, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{}}`)
		s.want("the questions", taken(&s.out), welcome+"\n"+
			`{"jsonrpc":"2.0","id":"junction-1","method":"elicitation/create","params":{"message":"?"}}`+"\n"+
			`{"jsonrpc":"2.0","id":"junction-2","method":"roots/list"}`)
		s.server.seen()
		s.say(`{"jsonrpc":"2.0","id":"junction-1","result":{"action":"decline"}}`, `{"jsonrpc":"2.0","id":1,"result":{}}`)
		s.want("the answer", s.server.seen(), `1 {"jsonrpc":"2.0","id":1,"result":{"action":"decline"}}`)
		close(end)
		synctest.Wait()
		s.want("the end", taken(&s.out), `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"junction-2","reason":"the request was withdrawn"}}`+
			"\n"+`{"jsonrpc":"2.0","id":7,"result":{}}`)
	})
}

// TestCancel: a legacy cancellation is passed on, a modern one closes the response.
func TestCancel(t *testing.T) {
	perform(t, func(s *stage) {
		s.server.set(func(ctx context.Context, f *fake, req *transport.Request, on func(*jsonrpc.Message)) (string, error) {
			if req.Method == "tools/call" {
				<-ctx.Done()
				return "", context.Cause(ctx)
			}
			return polite(ctx, f, req, on)
		})
		s.say(hello, ready, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`,
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{`+meta+`}}`)
		s.server.seen()
		taken(&s.out)
		s.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		s.want("what a modern cancellation sends", s.server.seen(), "")
		s.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		s.want("what a legacy cancellation sends", s.server.seen(), `1 {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		s.say(`{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{` + meta + `}}`)
		s.want("the output", taken(&s.out), `{"jsonrpc":"2.0","id":2,"result":{}}`)
	})
}

// TestListen: a subscription outlives the endpoint. The client gets one acknowledgement, and after a
// gap a notification for each thing that may have changed.
func TestListen(t *testing.T) {
	const (
		ack     = `{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:b"]}}`
		changed = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"L"}}}`
		updated = `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:b","_meta":{"io.modelcontextprotocol/subscriptionId":"L"}}}`
	)
	perform(t, func(s *stage) {
		ends := make(chan string)
		s.server.set(func(ctx context.Context, f *fake, req *transport.Request, on func(*jsonrpc.Message)) (string, error) {
			body, _ := raw.Parse([]byte(ack))
			on(&jsonrpc.Message{Method: methodAcknowledged, Params: []byte(ack), Body: body})
			select {
			case how := <-ends:
				return how, nil
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		})
		s.say(`{"jsonrpc":"2.0","id":"L","method":"subscriptions/listen","params":{"notifications":{},` + meta + `}}`)
		s.want("the first lines", taken(&s.out), `{"jsonrpc":"2.0","method":"`+methodAcknowledged+`","params":`+ack+`}`)
		ends <- `{"jsonrpc":"2.0","id":"L","result":{"resultType":"complete"}}`
		time.Sleep(maxPause)
		synctest.Wait()
		s.want("the lines after the gap", taken(&s.out), changed+"\n"+updated)
		ends <- `{"jsonrpc":"2.0","id":"L","error":{"code":-32601,"message":"no"}}`
		synctest.Wait()
		s.want("the rejection", taken(&s.out), `{"jsonrpc":"2.0","id":"L","error":{"code":-32601,"message":"no"}}`)
	})
}

// TestHeaders: headers mirror the request, and those of arguments are learned when the endpoint misses
// them.
func TestHeaders(t *testing.T) {
	perform(t, func(s *stage) {
		s.server.set(func(ctx context.Context, f *fake, req *transport.Request, on func(*jsonrpc.Message)) (string, error) {
			switch {
			case req.Method == "tools/list":
				return `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"t é","inputSchema":{"type":"object",
					"properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}]}}`, nil
			case len(req.Header) < 4:
				m := &jsonrpc.Message{Error: &jsonrpc.Error{Code: codeHeaderMismatch}}
				return "", &transport.StatusError{Status: 400, Message: m}
			}
			return polite(ctx, f, req, on)
		})
		s.say(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t é","arguments":{"region":"eu"},` + meta + `}}`)
		s.want("the response", taken(&s.out), `{"jsonrpc":"2.0","id":3,"result":{}}`)
		lines := strings.Split(s.server.seen(), "\n")
		if last := lines[len(lines)-1]; !strings.HasSuffix(last, "Mcp-Method:tools/call Mcp-Name:=?base64?dCDDqQ==?= Mcp-Param-Region:eu") {
			t.Errorf("the last request is %s", last)
		}
	})
}

// TestBadInput: a line that is no message gets an error, and the next line works.
func TestBadInput(t *testing.T) {
	for _, test := range []struct{ name, line, want string }{
		{"text", `hello`, `{"jsonrpc":"2.0","error":{"code":-32700,`},
		{"id", `{"jsonrpc":"1.0","id":4,"method":"x"}`, `{"jsonrpc":"2.0","id":4,"error":{"code":-32600,`},
		{"two methods", `{"jsonrpc":"2.0","id":4,"method":"x","method":"y"}`, `{"jsonrpc":"2.0","id":4,"error":{"code":-32600,`},
		{"batch", `[{"jsonrpc":"2.0","id":4,"method":"x"}]`, `{"jsonrpc":"2.0","error":{"code":-32600,`},
		{"header", `{"jsonrpc":"2.0","id":4,"method":"a\r\nb","params":{` + meta + `}}`, `{"jsonrpc":"2.0","id":4,"error":{"code":-32602,`},
	} {
		t.Run(test.name, func(t *testing.T) {
			perform(t, func(s *stage) {
				s.say(test.line)
				if got := taken(&s.out); !strings.HasPrefix(got, test.want) {
					t.Errorf("the answer is %s\nwant %s…", got, test.want)
				}
				s.say(hello)
				s.want("the next response", taken(&s.out), welcome)
				s.say(test.line)
				if got := taken(&s.out); !strings.HasPrefix(got, test.want) {
					t.Errorf("in a session, the answer is %s\nwant %s…", got, test.want)
				}
			})
		})
	}
}

// TestHostileText: text of a server does not control the terminal of a person who reads the notes.
func TestHostileText(t *testing.T) {
	perform(t, func(s *stage) {
		s.server.set(func(context.Context, *fake, *transport.Request, func(*jsonrpc.Message)) (string, error) {
			return "", &transport.TokenError{Err: errors.New("no\x1b]0;title\x07\u009b31m \u202ered\nline")}
		})
		s.say(hello)
		s.want("the note", taken(&s.notes), "junction stdio: cannot authenticate at http://x/mcp: no]0;title31m red line")
	})
}

// TestBatch: a session of the version 2025-03-26 may send arrays.
func TestBatch(t *testing.T) {
	perform(t, func(s *stage) {
		s.server.set(func(ctx context.Context, f *fake, req *transport.Request, on func(*jsonrpc.Message)) (string, error) {
			text, err := polite(ctx, f, req, on)
			return strings.Replace(text, "2025-11-25", "2025-03-26", 1), err
		})
		s.say(hello)
		taken(&s.out)
		s.say(` [{"jsonrpc":"2.0","id":4,"method":"ping"}, {"jsonrpc":"2.0","method":"notifications/x"}]`)
		s.want("the output", taken(&s.out), `{"jsonrpc":"2.0","id":4,"result":{}}`)
	})
}

// TestEnd: the last requests have a moment after the end of the input.
func TestEnd(t *testing.T) {
	perform(t, func(s *stage) {
		s.server.set(func(ctx context.Context, f *fake, req *transport.Request, on func(*jsonrpc.Message)) (string, error) {
			select {
			case <-ctx.Done():
				return "", context.Cause(ctx)
			case <-time.After(time.Second):
				return polite(ctx, f, req, on)
			}
		})
		s.say(`{"jsonrpc":"2.0","id":4,"method":"tools/list","params":{` + meta + `}}`)
		s.in.Close()
		time.Sleep(lastAnswers)
		synctest.Wait()
		s.want("the output", taken(&s.out), `{"jsonrpc":"2.0","id":4,"result":{}}`)
	})
}
