package proxy

import (
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

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

// keysOfOnePolicy has a policy for each key, which denies two tools and everything that deletes.
func keysOfOnePolicy(keys, upstreams, tools int) crowd {
	c := crowd{upstreams: upstreams, tools: tools}
	for i := range keys {
		name := fmt.Sprint("key", i)
		c.principals = append(c.principals, &auth.Principal{Kind: auth.KindKey, ID: "key:" + name, Key: name})
		c.policies = append(c.policies, policy.Entry{Name: name, Match: &policy.Match{Key: policy.List{name}}, Rules: []policy.Rule{
			{Deny: &policy.Selector{Tools: policy.List{c.other(i), c.other(i + 1 + i/c.others()), "*delete*"}}},
			{Allow: &policy.Selector{Upstreams: policy.List{"*"}}}}})
	}
	return c
}

// others is how many tools do not delete.
func (c *crowd) others() int { return c.upstreams * c.tools * 4 / 5 }

// other returns the name of one of them, of which tools must be a multiple of 5.
func (c *crowd) other(i int) string {
	i %= c.others()
	tool := i % (c.tools * 4 / 5)
	return fmt.Sprintf("up%d__*_tool%d", i/(c.tools*4/5), tool/4*5+[]int{0, 1, 3, 4}[tool%4])
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
