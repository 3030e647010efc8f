package proxy

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"junction/auth"
	"junction/policy"
	"junction/proxy/view"
	"junction/upstream"
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

// backends are the upstreams of the crowd.
func (c *crowd) backends(tb testing.TB) (list []view.Backend) {
	const definition = `{"name":"%s_tool%d","description":"%0500d","inputSchema":{"type":"object","properties":{}}}`
	for u := range c.upstreams {
		catalog := &upstream.Catalog{Era: upstream.EraLegacy, Listed: time.Now()}
		for i := range c.tools {
			verb := []string{"read", "write", "delete", "query", "drop"}[i%5]
			catalog.Tools = append(catalog.Tools, toolOf(tb, fmt.Sprintf(definition, verb, i, i)))
		}
		list = append(list, &canned{name: fmt.Sprint("up", u), catalog: catalog})
	}
	slices.SortFunc(list, func(a, b view.Backend) int { return cmp.Compare(a.Name(), b.Name()) })
	return list
}

func compiledPolicy(tb testing.TB, c policy.Config) *policy.Policy {
	tb.Helper()
	p, err := policy.Compile(c)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// held returns how many bytes of memory are in use.
func held() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
