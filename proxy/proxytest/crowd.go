package proxytest

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"junction/auth"
	"junction/auth/authtest"
	"junction/policy"
	"junction/proxy/budget"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
)

// Crowd is an endpoint of many tools, and the policies of many principals.
type Crowd struct {
	Upstreams, Tools int // tools of each upstream, a multiple of 5
	Policies         policy.Config
	Principals       []*auth.Principal
}

func Allow(s policy.Selector) policy.Rule { return policy.Rule{Allow: &s} }
func Ask(s policy.Selector) policy.Rule   { return policy.Rule{Ask: &s} }
func Deny(s policy.Selector) policy.Rule  { return policy.Rule{Deny: &s} }

// All and tools select everything, and tools by their names.
func All() policy.Selector { return policy.Selector{Upstreams: policy.List{"*"}} }

func Tools(globs ...string) policy.Selector { return policy.Selector{Tools: globs} }

// KeysOfOnePolicy has a policy for each key, which denies two tools and everything that deletes.
func KeysOfOnePolicy(keys, upstreams, perUpstream int) Crowd {
	c := Crowd{Upstreams: upstreams, Tools: perUpstream}
	for i := range keys {
		name := fmt.Sprint("key", i)
		c.Principals = append(c.Principals, &auth.Principal{Kind: auth.KindKey, ID: "key:" + name, Key: name})
		c.Policies = append(c.Policies, policy.Entry{
			Name:  name,
			Match: &policy.Match{Key: policy.List{name}},
			Rules: []policy.Rule{Deny(Tools(c.other(i), c.other(i+1+i/c.others()), "*delete*")), Allow(All())},
		})
	}
	return c
}

// others is how many tools do not delete.
func (c *Crowd) others() int { return c.Upstreams * c.Tools * 4 / 5 }

// other is a glob for one of them.
func (c *Crowd) other(i int) string {
	i %= c.others()
	tool := i % (c.Tools * 4 / 5)
	return fmt.Sprintf("up%d__*_tool%d", i/(c.Tools*4/5), tool/4*5+[]int{0, 1, 3, 4}[tool%4])
}

// UsersOfGroups has a policy for everybody and one for each group. Each user is in another set of
// six groups.
func UsersOfGroups(users, groups, upstreams, perUpstream int) Crowd {
	c := Crowd{Upstreams: upstreams, Tools: perUpstream}
	c.Policies = append(c.Policies, policy.Entry{
		Name: "everybody", Rules: []policy.Rule{Allow(Tools("*__read*", "*_tool?")), Deny(Tools("*delete*"))},
	})
	for i := 1; i < groups; i++ {
		name := fmt.Sprint("group", i)
		its := policy.List{fmt.Sprint("up", i%upstreams), fmt.Sprint("up", (i+7)%upstreams)}
		c.Policies = append(c.Policies, policy.Entry{
			Name:  name,
			Match: &policy.Match{Group: policy.List{name}},
			Rules: []policy.Rule{
				Deny(Tools(fmt.Sprintf("*_tool%d", i%perUpstream), "*drop*")),
				Ask(Tools(fmt.Sprintf("*_tool%d?", i%10))),
				Allow(policy.Selector{Upstreams: its}),
			},
		})
	}
	for i := range users {
		p := &auth.Principal{Kind: auth.KindUser, User: fmt.Sprint("user", i), Issuer: "https://issuer.example"}
		p.ID = p.Issuer + " " + p.User
		for k := range 6 {
			p.Groups = append(p.Groups, fmt.Sprint("group", 1+(i*(2*k+1)+k*k*i/groups+k*83)%(groups-1)))
		}
		c.Principals = append(c.Principals, p)
	}
	return c
}

// Backends are the upstreams of the crowd.
func (c *Crowd) Backends(tb testing.TB) (list []view.Backend) {
	const definition = `{"name":"%s_tool%d","description":"%0500d","inputSchema":{"type":"object","properties":{}}}`
	for u := range c.Upstreams {
		catalog := &upstream.Catalog{Era: client.EraLegacy, Listed: time.Now()}
		for i := range c.Tools {
			verb := []string{"read", "write", "delete", "query", "drop"}[i%5]
			catalog.Tools = append(catalog.Tools, MustTool(tb, fmt.Sprintf(definition, verb, i, i)))
		}
		list = append(list, &Backend{Named: fmt.Sprint("up", u), Lists: catalog})
	}
	slices.SortFunc(list, func(a, b view.Backend) int { return cmp.Compare(a.Name(), b.Name()) })
	return list
}

func MustPolicy(tb testing.TB, c policy.Config) *policy.Policy {
	tb.Helper()
	p, err := policy.Compile(c)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// Knowing is a Guard that accepts every principal that was authenticated before.
func Knowing(tb testing.TB) *auth.Guard {
	return &auth.Guard{Verifier: known{}, Log: authtest.Log(tb)}
}

type known struct{}

func (known) Verify(context.Context, string, netip.Addr) (*auth.Principal, error) {
	return nil, auth.ErrInvalidToken
}
func (known) Still(*auth.Principal) bool { return true }

// MemoryInUse returns how many bytes of memory are in use.
func MemoryInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// NewBudget returns a budget with these totals.
func NewBudget(tb testing.TB, total [budget.Quotas]int64) *budget.Budget {
	b := new(budget.Budget)
	b.Init(total, authtest.Log(tb))
	return b
}
