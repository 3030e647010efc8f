package openapi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"junction/cmd/pack/manifest"
	"junction/cmd/pack/web"
	"junction/upstream/prose"
)

// API contains the tools of an OpenAPI document. It is immutable.
type API struct {
	Operations []*Operation // by path and method
	Files      []string     // that were read
	Warnings   []string     // operations that are left out, or that cannot work
	Reach      web.Reach    // of the requests of the operations
}

// Operation is one operation as a tool.
type Operation struct {
	ID, Method, Path         string
	Name, Title, Description string
	InputSchema              json.RawMessage
	Annotations              manifest.Annotations

	base   string
	params []param
	body   *body
	auth   credentials
}

// manyTools is a number of tools beyond which models choose badly.
const manyTools = 50

// maxOperations and maxAllObjects limit the tools of one document, and their schemas.
const (
	maxOperations = 2000
	maxAllObjects = 200_000
)

// Load reads the document of an API and makes tools of the operations that it chooses. Errors name
// what is wrong with the document, and the remedy.
func Load(ctx context.Context, a *manifest.API) (api *API, err error) {
	doc, reach, files, err := document(ctx, a)
	api = &API{Files: files, Reach: reach}
	defer survive(&err)
	if err != nil {
		return api, err
	}
	c := &collector{api: a, doc: doc, matched: map[string]bool{}, names: map[string]bool{},
		without: map[string]int{}, sent: map[string]bool{}, unstated: !statesSecurity(doc), out: api}
	if err := c.schemes(); err != nil {
		return api, err
	}
	if err := c.collect(ctx); err != nil {
		return api, err
	}
	if err := c.unused(); err != nil {
		return api, err
	}
	if err := c.none(); err != nil {
		return api, err
	}
	c.unsent()
	for _, names := range slices.Sorted(maps.Keys(c.without)) {
		first, _, _ := strings.Cut(names, " or ")
		c.warn("%d operations need credentials for %s; add auth: { %s: \"${TOKEN}\" }", c.without[names], names, first)
	}
	if n := len(api.Operations); n > manyTools && len(a.Operations) == 0 {
		c.warn("makes %d tools, more than models work well with; choose some with operations", n)
	}
	return api, nil
}

// none returns why the document makes no tool; nil if it makes one.
func (c *collector) none() error {
	switch left := c.out.Warnings; {
	case len(c.out.Operations) > 0:
		return nil
	case len(left) > 1:
		return fmt.Errorf("none of its operations can be a tool: %s (and %d more)", left[0], len(left)-1)
	case len(left) == 1:
		return fmt.Errorf("none of its operations can be a tool: %s", left[0])
	case len(c.matched) > 0:
		return errors.New("exclude leaves out all of its operations; remove a pattern, or set enabled: false")
	}
	return errors.New("it has no operations; name another document")
}

// collector makes the tools of one document.
type collector struct {
	api     *manifest.API
	doc     *openapi3.T
	matched map[string]bool // patterns and ids that were found
	names   map[string]bool
	without map[string]int // operations without credentials, by the schemes that they need
	// the document has no security requirement at all
	unstated bool
	sent     map[string]bool // the credentials that operations send
	size     int             // objects of all schemas so far
	out      *API
}

func (c *collector) warn(format string, args ...any) {
	c.out.Warnings = append(c.out.Warnings, fmt.Sprintf(format, args...))
}

func (c *collector) collect(ctx context.Context) error {
	if c.doc.Paths == nil {
		return nil
	}
	paths := c.doc.Paths.Map()
	for _, at := range slices.Sorted(maps.Keys(paths)) {
		item := paths[at]
		if item == nil {
			continue
		}
		operations := item.Operations()
		for _, method := range slices.Sorted(maps.Keys(operations)) {
			op := operations[method]
			if !c.chosen(at, method, op) {
				continue
			}
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case len(c.out.Operations) >= maxOperations:
				return fmt.Errorf("it has more than %d operations; choose some with operations: [tag:NAME]",
					maxOperations)
			case c.size > maxAllObjects:
				return fmt.Errorf("its operations have more than %d schemas; choose some with operations: [tag:NAME]",
					maxAllObjects)
			}
			if err := c.add(at, method, item, op); err != nil {
				c.warn("%s %s is left out: %v", method, at, err)
			}
		}
	}
	return nil
}

