package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"junction/upstream/raw"
)

// FuzzVerdict makes schemas and arguments of all keywords at random, and compares the verdict with
// that of the library's own validation.
func FuzzVerdict(f *testing.F) {
	for seed := range uint64(2000) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		g := &generator{rand.New(rand.NewPCG(seed, 0))}
		draft := []string{"", `"$schema":"http://json-schema.org/draft-07/schema#",`, `"$schema":"https://json-schema.org/draft/2019-09/schema",`}[g.IntN(3)]
		schema := `{` + draft + `"$defs":{"a":` + g.schema(2) + `},"definitions":{"a":` + g.schema(1) + `},` + g.schema(3)[1:]
		schema = strings.Replace(schema, ",}", "}", 1)
		compiled, err := compile(definitionOf(schema))
		if err != nil {
			t.Fatalf("%s: %v", schema, err)
		}
		for range 10 {
			arguments := g.value(3)
			if arguments[0] != '{' {
				arguments = `{"a":` + arguments + `}`
			}
			compare(t, schema, compiled, arguments)
		}
	})
}

// compare fails if the verdict about the arguments is another one than the library's.
func compare(t *testing.T, schema string, compiled *jsonschema.Schema, arguments string) {
	t.Helper()
	args, err := parse([]byte(arguments))
	if err != nil {
		t.Fatal(err)
	}
	problems, err := (&check{ctx: t.Context(), args: args, most: maxSteps}).problems(compiled)
	if _, over := errors.AsType[*LimitError](err); over {
		return // a schema that contains itself
	}
	value, decodeErr := DecodeOnce([]byte(arguments))
	if err != nil || decodeErr != nil {
		t.Fatal(err, decodeErr)
	}
	if theirs := compiled.Validate(value); (theirs == nil) != (problems == nil) {
		t.Errorf("%s\n%s\nhere: %q\nlibrary: %v", schema, arguments, problems, theirs)
	}
}

type generator struct{ *rand.Rand }

func (g *generator) name() string { return []string{"a", "b", "c", `\u0061b`}[g.IntN(4)] }

func (g *generator) value(depth int) string {
	kinds := 7
	if depth == 0 {
		kinds = 5
	}
	switch g.IntN(kinds) {
	case 0:
		return "null"
	case 1:
		return []string{"true", "false"}[g.IntN(2)]
	case 2:
		return []string{"0", "1", "1.0", "1.5", "-2", "10e-1", "3"}[g.IntN(7)]
	case 3, 4:
		return []string{`""`, `"a"`, `"\u0061"`, `"ab"`, `"ä"`, `"b1"`}[g.IntN(6)]
	case 5:
		var items []string
		for range g.IntN(4) {
			items = append(items, g.value(depth-1))
		}
		return "[" + strings.Join(items, ",") + "]"
	}
	var members []string
	for _, name := range []string{"a", `\u0062`, "c", "ab"}[:g.IntN(5)] {
		members = append(members, `"`+name+`":`+g.value(depth-1))
	}
	return "{" + strings.Join(members, ",") + "}"
}

func (g *generator) list(depth int) string {
	var list []string
	for range 1 + g.IntN(3) {
		list = append(list, g.schema(depth))
	}
	return "[" + strings.Join(list, ",") + "]"
}

func (g *generator) named(depth int) string {
	return `{"` + g.name() + `":` + g.schema(depth) + `,"c` + g.name() + `":` + g.schema(depth) + `}`
}

