package upstream

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/pace"
	"junction/upstream/upstreamtest"
)

// reply is how a server answers.
type reply struct {
	status int
	body   string // $ID is replaced by the id of the request, $SESSION by that of the session
	header http.Header
}

func (p reply) String() string { return strings.TrimSpace(fmt.Sprint(p.status, " ", p.body)) }

// grave is in front of a server that loses sessions. It answers the requests in them itself.
type grave struct {
	mu     sync.Mutex
	answer reply           // in a lost session
	lost   map[string]bool // sessions
	all    *reply          // the answer to every request; nil for none
	posts  map[string]int  // requests that it has answered itself, by method
	gone   []string        // sessions that were deleted
}

func (g *grave) over(s *upstreamtest.Server) http.Handler { return g.before(s.Handler()) }

// overSSE is over for HTTP+SSE.
func (g *grave) overSSE(s *upstreamtest.Server) http.Handler { return g.before(s.SSEHandler()) }

func (g *grave) before(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("Mcp-Session-Id")
		if r.URL.Query().Get("session") != "" {
			id = r.URL.Query().Get("session")
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		m, _ := jsonrpc.Parse(body, 100)
		g.mu.Lock()
		lost, answer := g.lost[id], g.answer
		if (lost || g.all != nil) && r.Method == http.MethodPost {
			g.posts[m.Method]++
		}
		if r.Method == http.MethodDelete {
			g.gone = append(g.gone, id)
		}
		if g.all != nil {
			lost, answer = true, *g.all
		}
		g.mu.Unlock()
		if !lost {
			h.ServeHTTP(w, r)
			return
		}
		for name, values := range answer.header {
			w.Header()[name] = values
		}
		if strings.HasPrefix(answer.body, "{") {
			w.Header().Set("Content-Type", "application/json")
		}
		w.WriteHeader(answer.status)
		io.WriteString(w, strings.NewReplacer("$ID", string(m.ID), "$SESSION", id).Replace(answer.body))
	})
}

// lose loses a session, which is answered so from now on.
func (g *grave) lose(id string, answer reply) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lost[id], g.answer = true, answer
}

// find gets a session back.
func (g *grave) find(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.lost, id)
}

// always answers every request so; nil ends this.
func (g *grave) always(answer *reply) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = answer
}

// inLost returns how many requests of a method it has answered itself.
func (g *grave) inLost(method string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.posts[method]
}

func newGrave() *grave { return &grave{lost: map[string]bool{}, posts: map[string]int{}} }