// idOf returns the id of an operation; one made of method and path if it has none.
func idOf(at, method string, op *openapi3.Operation) string {
	if op.OperationID != "" {
		return op.OperationID
	}
	return strings.Trim(unsafe.ReplaceAllString(strings.ToLower(method)+"_"+strings.TrimPrefix(at, "/"), "_"), "_")
}

// chosen reports whether the manifest chooses the operation.
func (c *collector) chosen(at, method string, op *openapi3.Operation) bool {
	some := func(patterns []string) bool {
		found := false
		for _, p := range patterns {
			if matches(p, at, method, op) {
				c.matched[p], found = true, true
			}
		}
		return found
	}
	in, out := len(c.api.Operations) == 0 || some(c.api.Operations), some(c.api.Exclude)
	return in && !out
}

func matches(pattern, at, method string, op *openapi3.Operation) bool {
	glob := func(pattern, s string) bool {
		if prefix, all := strings.CutSuffix(pattern, "/**"); all && (s == prefix || strings.HasPrefix(s, prefix+"/")) {
			return true
		}
		ok, _ := path.Match(pattern, s) // checked with the manifest
		return ok
	}
	if tag, ok := strings.CutPrefix(pattern, "tag:"); ok {
		return slices.ContainsFunc(op.Tags, func(t string) bool { return glob(tag, t) })
	}
	if verb, where, ok := strings.Cut(pattern, " "); ok {
		return (verb == "*" || strings.EqualFold(verb, method)) && glob(where, at)
	}
	return glob(pattern, idOf(at, method, op))
}

// KeyError is a mistake in a key of the entry in the manifest, not in the document.
type KeyError struct {
	Key  string // within the entry, such as operations[0]
	Text string
}

func (e *KeyError) Error() string { return e.Text }

