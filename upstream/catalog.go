package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// Catalog is what one upstream offers, verbatim. It is never modified.
type Catalog struct {
	Era     Era    // EraAuto before the upstream was listed for the first time
	Version string // of the protocol, as negotiated
	Tools   []Tool
	// Left are the definitions that were left out, and why.
	Left []LeftOut
	// TTL is how long the upstream says that the list is fresh; 0 when it does not say. Public says that it is the same for every user.
	TTL    time.Duration
	Public bool
	Listed time.Time // zero before the first listing

	byName map[string]*Tool
}

// Tool is one tool of a catalog.
type Tool struct {
	Name       string
	Definition raw.Object // as the upstream wrote it
	// Params are the arguments that go into HTTP headers as well. HeaderProblem says what is wrong with their declaration: clients of the modern era must not
	// see such a tool (2026-07-28, streamable-http#schema-extension).
	Params        []ParamHeader
	HeaderProblem string
}

// LeftOut is a definition that is not offered.
type LeftOut struct{ Name, Reason string }

// Tool returns the tool of that name, or nil.
func (c *Catalog) Tool(name string) *Tool { return c.byName[name] }

// equal reports whether both offer the same.
func (c *Catalog) equal(o *Catalog) bool {
	if c.Era != o.Era || c.Version != o.Version || c.TTL != o.TTL || c.Public != o.Public || len(c.Tools) != len(o.Tools) || len(c.Left) != len(o.Left) {
		return false
	}
	for i := range c.Tools {
		if !bytes.Equal(c.Tools[i].Definition.Text(), o.Tools[i].Definition.Text()) {
			return false
		}
	}
	for i := range c.Left {
		if c.Left[i] != o.Left[i] {
			return false
		}
	}
	return true
}

// maxPages bounds a list whatever its cursors say.
const maxPages = 1000

// readCatalog reads all pages. A list that cannot be read to its end is an error, never a shorter list.
func readCatalog(ctx context.Context, c conn, maxItems int) (*Catalog, error) {
	info := c.about()
	cat := &Catalog{Era: info.era, Version: info.version, Listed: time.Now(), byName: map[string]*Tool{}}
	if info.era == EraModern && !has(info.capabilities, "tools") {
		return cat, nil
	}
	seen := map[string]bool{}
	var cursor []byte
	for page := 1; ; page++ {
		result, err := c.list(ctx, string(mcp.MethodToolsList), cursor)
		if err != nil {
			var peer *jsonrpc.Error
			if page == 1 && errors.As(err, &peer) && peer.Code == mcp.METHOD_NOT_FOUND {
				return cat, nil // a server without tools
			}
			return nil, fmt.Errorf("tools/list: %w", err)
		}
		list, err := result.Get("tools")
		if err != nil {
			return nil, fmt.Errorf("tools/list: %w: no tools on page %d", errInvalid, page)
		}
		items, err := raw.Elements(list)
		if err != nil {
			return nil, fmt.Errorf("tools/list: %w: tools are no array on page %d", errInvalid, page)
		}
		cat.cacheHints(result, page == 1)
		for _, item := range items {
			cat.add(item)
		}
		if len(cat.Tools)+len(cat.Left) > maxItems {
			return nil, fmt.Errorf("tools/list: more than %d items (limits.items)", maxItems)
		}
		if cursor, err = result.Get("nextCursor"); err == raw.ErrAbsent || err == nil && string(cursor) == "null" {
			return cat, nil
		} else if err != nil {
			return nil, fmt.Errorf("tools/list: nextCursor: %w", err)
		}
		if _, err := raw.String(cursor); err != nil {
			return nil, fmt.Errorf("tools/list: %w: nextCursor is no string", errInvalid)
		}
		if seen[string(cursor)] {
			return nil, fmt.Errorf("tools/list: %w: the list never ends, page %d has the cursor of an earlier one", errInvalid, page)
		}
		if page == maxPages {
			return nil, fmt.Errorf("tools/list: %w: more than %d pages", errInvalid, maxPages)
		}
		seen[string(cursor)] = true
	}
}

// cacheHints takes the smallest time and the narrower scope of the pages (2026-07-28, server/utilities/caching).
func (c *Catalog) cacheHints(result raw.Object, first bool) {
	ttl := time.Duration(0)
	if v, err := result.Get("ttlMs"); err == nil {
		if ms, ok := wholeNumber(v); ok {
			ttl = min(time.Duration(ms), 24*60*60*1000) * time.Millisecond
		}
	}
	scope, _ := result.String("cacheScope")
	if first {
		c.TTL, c.Public = ttl, scope == "public"
		return
	}
	c.TTL, c.Public = min(c.TTL, ttl), c.Public && scope == "public"
}

// add takes one definition, or leaves it out with the reason. What is wrong with one tool must not make a client refuse the whole list.
func (c *Catalog) add(item []byte) {
	name, reason := "", ""
	o, err := raw.Parse(item)
	if err != nil {
		reason = "the definition is no object"
	} else if name, err = o.String("name"); err != nil || name == "" {
		reason = "it has no name that all clients would read alike"
	} else if c.byName[name] != nil {
		reason = "the upstream lists the name twice; the first counts"
	} else {
		reason = malformed(o)
	}
	if reason != "" {
		c.Left = append(c.Left, LeftOut{name, reason})
		return
	}
	t := Tool{Name: name, Definition: o}
	schema, _ := o.Get("inputSchema")
	if t.Params, err = paramHeaders(schema); err != nil {
		t.Params, t.HeaderProblem = nil, err.Error() // clients of the legacy era may call it, without headers
	}
	c.Tools = append(c.Tools, t)
	c.byName[name] = &t
}

// malformed says which member of a tool's definition has a type that typed clients choke on: they drop the whole list then. "" means none.
func malformed(o raw.Object) string {
	for _, m := range []struct {
		name string
		kind byte // the first byte of the JSON
	}{{"title", '"'}, {"description", '"'}, {"inputSchema", '{'}, {"outputSchema", '{'}, {"annotations", '{'}, {"_meta", '{'}, {"execution", '{'}, {"icons", '['}} {
		v, err := o.Get(m.name)
		switch {
		case err == raw.ErrAbsent && m.name == "inputSchema":
			return "it has no inputSchema"
		case err == raw.ErrAbsent:
		case err != nil:
			return m.name + " occurs twice, or in another letter case"
		case v[0] != m.kind:
			return fmt.Sprintf("%s is no %s", m.name, map[byte]string{'"': "string", '{': "object", '[': "array"}[m.kind])
		}
	}
	schema, _ := o.Object("inputSchema")
	if kind, err := schema.String("type"); err != nil || kind != "object" {
		return `inputSchema is not of type "object"`
	}
	hints, err := o.Object("annotations")
	if err != nil {
		return ""
	}
	for _, m := range hints.Members() {
		name, _ := m.Name()
		switch name {
		case "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint":
			if s := string(m.Value); s != "true" && s != "false" {
				return "annotations." + name + " is neither true nor false"
			}
		case "title":
			if m.Value[0] != '"' {
				return "annotations.title is no string"
			}
		}
	}
	return ""
}
