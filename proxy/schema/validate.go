// Package schema checks the arguments of tool calls against the input schemas of the tools. The
// schemas come from upstreams, so the package bounds their size and the work of each check.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"junction/proxy/visible"
	"junction/upstream/raw"
)

// Validator checks the arguments of calls against the tools' input schemas (2025-11-25 and
// 2026-07-28, server/tools: JSON Schema 2020-12 unless $schema names another draft). It compiles a
// schema at the first call and caches it. The zero value is ready for use. A Validator is safe for
// concurrent use.
//
// Upstreams are not trusted, so the Validator limits their schemas: it loads no external
// references, bounds the size of a schema, uses RE2 for patterns and bounds the steps of a check.
type Validator struct {
	mu      sync.Mutex
	schemas map[string]*inputSchema // by definition; all are dropped when there are too many
}

const (
	mostSchemas     = 4096
	maxSchema       = 1 << 20
	maxSubschemas   = 5000 // or other objects; the library's compile time grows with the square
	maxSteps        = 100000
	maxProblems     = 10
	maxShownName    = 60
	maxShownWords   = 120
	schemaURL       = "https://schema.invalid/input"
	stepsVocabulary = "https://schema.invalid/steps"
)

// inputSchema is the compiled schema of one tool.
type inputSchema struct {
	compile sync.Once
	using   sync.Mutex // held while steps counts
	schema  *jsonschema.Schema
	doc     any
	err     error // why the schema cannot be used
	told    sync.Once
	steps   int // remaining steps
}

// Check returns the problems of the arguments, one line each; nil if they are valid. The arguments
// may be absent. An error means that the schema cannot be used, so the arguments are not checked
// and the call should proceed. Check returns that error once per definition, for the log.
func (v *Validator) Check(definition []byte, arguments raw.Object) (problems []string, err error) {
	s := v.schema(definition)
	s.compile.Do(func() { s.schema, s.doc, s.err = s.compiled(definition) })
	if s.err != nil {
		s.told.Do(func() { err = s.err })
		return nil, err
	}
	text := arguments.Text()
	if !arguments.Present() {
		text = []byte("{}")
	}
	value, err := DecodeOnce(text)
	if err != nil {
		return []string{"the arguments: " + err.Error()}, nil
	}
	return s.check(value), nil
}

// InvalidResult returns the result for a call with invalid arguments: a tool error, so that the
// model can correct the arguments.
func InvalidResult(tool string, problems []string) []byte {
	text := fmt.Sprintf("The arguments of %s do not fit its input schema; the tool was not called:\n- %s", tool,
		strings.Join(problems, "\n- "))
	b := raw.AppendQuote([]byte(`{"content":[{"type":"text","text":`), text)
	return append(b, `}],"isError":true}`...)
}

func (v *Validator) schema(definition []byte) *inputSchema {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.schemas[string(definition)]
	if s == nil {
		if v.schemas == nil || len(v.schemas) >= mostSchemas {
			v.schemas = map[string]*inputSchema{}
		}
		s = &inputSchema{}
		v.schemas[string(definition)] = s
	}
	return s
}

// noLoader rejects external references of a schema.
type noLoader struct{}

func (noLoader) Load(string) (any, error) { return nil, errors.New("it refers to a schema elsewhere") }

// formats are the formats that the library implements. They are annotations only, as in 2020-12,
// also for older drafts, because servers are lenient there.
var formats = []string{"date", "date-time", "duration", "email", "hostname", "idn-email", "idn-hostname", "ipv4",
	"ipv6", "iri", "iri-reference", "json-pointer", "period",
	"relative-json-pointer", "semver", "time", "uri", "uri-reference", "uri-template", "uuid"}

