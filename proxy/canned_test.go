package proxy

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"junction/upstream"
	"junction/upstream/raw"
)

// canned is a backend that knows its answer.
type canned struct {
	name    string
	catalog *upstream.Catalog
	answer  []byte
	config  upstream.Config
}

func (c *canned) Name() string { return c.name }

func (c *canned) Config() upstream.Config { return c.config }

func (c *canned) Tried() bool { return true }

func (c *canned) Catalog() *upstream.Catalog { return c.catalog }

func (c *canned) Call(context.Context, *upstream.Call) (upstream.Result, error) {
	o, err := raw.Parse(c.answer)
	return upstream.Result{Object: o, Type: upstream.TypeComplete}, err
}

func (c *canned) Subscribe(context.Context, upstream.Profile, string, string, []string) (upstream.Source, []string, error) {
	return upstream.Source{}, nil, nil
}

func (c *canned) Unsubscribe(upstream.Source, []string) {}

func (c *canned) Announced() uint64 { return 0 }

func (c *canned) RootsChanged(upstream.Profile, string, string) {}

func (c *canned) SignedIn(context.Context) error { return nil }

func (c *canned) Met() <-chan struct{} { return nil }

func (c *canned) Ready(context.Context) error { return nil }

func (c *canned) Separates() bool { return false }

func (c *canned) Prepare(context.Context, upstream.Profile, string, string) bool { return false }

func (c *canned) CatalogFor(upstream.Profile, string, string) *upstream.Catalog { return c.catalog }

func cannedBackend(tb testing.TB, tools, size int) *canned {
	tb.Helper()
	catalog := &upstream.Catalog{Era: upstream.EraLegacy, Listed: time.Now()}
	for i := range tools {
		definition, err := raw.Parse(fmt.Appendf(nil, `{"name":"tool%d","description":"%0200d","inputSchema":{"type":"object","properties":{"text":{"type":"string"}}}}`, i, i))
		if err != nil {
			tb.Fatal(err)
		}
		catalog.Tools = append(catalog.Tools, upstream.Tool{Item: upstream.Item{Name: fmt.Sprintf("tool%d", i), Definition: definition}})
	}
	text := bytes.Repeat([]byte("x"), size)
	return &canned{name: "up", catalog: catalog, answer: fmt.Appendf(nil, `{"content":[{"type":"text","text":"%s"}]}`, text)}
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
