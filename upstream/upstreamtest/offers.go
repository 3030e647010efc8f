package upstreamtest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"junction/upstream/raw"
)

// listKind is one of the lists of a server.
type listKind struct {
	member  string // of the result
	changed string // the notification of a change
}

// listKinds are the lists by the method that returns them.
var listKinds = map[string]listKind{
	"tools/list":               {"tools", "notifications/tools/list_changed"},
	"prompts/list":             {"prompts", "notifications/prompts/list_changed"},
	"resources/list":           {"resources", "notifications/resources/list_changed"},
	"resources/templates/list": {"resourceTemplates", "notifications/resources/list_changed"},
	"skills/list":              {"skills", "notifications/resources/list_changed"},
}

// Set changes a list, by the method that returns it, and tells those who want to know, before it
// returns.
func (s *Server) Set(method string, items []json.RawMessage) {
	kind, ok := listKinds[method]
	if !ok {
		panic("upstreamtest: " + method + " is no list") // a mistake in a test
	}
	s.state.Lock()
	s.lists[kind] = items
	s.state.Unlock()
	if !s.script.NoListChanged {
		s.Notify(kind.changed, nil)
	}
}

// SetTools changes the list of tools and tells those who want to know, before it returns.
func (s *Server) SetTools(tools []json.RawMessage) { s.Set("tools/list", tools) }

// listed returns the items of a list as it is now.
func (s *Server) listed(method string) []json.RawMessage {
	s.state.Lock()
	defer s.state.Unlock()
	return s.lists[listKinds[method]]
}

// item returns the item whose member is the text; nil when there is none.
func (s *Server) item(method, member, text string) json.RawMessage {
	list := s.listed(method)
	i := slices.IndexFunc(list, func(item json.RawMessage) bool {
		v, _ := raw.Get(item, member)
		got, err := raw.String(v)
		return err == nil && got == text
	})
	if i < 0 {
		return nil
	}
	return list[i]
}

func (c *call) list(kind listKind) {
	c.s.state.Lock()
	items := c.s.lists[kind]
	c.s.state.Unlock()
	size := c.s.script.PageSize
	if size <= 0 {
		size = max(1, len(items))
	}
	page := 0
	if v, err := raw.Get(c.m.Params, "cursor"); err == nil {
		cursor, _ := raw.String(v)
		n, err := strconv.Atoi(strings.TrimPrefix(cursor, "page-"))
		switch {
		case cursor == "" && c.s.script.EmptyCursor, cursor == "again" && c.s.script.LoopCursor:
			page = 1
		case err == nil && 0 < n && n*size < len(items):
			page = n
		default:
			c.fail(200, -32602, "Invalid cursor", nil)
			return
		}
	}
	from, to, next := min(page*size, len(items)), min((page+1)*size, len(items)), ""
	switch {
	case c.s.script.LoopCursor:
		next = `,"nextCursor":"again"`
	case to < len(items) && page == 0 && c.s.script.EmptyCursor:
		next = `,"nextCursor":""`
	case to < len(items):
		next = fmt.Sprintf(`,"nextCursor":"page-%d"`, page+1)
	}
	if c.modern {
		next += "," + c.caching()
	}
	var list []byte
	for i, item := range items[from:to] {
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, item...)
	}
	c.result(`"%s":[%s]%s`, kind.member, list, next)
}

// param returns the string at the path of the params; "" when there is none.
func (c *call) param(path ...string) string {
	v, _ := raw.Get(c.m.Params, path...)
	s, _ := raw.String(v)
	return s
}

func (c *call) prompt(ctx context.Context) {
	name := c.param("name")
	messages, scripted := c.s.script.Messages[name]
	switch {
	case c.instead(ctx, name):
	case scripted:
		c.answer(messages)
	case c.s.item("prompts/list", "name", name) == nil:
		c.fail(200, -32602, "Unknown prompt: "+name, nil)
	default:
		args, _ := raw.Get(c.m.Params, "arguments")
		c.text(string(args))
	}
}

// instead does what the script has in place of a prompt or resource. It returns false when that is
// nothing.
func (c *call) instead(ctx context.Context, name string) bool {
	args, ok := c.s.script.Instead[name]
	if ok {
		c.do(ctx, "", args)
	}
	return ok
}

func (c *call) read(ctx context.Context) {
	uri := c.param("uri")
	contents, scripted := c.s.script.Contents[uri]
	switch {
	case c.instead(ctx, uri):
	case scripted:
		c.contents(contents)
	case c.s.item("resources/list", "uri", uri) != nil || c.s.templated(uri):
		c.text("content of " + uri)
	case c.modern:
		c.fail(200, -32602, "Resource not found", fmt.Appendf(nil, `{"uri":%s}`, raw.Quote(uri)))
	default:
		c.fail(200, -32002, "Resource not found", fmt.Appendf(nil, `{"uri":%s}`, raw.Quote(uri)))
	}
}

// contents answers resources/read.
func (c *call) contents(list []byte) {
	more := ""
	if c.modern {
		more = "," + c.caching()
	}
	c.result(`"contents":%s%s`, list, more)
}

// templated reports whether a URI begins as one of the templates does.
func (s *Server) templated(uri string) bool {
	return slices.ContainsFunc(s.listed("resources/templates/list"), func(item json.RawMessage) bool {
		v, _ := raw.Get(item, "uriTemplate")
		template, _ := raw.String(v)
		literal, _, expands := strings.Cut(template, "{")
		return expands && strings.HasPrefix(uri, literal)
	})
}

func (c *call) complete() {
	completion, ok := c.s.script.Completions[c.param("ref", "name")+c.param("ref", "uri")]
	if !ok {
		completion = []byte(`{"values":[]}`)
	}
	c.result(`"completion":%s`, completion)
}

// text answers with one text, as the method of the call does.
func (c *call) text(s string) {
	switch text := raw.Quote(s); c.m.Method {
	case "prompts/get":
		c.result(`"messages":[{"role":"user","content":{"type":"text","text":%s}}]`, text)
	case "resources/read":
		c.contents(fmt.Appendf(nil, `[{"uri":%s,"mimeType":"text/plain","text":%s}]`, raw.Quote(c.param("uri")), text))
	default:
		c.result(`"content":[{"type":"text","text":%s}]`, text)
	}
}

// structured answers with structuredContent, and with the same as text; what is no tool answers
// with the text alone.
func (c *call) structured(v []byte) {
	if c.m.Method != "tools/call" {
		c.text(string(v))
		return
	}
	c.result(`"content":[{"type":"text","text":%s}],"structuredContent":%s`, raw.Quote(string(v)), v)
}
