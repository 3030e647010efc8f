package pages

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"junction/auth/authtest"
	"junction/cmd/junction/ops/diagnose"
	"junction/proxy"
	"junction/proxy/front"
	"junction/proxy/view"
)

// shown is a site about a report that a test changes, with the number of times that it was looked at.
type shown struct {
	*Site
	report diagnose.Report
	looks  atomic.Int64
	routes chi.Router
}

// mustSite returns a site about some upstreams.
func mustSite(t *testing.T, list ...diagnose.UpstreamStatus) *shown {
	t.Helper()
	s := &shown{report: diagnose.Report{Status: "ready", Upstreams: list}, routes: chi.NewRouter()}
	site, err := NewSite(SiteOptions{Report: func(bool) diagnose.Report { s.looks.Add(1); return s.report },
		Open: func() bool { return true }, Calls: new(Calls), Version: "1", URL: func() string { return "http://127.0.0.1:1/mcp" },
		Sessions: func() ([]front.SessionStatus, int) { return nil, 0 }, Stopping: t.Context(), Log: authtest.Log(t),
		Access: func() Access { return Access{URL: "http://127.0.0.1:1/mcp"} },
		Clients: func(string, bool) []Client {
			return []Client{{Name: "Claude Code", Command: "claude mcp add", File: "f", Entry: "{}"}}
		},
		Streams: func() int64 { return 0 }, History: new(History),
		Memory:  func([]int) map[int]int64 { return nil },
		Ends:    func(bool) []string { return nil },
		Command: func(words ...string) string { return "junction " + strings.Join(words, " ") }})
	if err != nil {
		t.Fatal(err)
	}
	s.Site = site
	site.Register(s.routes)
	return s
}

// get opens a path, or its parts.
func (s *shown) get(path string, parts ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	if parts != nil {
		r.Header.Set(PartsHeader, strings.Join(parts, ","))
	}
	w := httptest.NewRecorder()
	s.routes.ServeHTTP(w, r)
	return w
}

// many returns upstreams with long names that fail with long errors, which offer tools together.
func many(n, tools int) (list []diagnose.UpstreamStatus) {
	for i := range n {
		list = append(list, diagnose.UpstreamStatus{Name: fmt.Sprintf("server-with-a-long-name-%d", i), State: "retrying",
			Tools: tools / n, Listed: tools / n, Error: "canary-" + strings.Repeat("long error ", 400), Advice: strings.Repeat("do ", 60)})
	}
	return list
}

// TestFirstViewIsSmall: with 300 servers that fail, 10,000 tools and as many problems, no page is larger than 150 KB,
// and a server that has changed costs the open page less than 3 KB. A second without a change costs one look.
func TestFirstViewIsSmall(t *testing.T) {
	s := mustSite(t, many(300, 10_000)...)
	for i := range 10_000 {
		s.report.Problems = append(s.report.Problems, view.Problem{Upstream: "x", Name: fmt.Sprint("tool-", i), Reason: "its schema is wrong"})
	}
	for range 100 {
		s.Calls.Add(&proxy.CallInfo{Upstream: "x", Name: strings.Repeat("n", 500), Client: strings.Repeat("c", 500), Outcome: proxy.OK})
	}
	for _, path := range []string{"/", "/servers", "/servers/server-with-a-long-name-7", "/calls", "/servers?sort=calls&q=a", "/clients"} {
		w := s.get(path)
		if w.Code != http.StatusOK || w.Body.Len() > 150_000 || !strings.Contains(w.Body.String(), "server-with-a-long-name-7") && path != "/calls" && path != "/clients" {
			t.Errorf("%s: %d, %d bytes", path, w.Code, w.Body.Len())
		}
	}
	if w := s.get("/", "s/server-with-a-long-name-7"); w.Body.Len() > 3_000 || !strings.HasPrefix(w.Body.String(), `<li id="upstream-server-with-a-long-name-7"`) {
		t.Errorf("a changed server costs %d bytes:\n%.200s", w.Body.Len(), w.Body)
	}
	if w := s.get("/", "none", "s/none", "../", ""); w.Code != http.StatusOK || w.Body.Len() != 0 {
		t.Errorf("unknown parts: %d %s", w.Code, w.Body)
	}
	if w := s.get("/servers/none"); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "There is no such page") {
		t.Errorf("an unknown server: %d", w.Code)
	}
}

