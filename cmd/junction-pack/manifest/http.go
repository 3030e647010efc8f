package manifest

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"junction/cmd/junction/yamlread"

	"gopkg.in/yaml.v3"
)

// HTTP is the request of a tool. At most one of JSON, Form and Text is given.
type HTTP struct {
	Method  string    `yaml:"method"` // default GET; POST with a body
	URL     Text      `yaml:"url"`
	Query   Variables `yaml:"query"`
	Headers Variables `yaml:"headers"`
	JSON    *JSON     `yaml:"json"`
	Form    Variables `yaml:"form"`
	Text    Text      `yaml:"text"`
}

// JSON is a JSON value whose texts are templates. A text that is only a placeholder becomes the
// value itself, with its type. A member or element without value is left out.
type JSON struct {
	text    *Text
	members []member
	items   []JSON
	fixed   any // a number, true, false, or null
	kind    yaml.Kind
}

type member struct {
	name  string
	value JSON
}

func (j *JSON) decode(d *decoder, path string, n *yaml.Node) { j.read(d, path, n, 0) }

func (j *JSON) read(d *decoder, path string, n *yaml.Node, depth int) {
	if n = d.enter(n); n == nil {
		return
	}
	if depth > maxDepth {
		d.bad(path, "is nested more than %d levels deep; flatten it", maxDepth)
		return
	}
	switch j.kind = n.Kind; {
	case n.Kind == yaml.MappingNode:
		for _, p := range d.pairs(path, n) {
			m := member{name: p.key}
			m.value.read(d, yamlread.Join(path, p.key), p.value, depth+1)
			j.members = append(j.members, m)
		}
	case n.Kind == yaml.SequenceNode:
		for i, e := range n.Content {
			var item JSON
			item.read(d, fmt.Sprintf("%s[%d]", path, i), e, depth+1)
			j.items = append(j.items, item)
		}
	case n.ShortTag() == "!!str":
		j.text = new(Text)
		j.text.decode(d, path, n)
	default:
		if err := n.Decode(&j.fixed); err != nil {
			d.bad(path, "cannot be read (%v); put quotes around it", err)
		}
	}
}

// Value returns the value with the arguments of a call. ok is false if it has none.
func (j *JSON) Value(values map[string]any) (v any, ok bool) {
	switch {
	case j.kind == yaml.MappingNode:
		object := map[string]any{}
		for _, m := range j.members {
			if v, ok := m.value.Value(values); ok {
				object[m.name] = v
			}
		}
		return object, true
	case j.kind == yaml.SequenceNode:
		list := []any{}
		for _, item := range j.items {
			if v, ok := item.Value(values); ok {
				list = append(list, v)
			}
		}
		return list, true
	case j.text == nil:
		return j.fixed, true
	case j.text.Missing(values) != "":
		return nil, false
	}
	if name := j.text.Whole(); name != "" {
		return values[name], true
	}
	return j.text.Text(values, nil), true
}

// names returns the placeholders.
func (j *JSON) names() (all []string) {
	if j == nil {
		return nil
	}
	if j.text != nil {
		all = j.text.Names()
	}
	for _, m := range j.members {
		all = append(all, m.value.names()...)
	}
	for _, item := range j.items {
		all = append(all, item.names()...)
	}
	return all
}

// used calls note with the placeholders. optional is true if their part of the request is left out
// without a value.
func (h *HTTP) used(note func(names []string, optional bool)) {
	note(h.URL.Names(), false)
	note(h.Text.Names(), false)
	note(h.JSON.names(), true)
	for _, texts := range []Variables{h.Query, h.Headers, h.Form} {
		for _, t := range texts {
			note(t.Names(), true)
		}
	}
}

// methods are the methods of an http tool.
var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// http checks the request of a tool.
func (d *decoder) http(path string, h *HTTP) {
	bodies := 0
	for _, given := range []bool{h.JSON != nil, h.Form != nil, h.Text.Source != ""} {
		if given {
			bodies++
		}
	}
	if bodies > 1 {
		d.bad(path, "has more than one body; keep one of json, form and text")
	}
	if h.Method == "" {
		h.Method = map[bool]string{true: "POST", false: "GET"}[bodies > 0]
	}
	if h.Method = strings.ToUpper(h.Method); !slices.Contains(methods, h.Method) {
		d.bad(path+".method", "is none of %s", strings.Join(methods, ", "))
	}
	if h.URL.Source == "" {
		if d.lines[path+".url"] == 0 {
			d.bad(path, "has no url; add url: https://api.example.com/items/{{id}}")
		}
		return
	}
	d.address(path+".url", h.URL)
	for _, name := range slices.Sorted(maps.Keys(h.Headers)) {
		if !headerName.MatchString(name) {
			d.bad(path+".headers."+name, "is no name of a header; use letters, digits and -")
		}
		if names := h.Headers[name].Names(); len(names) > 0 &&
			slices.Contains(ownHeaders, http.CanonicalHeaderKey(name)) {
			d.bad(path+".headers."+name, "must not depend on {{%s}}; write a fixed value", names[0])
		}
	}
}

var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// ownHeaders decide where a request goes and with which credentials; arguments must not change
// them.
var ownHeaders = []string{"Host", "Authorization", "Cookie", "Proxy-Authorization", "Content-Length",
	"Transfer-Encoding", "Connection"}

// address checks that arguments can change only segments of the path of a URL.
func (d *decoder) address(path string, t Text) {
	if _, query, _ := strings.Cut(t.Source, "?"); strings.Contains(query, "{{") {
		d.bad(path, "has a placeholder after the question mark; put it into query: { name: \"{{name}}\" }")
	}
	if d.refs.Unresolved {
		return
	}
	if problem := AddressProblem(t.Text(nil, nil)); problem != "" {
		d.bad(path, "%s", problem)
		return
	}
	_, rest, _ := strings.Cut(t.Prefix(), "://")
	if len(t.Names()) > 0 && !strings.Contains(rest, "/") {
		d.bad(path, "must not have a placeholder in the host; write the host out, as in https://api.example.com/{{id}}")
	}
}

// AddressProblem returns why requests must not go to a URL; "" if they may. http is allowed only on
// this machine, because others could read secrets on the way.
func AddressProblem(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "":
		return "is no URL; write https://api.example.com/path"
	case u.User != nil:
		return "has a user or password; put it into headers: { Authorization: \"${NAME}\" }"
	case u.Scheme == "https":
		return ""
	case u.Scheme != "http":
		return "must be a URL that begins with https://"
	}
	host := u.Hostname()
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsLoopback() || host == "localhost" {
		return ""
	}
	return "begins with http://, so that others could read the request; write https://"
}
