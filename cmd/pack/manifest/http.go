package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"junction/upstream/loopback"
	"junction/upstream/yamlread"

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
	// AllowHTTP allows an http URL of another machine. Others on its network can read the requests.
	AllowHTTP bool `yaml:"allow_http"`
	// Hosts are the hosts that a URL may have that is an argument: the word public, which stands for
	// all public addresses, or host:port. Without them, arguments cannot change the host.
	Hosts []string `yaml:"hosts"`
}

// HTTPKind are tools that send a request.
var HTTPKind = &Kind{Key: "http", Example: "http: { url: https://… }",
	Tools: "requests", Shows: "requests with their hosts",
	Limits: acceptedLimits, New: func(*Tool) Action { return &HTTP{} }}

// Check implements Action.
func (h *HTTP) Check(c *Checker) {
	c.TextOrJSON("; the API says what else its answer is")
	c.d.http(c.path+".http", h)
}

// Uses implements Action.
func (h *HTTP) Uses(note func(at string, names []string, optional bool)) {
	note(".http", h.URL.Names(), false)
	note(".http", h.Text.Names(), false)
	if h.JSON != nil {
		note(".http", namesIn(h.JSON.value), true) // a part without a value is left out
	}
	for _, texts := range []Variables{h.Query, h.Headers, h.Form} {
		for _, text := range texts {
			note(".http", text.Names(), true)
		}
	}
}

// JSON is a JSON value whose texts are templates. A text that is only a placeholder becomes the
// value itself, with its type. A member or element without value is left out.
type JSON struct {
	value any // a map[string]any or []any of such values, a Text, a number, true, false, or nil
}

func (j *JSON) decode(d *decoder, path string, n *yaml.Node) { j.value = d.templates(path, n, 0) }

// templates reads a value of JSON.
func (d *decoder) templates(path string, n *yaml.Node, depth int) (v any) {
	if n = d.Enter(n); n == nil {
		return nil
	}
	if depth > maxDepth {
		d.bad(path, "is nested more than %d levels deep; flatten it", maxDepth)
		return nil
	}
	switch {
	case n.Kind == yaml.MappingNode:
		object := map[string]any{}
		for _, p := range d.pairs(path, n) {
			object[p.Key] = d.templates(yamlread.Join(path, p.Key), p.Value, depth+1)
		}
		return object
	case n.Kind == yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, e := range n.Content {
			list[i] = d.templates(fmt.Sprintf("%s[%d]", path, i), e, depth+1)
		}
		return list
	case n.ShortTag() == "!!str":
		var t Text
		t.decode(d, path, n)
		return t
	}
	if err := n.Decode(&v); err != nil {
		d.bad(path, "cannot be read (%v); put quotes around it", err)
	}
	return v
}

// Source returns the value as JSON, with the texts as the file has them.
func (j *JSON) Source() string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(sources(j.value)); err != nil { // such as .nan
		return fmt.Sprint(sources(j.value))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func sources(v any) any {
	switch v := v.(type) {
	case map[string]any:
		object := map[string]any{}
		for name, member := range v {
			object[name] = sources(member)
		}
		return object
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = sources(v[i])
		}
		return list
	case Text:
		return v.Source
	}
	return v
}

// Value returns the value with the arguments of a call; nil if it is a text without all of its values.
func (j *JSON) Value(values map[string]any) any {
	v, _ := filled(j.value, values)
	return v
}

// filled returns a value of JSON with the arguments of a call. ok is false if it has none.
func filled(v any, values map[string]any) (_ any, ok bool) {
	switch v := v.(type) {
	case map[string]any:
		object := map[string]any{}
		for name, member := range v {
			if value, ok := filled(member, values); ok {
				object[name] = value
			}
		}
		return object, true
	case []any:
		list := []any{}
		for _, item := range v {
			if value, ok := filled(item, values); ok {
				list = append(list, value)
			}
		}
		return list, true
	case Text:
		if v.Missing(values) != "" {
			return nil, false
		}
		if name := v.Whole(); name != "" {
			return values[name], true
		}
		return v.Text(values, nil), true
	}
	return v, true
}