// compiled compiles the input schema in the definition of a tool.
func (s *inputSchema) compiled(definition []byte) (schema *jsonschema.Schema, doc any, err error) {
	text, err := raw.Get(definition, "inputSchema")
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("its inputSchema: %w", err)
	case len(text) > maxSchema || bytes.Count(text, []byte("{")) > maxSubschemas:
		return nil, nil, errors.New("its inputSchema is too large")
	}
	defer func() {
		if r := recover(); r != nil { // a panic of the library must not affect the call
			schema, doc, err = nil, nil, errors.New("its inputSchema cannot be compiled")
		}
	}()
	if doc, err = DecodeOnce(text); err != nil {
		return nil, nil, fmt.Errorf("its inputSchema: %w", err)
	}
	s.steps = 100 * maxSteps // the library validates the schema against its meta-schema
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noLoader{})
	for _, f := range formats {
		c.RegisterFormat(&jsonschema.Format{Name: f, Validate: func(any) error { return nil }})
	}
	c.RegisterVocabulary(&jsonschema.Vocabulary{URL: stepsVocabulary, Compile: func(_ *jsonschema.CompilerContext,
		object map[string]any) (jsonschema.SchemaExt, error) {
		return step{s, cost(object)}, nil
	}})
	c.AssertVocabs()
	if err = c.AddResource(schemaURL, doc); err == nil {
		schema, err = c.Compile(schemaURL)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("its inputSchema cannot be compiled: %w", shortened(err))
	}
	return schema, doc, nil
}

// shortened returns a short error on one line.
func shortened(err error) error {
	lines := strings.Fields(err.Error())
	return errors.New(short(strings.Join(lines, " "), 300))
}

// step is part of every compiled schema and counts the steps of a check. A schema of a few lines
// may need exponentially many.
type step struct {
	of   *inputSchema
	cost int
}

// cost returns the approximate number of subschemas of an object.
func cost(object map[string]any) int {
	n := 1
	for _, v := range object {
		switch v := v.(type) {
		case []any:
			n += len(v)
		case map[string]any:
			n += len(v)
		}
	}
	return n
}

// outOfSteps is the panic that stops a check after too many steps; check recovers it.
type outOfSteps struct{}

// Validate implements jsonschema.SchemaExt.
func (s step) Validate(*jsonschema.ValidatorContext, any) {
	if s.of.steps -= s.cost; s.of.steps < 0 {
		panic(outOfSteps{})
	}
}

// check returns the problems of the arguments.
func (s *inputSchema) check(value any) (problems []string) {
	s.using.Lock()
	defer s.using.Unlock()
	defer func() {
		switch r := recover(); r.(type) {
		case nil:
		case outOfSteps:
			problems = []string{"the arguments are too many, or too deeply nested, " +
				"to be compared with the tool's input schema"}
		default:
			problems = []string{"the arguments cannot be compared with the tool's input schema"}
		}
	}()
	s.steps = maxSteps
	err := s.schema.Validate(value)
	if err == nil {
		return nil
	}
	invalid, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return []string{"the arguments cannot be compared with the tool's input schema"}
	}
	problems = s.describe(invalid, nil)
	slices.Sort(problems) // the library iterates over maps
	problems = slices.Compact(problems)
	if n := len(problems) - maxProblems; n > 0 {
		problems = append(problems[:maxProblems], fmt.Sprintf("and %d more", n))
	}
	return problems
}