// unused reports patterns, and ids of changed tools, that no operation has.
func (c *collector) unused() error {
	for _, list := range []struct {
		key      string
		patterns []string
	}{{"operations", c.api.Operations}, {"exclude", c.api.Exclude}} {
		for i, p := range list.patterns {
			if !c.matched[p] {
				return &KeyError{fmt.Sprintf("%s[%d]", list.key, i), fmt.Sprintf("no operation matches %q; %s", p,
					prose.DidYouMean(c.patterns(p), p, `write an id, a glob, tag:NAME or "METHOD /path"`))}
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.api.Tools)) {
		if !slices.ContainsFunc(c.out.Operations, func(o *Operation) bool { return o.ID == id }) {
			return &KeyError{"tools." + id, fmt.Sprintf("tools has %q, which is the id of no chosen operation", id)}
		}
	}
	return nil
}

// maxHint limits the length of the patterns that are compared for a suggestion.
const maxHint = 100

// patterns returns what a wrong pattern may mean: patterns of its form that match an operation.
func (c *collector) patterns(pattern string) []string {
	if c.doc.Paths == nil || len(pattern) > maxHint {
		return nil
	}
	found := map[string]bool{}
	for at, item := range c.doc.Paths.Map() {
		if item == nil {
			continue
		}
		for method, op := range item.Operations() {
			switch {
			case strings.HasPrefix(pattern, "tag:"):
				for _, tag := range op.Tags[:min(len(op.Tags), maxHint)] {
					found["tag:"+tag] = true
				}
			case strings.Contains(pattern, " "):
				found[method+" "+at] = true
			default:
				found[idOf(at, method, op)] = true
			}
		}
		if len(found) > maxOperations {
			break
		}
	}
	maps.DeleteFunc(found, func(p string, _ bool) bool { return len(p) > maxHint || strings.ContainsAny(p, `*?[\`) })
	return slices.Sorted(maps.Keys(found))
}

// add makes the tool of an operation.
func (c *collector) add(at, method string, item *openapi3.PathItem, op *openapi3.Operation) error {
	o := &Operation{ID: idOf(at, method, op), Method: method, Path: at}
	change := c.api.Tools[o.ID]
	o.Name = c.name(cmp.Or(change.Name, c.api.Prefix+o.ID))
	o.Title = cmp.Or(change.Title, op.Summary)
	o.Description = cmp.Or(change.Description, describe(at, method, op))
	o.Annotations = change.Annotations.Or(web.Annotations(method))
	if !strings.HasPrefix(at, "/") { // it would become a part of the host
		return errors.New("its path does not begin with /")
	}
	var err error
	if o.base, err = c.base(item, op); err != nil {
		return err
	}
	o.auth = c.credentials(op)
	s := &schemas{doc: c.doc, old: c.doc.IsOpenAPI30(), defs: map[string]any{}}
	defer func() { c.size += s.total + s.size }()
	properties, required := map[string]any{}, []string{}
	for _, p := range merged(item.Parameters, op.Parameters) {
		if c.ignored(p, o) {
			continue
		}
		made, err := newParam(p, properties)
		if err != nil {
			return err
		}
		properties[made.key] = s.param(p)
		if made.required {
			required = append(required, made.key)
		}
		o.params = append(o.params, made)
	}
	if op.RequestBody != nil && op.RequestBody.Value != nil {
		if o.body, err = newBody(op.RequestBody.Value, properties); err != nil {
			return err
		}
		if o.body != nil {
			before := maps.Clone(s.defs)
			properties[o.body.key] = s.body(op.RequestBody.Value, o.body)
			if s.size > maxObjects {
				c.warn("the body of %s has more than %d schemas; models see none of them", o.Name, maxObjects)
				properties[o.body.key] = map[string]any{"description": "As the documentation of the API describes it."}
				s.total, s.size, s.defs = s.size, 0, before
			}
			if o.body.required {
				required = append(required, o.body.key)
			}
		}
	}
	if s.size > maxObjects {
		return fmt.Errorf("its arguments have more than %d schemas", maxObjects)
	}
	o.InputSchema = s.object(properties, required)
	c.out.Operations = append(c.out.Operations, o)
	return nil
}

const (
	maxName        = 64
	maxDescription = 2000
)

// name returns a valid name for a tool that no other one has. A part of a name that is too long
// becomes a hash of the whole.
func (c *collector) name(id string) string {
	name := unsafe.ReplaceAllString(id, "_")
	if len(name) > maxName {
		sum := fmt.Sprintf("%x", sha256.Sum256([]byte(id)))
		name = name[:maxName-8] + "_" + sum[:7]
	}
	for base, i := name, 2; c.names[name]; i++ {
		suffix := fmt.Sprintf("_%d", i)
		name = base[:min(len(base), maxName-len(suffix))] + suffix
	}
	c.names[name] = true
	return name
}

func describe(at, method string, op *openapi3.Operation) string {
	text := strings.TrimSpace(cmp.Or(op.Description, op.Summary, method+" "+at))
	if op.Deprecated {
		text = "Deprecated. " + text
	}
	if runes := []rune(text); len(runes) > maxDescription {
		text = string(runes[:maxDescription]) + "…"
	}
	return text
}

// merged returns the parameters of a path and an operation; those of the operation replace others.
func merged(ofPath, ofOperation openapi3.Parameters) []*openapi3.Parameter {
	var all []*openapi3.Parameter
	for _, list := range []openapi3.Parameters{ofPath, ofOperation} {
		for _, ref := range list {
			if ref == nil || ref.Value == nil {
				continue
			}
			p := ref.Value
			same := func(other *openapi3.Parameter) bool { return other.Name == p.Name && other.In == p.In }
			all = append(slices.DeleteFunc(all, same), p)
		}
	}
	return all
}

// ignored reports whether a parameter is not for the model: a credential, or a header that OpenAPI
// describes in another place.
func (c *collector) ignored(p *openapi3.Parameter, o *Operation) bool {
	if p.In == openapi3.ParameterInHeader {
		switch strings.ToLower(p.Name) {
		case "accept", "content-type", "authorization", "host", "cookie", "content-length":
			return true
		}
		for name := range c.api.Headers {
			if strings.EqualFold(name, p.Name) {
				return true
			}
		}
	}
	return slices.ContainsFunc(o.auth.keys, func(k key) bool {
		isHeader := p.In == openapi3.ParameterInHeader
		return k.in == p.In && (k.name == p.Name || isHeader && strings.EqualFold(k.name, p.Name))
	})
}
