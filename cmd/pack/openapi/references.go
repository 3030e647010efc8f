package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// The library copies the target of a reference each time, unless the target is an object of OpenAPI.
// Copies of copies double with each level of references: a document of a kilobyte would take hours.
const (
	maxReferences = 100_000 // of a document and all documents that it refers to
	maxCopies     = 300_000 // values that the library copies; that many take about ten seconds
)

// graph has the documents that were read, and counts their references before the library follows
// them.
type graph struct {
	first     string // the URL of the document itself
	documents map[string]*value
	count     int64
	costs     map[place]int64 // -1 while it is computed
}

// place is a value in a document.
type place struct{ document, pointer string }

// value is an object or array of a document, as far as references matter. All scalars are one value.
type value struct {
	members map[string]*value // of an array: by index; nil if none of them is an object or array
	refs    []string          // the texts of its $ref
	inner   []*value          // the objects and arrays in it
	size    int64             // values in it, without those behind references
	links   int64             // references in it
}

// add adds a document that was read, and returns an error if following its references costs too much.
func (g *graph) add(at string, text []byte) error {
	root, err := parse(text)
	if err != nil {
		return err
	}
	if g.count += root.links; g.count > maxReferences {
		return fmt.Errorf("it and the documents that it refers to have more than %d references", maxReferences)
	}
	if g.documents == nil {
		g.documents, g.first = map[string]*value{}, at
	}
	g.documents[at] = root
	g.costs = map[place]int64{} // a reference may lead to the new document
	total := int64(0)
	for document, root := range g.documents {
		if total += g.copies(document, root); total > maxCopies {
			return errCopies
		}
	}
	return nil
}

var errCopies = fmt.Errorf("its references lead to more than %d values, counted at each reference; "+
	"move what several references lead to into components", maxCopies)

// copies returns how many values the references in a value copy.
func (g *graph) copies(document string, v *value) (total int64) {
	if v.links == 0 {
		return 0
	}
	for _, ref := range v.refs {
		total += g.cost(document, ref)
	}
	for _, inner := range v.inner {
		if total > maxCopies {
			break
		}
		total += g.copies(document, inner)
	}
	return total
}

// cost returns how many values one reference copies.
func (g *graph) cost(document, ref string) int64 {
	u, err := url.Parse(ref)
	if err != nil || isTyped(u.Fragment) {
		return 1
	}
	to := document
	if u.Host != "" || u.Path != "" {
		to = beside(document, u)
	}
	total := g.target(place{to, u.Fragment})
	if to == document && to != g.first { // the library looks in the first document, too
		total += g.target(place{g.first, u.Fragment})
	}
	return total
}

// target returns how many values are at a place, with those behind its references.
func (g *graph) target(at place) int64 {
	if known, ok := g.costs[at]; ok {
		return max(known, 1) // the library does not follow a reference into itself
	}
	v := g.documents[at.document]
	for step := range strings.SplitSeq(strings.TrimPrefix(at.pointer, "/"), "/") {
		if v == nil || at.pointer == "" || at.pointer == "/" {
			break
		}
		v = v.member(strings.NewReplacer("~1", "/", "~0", "~").Replace(step))
	}
	if v == nil {
		return 1
	}
	g.costs[at] = -1
	g.costs[at] = v.size + g.copies(at.document, v)
	return g.costs[at]
}

// member returns a member by its name, which may differ in letter case.
func (v *value) member(name string) *value {
	if inner, ok := v.members[name]; ok {
		return inner
	}
	for key, inner := range v.members {
		if strings.EqualFold(key, name) {
			return inner
		}
	}
	return nil
}

// The fields of OpenAPI that lead to a schema or another object. After a field with names, a name or
// an index follows.
var (
	withNames = []string{"schemas", "responses", "parameters", "examples", "requestBodies", "headers",
		"securitySchemes", "links", "callbacks", "paths", "webhooks", "content", "encoding", "properties",
		"patternProperties", "dependentSchemas", "$defs", "allOf", "anyOf", "oneOf", "prefixItems"}
	withoutNames = []string{"components", "get", "put", "post", "delete", "options", "head", "patch", "trace",
		"requestBody", "schema", "items", "additionalProperties", "not", "if", "then", "else", "contains",
		"propertyNames"}
)