// describe appends the problems of a validation error. It omits the values: they may be secret, and
// the caller has them.
func (s *inputSchema) describe(e *jsonschema.ValidationError, list []string) []string {
	at := place(e.InstanceLocation)
	add := func(format string, args ...any) { list = append(list, at+": "+fmt.Sprintf(format, args...)) }
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing {
			list = append(list, place(append(slices.Clone(e.InstanceLocation), name))+": missing"+s.wanted(e.SchemaURL,
				name))
		}
	case *kind.AdditionalProperties:
		known := s.known(e.SchemaURL)
		for _, name := range k.Properties {
			list = append(list, place(append(slices.Clone(e.InstanceLocation),
				name))+": there is no such argument"+known)
		}
	case *kind.Type:
		add("want %s, got %s", strings.Join(k.Want, " or "), k.Got)
	case *kind.Enum:
		add("want one of %s", words(k.Want))
	case *kind.Const:
		add("want %s", words([]any{k.Want}))
	case *kind.Minimum:
		add("want at least %s", k.Want.RatString())
	case *kind.Maximum:
		add("want at most %s", k.Want.RatString())
	case *kind.ExclusiveMinimum:
		add("want more than %s", k.Want.RatString())
	case *kind.ExclusiveMaximum:
		add("want less than %s", k.Want.RatString())
	case *kind.MultipleOf:
		add("want a multiple of %s", k.Want.RatString())
	case *kind.MinLength:
		add("want at least %d characters, got %d", k.Want, k.Got)
	case *kind.MaxLength:
		add("want at most %d characters, got %d", k.Want, k.Got)
	case *kind.MinItems:
		add("want at least %d items, got %d", k.Want, k.Got)
	case *kind.MaxItems:
		add("want at most %d items, got %d", k.Want, k.Got)
	case *kind.MinProperties:
		add("want at least %d members, got %d", k.Want, k.Got)
	case *kind.MaxProperties:
		add("want at most %d members, got %d", k.Want, k.Got)
	case *kind.UniqueItems:
		add("items %d and %d are the same", k.Duplicates[0], k.Duplicates[1])
	case *kind.Pattern:
		add("want what matches %s", short(k.Want, maxShownWords))
	case *kind.PropertyNames:
		add("%s is no name for a member", short(k.Property, maxShownName))
	case *kind.Dependency:
		add("%s needs %s as well", short(k.Prop, maxShownName), short(strings.Join(k.Missing, ", "), maxShownWords))
	case *kind.DependentRequired:
		add("%s needs %s as well", short(k.Prop, maxShownName), short(strings.Join(k.Missing, ", "), maxShownWords))
	case *kind.FalseSchema:
		add("nothing may be here")
	case *kind.Not:
		add("this value is not allowed")
	case *kind.AnyOf:
		return s.nearest(e, list)
	case *kind.OneOf:
		if len(k.Subschemas) > 0 {
			add("fits two of the forms that exclude each other")
			return list
		}
		return s.nearest(e, list)
	default:
		if len(e.Causes) > 0 { // a group, a reference, allOf
			for _, c := range e.Causes {
				list = s.describe(c, list)
			}
			return list
		}
		if path := e.ErrorKind.KeywordPath(); len(path) > 0 {
			add("does not fit %s of the schema", short(strings.Join(path, "/"), maxShownName))
		} else {
			add("does not fit the schema")
		}
	}
	return list
}

// nearest describes a value that matches none of several forms. It lists all types if the value has
// another type, else the problems with the nearest form.
func (s *inputSchema) nearest(e *jsonschema.ValidationError, list []string) []string {
	at := place(e.InstanceLocation)
	var types []string
	var best []string
	got := ""
	for _, c := range e.Causes {
		leaf := c
		for len(leaf.Causes) == 1 {
			leaf = leaf.Causes[0]
		}
		if k, ok := leaf.ErrorKind.(*kind.Type); ok && len(leaf.InstanceLocation) == len(e.InstanceLocation) {
			types, got = append(types, k.Want...), k.Got
			continue // a form of another type
		}
		if form := s.describe(c, nil); best == nil || len(form) < len(best) {
			best = form
		}
	}
	switch {
	case best != nil && len(e.Causes) > 1:
		for _, problem := range best {
			list = append(list, problem+" (in the nearest of several forms)")
		}
		return list
	case best != nil:
		return append(list, best...)
	case len(types) > 0:
		return append(list, fmt.Sprintf("%s: want %s, got %s", at, strings.Join(slices.Compact(types), " or "), got))
	}
	return append(list, at+": has none of the forms that are allowed")
}