// deaths are the answers of servers in sessions that they have lost.
var deaths = []reply{
	{400, "no session", nil},
	{400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}`, nil},
	{400, `{"jsonrpc":"2.0","id":$ID,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}`, nil},
	{401, "Session not found", nil},
	{403, "Session not found", nil},
	{410, "", nil},
	{500, "", nil},
	{503, "no such session", nil},
	{200, `{"jsonrpc":"2.0","id":$ID,"error":{"code":-32600,"message":"Session not found or expired"}}`, nil},
	{200, `{"jsonrpc":"2.0","id":$ID,"error":{"code":-32603,"message":"Internal error"}}`, nil},
	{200, `{"jsonrpc":"2.0","id":$ID,"error":{"code":-32001,"message":"Session not found"}}`, nil},
}

// legacyQuiet is a legacy server that announces nothing, so that its lists are read only when they must.
var legacyQuiet = upstreamtest.Script{Era: "legacy", NoListChanged: true}

// TestLostSessionGetsASuccessor: the session of a server is lost, and answered in one of many ways. After
// one control question, another session takes its place. Only the call that was answered 400 with the text
// of the control question is sent again; the error of each other call says that the state is lost.
func TestLostSessionGetsASuccessor(t *testing.T) {
	for _, death := range deaths {
		t.Run(death.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGrave()
				r := newRigBehind(t, g.over, legacyQuiet, Config{})
				settle(time.Second)
				r.mustHear("ready")
				first := sessionOf(t, r.Upstream)
				g.lose(first, death)
				res := <-begun(r.Upstream, toolCall("count", `{}`))
				switch again := death.status == 400 && !strings.Contains(death.body, "$ID"); {
				case again && res.err != nil:
					t.Errorf("the call = %v, want it to be sent again", res.err)
				case !again && (res.err == nil || !strings.Contains(res.err.Error(), "without what the server kept")):
					t.Errorf("the call = %v, want the loss of the state", res.err)
				}
				synctest.Wait()
				r.mustHear("degraded ready")
				if s := r.Status(); s.State != StateReady || s.Err != "" || s.Degraded != 0 || !s.Retry.IsZero() {
					t.Errorf("the status is %+v", s)
				}
				if got := sessionOf(t, r.Upstream); got == first {
					t.Errorf("calls still use the session %s", got)
				}
				settle(time.Minute)
				if n := r.count("initialize"); n != 2 {
					t.Errorf("%d sessions were opened, want 2", n)
				}
				if n := g.inLost("tools/list"); n != 1 {
					t.Errorf("%d control questions in the lost session, want 1", n)
				}
				g.mu.Lock()
				defer g.mu.Unlock()
				if len(g.gone) != 1 || g.gone[0] != first {
					t.Errorf("the sessions %q were deleted, want the lost one", g.gone)
				}
			})
		})
	}
}

// TestSessionsThatAreLostAtOnceGetPauses: a server loses each session as soon as it has answered a list. The
// pauses before another one grow, up to a minute.
func TestSessionsThatAreLostAtOnceGetPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		opened, lists := 0, map[string]int{}
		mortal := func(s *upstreamtest.Server) http.Handler {
			h := s.Handler()
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(strings.NewReader(string(body)))
				m, _ := jsonrpc.Parse(body, 100)
				id := r.Header.Get("Mcp-Session-Id")
				mu.Lock()
				gone := lists[id] > 0
				switch m.Method {
				case "initialize":
					opened++
				case "tools/list":
					lists[id]++
				}
				mu.Unlock()
				if gone && r.Method == http.MethodPost {
					w.WriteHeader(http.StatusGone)
					return
				}
				h.ServeHTTP(w, r)
			})
		}
		r := newRigBehind(t, mortal, legacyQuiet, Config{})
		settle(time.Second)
		for range 600 {
			<-begun(r.Upstream, toolCall("echo", `{}`))
			settle(time.Second)
		}
		mu.Lock()
		defer mu.Unlock()
		if opened < 5 || opened > 25 {
			t.Errorf("there are %d sessions in ten minutes, want one each minute at last", opened)
		}
	})
}

// TestLostSessionIsNotReady: a server has lost the session, and gives no other one that works. The status
// says so after the first call, the calls are still sent, and the attempts are few. Once the server answers
// in the session again, the status is ready, and the session with its state is the same.
func TestLostSessionIsNotReady(t *testing.T) {
	for _, death := range deaths {
		t.Run(death.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGrave()
				r := newRigBehind(t, g.over, legacyQuiet, Config{})
				settle(time.Second)
				r.mustHear("ready")
				first := sessionOf(t, r.Upstream)
				g.always(&death)
				if res := <-begun(r.Upstream, toolCall("echo", `{}`)); res.err == nil || res.took != 0 {
					t.Errorf("the call = %v after %v, want the error of the server at once", res.err, res.took)
				}
				synctest.Wait()
				r.mustHear("degraded")
				s := r.Status()
				if s.State != StateDegraded || s.Degraded != 1 || s.Retry.Before(time.Now()) || s.Advice == "" || s.Tools == 0 ||
					!strings.HasPrefix(s.Err, "the server rejects tools/list, which it has answered before: ") ||
					!strings.Contains(s.Err, "; another session does not work either: ") {
					t.Errorf("the status is %+v", s)
				}
				for range 600 {
					if res := <-begun(r.Upstream, toolCall("echo", `{}`)); res.err == nil {
						t.Fatal("a call in a lost session succeeded")
					}
					settle(time.Second)
				}
				calls, questions, opened := g.inLost("tools/call"), g.inLost("tools/list"), g.inLost("initialize")
				if calls != 601 || questions > 122 || opened > 24 || opened < 8 {
					t.Errorf("in ten minutes the server got %d calls, %d control questions and %d attempts to open a session",
						calls, questions, opened)
				}
				g.always(nil)
				settle(pause10)
				r.mustHear("ready")
				if got := sessionOf(t, r.Upstream); got != first {
					t.Errorf("the session is %s, want %s, whose state was not lost", got, first)
				}
				if s := r.Status(); s.State != StateReady || s.Err != "" || s.Degraded != 0 {
					t.Errorf("after a control question was answered, the status is %+v", s)
				}
			})
		})
	}
}

// pause10 is more than the longest pause between control questions.
const pause10 = 70 * time.Second

// TestErrorsOfCallsOpenNoSession: calls fail for reasons of their own, 1,000 of them at once or one after
// the other. The session answers each control question, which are few, and so it stays.
func TestErrorsOfCallsOpenNoSession(t *testing.T) {
	rule := func(status int, text string) upstreamtest.Rule {
		r := upstreamtest.Rule{Method: "tools/call", Status: status}
		if strings.HasPrefix(text, "{") {
			r.Error = []byte(text)
		} else {
			r.Body = text
		}
		return r
	}
	for _, row := range []struct {
		name      string
		rule      upstreamtest.Rule
		questions bool
	}{
		{"wrong arguments", rule(200, `{"code":-32602,"message":"wrong arguments"}`), false},
		{"wrong arguments with 400", rule(400, `{"code":-32602,"message":"wrong arguments"}`), false},
		{"an internal error", rule(200, `{"code":-32603,"message":"Internal error"}`), true},
		{"always 500", rule(500, "boom"), true},
		{"429", rule(429, "slowly"), false},
		{"an unknown tool", rule(200, `{"code":-32601,"message":"no such tool"}`), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, legacyQuiet, Config{Concurrency: 2000})
				settle(time.Second)
				first := sessionOf(t, r.Upstream)
				r.server.AddRules(row.rule)
				var calls []<-chan result
				for range 1000 {
					calls = append(calls, begun(r.Upstream, toolCall("echo", `{}`)))
				}
				for _, call := range calls {
					if res := <-call; res.err == nil {
						t.Fatal("a call succeeded")
					}
				}
				for range 60 {
					<-begun(r.Upstream, toolCall("echo", `{}`))
					settle(time.Second)
				}
				settle(6 * time.Second)
				r.mustHear("ready")
				if n := r.count("initialize"); n != 1 {
					t.Errorf("%d sessions were opened", n)
				}
				if n := r.count("tools/list") - 1; n > 14 || (n > 0) != row.questions {
					t.Errorf("%d control questions in 66 s", n)
				}
				r.server.ClearRules()
				if got := sessionOf(t, r.Upstream); got != first {
					t.Errorf("the session is %s, want %s", got, first)
				}
			})
		})
	}
}

// TestServerThatIsBusyLosesNoSession: everything is answered 429, or 503 with a time, for a minute.
func TestServerThatIsBusyLosesNoSession(t *testing.T) {
	for _, busy := range []reply{{429, "slowly", nil}, {503, "", http.Header{"Retry-After": {"5"}}}} {
		synctest.Test(t, func(t *testing.T) {
			g := newGrave()
			r := newRigBehind(t, g.over, legacyQuiet, Config{})
			settle(time.Second)
			first := sessionOf(t, r.Upstream)
			g.always(&busy)
			for range 60 {
				<-begun(r.Upstream, toolCall("echo", `{}`))
				settle(time.Second)
			}
			g.always(nil)
			r.mustHear("ready")
			if got := sessionOf(t, r.Upstream); got != first || r.count("initialize") != 1 {
				t.Errorf("the session is %s, want %s", got, first)
			}
		})
	}
}

// TestRefreshFindsALostSession: no call is made. The next reading of the lists finds out that the session
// is lost, without a second question.
func TestRefreshFindsALostSession(t *testing.T) {
	challenge := http.Header{"Www-Authenticate": {"Bearer"}}
	for _, death := range []reply{{401, "Session not found", nil}, {401, "who are you?", challenge}, {500, "", nil}} {
		for _, works := range []bool{true, false} {
			t.Run(fmt.Sprint(death, " ", works), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := newGrave()
					r := newRigBehind(t, g.over, legacyQuiet, Config{})
					settle(time.Second)
					r.mustHear("ready")
					first := sessionOf(t, r.Upstream)
					if g.lose(first, death); !works {
						g.always(&death)
					}
					settle(5 * time.Minute)
					if works {
						r.mustHear("degraded ready")
						if n := g.inLost("tools/list"); n != 1 {
							t.Errorf("the lists of the lost session were read %d times, want once", n)
						}
						return
					}
					r.mustHear("degraded")
					g.always(nil)
					g.find(first)
					settle(pause10)
					r.mustHear("ready")
					if got := sessionOf(t, r.Upstream); got != first {
						t.Errorf("the session is %s, want %s", got, first)
					}
				})
			})
		}
	}
}

// TestRefreshFindsALostSessionInOneList: a server without tools answers tools/list before it looks for the
// session. The next reading of the prompts finds out that the session is lost, although the error of that
// list costs no other list.
func TestRefreshFindsALostSessionInOneList(t *testing.T) {
	for _, works := range []bool{true, false} {
		t.Run(fmt.Sprint("another session works: ", works), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, script := newGrave(), legacyQuiet
				script.Prompts = tools("p")
				r := newRigBehind(t, func(s *upstreamtest.Server) http.Handler {
					return withoutTools(g.over(s))
				}, script, Config{})
				settle(time.Second)
				r.mustHear("ready")
				first := sessionOf(t, r.Upstream)
				death := reply{200, `{"jsonrpc":"2.0","id":$ID,"error":{"code":-32600,"message":"Session not found"}}`, nil}
				if g.lose(first, death); !works {
					g.always(&death)
				}
				settle(5 * time.Minute)
				if works {
					r.mustHear("degraded ready")
					return
				}
				settle(15 * time.Minute) // the lists are read three times
				r.mustHear("degraded")
			})
		})
	}
}

// withoutTools answers tools/list with "method not found", in any session.
func withoutTools(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		if m, _ := jsonrpc.Parse(body, 100); m.Method == "tools/list" {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, m.ID)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// TestDegradedSessionIsOfOneUser: the session of one user is lost, and no other one can be opened. The
// status counts it, and the one that reads the catalog is ready.
func TestDegradedSessionIsOfOneUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrave()
		r := newRigBehind(t, g.over, legacyQuiet, Config{Isolation: IsolationPrincipal})
		settle(time.Second)
		hers := sessionOf(t, r.Upstream, of("ann"))
		his := sessionOf(t, r.Upstream, of("bob"))
		g.lose(hers, reply{410, "", nil})
		r.server.AddRules(upstreamtest.Rule{Method: "initialize", Status: 500})
		if res := <-begun(r.Upstream, toolCall("echo", `{}`, of("ann"))); res.err == nil {
			t.Error("a call in a lost session succeeded")
		}
		synctest.Wait()
		if s := r.Status(); s.State != StateReady || s.Degraded != 1 {
			t.Errorf("the status is %+v, want one degraded connection", s)
		} else if len(s.Stuck) != 1 || s.Stuck[0].User != "ann" || s.Stuck[0].Principal != "ann" ||
			!s.Stuck[0].Since.IsZero() || !strings.Contains(s.Stuck[0].Err, "rejects") {
			t.Errorf("the connections that do not work are %+v, want the one of ann, rejected", s.Stuck)
		}
		if got := sessionOf(t, r.Upstream, of("bob")); got != his {
			t.Errorf("the other user has the session %s, want %s", got, his)
		}
		r.server.ClearRules()
		settle(pause10)
		if s := r.Status(); s.State != StateReady || s.Degraded != 0 || len(s.Stuck) != 0 {
			t.Errorf("the status is %+v, want none", s)
		}
		if got := sessionOf(t, r.Upstream, of("ann")); got == hers || got == his {
			t.Errorf("she has the session %s, want one of her own", got)
		}
		r.mustHear("ready")
	})
}

// TestDoubtBeforeTheWatch: a call doubts a session before the goroutine of the watch has begun. The watch
// answers the doubt, and does not end it.
func TestDoubtBeforeTheWatch(t *testing.T) {
	s, c := &suspicion{wake: make(chan struct{}, 1)}, &struct{ client.Conn }{}
	s.watched(c) // the conn becomes usable
	doubt := s.raise(c)
	if doubt == nil {
		t.Fatal("the doubt is dropped")
	}
	s.watched(c) // the watch begins
	if q, _ := s.begin(); q != doubt || pace.IsClosed(doubt.done) {
		t.Error("the watch does not answer the doubt")
	}
	s.watched(nil)
	if !pace.IsClosed(doubt.done) {
		t.Error("the doubt outlives the watch")
	}
}
