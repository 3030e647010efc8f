package schema

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"junction/upstream/raw"
	"junction/upstream/shell"
)

// githubToken has the shape of a secret.
var githubToken = "gh" + "p_" + strings.Repeat("aB3x", 9)

// mustArguments parses arguments; "" is none.
func mustArguments(t testing.TB, text string) raw.Object {
	t.Helper()
	if text == "" {
		return raw.Object{}
	}
	o, err := raw.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func definitionOf(schema string) []byte { return []byte(`{"name":"t","inputSchema":` + schema + `}`) }

func TestArguments(t *testing.T) {
	const search = `{"type":"object","properties":{"query":{"type":"string","minLength":2},"limit":{"type":"integer","minimum":1,"maximum":50},"mode":{"enum":["fast","exact"]},
		"tags":{"type":"array","items":{"type":"string"},"maxItems":3,"uniqueItems":true},"where":{"type":"object","properties":{"path":{"type":"string","pattern":"^/"}},"required":["path"],"additionalProperties":false},
		"id":{"type":["string","null"]},"at":{"type":"string","format":"date-time"}},"required":["query"],"additionalProperties":false}`
	const old = `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","definitions":{"p":{"type":"array","items":[{"type":"number"},{"type":"string"}],"additionalItems":false}},
		"properties":{"pair":{"$ref":"#/definitions/p"},"mail":{"type":"string","format":"email"}},"dependencies":{"mail":["pair"]}}`
	const forms = `{"type":"object","properties":{"a":{"anyOf":[{"type":"string"},{"type":"null"}]},"b":{"oneOf":[{"type":"object","properties":{"kind":{"const":"x"},"n":{"type":"integer"}},"required":["kind","n"]},{"type":"string"}]},
		"c":{"oneOf":[{"type":"integer"},{"minimum":3}]},"d":false,"e":{"not":{"const":1}},"f":{"allOf":[{"$ref":"#/$defs/even"}]}},"$defs":{"even":{"multipleOf":2,"exclusiveMinimum":0}}}`
	for _, row := range []struct {
		schema, arguments string
		want              []string
	}{
		{search, `{"query":"ab"}`, nil},
		{search, `{"query":"ab","limit":1.0,"mode":"exact","tags":["a","b"],"where":{"path":"/x"},"id":null,"at":"tomorrow"}`, nil},
		{search, ``, []string{"query: missing; must be string"}},
		{search, `{}`, []string{"query: missing; must be string"}},
		{search, `{"query":7,"limit":"many","mode":"slow"}`, []string{"limit: must be integer, got string", `mode: must be one of "fast", "exact"`, "query: must be string, got number"}},
		{search, `{"query":"a","limit":0}`, []string{"limit: must be at least 1", "query: must have at least 2 characters, got 1"}},
		{search, `{"query":"ab","limit":9007199254740993}`, []string{"limit: must be at most 50"}},
		{search, `{"query":"ab","limit":1.5}`, []string{"limit: must be integer, got number"}},
		{search, `{"query":"ab","colour":"red"}`, []string{"colour: unknown argument; there are at, id, limit, mode, query, tags, where"}},
		{search, `{"query":"ab","where":{"x":1}}`, []string{"where.path: missing; must be string", "where.x: unknown argument; there are path"}},
		{search, `{"query":"ab","where":{"path":"etc"}}`, []string{"where.path: must match ^/"}},
		{search, `{"query":"ab","tags":["a",2,"c","d"]}`, []string{"tags: must have at most 3 items, got 4", "tags[1]: must be string, got number"}},
		{search, `{"query":"ab","tags":["a","a"]}`, []string{"tags: items 0 and 1 are the same"}},
		{search, `{"query":"ab","id":true}`, []string{"id: must be null or string, got boolean"}},
		{search, `{"query":"ab","quer\u0079":"cd"}`, []string{"the arguments: query occurs twice"}},
		{search, `{"query":"ab","where":{"path":"/a","path":"/b"}}`, []string{"the arguments: path occurs twice"}},
		{search, `{"query":"ab","a\u202eb\n":1}`, []string{`a\u202eb\u000a: unknown argument; there are at, id, limit, mode, query, tags, where`}},
		{old, `{"pair":[1,"a"],"mail":"nobody"}`, nil},
		{old, `{"pair":["a",1,2]}`, []string{"pair: does not fit additionalItems of the schema", "pair[0]: must be number, got string", "pair[1]: must be string, got number"}},
		{old, `{"mail":"a@b.c"}`, []string{"the arguments: mail needs pair as well"}},
		{forms, `{"a":"x","b":{"kind":"x","n":1},"c":1,"e":2,"f":4}`, nil},
		{forms, `{"a":1}`, []string{"a: must be string or null, got number"}},
		{forms, `{"b":{"kind":"x","n":"1"}}`, []string{"b.n: must be integer, got string (in the nearest of several forms)"}},
		{forms, `{"b":1}`, []string{"b: must be object or string, got number"}},
		{forms, `{"c":5}`, []string{"c: fits two of the forms that exclude each other"}},
		{forms, `{"d":1,"e":1,"f":-3}`, []string{"d: no value is allowed here", "e: this value is not allowed", "f: must be a multiple of 2", "f: must be more than 0"}},
		{`{"type":"object"}`, `{"whatever":[1,{"a":null}]}`, nil},
		{`{"type":"object","properties":{"s":{"type":"string","pattern":"x{1000}"}}}`, `{"s":"` + githubToken + `"}`, []string{"s: must match x{1000}"}},
	} {
		got, err := (&Validator{}).Check(t.Context(), definitionOf(row.schema), mustArguments(t, row.arguments), nil, nil)
		if err != nil || !slices.Equal(got, row.want) {
			t.Errorf("%s\n\t got %q, %v\n\twant %q", row.arguments, got, err, row.want)
		}
	}
}

// TestArgumentsAreNotShown has every value of a call be a secret; a tool's error is read by models
// and written to logs.
func TestArgumentsAreNotShown(t *testing.T) {
	schema := `{"type":"object","properties":{"a":{"type":"integer"},"b":{"enum":["x"]},"c":{"const":1},"d":{"pattern":"^x"},"e":{"maxLength":1},"f":{"maxItems":0},"g":{"anyOf":[{"type":"null"},{"minLength":100}]},
		"h":{"not":{}},"i":{"minimum":12345678},"j":{"propertyNames":{"maxLength":3}},"k":{"contains":{"type":"null"}},"l":{"multipleOf":2}}}`
	var members []string
	for _, name := range strings.Split("abcdefghijkl", "") {
		value := `"canary-s3cret"`
		switch name {
		case "f", "k":
			value = `["canary-s3cret"]`
		case "i", "l":
			value = `777`
		case "j":
			value = `{"longer":"canary-s3cret"}`
		}
		members = append(members, quoted(name)+":"+value)
	}
	got, err := (&Validator{}).Check(t.Context(), definitionOf(schema), mustArguments(t, "{"+strings.Join(members, ",")+"}"), nil, nil)
	text := Invalid("t", got)
	if err != nil || len(got) != maxProblems+1 || got[maxProblems] != "and more" || strings.Contains(text, "canary-s3cret") || strings.Contains(text, "777") {
		t.Errorf("%q, %v", got, err)
	}
}

func quoted(s string) string { return string(raw.Quote(s)) }

// TestArgumentsUnchecked has schemas that cannot be used. Each check returns the error, and the first one says that it is new.
func TestArgumentsUnchecked(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "schema.json")
	if err := os.WriteFile(secret, []byte(`{"type":"string"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	asked := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { asked = true; fmt.Fprint(w, `{"type":"string"}`) }))
	defer server.Close()
	server.Config.ConnState = func(net.Conn, http.ConnState) { asked = true }
	v := &Validator{}
	for name, schema := range map[string]string{
		"a reference to the web":     `{"type":"object","properties":{"a":{"$ref":"` + server.URL + `"}}}`,
		"a reference to a file":      `{"type":"object","properties":{"a":{"$ref":"file://` + secret + `"}}}`,
		"a relative reference":       `{"type":"object","properties":{"a":{"$ref":"other.json"}}}`,
		"a dialect of the web":       `{"$schema":"` + server.URL + `","type":"object"}`,
		"a reference into the void":  `{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}}}`,
		"a pattern that is not RE2":  `{"type":"object","properties":{"a":{"pattern":"(a)\\1"}}}`,
		"a pattern that is too long": `{"type":"object","properties":{"a":{"pattern":"((x{100}){100}){100}"}}}`,
		"no schema":                  `{"type":"object","properties":{"a":{"type":"text"}}}`,
		"a large one":                `{"type":"object","description":"` + strings.Repeat("x", maxSchema) + `"}`,
		"one of many parts":          `{"type":"object","allOf":[` + strings.Repeat(`{},`, maxSubschemas) + `{}]}`,
		"a member twice":             `{"type":"object","type":"object"}`,
	} {
		definition := definitionOf(schema)
		problems, err := v.Check(t.Context(), definition, mustArguments(t, `{"a":1}`), nil, nil)
		if e, ok := errors.AsType[*UnusableError](err); !ok || !e.First || problems != nil {
			t.Errorf("%s: %q, %v; want a first error", name, problems, err)
		} else if strings.Contains(err.Error(), "\n") || len(err.Error()) > 400 {
			t.Errorf("%s: %v", name, err)
		}
		problems, err = v.Check(t.Context(), definition, mustArguments(t, `{"a":1}`), nil, nil)
		if e, ok := errors.AsType[*UnusableError](err); !ok || e.First || problems != nil {
			t.Errorf("%s, again: %q, %v; want the error, not as the first one", name, problems, err)
		}
	}
	if asked {
		t.Error("a schema was fetched")
	}
	if _, err := v.Check(t.Context(), []byte(`{"name":"t"}`), raw.Object{}, nil, nil); err == nil {
		t.Error("a definition without a schema has no error")
	}
}

// TestCheckIsBounded has schemas and arguments of a few kilobytes whose comparison would take hours.
// Each check ends at a limit, and the error names the limit.
func TestCheckIsBounded(t *testing.T) {
	var doubling strings.Builder
	for i := range 100 {
		fmt.Fprintf(&doubling, `"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	var marking []string // each keeps marks of the array while the next one is checked
	for i := range 1000 {
		marking = append(marking, fmt.Sprintf(`"d%d":{"unevaluatedItems":true,"$ref":"#/$defs/d%d"}`, i, i+1))
	}
	const most = maxSteps / 10 // steps; all of them take seconds with the race detector
	for name, row := range map[string]struct{ schema, arguments, limit string }{
		"doubling":     {`{"type":"object","$ref":"#/$defs/d0","$defs":{` + doubling.String() + `"d100":{}}}`, `{}`, "steps of the check"},
		"draft 7":      {`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","allOf":[{"$ref":"#/$defs/d0"}],"$defs":{` + doubling.String() + `"d100":{"type":"object"}}}`, `{}`, "steps of the check"},
		"recursion":    {`{"type":"object","allOf":[{"properties":{"a":{"$ref":"#"}}},{"properties":{"a":{"$ref":"#"}}}]}`, strings.Repeat(`{"a":`, 200) + `{}` + strings.Repeat(`}`, 200), "steps of the check"},
		"in not":       {`{"type":"object","not":{"$ref":"#/$defs/d0"},"$defs":{` + doubling.String() + `"d100":{"minProperties":0}}}`, `{}`, "steps of the check"},
		"a circle":     {`{"$ref":"#"}`, `{}`, "nested subschemas"},
		"a pattern":    {`{"properties":{"a":{"pattern":"^([a-z]+[0-9]?){1,90}!$"}}}`, `{"a":"` + strings.Repeat("a", 100_000) + `"}`, "steps of the check"},
		"names":        {`{"patternProperties":{"([a-z]+x?){1,90}!":true}}`, `{"` + strings.Repeat("a", 100_000) + `":1}`, "steps of the check"},
		"an enum":      {`{"items":{"enum":[` + strings.Repeat(`"ab",`, 2000) + `"x"]},"properties":{"a":{"items":{"enum":[` + strings.Repeat(`"ab",`, 2000) + `"x"]}}}}`, `{"a":[` + strings.Repeat(`"x",`, 50_000) + `"x"]}`, "steps of the check"},
		"unevaluated":  {`{"properties":{"a":{"unevaluatedItems":false,"anyOf":[` + strings.Repeat(`{"contains":{"const":1}},`, 500) + `true]}}}`, `{"a":[` + strings.Repeat(`1,`, 90_000) + `1]}`, "steps of the check"},
		"many values":  {`{}`, `{"a":[` + strings.Repeat(`0,`, maxValues) + `0]}`, "values"},
		"many members": {`{}`, `{"a":[` + strings.Repeat(`{"":0},`, maxValues/2) + `0]}`, "values"},
		"deep":         {`{}`, `{"a":` + strings.Repeat(`[`, 2*maxArgumentDepth) + strings.Repeat(`]`, 2*maxArgumentDepth) + `}`, "levels of arrays and objects"},
		"a long name":  {`{"$ref":"#/$defs/d86","$defs":{` + doubling.String() + `"d100":{"properties":{"a":true}}}}`, `{"` + strings.Repeat(`a\u0062`, 150_000) + `":1}`, "steps of the check"},
		"marks":        {`{"properties":{"a":{"$ref":"#/$defs/d0"}},"$defs":{` + strings.Join(marking, ",") + `,"d1000":true}}`, `{"a":[` + strings.Repeat(`0,`, 90_000) + `0]}`, "steps of the check"},
	} {
		definition, arguments := definitionOf(row.schema), mustArguments(t, row.arguments)
		s, err := compile(definition)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if args, err := parse(arguments.Text()); err == nil {
			c := &check{ctx: t.Context(), args: args, most: most}
			if c.fits(s, 0, nil, nil); c.steps > 2*most { // the last addend is what would have been done next
				t.Logf("%s: stopped before %d steps", name, c.steps)
			}
		} else if len(args.nodes) > maxValues {
			t.Errorf("%s: %d values are kept", name, len(args.nodes))
		}
		problems, err := (&Validator{steps: most}).Check(t.Context(), definition, arguments, nil, nil)
		if e, ok := errors.AsType[*LimitError](err); !ok || e.Limit != row.limit || problems != nil {
			t.Errorf("%s: %q, %v; want the limit %q", name, problems, err, row.limit)
		}
	}
}