// namesIn returns the placeholders of a value of JSON.
func namesIn(v any) (all []string) {
	switch v := v.(type) {
	case map[string]any:
		for _, member := range v {
			all = append(all, namesIn(member)...)
		}
	case []any:
		for _, item := range v {
			all = append(all, namesIn(item)...)
		}
	case Text:
		return v.Names()
	}
	return all
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
		if d.Lines[path+".url"] == 0 {
			d.bad(path, "has no url; add url: https://api.example.com/items/{{id}}")
		}
		return
	}
	if d.Lines[path+".hosts"] > 0 {
		d.hosts(path, h)
	} else {
		d.address(path+".url", h.URL, h.AllowHTTP)
	}
	for _, name := range slices.Sorted(maps.Keys(h.Headers)) {
		d.header(path, name)
		if names := h.Headers[name].Names(); len(names) > 0 &&
			slices.Contains(ownHeaders, http.CanonicalHeaderKey(name)) {
			d.bad(path+".headers."+name, "must not depend on {{%s}}; write a fixed value", names[0])
		}
	}
}

// PublicHosts is the word of HTTP.Hosts for all public addresses.
const PublicHosts = "public"

// hosts checks a request whose URL is an argument. It must not carry secrets, because the argument
// decides who gets them, and must not change anything.
func (d *decoder) hosts(path string, h *HTTP) {
	if h.URL.Whole() == "" {
		d.bad(path+".url", "must be one placeholder, such as \"{{url}}\", if there are hosts; "+
			"write it, or remove hosts")
	}
	if h.Method != http.MethodGet && h.Method != http.MethodHead {
		d.bad(path+".method", "must be GET if the URL is an argument; remove hosts for another method")
	} else if h.JSON != nil || h.Form != nil || h.Text.Source != "" {
		d.bad(path, "must not have a body if the URL is an argument; remove json, form or text")
	}
	for _, texts := range []Variables{h.Headers, h.Query} {
		for _, name := range slices.Sorted(maps.Keys(texts)) {
			if strings.Contains(texts[name].Source, "${") {
				d.bad(path, "must not send the reference of %s to hosts that an argument chooses; write a tool with a "+
					"fixed host", name)
			}
		}
	}
	for i, host := range h.Hosts {
		if _, _, err := net.SplitHostPort(host); host != PublicHosts && err != nil {
			d.bad(fmt.Sprintf("%s.hosts[%d]", path, i), "must be the word public, or host:port, such as "+
				"docs.example.com:443")
		}
	}
	if len(h.Hosts) == 0 {
		d.bad(path+".hosts", "is empty; write [public], or [docs.example.com:443]")
	}
}

// header checks the name of a header of the tool or document at path.
func (d *decoder) header(path, name string) {
	if !headerName.MatchString(name) {
		d.bad(path+".headers."+name, "is no name of a header; use letters, digits and -")
	}
}

var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// ownHeaders decide where a request goes and with which credentials; arguments must not change
// them.
var ownHeaders = []string{"Host", "Authorization", "Cookie", "Proxy-Authorization", "Content-Length",
	"Transfer-Encoding", "Connection"}

// address checks that arguments can change only segments of the path of a URL.
func (d *decoder) address(path string, t Text, allowHTTP bool) {
	if _, query, _ := strings.Cut(t.Source, "?"); strings.Contains(query, "{{") {
		d.bad(path, "has a placeholder after the question mark; put it into query: { name: \"{{name}}\" }")
	}
	if t.open {
		return
	}
	if problem := namedProblem(t.Text(nil, nil), allowHTTP); problem != "" {
		d.bad(path, "%s", problem)
		return
	}
	_, rest, _ := strings.Cut(t.Prefix(), "://")
	if len(t.Names()) > 0 && !strings.Contains(rest, "/") {
		d.bad(path, "must not have a placeholder in the host; write the host out, as in https://api.example.com/{{id}}")
	}
}

// namedProblem is AddressProblem for a URL that the manifest names, which may allow http.
func namedProblem(text string, allowHTTP bool) string {
	problem := AddressProblem(text, allowHTTP)
	if problem != "" && AddressProblem(text, true) == "" {
		problem += ", or add allow_http: true for a host of your own network"
	}
	return problem
}

// AddressProblem returns why requests must not go to a URL; "" if they may. Unless allowHTTP is set,
// http is allowed only on this machine, because others could read secrets on the way.
func AddressProblem(text string, allowHTTP bool) string {
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
	if allowHTTP || loopback.Host(u.Hostname()) {
		return ""
	}
	return "begins with http://, so that others could read the request; write https://"
}