// place formats a path, such as options.list[3].name.
func place(path []string) string {
	if len(path) == 0 {
		return "the arguments"
	}
	var b strings.Builder
	for i, p := range path {
		if _, err := strconv.ParseUint(p, 10, 32); err == nil && i > 0 {
			b.WriteString("[" + p + "]")
			continue
		}
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(short(p, maxShownName))
	}
	return short(b.String(), 3*maxShownName)
}

// wanted returns text about the type of a member; "" if the schema at the location has none.
func (s *inputSchema) wanted(location, name string) string {
	properties, _ := s.at(location)["properties"].(map[string]any)
	property, _ := properties[name].(map[string]any)
	switch t := property["type"].(type) {
	case string:
		return "; want " + short(t, maxShownName)
	case []any:
		return "; want " + words(t)
	}
	if list, ok := property["enum"].([]any); ok {
		return "; want one of " + words(list)
	}
	return ""
}

// known returns text that lists the properties of the schema at a location.
func (s *inputSchema) known(location string) string {
	properties, _ := s.at(location)["properties"].(map[string]any)
	if len(properties) == 0 {
		return ""
	}
	var names []string
	for name := range properties {
		names = append(names, name)
	}
	slices.Sort(names)
	return "; there are " + short(strings.Join(names, ", "), maxShownWords)
}

// at returns the schema at a location, which is a URL with a JSON pointer; nil if the location is
// outside this document.
func (s *inputSchema) at(location string) map[string]any {
	pointer, ok := strings.CutPrefix(location, schemaURL+"#")
	if !ok {
		return nil
	}
	here := s.doc
	for _, token := range strings.Split(pointer, "/")[1:] {
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		switch v := here.(type) {
		case map[string]any:
			here = v[token]
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(v) {
				return nil
			}
			here = v[i]
		default:
			return nil
		}
	}
	object, _ := here.(map[string]any)
	return object
}

// words formats values of a schema and cuts a long list.
func words(list []any) string {
	var all []string
	for _, v := range list {
		text, err := json.Marshal(v)
		if err != nil {
			continue
		}
		all = append(all, string(text))
	}
	return short(strings.Join(all, ", "), maxShownWords)
}

// short cuts an untrusted text and makes invisible characters visible.
func short(s string, most int) string {
	if len(s) > most {
		for most > 0 && !utf8.RuneStart(s[most]) {
			most--
		}
		s = s[:most] + "…"
	}
	return visible.Text(s)
}

// DecodeOnce decodes a JSON text and rejects duplicate members. With duplicates, the tool might
// read another value than the checked one.
func DecodeOnce(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := decodeValue(d)
	if err == nil {
		if _, err = d.Token(); err == io.EOF {
			return v, nil
		}
		err = errors.New("there is more than one value")
	}
	return nil, err
}

func decodeValue(d *json.Decoder) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		object := map[string]any{}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			if _, twice := object[name.(string)]; twice {
				return nil, fmt.Errorf("%s occurs twice", short(name.(string), maxShownName))
			}
			if object[name.(string)], err = decodeValue(d); err != nil {
				return nil, err
			}
		}
		_, err = d.Token()
		return object, err
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := decodeValue(d)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = d.Token()
		return list, err
	}
	if n, ok := token.(json.Number); ok && !moderate(string(n)) {
		return nil, fmt.Errorf("the number %s is too large, too small or too long to be compared",
			short(string(n), maxShownName))
	}
	return token, nil
}

// moderate reports whether a number is cheap to compare. The library computes exactly, and 1e999999
// takes it a tenth of a second.
func moderate(n string) bool {
	_, exponent, _ := strings.Cut(strings.ToLower(n), "e")
	if exponent == "" {
		return len(n) <= maxDigits
	}
	e, err := strconv.Atoi(exponent)
	return err == nil && -maxDigits <= e && e <= maxDigits && len(n) <= maxDigits
}

// maxDigits exceeds the digits and exponents of 64-bit numbers.
const maxDigits = 400
