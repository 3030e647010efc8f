package proxy

import (
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/auth"
	"junction/policy"
	"junction/upstream"
	"junction/upstream/raw"
)

// crowd is an endpoint of many tools, and the policies of many principals.
type crowd struct {
	upstreams, tools int // tools of each upstream
	policies         policy.Config
	principals       []*auth.Principal
}

// keysOfOnePolicy has a policy for each key, of which no two allow the same.
func keysOfOnePolicy(keys, upstreams, tools int) crowd {
	c := crowd{upstreams: upstreams, tools: tools}
	for i := range keys {
		name := fmt.Sprint("key", i)
		c.principals = append(c.principals, &auth.Principal{Kind: auth.KindKey, ID: "key:" + name, Key: name})
		c.policies = append(c.policies, policy.Entry{Name: name, Match: &policy.Match{Key: policy.List{name}}, Rules: []policy.Rule{
			{Deny: &policy.Selector{Tools: policy.List{fmt.Sprintf("*_tool%d", i%tools), "*delete*"}}},
			{Deny: &policy.Selector{Upstreams: policy.List{fmt.Sprint("up", i/tools%upstreams)}}},
			{Allow: &policy.Selector{Upstreams: policy.List{"*"}}}}})
	}
	return c
}

// usersOfGroups has a policy for everybody and one for each group. Each user is in another set of six groups.
func usersOfGroups(users, groups, upstreams, tools int) crowd {
	c := crowd{upstreams: upstreams, tools: tools}
	c.policies = append(c.policies, policy.Entry{Name: "everybody", Rules: []policy.Rule{
		{Allow: &policy.Selector{Tools: policy.List{"*__read*", "*_tool?"}}}, {Deny: &policy.Selector{Tools: policy.List{"*delete*"}}}}})
	for i := 1; i < groups; i++ {
		name := fmt.Sprint("group", i)
		c.policies = append(c.policies, policy.Entry{Name: name, Match: &policy.Match{Group: policy.List{name}}, Rules: []policy.Rule{
			{Deny: &policy.Selector{Tools: policy.List{fmt.Sprintf("*_tool%d", i%tools), "*drop*"}}},
			{Ask: &policy.Selector{Tools: policy.List{fmt.Sprintf("*_tool%d?", i%10)}}},
			{Allow: &policy.Selector{Upstreams: policy.List{fmt.Sprint("up", i%upstreams), fmt.Sprint("up", (i+7)%upstreams)}}}}})
	}
	for i := range users {
		p := &auth.Principal{Kind: auth.KindUser, ID: fmt.Sprintf("https://issuer.example user%d", i), User: fmt.Sprint("user", i), Issuer: "https://issuer.example"}
		for k := range 6 { // in base groups-1, so that no two have the same six
			p.Groups = append(p.Groups, fmt.Sprint("group", 1+(i*(2*k+1)+k*k*i/groups+k*83)%(groups-1)))
		}
		c.principals = append(c.principals, p)
	}
	return c
}

// backends are the upstreams of the crowd.
func (c *crowd) backends(tb testing.TB) (all []backend) {
	for u := range c.upstreams {
		catalog := &upstream.Catalog{Era: upstream.EraLegacy, Listed: time.Now()}
		for i := range c.tools {
			name := fmt.Sprintf("%s_tool%d", []string{"read", "write", "delete", "query", "drop"}[i%5], i)
			definition, err := raw.Parse(fmt.Appendf(nil, `{"name":%q,"description":"%0500d","inputSchema":{"type":"object","properties":{"text":{"type":"string"}}}}`, name, i))
			if err != nil {
				tb.Fatal(err)
			}
			catalog.Tools = append(catalog.Tools, upstream.Tool{Item: upstream.Item{Name: name, Definition: definition}})
		}
		all = append(all, &canned{name: fmt.Sprint("up", u), catalog: catalog})
	}
	slices.SortFunc(all, func(a, b backend) int { return strings.Compare(a.Name(), b.Name()) })
	return all
}

