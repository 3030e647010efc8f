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

	"github.com/santhosh-tekuri/jsonschema/v6"

	"junction/upstream/bounded"
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
	schemas map[string]*inputSchema // by definition
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

// An UnusableError says why the schema of a definition cannot be used.
type UnusableError struct {
	Err   error
	First bool // the first check of the definition since it was compiled, for the log
}

func (e *UnusableError) Error() string { return e.Err.Error() }

func (e *UnusableError) Unwrap() error { return e.Err }

// Check returns the problems of the arguments, one line each; nil if they are valid. The arguments
// may be absent. An UnusableError means that the schema cannot be used, so that the arguments were
// not checked.
func (v *Validator) Check(definition []byte, arguments raw.Object) (problems []string, err error) {
	s := v.schema(definition)
	s.compile.Do(func() { s.schema, s.doc, s.err = s.compiled(definition) })
	if s.err != nil {
		unusable := &UnusableError{Err: s.err}
		s.told.Do(func() { unusable.First = true })
		return nil, unusable
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

// Invalid returns the text for a call with invalid arguments, so that the model can correct them.
func Invalid(tool string, problems []string) string {
	return fmt.Sprintf("The arguments of %s do not fit its input schema; the tool was not called:\n- %s", tool,
		strings.Join(problems, "\n- "))
}

func (v *Validator) schema(definition []byte) *inputSchema {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.schemas[string(definition)]
	if s == nil {
		s = &inputSchema{}
		bounded.Put(&v.schemas, mostSchemas, string(definition), s, nil)
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
