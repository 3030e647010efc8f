package schema

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"junction/upstream/raw"
)

// The library compiles a schema: it knows the drafts, resolves references and compares the schema
// with its meta-schema. Its time grows with the square of the number of subschemas: 5,000 need a
// tenth of a second. These limits hold before the library gets a schema.
const (
	maxSchema      = 1 << 20 // bytes
	maxNodes       = 20000   // values of all kinds, also in lists such as enum
	maxSubschemas  = 5000    // objects and booleans
	maxSchemaDepth = 200
	maxFarTargets  = 100  // see farTarget
	maxPattern     = 8192 // bytes of one pattern
	maxPatternCode = 4000 // instructions of one pattern
	maxAllCode     = 20000
)

const schemaURL = "https://schema.invalid/input"

// noLoader rejects external references of a schema.
type noLoader struct{}

func (noLoader) Load(string) (any, error) { return nil, errors.New("it refers to a schema elsewhere") }

// compile compiles the input schema in the definition of a tool.
func compile(definition []byte) (schema *jsonschema.Schema, err error) {
	text, err := raw.Get(definition, "inputSchema")
	if err != nil {
		return nil, fmt.Errorf("its inputSchema: %w", err)
	}
	if len(text) > maxSchema {
		return nil, fmt.Errorf("its inputSchema is too large: more than %d bytes", maxSchema)
	}
	doc, err := decodeWithin(text, maxNodes, maxSchemaDepth)
	if err != nil {
		return nil, fmt.Errorf("its inputSchema: %w", err)
	}
	var size census
	if err := size.count(doc, true); err != nil {
		return nil, fmt.Errorf("its inputSchema %w", err)
	}
	defer func() {
		if r := recover(); r != nil { // a panic of the library must not affect the call
			schema, err = nil, errors.New("its inputSchema cannot be compiled")
		}
	}()
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noLoader{})
	c.UseRegexpEngine(newPatterns().compile)
	if err = c.AddResource(schemaURL, doc); err == nil {
		schema, err = c.Compile(schemaURL)
	}
	if err != nil {
		return nil, fmt.Errorf("its inputSchema cannot be compiled: %w", shortened(err))
	}
	if err := (&usable{seen: map[*jsonschema.Schema]bool{}}).all(schema); err != nil {
		return nil, fmt.Errorf("its inputSchema %w", err)
	}
	return schema, nil
}

// census counts what the library's time depends on.
type census struct {
	subschemas int
	ids        bool // a subschema has an identifier of its own
	dynamic    bool // a reference depends on the way by which it was reached
	far        map[string]bool
}

func (n *census) count(v any, root bool) error {
	switch v := v.(type) {
	case bool:
		n.subschemas++
	case []any:
		for _, item := range v {
			if err := n.count(item, false); err != nil {
				return err
			}
		}
	case map[string]any:
		n.subschemas++
		for name, member := range v {
			if err := n.member(name, member, root); err != nil {
				return err
			}
		}
	}
	switch {
	case n.subschemas > maxSubschemas:
		return fmt.Errorf("is too large: more than %d subschemas", maxSubschemas)
	case len(n.far) > maxFarTargets:
		return fmt.Errorf("has more than %d references to places that are no $defs", maxFarTargets)
	case n.ids && n.dynamic:
		return errors.New("has $dynamicRef or $recursiveRef beside subschemas with an $id")
	}
	return nil
}

func (n *census) member(name string, v any, root bool) error {
	text, isText := v.(string)
	switch name {
	case "$id", "id":
		n.ids = n.ids || isText && !root
	case "$dynamicRef", "$recursiveRef":
		n.dynamic = n.dynamic || isText
	case "$ref":
		if isText && farTarget(text) {
			if n.far == nil {
				n.far = map[string]bool{}
			}
			n.far[text] = true
		}
	}
	return n.count(v, false)
}

// farTarget reports whether a reference may lead to a place where the library has not looked for
// subschemas. For each such place, the library copies what it knows of the document.
func farTarget(ref string) bool {
	for _, known := range []string{"#/$defs/", "#/definitions/"} {
		if rest, ok := strings.CutPrefix(ref, known); ok && !strings.Contains(rest, "/") {
			return false
		}
	}
	return ref != "#"
}

// usable finds what a check of this package does not know in a compiled schema.
type usable struct {
	seen map[*jsonschema.Schema]bool
}

func (u *usable) all(s *jsonschema.Schema) error {
	if s == nil || u.seen[s] {
		return nil
	}
	u.seen[s] = true
	if !strings.HasPrefix(s.Location, schemaURL+"#") { // a meta-schema, which the library has
		return errors.New("refers to a schema elsewhere")
	}
	var err error
	each(s, func(sub *jsonschema.Schema) { err = cmp.Or(err, u.all(sub)) })
	return err
}

// each calls f with each subschema, and with the targets of references; some may be nil.
func each(s *jsonschema.Schema, f func(*jsonschema.Schema)) {
	for _, one := range []*jsonschema.Schema{s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else, s.PropertyNames,
		s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems} {
		f(one)
	}
	if s.DynamicRef != nil {
		f(s.DynamicRef.Ref)
	}
	for _, list := range [][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf, s.PrefixItems} {
		for _, one := range list {
			f(one)
		}
	}
	for _, named := range []map[string]*jsonschema.Schema{s.Properties, s.DependentSchemas} {
		for _, one := range named {
			f(one)
		}
	}
	for _, one := range s.PatternProperties {
		f(one)
	}
	for _, dependency := range s.Dependencies {
		f(subschema(dependency))
	}
	for _, other := range []any{s.AdditionalProperties, s.AdditionalItems, s.Items} {
		f(subschema(other))
		list, _ := other.([]*jsonschema.Schema)
		for _, one := range list {
			f(one)
		}
	}
}

// subschema returns the value of a keyword that may also have another type; nil if it has.
func subschema(v any) *jsonschema.Schema {
	s, _ := v.(*jsonschema.Schema)
	return s
}

// shortened returns the first cause of an error of the library, on one line.
func shortened(err error) error {
	if schemaErr, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		err = schemaErr.Err
	}
	if invalid, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		for len(invalid.Causes) > 0 {
			invalid = invalid.Causes[0]
		}
		err = invalid
		if bad, ok := invalid.ErrorKind.(*kind.Format); ok { // the library shows the whole pattern first
			err = fmt.Errorf("%s: %w", short(fmt.Sprint(bad.Got), maxShownName), bad.Err)
		}
	}
	return errors.New(short(strings.Join(strings.Fields(err.Error()), " "), 300))
}
