package view

import (
	"context"
	"testing"

	"junction/policy"
	"junction/upstream"
	"junction/upstream/client"
)

// canned is a backend with a catalog that does not change.
type canned struct {
	name    string
	catalog *upstream.Catalog
	config  upstream.Config
}

func (c *canned) Name() string               { return c.name }
func (c *canned) Config() upstream.Config    { return c.config }
func (c *canned) Tried() bool                { return true }
func (c *canned) Catalog() *upstream.Catalog { return c.catalog }
func (c *canned) Call(context.Context, *upstream.Call) (client.Result, error) {
	return client.Result{}, nil
}
func (c *canned) Subscribe(context.Context, *upstream.Call, []string) (upstream.Source, []string, error) {
	return upstream.Source{}, nil, nil
}
func (c *canned) Unsubscribe(upstream.Source, []string)                        {}
func (c *canned) Relist()                                                      {}
func (c *canned) Reread(context.Context, client.Profile, string, string) bool  { return false }
func (c *canned) Announced() uint64                                            { return 0 }
func (c *canned) RootsChanged(client.Profile, string, string)                  {}
func (c *canned) ByFolder() bool                                               { return false }
func (c *canned) Bring(context.Context, *upstream.Folders) bool                { return false }
func (c *canned) NeedsFolder() bool                                            { return false }
func (c *canned) AwaitsFolder() bool                                           { return false }
func (c *canned) BringLater(*upstream.Folders)                                 {}
func (c *canned) Current(context.Context) bool                                 { return true }
func (c *canned) SignedIn(context.Context) error                               { return nil }
func (c *canned) Met() <-chan struct{}                                         { return nil }
func (c *canned) Ready(context.Context) error                                  { return nil }
func (c *canned) Separates() bool                                              { return false }
func (c *canned) Prepare(context.Context, client.Profile, string, string) bool { return false }
func (c *canned) Warm(*upstream.Call)                                          {}
func (c *canned) CatalogFor(client.Profile, string, string) *upstream.Catalog  { return c.catalog }
func (c *canned) Holder(upstream.Window) (string, bool)                        { return "", false }
func (c *canned) Keeps(string) bool                                            { return false }
func (c *canned) Discard(string)                                               {}

func allow(s policy.Selector) policy.Rule { return policy.Rule{Allow: &s} }
func deny(s policy.Selector) policy.Rule  { return policy.Rule{Deny: &s} }

// all selects the items of all upstreams.
func all() policy.Selector { return policy.Selector{Upstreams: policy.List{"*"}} }

func tools(globs ...string) policy.Selector { return policy.Selector{Tools: globs} }

func compiledPolicy(tb testing.TB, c policy.Config) *policy.Policy {
	tb.Helper()
	p, err := policy.Compile(c)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}