// TestFirstProblemsOnly has a hundred thousand wrong items. The check makes text for the first ones
// and stops: a library that collects makes a gigabyte of it.
func TestFirstProblemsOnly(t *testing.T) {
	definition := definitionOf(`{"properties":{"tags":{"items":{"enum":["a","b"]}}}}`)
	arguments := mustArguments(t, `{"tags":[`+strings.Repeat(`"x",`, maxValues-10)+`"x"]}`)
	var v Validator
	var problems []string
	var err error
	measured := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			problems, err = v.Check(t.Context(), definition, arguments, nil, nil)
		}
	})
	if err != nil || len(problems) != maxProblems+1 || problems[0] != `tags[0]: must be one of "a", "b"` || problems[maxProblems] != "and more" {
		t.Errorf("%q, %v", problems, err)
	}
	if n := measured.AllocedBytesPerOp(); n > maxValues*nodeBytes+100_000 {
		t.Errorf("a check allocates %d bytes", n)
	}
}

// TestSchemaIsBounded has schemas that would cost much to compile. Each is refused before, with its
// limit.
func TestSchemaIsBounded(t *testing.T) {
	var far, ids strings.Builder
	for i := range maxFarTargets + 1 {
		fmt.Fprintf(&far, `{"$ref":"#/x/%d"},`, i)
		fmt.Fprintf(&ids, `{"$id":"https://a.invalid/%d","$dynamicRef":"#x"},`, i)
	}
	for name, row := range map[string]struct{ schema, reason string }{
		"bytes":              {`{"description":"` + strings.Repeat("x", maxSchema) + `"}`, "more than 1048576 bytes"},
		"booleans":           {`{"allOf":[` + strings.Repeat("true,", 60_000) + `true]}`, "too many values"},
		"fewer booleans":     {`{"allOf":[` + strings.Repeat("true,", maxSubschemas) + `true]}`, "more than 5000 subschemas"},
		"objects":            {`{"allOf":[` + strings.Repeat("{},", maxSubschemas) + `{}]}`, "more than 5000 subschemas"},
		"depth":              {strings.Repeat(`{"not":`, maxSchemaDepth+1) + `{}` + strings.Repeat(`}`, maxSchemaDepth+1), "nested too deeply"},
		"a short pattern":    {`{"pattern":"` + strings.Repeat("(a{999})", 10) + `"}`, "more than 4000 instructions"},
		"nested repetitions": {`{"pattern":"((((ab){10}){10}c){10})(((abc){10}){10}c){10}"}`, "more than 4000 instructions"},
		"a long pattern":     {`{"pattern":"` + strings.Repeat("[a]", maxPattern) + `"}`, "more than 8192 bytes"},
		"many patterns":      {`{"allOf":[` + manyPatterns() + `true]}`, "more than 20000 instructions"},
		"far references":     {`{"anyOf":[` + far.String() + `true],"x":{}}`, "references to places that are no $defs"},
		"dynamic references": {`{"anyOf":[` + ids.String() + `true]}`, "$dynamicRef"},
		"the meta-schema":    {`{"properties":{"a":{"$ref":"https://json-schema.org/draft/2020-12/schema"}}}`, "refers to a schema elsewhere"},
	} {
		_, err := new(Validator).Check(t.Context(), definitionOf(row.schema), mustArguments(t, `{}`), nil, nil)
		if e, ok := errors.AsType[*UnusableError](err); !ok || !strings.Contains(e.Error(), row.reason) {
			t.Errorf("%s: %v; want an unusable schema with %q", name, err, row.reason)
		}
	}
	v := &Validator{}
	for i := range mostSchemas + 10 {
		v.schema(fmt.Appendf(nil, "%d", i))
	}
	if len(v.schemas) > mostSchemas {
		t.Errorf("%d schemas are kept", len(v.schemas))
	}
	for i := range 100 {
		v.schema(append(bytes.Repeat([]byte{' '}, maxSchema), byte(i)))
	}
	if len(v.schemas) > mostSchemaBytes/maxSchema {
		t.Errorf("%d large schemas are kept", len(v.schemas))
	}
}