// mustStream opens a stream of changes, and returns a function that reads the next event.
func mustStream(t *testing.T, url string) (status int, next func() changesData) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	return resp.StatusCode, func() (c changesData) {
		t.Helper()
		for lines.Scan() {
			if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				if err := json.Unmarshal([]byte(text), &c); err != nil {
					t.Fatal(err)
				}
				return c
			}
		}
		t.Fatalf("the stream has ended: %v", lines.Err())
		return c
	}
}

// TestStreamNamesWhatChanged: a stream begins with the changes since its page was made, and then names a server whose
// state has changed, alone with the parts that count servers. It has no content. A page without a stream asks for the same.
func TestStreamNamesWhatChanged(t *testing.T) {
	s := mustSite(t, diagnose.UpstreamStatus{Name: "a", State: "ready"}, diagnose.UpstreamStatus{Name: "b", State: "ready"})
	s.Calls.Add(&proxy.CallInfo{Upstream: "a", Name: "a__x", Outcome: proxy.OK})
	server := httptest.NewServer(s.routes)
	t.Cleanup(server.Close)
	seq := regexp.MustCompile(`data-seq="(\d+)"`).FindStringSubmatch(s.get("/").Body.String())[1]
	s.live.mu.Lock()
	s.report.Upstreams = []diagnose.UpstreamStatus{{Name: "a", State: "ready"}, {Name: "b", State: "retrying", Error: "canary"}}
	s.live.mu.Unlock()
	status, next := mustStream(t, server.URL+"/events?since="+seq)
	if status != http.StatusOK {
		t.Fatal(status)
	}
	first := next()
	if got := strings.Join(first.Parts, " "); got != "needs s/b server/b summary works" {
		t.Errorf("the changes are %s", got)
	}
	var asked changesData
	if err := json.Unmarshal(s.get("/changes?since="+seq).Body.Bytes(), &asked); err != nil || asked.Seq != first.Seq || len(asked.Parts) != 5 {
		t.Errorf("a page that asks gets %+v, %v", asked, err)
	}
	if err := json.Unmarshal(s.get(fmt.Sprint("/changes?since=", first.Seq)).Body.Bytes(), &asked); err != nil || len(asked.Parts) != 0 {
		t.Errorf("without a change, a page that asks gets %+v, %v", asked, err)
	}
}

// TestStreamsAreBounded: the open pages have two streams together, and the page of a session three; a browser has six
// connections. An ended stream makes room. All of them share one look a second, and without one nothing is looked at.
func TestStreamsAreBounded(t *testing.T) {
	s := mustSite(t, many(300, 10_000)...)
	owned := View{Base: "/c/x/", Owner: true}
	mux := http.NewServeMux()
	mux.Handle("/", s.routes)
	mux.HandleFunc("/own/events", func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = "/events"
		s.Serve(w, r, owned)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	for path, most := range map[string]int{"/events": openStreams, "/own/events": ownStreams} {
		for i := range 50 {
			status, _ := mustStream(t, server.URL+path)
			if want := map[bool]int{true: http.StatusOK, false: http.StatusServiceUnavailable}[i < most]; status != want {
				t.Fatalf("stream %d of %s: %d, want %d", i+1, path, status, want)
			}
		}
	}
	s.live.end(View{Base: "/"})
	if !s.live.begin(View{Base: "/"}) || s.live.begin(View{Base: "/"}) {
		t.Error("an ended stream makes no room, or room for two")
	}
	if looks := s.looks.Load(); looks > 5 {
		t.Errorf("%d looks for 100 requests in a moment", looks)
	}
}

// TestHostileTextStaysText: markup in names, errors and advice is text on every page and in every part.
func TestHostileTextStaysText(t *testing.T) {
	const bad = `"><img src=x onerror=alert(1)><script>alert(2)</script>`
	s := mustSite(t, diagnose.UpstreamStatus{Name: "a", State: "retrying", Error: bad, Advice: bad, Note: bad})
	s.Calls.Add(&proxy.CallInfo{Upstream: "a", Name: bad, Client: bad, Principal: bad, Person: bad, Outcome: proxy.OK})
	for _, w := range []*httptest.ResponseRecorder{s.get("/"), s.get("/servers?q=" + "%22%3E%3Cimg%20src=x%20onerror=alert(1)%3E"),
		s.get("/servers/a"), s.get("/calls"), s.get("/", "s/a", "summary"), s.get("/calls", "calls")} {
		if text := w.Body.String(); strings.Contains(text, "<img") || strings.Contains(text, "alert(2)</script>") || w.Code != http.StatusOK {
			t.Errorf("%d:\n%s", w.Code, text)
		}
	}
}
