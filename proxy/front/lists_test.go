package front

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

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