func manyPatterns() string {
	var b strings.Builder
	for i := range 30 {
		fmt.Fprintf(&b, `{"pattern":"x{0,%d}"},`, 900+i)
	}
	return b.String()
}

// TestPatternsOfOtherEngines has patterns of ECMA-262 that Go does not have.
func TestPatternsOfOtherEngines(t *testing.T) {
	for _, row := range []struct {
		pattern  string
		yes, no  []string
		unusable bool
	}{
		// generated for addresses by a common library
		{`^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$`,
			[]string{"a@b.cd", "a.b@c.de"}, []string{".a@b.cd", "a..b@c.de", "a@b", ""}, false},
		{`^(?=.*[A-Z])(?=.*\d).{8,}$`, []string{"Passw0rd"}, []string{"password", "Passw0r"}, false},
		{`^(?!a|b)c?`, []string{"c", "", "xa"}, []string{"a", "b"}, false},
		{`^(?!x)(y|z)$`, []string{"y", "z"}, []string{"x"}, false},
		{`^\u0041\u{42}$`, []string{"AB"}, []string{"u0041"}, false},
		{`^(?!x)y|z`, nil, nil, true}, // the lookahead belongs to the first alternative
		{`^(?!x)*y`, nil, nil, true},  // the lookahead is repeated
		{`^(?=x){2}y`, nil, nil, true},
		{`a(?!x)`, nil, nil, true},
		{`(?<!a)b`, nil, nil, true},
		{`^(?![(]|[^)])x`, nil, []string{"x", "(x"}, false},
	} {
		definition := definitionOf(`{"properties":{"s":{"pattern":"` + row.pattern + `"}}}`)
		var v Validator
		definition = bytes.ReplaceAll(definition, []byte("\\"), []byte("\\\\"))
		try := func(s string) ([]string, error) {
			return v.Check(t.Context(), definition, mustArguments(t, `{"s":`+quoted(s)+`}`), nil, nil)
		}
		if _, err := try(""); (err != nil) != row.unusable {
			t.Errorf("%s: %v, want unusable %t", row.pattern, err, row.unusable)
		}
		for _, s := range row.yes {
			if p, err := try(s); p != nil || err != nil {
				t.Errorf("%s does not match %q: %q, %v", row.pattern, s, p, err)
			}
		}
		for _, s := range row.no {
			if p, err := try(s); len(p) != 1 || err != nil {
				t.Errorf("%s matches %q: %q, %v", row.pattern, s, p, err)
			}
		}
	}
}

