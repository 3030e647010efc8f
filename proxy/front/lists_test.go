package front

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth"
	"junction/auth/authtest"
	"junction/proxy"
	"junction/proxy/proxytest"
	"junction/proxy/scope"
	"junction/upstream"
	"junction/upstream/raw"
)

// listTools sends a request of the modern era for a page of the tools, the first one if cursor is
// "".
func (s *Server) listTools(w http.ResponseWriter, p *auth.Principal, cursor string) {
	params := modernMeta
	if cursor != "" {
		params += `,"cursor":"` + cursor + `"`
	}
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + params + `}}`
	s.send(w, p, body, modernHeader("tools/list", ""))
}

// listAll lists the tools of the merged endpoint, all pages.
func (s *Server) listAll(tb testing.TB, p *auth.Principal) {
	for cursor := ""; ; {
		w := &ending{nowhere: nowhere{header: http.Header{}}}
		s.listTools(w, p, cursor)
		if w.n < 50 || bytes.Contains(w.end, []byte(`"error"`)) {
			tb.Fatalf("a list is answered %s", w.end)
		}
		_, rest, more := strings.Cut(string(w.end), `"nextCursor":"`)
		if !more {
			return
		}
		cursor, _, _ = strings.Cut(rest, `"`)
	}
}

// send has a request answered as one of the principal's at the merged endpoint.
func (s *Server) send(w http.ResponseWriter, p *auth.Principal, body string, header http.Header) {
	header["Content-Type"] = []string{"application/json"}
	header["Accept"] = []string{"application/json, text/event-stream"}
	r := &http.Request{Method: "POST", URL: &url.URL{Path: "/mcp"}, Host: "127.0.0.1:8420", Header: header}
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	now := s.Snapshot()
	e := now.EndpointFor("", p)
	s.postAs(w, r, scope.Caller{Snapshot: now, Endpoint: e, Principal: p, Subject: now.SubjectViewFor(e, p)})
}

// postAs has a request answered as one of the caller's.
func (s *Server) postAs(w http.ResponseWriter, r *http.Request, c scope.Caller) {
	x := s.newRequest(w, r, c)
	defer s.release(x)
	if err := s.post(x); err != nil {
		s.reject(x, "", err)
	}
}

// ending is a ResponseWriter that keeps the end of an answer.
type ending struct {
	nowhere
	end []byte
}

func (w *ending) Write(b []byte) (int, error) {
	w.end = append(w.end[:0], b[max(0, len(b)-1000):]...)
	return w.nowhere.Write(b)
}

// serverOf returns a server with the upstreams and the policies of the crowd.
func serverOf(tb testing.TB, c *proxytest.Crowd, limits proxy.Limits) *Server {
	s := serverWith(tb, Options{Log: authtest.Log(tb), Limits: limits})
	s.ApplyBackends(scope.Config{Guard: &auth.Guard{}, Policy: proxytest.MustPolicy(tb, c.Policies)}, c.Backends(tb))
	return s
}

// recorded is a ResponseWriter that keeps the answer.
type recorded struct {
	nowhere
	text []byte
}

func newAnswer() *recorded { return &recorded{nowhere: nowhere{header: http.Header{}}} }

func (w *recorded) Write(b []byte) (int, error) {
	w.text = append(w.text, b...)
	return len(b), nil
}

// listed returns the names of the tools that a principal lists, page by page from the cursor on,
// and the cursors on the way.
func (s *Server) listed(tb testing.TB, p *auth.Principal, cursor string) (names, cursors []string) {
	tb.Helper()
	for {
		w := newAnswer()
		s.listTools(w, p, cursor)
		o, err := raw.Parse(w.text)
		if err == nil {
			o, err = o.Object("result")
		}
		var page [][]byte
		if err == nil {
			page, err = o.Elements("tools")
		}
		if err != nil {
			tb.Fatalf("the list of %s is answered %.300s", p.ID, w.text)
		}
		for _, definition := range page {
			names = append(names, proxytest.MustTool(tb, string(definition)).Name)
		}
		if cursor, err = o.String("nextCursor"); err != nil {
			return names, cursors
		}
		cursors = append(cursors, cursor)
	}
}

// mayList returns the names of the tools that policy makes visible for a principal, found out one
// by one.
func (s *Server) mayList(p *auth.Principal) (names []string) {
	w := s.Snapshot()
	rights := w.Config.Policy.For(scope.Subject(p, ""))
	for t := range w.Endpoints[""].View.All(upstream.PartTools) {
		if rights.Bind(t.PolicyItem()).Visible() {
			names = append(names, t.Exposed)
		}
	}
	return names
}

// TestPagesOfAChangedList pages through a list that changes on the way. The client gets the rest of the
// list that it began for a minute. Then, or after a reload, it has to start again.
func TestPagesOfAChangedList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		crowd := proxytest.KeysOfOnePolicy(2, 3, 20)
		backends := crowd.Backends(t)
		s := serverWith(t, Options{Log: authtest.Log(t), Limits: proxy.Limits{Page: 10}})
		c := scope.Config{Guard: &auth.Guard{}, Policy: proxytest.MustPolicy(t, crowd.Policies)}
		s.ApplyBackends(c, backends)
		p := crowd.Principals[0]
		names, cursors := s.listed(t, p, "")
		changes := 0
		change := func() {
			changes++
			backends[1].(*proxytest.Backend).Lists = proxytest.NewBackend(t, 30+changes, 10).Lists
			s.Refresh()
		}
		refused := func(p *auth.Principal) {
			t.Helper()
			w := newAnswer()
			if s.listTools(w, p, cursors[0]); !strings.Contains(string(w.text), "Invalid cursor") {
				t.Errorf("the cursor is answered %.300s for %s", w.text, p.ID)
			}
		}
		rest := func() {
			t.Helper()
			for k, cursor := range cursors {
				if got, _ := s.listed(t, p, cursor); !slices.Equal(got, names[10*(k+1):]) {
					t.Errorf("from page %d on, the list is %v, want %v", k+2, got, names[10*(k+1):])
				}
			}
		}
		change()
		time.Sleep(30 * time.Second)
		change()
		if now, _ := s.listed(t, p, ""); slices.Equal(now, names) {
			t.Error("the list has not changed")
		}
		rest()
		w := newAnswer()
		if s.listTools(w, p, cursors[0]); !strings.Contains(string(w.text), `"ttlMs":0,`) {
			t.Errorf("a client may keep a page of before the change: %.300s", w.text)
		}
		refused(crowd.Principals[1])
		time.Sleep(31 * time.Second)
		refused(p)

		names, cursors = s.listed(t, p, "")
		change()
		rest()
		s.ApplyBackends(c, backends) // a reload may have removed rights
		refused(p)
	})
}
