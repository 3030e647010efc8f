package proxy

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"junction/auth"
	"junction/policy"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
)

// crowd is an endpoint of many tools, and the policies of many principals.
type crowd struct {
	upstreams, tools int // tools of each upstream, a multiple of 5
	policies         policy.Config
	principals       []*auth.Principal
}

func allow(s policy.Selector) policy.Rule { return policy.Rule{Allow: &s} }
func ask(s policy.Selector) policy.Rule   { return policy.Rule{Ask: &s} }
func deny(s policy.Selector) policy.Rule  { return policy.Rule{Deny: &s} }

// all and tools select everything, and tools by their names.
func all() policy.Selector { return policy.Selector{Upstreams: policy.List{"*"}} }

func tools(globs ...string) policy.Selector { return policy.Selector{Tools: globs} }

// keysOfOnePolicy has a policy for each key, which denies two tools and everything that deletes.
func keysOfOnePolicy(keys, upstreams, perUpstream int) crowd {
	c := crowd{upstreams: upstreams, tools: perUpstream}
	for i := range keys {
		name := fmt.Sprint("key", i)
		c.principals = append(c.principals, &auth.Principal{Kind: auth.KindKey, ID: "key:" + name, Key: name})
		c.policies = append(c.policies, policy.Entry{
			Name:  name,
			Match: &policy.Match{Key: policy.List{name}},
			Rules: []policy.Rule{deny(tools(c.other(i), c.other(i+1+i/c.others()), "*delete*")), allow(all())},
		})
	}
	return c
}

// others is how many tools do not delete.
func (c *crowd) others() int { return c.upstreams * c.tools * 4 / 5 }

// other is a glob for one of them.
func (c *crowd) other(i int) string {
	i %= c.others()
	tool := i % (c.tools * 4 / 5)
	return fmt.Sprintf("up%d__*_tool%d", i/(c.tools*4/5), tool/4*5+[]int{0, 1, 3, 4}[tool%4])
}

// usersOfGroups has a policy for everybody and one for each group. Each user is in another set of
// six groups.
func usersOfGroups(users, groups, upstreams, perUpstream int) crowd {
	c := crowd{upstreams: upstreams, tools: perUpstream}
	c.policies = append(c.policies, policy.Entry{
		Name: "everybody", Rules: []policy.Rule{allow(tools("*__read*", "*_tool?")), deny(tools("*delete*"))},
	})
	for i := 1; i < groups; i++ {
		name := fmt.Sprint("group", i)
		its := policy.List{fmt.Sprint("up", i%upstreams), fmt.Sprint("up", (i+7)%upstreams)}
		c.policies = append(c.policies, policy.Entry{
			Name:  name,
			Match: &policy.Match{Group: policy.List{name}},
			Rules: []policy.Rule{
				deny(tools(fmt.Sprintf("*_tool%d", i%perUpstream), "*drop*")),
				ask(tools(fmt.Sprintf("*_tool%d?", i%10))),
				allow(policy.Selector{Upstreams: its}),
			},
		})
	}
	for i := range users {
		p := &auth.Principal{Kind: auth.KindUser, User: fmt.Sprint("user", i), Issuer: "https://issuer.example"}
		p.ID = p.Issuer + " " + p.User
		for k := range 6 {
			p.Groups = append(p.Groups, fmt.Sprint("group", 1+(i*(2*k+1)+k*k*i/groups+k*83)%(groups-1)))
		}
		c.principals = append(c.principals, p)
	}
	return c
}

// toolOf is a tool with that definition.
func toolOf(tb testing.TB, definition string) upstream.Tool {
	tb.Helper()
	o, err := raw.Parse([]byte(definition))
	if err != nil {
		tb.Fatal(err)
	}
	name, err := o.String("name")
	if err != nil {
		tb.Fatal(err)
	}
	return upstream.Tool{Item: upstream.Item{Name: name, Definition: o}}
}

// backends are the upstreams of the crowd.
func (c *crowd) backends(tb testing.TB) (list []view.Backend) {
	const definition = `{"name":"%s_tool%d","description":"%0500d","inputSchema":{"type":"object","properties":{}}}`
	for u := range c.upstreams {
		catalog := &upstream.Catalog{Era: client.EraLegacy, Listed: time.Now()}
		for i := range c.tools {
			verb := []string{"read", "write", "delete", "query", "drop"}[i%5]
			catalog.Tools = append(catalog.Tools, toolOf(tb, fmt.Sprintf(definition, verb, i, i)))
		}
		list = append(list, &canned{name: fmt.Sprint("up", u), catalog: catalog})
	}
	slices.SortFunc(list, func(a, b view.Backend) int { return cmp.Compare(a.Name(), b.Name()) })
	return list
}

// server has the upstreams and the policies of the crowd.
func (c *crowd) server(tb testing.TB) *Server {
	s := mustServer(tb)
	s.apply(SnapshotConfig{Guard: &auth.Guard{}, Policy: compiledPolicy(tb, c.policies)}, c.backends(tb))
	return s
}

func compiledPolicy(tb testing.TB, c policy.Config) *policy.Policy {
	tb.Helper()
	p, err := policy.Compile(c)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

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
	now := s.snapshot.Load()
	e := now.endpoint("", p)
	s.postAs(w, r, caller{snapshot: now, endpoint: e, principal: p, subject: now.subjectView(e, p)})
}

// postAs has a request answered as one of the caller's.
func (s *Server) postAs(w http.ResponseWriter, r *http.Request, c caller) {
	x := s.newExchange(w, r, c)
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

// held returns how many bytes of memory are in use.
func held() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
