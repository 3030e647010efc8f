package definition

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/http1"
	"junction/upstream/raw"
)

// ParamHeader is an argument of a tool that goes into the header Mcp-Param-<Name> as well
// (2026-07-28, streamable-http#schema-extension).
type ParamHeader struct {
	Name string
	Path []string // of the argument, through objects
	Type string   // string, integer or boolean
}

// Header returns the name of the HTTP header.
func (p ParamHeader) Header() string { return "Mcp-Param-" + p.Name }

// Value returns the text that stands for the argument; false when it is absent, null or of another
// type. It is not encoded for a header yet.
func (p ParamHeader) Value(arguments raw.Object) (string, bool) {
	v, err := raw.Get(arguments.Text(), p.Path...)
	if err != nil || !arguments.Present() {
		return "", false
	}
	switch {
	case v[0] == '"' && p.Type == "string":
		s, err := raw.String(v)
		return s, err == nil
	case (string(v) == "true" || string(v) == "false") && p.Type == "boolean":
		return string(v), true
	case p.Type == "integer":
		return integer(v)
	}
	return "", false
}

// Matches reports whether the text of a header, decoded, says the same as the argument; integers
// are compared as numbers.
func (p ParamHeader) Matches(header, value string) bool {
	if header == value {
		return true
	}
	if p.Type != "integer" {
		return false
	}
	n, ok := integer([]byte(header))
	return ok && n == value
}

// integer writes a JSON number without fraction and exponent, if it is a whole one.
func integer(v []byte) (string, bool) {
	if len(v) == 0 || v[0] != '-' && (v[0] < '0' || v[0] > '9') {
		return "", false
	}
	if !bytes.ContainsAny(v, ".eE") {
		return string(v), true
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || f != float64(int64(f)) || f < -1<<53 || f > 1<<53 {
		return "", false
	}
	return strconv.FormatInt(int64(f), 10), true
}

// WholeNumber reads a JSON number that is a whole one and not negative.
func WholeNumber(v []byte) (int64, bool) {
	s, ok := integer(v)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n >= 0
}

// EncodeHeaders returns the headers for the arguments of a call.
func EncodeHeaders(params []ParamHeader, arguments raw.Object) []http1.Field {
	var list []http1.Field
	for _, p := range params {
		if value, ok := p.Value(arguments); ok {
			if encoded, ok := mcp.EncodeHeaderValue(value); ok {
				list = append(list, http1.Field{Name: p.Header(), Value: encoded})
			}
		}
	}
	return list
}

const annotation = "x-mcp-header"

// Headers reads the annotations of a tool's inputSchema. The error says in plain words what
// the declaration breaks. If work is over, the results mean nothing.
func Headers(schema []byte, work *Work) ([]ParamHeader, error) {
	if !bytes.Contains(schema, []byte(annotation)) {
		return nil, nil
	}
	r := &annotations{taken: map[string]bool{}, work: work}
	if !work.take(2 * len(schema)) {
		return nil, nil
	}
	o, err := raw.Parse(schema)
	if err != nil {
		return nil, err
	}
	r.schema(o, nil, true)
	return r.list, r.err
}

// annotations walks a schema. The first mistake stays.
type annotations struct {
	list  []ParamHeader
	taken map[string]bool // lower case
	err   error
	work  *Work
}

func (r *annotations) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(annotation+" "+format, args...)
	}
}

// schema looks at one schema; reachable means that a chain of properties alone leads to it, so that
// an argument has one certain place.
func (r *annotations) schema(o raw.Object, path []string, reachable bool) {
	if v, err := o.Get(annotation); err == nil {
		r.declare(o, v, path, reachable && len(path) > 0)
	} else if !errors.Is(err, raw.ErrAbsent) {
		r.fail("occurs twice, or in another letter case")
	}
	for m := range o.All() {
		name, err := m.Name()
		if err != nil {
			continue
		}
		switch name {
		case "properties":
			r.named(m.Value, path, reachable)
		case "patternProperties", "$defs", "definitions", "dependentSchemas":
			r.named(m.Value, path, false)
		case "items", "prefixItems", "contains", "additionalProperties", "unevaluatedProperties", "unevaluatedItems",
			"additionalItems", "propertyNames",
			"allOf", "anyOf", "oneOf", "not", "if", "then", "else":
			r.each(m.Value, path)
		}
	}
}

// named looks at the schemas that are the members of v.
func (r *annotations) named(v []byte, path []string, reachable bool) {
	if !r.work.take(3 * len(v)) { // with the members
		return
	}
	o, err := raw.Parse(v)
	if err != nil {
		return
	}
	for m := range o.All() {
		name, err := m.Name()
		if inner, bad := raw.Parse(m.Value); bad == nil && err == nil {
			r.schema(inner, append(path[:len(path):len(path)], name), reachable)
		}
	}
}

// each looks at v, or at the elements of v, which no chain of properties leads to.
func (r *annotations) each(v []byte, path []string) {
	if !r.work.take(3 * len(v)) { // with the elements
		return
	}
	if o, err := raw.Parse(v); err == nil {
		r.schema(o, path, false)
		return
	}
	list, _ := raw.Elements(v)
	for _, item := range list {
		if o, err := raw.Parse(item); err == nil {
			r.schema(o, path, false)
		}
	}
}

func (r *annotations) declare(o raw.Object, v []byte, path []string, reachable bool) {
	name, err := raw.String(v)
	kind, _ := o.String("type")
	lower := strings.ToLower(name)
	switch {
	case err != nil || !http1.IsToken(name):
		r.fail("at %s is %.60s, which is no header name", strings.Join(path, "."), v)
	case !reachable:
		r.fail("%q stands where no chain of properties leads to", name)
	case kind != "string" && kind != "integer" && kind != "boolean":
		r.fail("%q is on an argument that is no string, integer or boolean", name)
	case r.taken[lower]:
		r.fail("%q is declared twice", name)
	}
	r.taken[lower] = true
	r.list = append(r.list, ParamHeader{name, path, kind})
}
