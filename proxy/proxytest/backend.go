// Package proxytest has what the tests of package proxy and of the packages below it share: a server
// with a known answer, and many callers with their policies.
package proxytest

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
)

// Backend is a backend that knows its answer.
type Backend struct {
	Named  string
	Lists  *upstream.Catalog
	answer []byte
	config upstream.Config
}

func (c *Backend) Name() string { return c.Named }

func (c *Backend) Config() upstream.Config { return c.config }

func (c *Backend) Tried() bool { return true }

func (c *Backend) Catalog() *upstream.Catalog { return c.Lists }

func (c *Backend) Call(context.Context, *upstream.Call) (client.Result, error) {
	o, err := raw.Parse(c.answer)
	return client.Result{Object: o, Type: client.TypeComplete}, err
}

func (c *Backend) Subscribe(context.Context, *upstream.Call, []string) (upstream.Source, []string, error) {
	return upstream.Source{}, nil, nil
}

func (c *Backend) Unsubscribe(upstream.Source, []string) {}

func (c *Backend) Announced() uint64                                           { return 0 }
func (c *Backend) Relist()                                                     {}
func (c *Backend) Reread(context.Context, client.Profile, string, string) bool { return false }

func (c *Backend) RootsChanged(client.Profile, string, string) {}

func (c *Backend) SignedIn(context.Context) error { return nil }

func (c *Backend) Met() <-chan struct{} { return nil }

func (c *Backend) Ready(context.Context) error { return nil }

func (c *Backend) Separates() bool { return false }

func (c *Backend) Prepare(context.Context, client.Profile, string, string) bool { return false }

func (c *Backend) Warm(*upstream.Call) {}

func (c *Backend) ByFolder() bool { return c.config.Isolation == upstream.IsolationFolder }

func (c *Backend) Bring(context.Context, *upstream.Folders) bool { return false }

func (c *Backend) BringLater(*upstream.Folders) {}
func (c *Backend) Current(context.Context) bool { return true }

func (c *Backend) NeedsFolder() bool { return c.ByFolder() }

func (c *Backend) AwaitsFolder() bool { return false }

func (c *Backend) CatalogFor(client.Profile, string, string) *upstream.Catalog { return c.Lists }

func (c *Backend) Holder(upstream.Window) (string, bool) { return "", false }

func (c *Backend) Keeps(string) bool { return false }

func (c *Backend) Discard(string) {}

func NewBackend(tb testing.TB, tools, size int) *Backend {
	tb.Helper()
	catalog := &upstream.Catalog{Era: client.EraLegacy, Listed: time.Now()}
	const schema = `{"type":"object","properties":{"text":{"type":"string"}}}`
	for i := range tools {
		definition, err := raw.Parse(fmt.Appendf(nil, `{"name":"tool%d","description":"%0200d","inputSchema":%s}`, i, i,
			schema))
		if err != nil {
			tb.Fatal(err)
		}
		item := upstream.Item{Name: fmt.Sprintf("tool%d", i), Definition: definition}
		catalog.Tools = append(catalog.Tools, upstream.Tool{Item: item})
	}
	text := bytes.Repeat([]byte("x"), size)
	answer := fmt.Appendf(nil, `{"content":[{"type":"text","text":"%s"}]}`, text)
	return &Backend{Named: "up", Lists: catalog, answer: answer}
}

// MustTool is a tool with that definition.
func MustTool(tb testing.TB, definition string) upstream.Tool {
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