// schema returns an object, which may be empty, or, below the root, a boolean.
func (g *generator) schema(depth int) string {
	if depth == 0 {
		return []string{"{}", "true", "false", `{"type":"string"}`, `{"type":["integer","null"]}`, `{"const":1}`}[g.IntN(6)]
	}
	keywords := map[string]string{}
	for range g.IntN(4) {
		d := depth - 1
		small := fmt.Sprint(g.IntN(3))
		switch g.IntN(34) {
		case 0:
			keywords["type"] = []string{`"object"`, `"array"`, `"string"`, `"number"`, `"integer"`, `["null","boolean"]`}[g.IntN(6)]
		case 1:
			keywords["const"] = g.value(1)
		case 2:
			keywords["enum"] = "[" + g.value(1) + ",[[" + g.value(1) + "]]]" // draft 7 wants them to differ
		case 3:
			keywords["not"] = g.schema(d)
		case 4:
			keywords["allOf"] = g.list(d)
		case 5:
			keywords["anyOf"] = g.list(d)
		case 6:
			keywords["oneOf"] = g.list(d)
		case 7, 8:
			keywords["if"], keywords["then"], keywords["else"] = g.schema(d), g.schema(d), g.schema(d)
		case 9, 10, 11:
			keywords["properties"] = g.named(d)
		case 12:
			keywords["patternProperties"] = `{"^a":` + g.schema(d) + `,"b":` + g.schema(d) + `}`
		case 13, 14:
			keywords["additionalProperties"] = g.schema(d)
		case 15:
			keywords["required"] = `["` + g.name() + `"]`
		case 16:
			keywords["propertyNames"] = g.schema(d)
		case 17:
			keywords["minProperties"], keywords["maxProperties"] = small, "2"
		case 18:
			keywords["dependentRequired"] = `{"a":["b"]}`
		case 19:
			keywords["dependentSchemas"] = g.named(d)
		case 20:
			keywords["dependencies"] = `{"a":["b"],"b":` + g.schema(d) + `}`
		case 21, 22:
			keywords["items"] = g.schema(d)
		case 23:
			keywords["prefixItems"] = g.list(d)
		case 24:
			keywords["contains"] = g.schema(d)
		case 25:
			keywords["contains"], keywords["minContains"], keywords["maxContains"] = g.schema(d), small, "2"
		case 26:
			keywords["uniqueItems"] = "true"
		case 27:
			keywords["minItems"], keywords["maxItems"] = small, "2"
		case 28:
			keywords["minLength"], keywords["maxLength"] = small, "1"
		case 29:
			keywords["pattern"] = []string{`"^a"`, `"^(?!b)a?"`, `"[0-9]$"`}[g.IntN(3)]
		case 30:
			keywords["minimum"], keywords["exclusiveMaximum"], keywords["multipleOf"] = small, "3", "0.5"
		case 31:
			keywords["unevaluatedProperties"] = g.schema(d)
		case 32:
			keywords["unevaluatedItems"] = g.schema(d)
		case 33:
			keywords["$ref"] = []string{`"#/$defs/a"`, `"#/definitions/a"`}[g.IntN(2)]
		}
	}
	var members []string
	for _, name := range slices.Sorted(maps.Keys(keywords)) {
		members = append(members, `"`+name+`":`+keywords[name])
	}
	return "{" + strings.Join(members, ",") + "}"
}

// FuzzBounds has schemas and arguments of any form. No check takes more steps or keeps more values
// than its limits, and the problems are few and short.
func FuzzBounds(f *testing.F) {
	for _, row := range [][2]string{
		{`{"properties":{"a":{"anyOf":[{"pattern":"^(?!x)y{1,9}"},{"enum":["b",{"c":1}]}]}},"unevaluatedProperties":false}`, `{"a":"b","c":[1,2.5e3,{"d":null}]}`},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","items":[{"$ref":"#"}],"dependencies":{"a":["b"]}}`, `{"a":[[[]]],"\u0061b":true}`},
		{`{"allOf":[{"$ref":"#/$defs/d"},{"$ref":"#/$defs/d"}],"$defs":{"d":{"not":{"uniqueItems":true},"contains":{"const":1}}}}`, `{"a":[1,1.0]}`},
		{`{"$dynamicRef":"#x","$dynamicAnchor":"x","propertyNames":{"maxLength":2}}`, `{"abc":"\ud83d"}`},
	} {
		f.Add(row[0], row[1])
	}
	f.Fuzz(func(t *testing.T, schema, arguments string) {
		object, err := raw.Parse([]byte(arguments))
		if _, scan := raw.Scan([]byte(schema), raw.DefaultDepth); err != nil || scan != nil || len(schema)+len(arguments) > 1<<14 {
			return
		}
		definition := definitionOf(schema)
		s, err := compile(definition)
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		args, err := parse(object.Text())
		if n := mostValues(object.Text()); len(args.nodes) > n {
			t.Fatalf("%d values, and mostValues is %d", len(args.nodes), n)
		}
		if err != nil {
			return
		}
		var value any
		if err := json.Unmarshal(object.Text(), &value); err != nil {
			t.Fatalf("parsed, and is not JSON: %v", err)
		}
		c := &check{ctx: t.Context(), args: args, most: maxSteps}
		c.fits(s, 0, nil, nil)
		if before := c.steps; c.err == nil && before > maxSteps {
			t.Errorf("%d steps without an error", before)
		}
		problems, err := (&check{ctx: t.Context(), args: args, most: maxSteps}).problems(s)
		if err != nil && problems != nil || len(problems) > maxProblems+1 || len(strings.Join(problems, "")) > (maxProblems+1)*4096 {
			t.Errorf("%d problems, %v", len(problems), err)
		}
	})
}

var _ jsonschema.Regexp = (*pattern)(nil)