// A ledger is a Cost that counts.
type ledger struct {
	held, most, free int64
	turns, ended     int
	refuse           error // by Turn
}

func (l *ledger) Hold(n int64) (func(), error) {
	if l.held+n > l.free {
		return nil, errNoRoom
	}
	l.held += n
	l.most = max(l.most, l.held)
	return func() { l.held -= n }, nil
}

func (l *ledger) Turn(context.Context) (func(), error) {
	if l.turns++; l.refuse != nil {
		return nil, l.refuse
	}
	return func() { l.ended++ }, nil
}

var errNoRoom = errors.New("no room")

// TestCheckCountsForTheCaller: the memory of a check is taken from the caller before the check, and a
// check that needs long waits for a turn of the caller. Small checks need neither a turn nor much
// memory.
func TestCheckCountsForTheCaller(t *testing.T) {
	definition := definitionOf(`{"properties":{"tags":{"items":{"type":"string"}}}}`)
	var v Validator
	small, large := mustArguments(t, `{"tags":["a"]}`), mustArguments(t, `{"tags":[`+strings.Repeat(`"x",`, 50_000)+`"x"]}`)
	l := &ledger{free: 4096}
	if p, err := v.Check(t.Context(), definition, small, l, nil); p != nil || err != nil || l.turns != 0 || l.held != 0 || l.most == 0 {
		t.Errorf("a small check: %q, %v, %+v", p, err, *l)
	}
	if _, err := v.Check(t.Context(), definition, large, l, nil); err != errNoRoom || l.turns != 0 {
		t.Errorf("a check without room: %v, %+v", err, *l)
	}
	l = &ledger{free: 4 << 20}
	if p, err := v.Check(t.Context(), definition, large, l, nil); p != nil || err != nil || l.turns != 1 || l.ended != 1 || l.held != 0 || l.most < 50_000*nodeBytes {
		t.Errorf("a large check: %q, %v, %+v", p, err, *l)
	}
	l.refuse = context.Canceled
	if p, err := v.Check(t.Context(), definition, large, l, nil); err != context.Canceled || l.ended != 1 || l.held != 0 {
		t.Errorf("a check whose turn never comes: %q, %v, %+v", p, err, *l)
	}
}