// isTyped reports whether a reference leads to an object of OpenAPI through objects of OpenAPI. The
// library does not copy such an object. It copies what is in members that it does not know.
func isTyped(pointer string) bool {
	steps := strings.Split(pointer, "/")
	if len(steps) < 3 || steps[0] != "" {
		return false
	}
	for i := 1; i < len(steps); i++ {
		switch step := steps[i]; {
		case slices.Contains(withNames, step):
			i++
			if i < len(steps) && strings.HasPrefix(strings.ToLower(steps[i]), "x-") {
				return false // an extension, in some of these
			}
		case !slices.Contains(withoutNames, step):
			return false
		}
	}
	return true
}

// beside returns the URL of a document that another one refers to, as the library joins them.
func beside(document string, u *url.URL) string {
	base, err := url.Parse(document)
	if err != nil || u.Host != "" || path.IsAbs(u.Path) || u.Scheme != "" && u.Scheme != "file" {
		other := *u
		other.Fragment = ""
		return other.String()
	}
	base.Path, base.Fragment = path.Join(path.Dir(base.Path), u.Path), ""
	return base.String()
}

// parse reads a document. A text that cannot be read has no references: the library describes it.
func parse(text []byte) (*value, error) {
	var v *value
	var root yaml.Node
	if json.Valid(text) {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		token, err := d.Token()
		if err == nil {
			v, err = readJSON(d, token)
		}
		if err != nil {
			return nil, err
		}
	} else if yaml.Unmarshal(text, &root) == nil && len(root.Content) > 0 {
		v = readYAML(root.Content[0], map[*yaml.Node]*value{})
	}
	if v == nil {
		v = &value{}
	}
	return v, nil
}

// with adds a member or an element, which is nil if it is a scalar. text is the scalar if it is text.
func (v *value) with(key string, inner *value, text string, isText bool) {
	v.size++
	if isText && strings.EqualFold(key, "$ref") { // as encoding/json reads it
		v.refs = append(v.refs, text)
		v.links++
	}
	if inner == nil {
		return
	}
	if v.members == nil {
		v.members = map[string]*value{}
	}
	v.members[key] = inner
	v.inner = append(v.inner, inner)
	v.size, v.links = min(v.size+inner.size, maxWork), min(v.links+inner.links, maxWork)
}

// readJSON reads a value of a valid text that begins with a token; nil for a scalar.
func readJSON(d *json.Decoder, token json.Token) (*value, error) {
	open, isDelim := token.(json.Delim)
	if !isDelim {
		return nil, nil
	}
	v := &value{}
	for i := 0; d.More(); i++ {
		key := strconv.Itoa(i)
		if open == '{' {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			key, _ = name.(string)
		}
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		text, isText := token.(string)
		inner, err := readJSON(d, token)
		if err != nil {
			return nil, err
		}
		v.with(key, inner, text, isText)
	}
	_, err := d.Token()
	return v, err
}

// readYAML reads a node; nil for a scalar. all are the values of anchors, so that each is read once.
func readYAML(n *yaml.Node, all map[*yaml.Node]*value) *value {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if v, known := all[n]; known || n.Kind == yaml.ScalarNode {
		return v
	}
	v := &value{}
	for i := 0; i < len(n.Content); i++ {
		key := strconv.Itoa(i)
		if n.Kind == yaml.MappingNode {
			key = n.Content[i].Value
			if i++; n.Content[i-1].Tag == "!!merge" {
				v.merge(readYAML(n.Content[i], all))
				continue
			}
		}
		e := n.Content[i]
		for e.Kind == yaml.AliasNode {
			e = e.Alias
		}
		v.with(key, readYAML(e, all), e.Value, e.Kind == yaml.ScalarNode)
	}
	if n.Anchor != "" {
		all[n] = v
	}
	return v
}

// merge adds what is after <<: an object, or a list of objects.
func (v *value) merge(from *value) {
	if from == nil {
		return
	}
	v.with("<<", from, "", false)
	for key, inner := range from.members {
		if _, has := v.members[key]; !has {
			v.members[key] = inner
		}
	}
}
