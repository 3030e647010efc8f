// Package schema checks the arguments of tool calls against the input schemas of the tools. The
// schemas come from upstreams and the arguments from clients, so the package bounds the size of both
// and the work of each check.
//
// A library compiles the schemas (compile.go, pattern.go). Its own validation has no bounds: it makes
// an error for each item before it returns, and neither a context nor a limit can stop it. No Go
// validator was found that has. So check.go, inside.go and equal.go compare the arguments with the
// compiled schema, count each step, and stop at the first problems (describe.go). The arguments are
// not decoded: value.go keeps the places of the values in the text.
package schema

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
// Formats and contents of strings (format, contentEncoding, contentMediaType) are annotations, as in
// 2020-12, also for older drafts: servers are lenient there.
type Validator struct {
	mu      sync.Mutex
	schemas map[string]*inputSchema // by definition
	bytes   int                     // their memory, as memoryOf estimates it
	steps   int                     // bound of a check; 0 for maxSteps
}

const (
	mostSchemas     = 4096
	mostSchemaBytes = 128 << 20 // of memory
)

// memoryOf estimates the memory of a definition and its compiled schema from above. Most of it is for
// subschemas, of which {} is one.
func memoryOf(definition []byte) int {
	return 10*len(definition) + 1024*mostSubschemas(definition)
}

// mostSubschemas bounds the subschemas in a definition from above.
func mostSubschemas(definition []byte) int {
	n := 0
	for _, start := range []string{"{", "true", "false"} {
		n += bytes.Count(definition, []byte(start))
	}
	return min(n, maxSubschemas)
}

// inputSchema is the compiled schema of one tool.
type inputSchema struct {
	mu       sync.Mutex
	compiled bool
	schema   *jsonschema.Schema
	err      error // why the schema cannot be used
	reported bool
}

// Cost accounts for the checks of one caller.
type Cost interface {
	// Hold takes n bytes until the check has ended.
	Hold(n int64) (release func(), err error)
	// Turn waits until the caller may use a processor for up to a second. The caller must call end.
	Turn(context.Context) (end func(), err error)
}

// An UnusableError says why the schema of a definition cannot be used.
type UnusableError struct {
	Err   error
	First bool // the first check of the definition since it was compiled, for the log
}

func (e *UnusableError) Error() string { return e.Err.Error() }

func (e *UnusableError) Unwrap() error { return e.Err }

// Check returns the problems of the arguments, one line each; nil if they are valid. The arguments
// may be absent. cost may be nil. clean removes from each text of the schema what the caller must not
// read; nil removes nothing.
//
// With an error the arguments were not checked: an *UnusableError means that the schema cannot be
// used, and a *LimitError that the arguments exceed a limit. Other errors come from ctx and cost.
func (v *Validator) Check(ctx context.Context, definition []byte, arguments raw.Object, cost Cost,
	clean func(string) string) (problems []string, err error) {
	s := v.schema(definition)
	if err := s.compile(ctx, definition, cost); err != nil {
		return nil, err
	}
	text := arguments.Text()
	if !arguments.Present() {
		text = []byte("{}")
	}
	if cost != nil {
		release, err := cost.Hold(int64(mostValues(text)) * nodeBytes)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	c := &check{ctx: ctx, cost: cost, most: cmp.Or(v.steps, maxSteps), clean: clean}
	defer c.end()
	if !c.spend(len(text) / 4) { // to parse them
		return nil, c.err
	}
	args, err := parse(text)
	if limit, over := errors.AsType[*LimitError](err); over {
		return nil, limit
	} else if err != nil {
		return []string{"the arguments: " + err.Error()}, nil
	}
	c.args = args
	return c.problems(s.schema)
}

// Broken returns the error of Check for a definition whose schema was repaired, so that it accepts more
// than the server may have meant. why is the repair.
func (v *Validator) Broken(definition []byte, why string) *UnusableError {
	s := v.schema(append([]byte(why), definition...))
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.reported
	s.compiled, s.err, s.reported = true, errors.New("its schema is broken: "+why), true
	return &UnusableError{Err: s.err, First: first}
}

// problems returns the problems of the arguments. It looks for them only after a check that stops at
// the first one has failed: alternatives that do not fit are then no problems.
func (c *check) problems(s *jsonschema.Schema) ([]string, error) {
	if c.fits(s, 0, nil, nil) {
		return nil, nil
	}
	if c.err != nil {
		return nil, c.err
	}
	found := &problems{}
	c.steps = min(c.steps, c.most/2)
	c.fits(s, 0, found, nil)
	if _, over := errors.AsType[*LimitError](c.err); c.err != nil && !over {
		return nil, c.err
	} else if over { // the verdict is known, and perhaps a part of the reasons
		found.more = true
	}
	return found.lines(), nil
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
		n := memoryOf(definition)
		if v.bytes += n; v.bytes > mostSchemaBytes {
			v.schemas, v.bytes = nil, n
		}
		s = &inputSchema{}
		bounded.Put(&v.schemas, mostSchemas, string(definition), s, nil)
	}
	return s
}

// compile compiles the schema at its first call. The error is an *UnusableError, or comes from cost.
func (s *inputSchema) compile(ctx context.Context, definition []byte, cost Cost) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.compiled {
		if cost != nil && (len(definition) > lightDefinition || mostSubschemas(definition) > lightSubschemas) {
			s.mu.Unlock()
			end, err := cost.Turn(ctx)
			s.mu.Lock()
			if err != nil {
				return err
			}
			defer end()
		}
		if !s.compiled {
			s.schema, s.err = compile(definition)
			s.compiled = true
		}
	}
	if s.err == nil {
		return nil
	}
	first := !s.reported
	s.reported = true
	return &UnusableError{Err: s.err, First: first}
}

// The size up to which a definition is compiled at once, in a few milliseconds.
const (
	lightDefinition = 8 << 10 // bytes
	lightSubschemas = 256
)

// DecodeOnce decodes a JSON text and rejects duplicate members. With duplicates, the tool might
// read another value than the checked one.
func DecodeOnce(text []byte) (any, error) { return decodeWithin(text, len(text), maxArgumentDepth) }

// decodeWithin is DecodeOnce for at most most values, nested at most depth deep.
func decodeWithin(text []byte, most, depth int) (any, error) {
	d := decoder{json.NewDecoder(bytes.NewReader(text)), most}
	d.UseNumber()
	v, err := d.value(depth)
	if err == nil {
		if _, err = d.Token(); err == io.EOF {
			return v, nil
		}
		err = errors.New("there is more than one value")
	}
	return nil, err
}

type decoder struct {
	*json.Decoder
	rest int // values that may follow
}

func (d *decoder) value(depth int) (any, error) {
	if d.rest--; d.rest < 0 {
		return nil, errors.New("it has too many values")
	}
	if depth < 0 {
		return nil, errors.New("it is nested too deeply")
	}
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		return d.object(depth)
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := d.value(depth - 1)
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

func (d *decoder) object(depth int) (any, error) {
	object := map[string]any{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, _ := token.(string)
		if _, twice := object[name]; twice {
			return nil, fmt.Errorf("%s occurs twice", short(name, maxShownName))
		}
		if object[name], err = d.value(depth - 1); err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return object, err
}

// moderate reports whether a number is cheap to compare. Numbers are compared exactly, and 1e999999
// takes a tenth of a second.
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