// TestCheckEndsWithItsCaller: when the client has left, the check stops within a thousand steps.
func TestCheckEndsWithItsCaller(t *testing.T) {
	s, err := compile(definitionOf(`{"properties":{"tags":{"items":{"type":"string"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	args, err := parse([]byte(`{"tags":[` + strings.Repeat(`"x",`, 50_000) + `"x"]}`))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := &check{ctx: ctx, args: args, most: maxSteps}
	if c.fits(s, 0, nil, nil) || c.err != context.Canceled || c.steps > 2048 {
		t.Errorf("%v after %d steps", c.err, c.steps)
	}
}

func TestArgumentsAtOnce(t *testing.T) {
	v := &Validator{}
	definition := definitionOf(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)
	good, bad := mustArguments(t, `{"n":1}`), mustArguments(t, `{}`)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				if p, err := v.Check(t.Context(), bytes.Clone(definition), good, nil, nil); p != nil || err != nil {
					t.Errorf("%q, %v", p, err)
				}
				if p, err := v.Check(t.Context(), definition, bad, nil, nil); len(p) != 1 || err != nil {
					t.Errorf("%q, %v", p, err)
				}
			}
		})
	}
	all.Wait()
}

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"plain, grüße 你好 😀": "plain, grüße 你好 😀", "a\nb\t": `a\u000ab\u0009`, "a\u202eb\u2066": `a\u202eb\u2066`, "zero\u200bwidth\ufeff": `zero\u200bwidth\ufeff`,
		"tag\U000e0041": `tag\U000e0041`, "\u00a0\u3164\u2800": `\u00a0\u3164\u2800`, "\xff": `\ufffd`, "\x1b[31m": `\u001b[31m`, "\ufe0f": `\ufe0f`, "\u00ad": `\u00ad`,
	} {
		if got := shell.Visible(in); got != want {
			t.Errorf("Visible(%q) = %q, want %q", in, got, want)
		}
	}
}

func BenchmarkValidate(b *testing.B) {
	v := &Validator{}
	definition := definitionOf(`{"type":"object","properties":{"query":{"type":"string"},"limit":{"type":"integer"},"tags":{"type":"array","items":{"type":"string"}}},"required":["query"]}`)
	arguments := mustArguments(b, `{"query":"abc","limit":3,"tags":["a","b","c"]}`)
	b.ReportAllocs()
	for b.Loop() {
		if p, err := v.Check(b.Context(), definition, arguments, nil, nil); p != nil || err != nil {
			b.Fatal(p, err)
		}
	}
}

// TestArgumentsWithEnormousNumbers has numbers of a few bytes whose exact value has a million
// digits: they are refused, not computed.
func TestArgumentsWithEnormousNumbers(t *testing.T) {
	var v Validator
	began := time.Now()
	for _, schema := range []string{`{"items":{"type":"integer"}}`, `{"items":{"minimum":1}}`, `{"items":{"enum":[1]}}`, `{"uniqueItems":true}`} {
		definition := definitionOf(`{"properties":{"a":` + schema + `}}`)
		for _, n := range []string{"1e999999", "1E-999999", "1e+999999", "1e99999999999999999999", "1" + strings.Repeat("0", 1<<14), "0." + strings.Repeat("0", 1<<14) + "1"} {
			problems, err := v.Check(t.Context(), definition, mustArguments(t, `{"a":[`+strings.Repeat(n+",", 20)+n+`]}`), nil, nil)
			if err != nil || len(problems) != 1 || !strings.Contains(problems[0], "to be compared") {
				t.Errorf("%.20s in %s: %.200q, %v", n, schema, problems, err)
			}
		}
		if problems, err := v.Check(t.Context(), definition, mustArguments(t, `{"a":[1.7976931348623157e308]}`), nil, nil); err != nil || len(problems) == 1 && strings.Contains(problems[0], "to be compared") {
			t.Errorf("the largest number that all readers know in %s: %q, %v", schema, problems, err)
		}
	}
	if _, err := v.Check(t.Context(), definitionOf(`{"properties":{"a":{"minimum":1e999999}}}`), mustArguments(t, `{"a":1}`), nil, nil); err == nil {
		t.Error("a schema with such a number is used")
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %v", took)
	}
}