// server has the upstreams and the policies of the crowd.
func (c *crowd) server(tb testing.TB) *Server {
	p, err := policy.Compile(c.policies)
	if err != nil {
		tb.Fatal(err)
	}
	s := mustServer(tb)
	s.apply(WorldConfig{Guard: &auth.Guard{}, Policy: p}, c.backends(tb))
	return s
}

// listAll lists the tools of the merged endpoint, all pages, and returns how many bytes came.
func (s *Server) listAll(tb testing.TB, p *auth.Principal) (bytes int) {
	for cursor := ""; ; {
		answer := &keeping{nowhere: nowhere{header: http.Header{}}}
		params := modernMeta
		if cursor != "" {
			params += `,"cursor":"` + cursor + `"`
		}
		s.send(answer, p, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+params+`}}`, modernHeader("tools/list", ""))
		bytes += answer.n
		_, rest, more := strings.Cut(string(answer.tail), `"nextCursor":"`)
		if answer.n < 50 || strings.Contains(string(answer.tail), `"error"`) {
			tb.Fatalf("a list is answered %s", answer.tail)
		}
		if !more {
			return bytes
		}
		cursor, _, _ = strings.Cut(rest, `"`)
	}
}

// send has a request answered as one of the principal's.
func (s *Server) send(w http.ResponseWriter, p *auth.Principal, body string, header http.Header) {
	header["Content-Type"], header["Accept"] = []string{"application/json"}, []string{"application/json, text/event-stream"}
	r := &http.Request{Method: "POST", URL: &url.URL{Path: "/mcp"}, Host: "127.0.0.1:8420", Header: header, ContentLength: int64(len(body))}
	r.Body = readCloser{strings.NewReader(body)}
	w1 := s.world.Load()
	e := w1.endpoint("", p)
	s.post(w, r, caller{world: w1, endpoint: e, principal: p, share: w1.share(e, p)})
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }

// keeping is a ResponseWriter that keeps the end of an answer.
type keeping struct {
	nowhere
	tail []byte
}

func (w *keeping) Write(b []byte) (int, error) {
	w.tail = append(w.tail[:0], b[max(0, len(b)-1000):]...)
	return w.nowhere.Write(b)
}

// held returns how many bytes of memory are in use.
func held() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// spent returns how much time the processors have spent on the process.
func spent(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkPrincipals is what many principals cost that list all tools, page by page: the memory that they
// keep, and the time of processors that a list takes, with the collection of garbage. The first list is that
// of somebody else's policies, too, as a rule; the very first one compares the policies with the tools.
func BenchmarkPrincipals(b *testing.B) {
	for _, test := range []struct {
		name string
		crowd
	}{
		{"300Keys", keysOfOnePolicy(300, 50, 210)},
		{"10000Users", usersOfGroups(10_000, 500, 50, 200)},
	} {
		b.Run(test.name, func(b *testing.B) {
			s := test.server(b)
			call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up1__read_tool0","arguments":{},` + modernMeta + `}}`
			each := func(n int, f func(p *auth.Principal)) (ms float64) {
				began := spent(b)
				for _, p := range test.principals[:n] {
					f(p)
				}
				return float64(spent(b)-began) / 1e6 / float64(n)
			}
			list := func(p *auth.Principal) { s.listAll(b, p) }
			for b.Loop() {
				s.Refresh()
				before := held()
				b.ReportMetric(float64(before)/1e6, "MB-before")
				b.ReportMetric(each(1, list), "ms/very-first-list")
				b.ReportMetric(each(len(test.principals), list), "ms/first-list")
				all := held() - before
				b.ReportMetric(float64(all)/1e6, "MB-of-all")
				b.ReportMetric(float64(all)/1e3/float64(len(test.principals)), "KB/principal")
				slices.Reverse(test.principals) // the last ones are those that are kept
				b.ReportMetric(each(200, list), "ms/second-list")
				b.ReportMetric(each(200, list), "ms/later-list")
				b.ReportMetric(1000*each(200, func(p *auth.Principal) {
					s.send(&nowhere{header: http.Header{}}, p, call, modernHeader(string(mcp.MethodToolsCall), "up1__read_tool0"))
				}), "µs/call")
				slices.Reverse(test.principals)
			}
			b.ReportMetric(0, "ns/op")
			runtime.KeepAlive(s)
		})
	}
}
