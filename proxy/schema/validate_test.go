package schema

import (
	"bytes"
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

	"junction/proxy/visible"
	"junction/upstream/raw"
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
		got, err := (&Validator{}).Check(definitionOf(row.schema), mustArguments(t, row.arguments))
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
	got, err := (&Validator{}).Check(definitionOf(schema), mustArguments(t, "{"+strings.Join(members, ",")+"}"))
	text := Invalid("t", got)
	if err != nil || len(got) != maxProblems+1 || got[maxProblems] != "and 2 more" || strings.Contains(text, "canary-s3cret") || strings.Contains(text, "777") {
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
		"a pattern that is not RE2":  `{"type":"object","properties":{"a":{"pattern":"^(?!x)"}}}`,
		"a pattern that is too long": `{"type":"object","properties":{"a":{"pattern":"((x{100}){100}){100}"}}}`,
		"no schema":                  `{"type":"object","properties":{"a":{"type":"text"}}}`,
		"a large one":                `{"type":"object","description":"` + strings.Repeat("x", maxSchema) + `"}`,
		"one of many parts":          `{"type":"object","allOf":[` + strings.Repeat(`{},`, maxSubschemas) + `{}]}`,
		"a member twice":             `{"type":"object","type":"object"}`,
	} {
		definition := definitionOf(schema)
		problems, err := v.Check(definition, mustArguments(t, `{"a":1}`))
		if e, ok := errors.AsType[*UnusableError](err); !ok || !e.First || problems != nil {
			t.Errorf("%s: %q, %v; want a first error", name, problems, err)
		} else if strings.Contains(err.Error(), "\n") || len(err.Error()) > 400 {
			t.Errorf("%s: %v", name, err)
		}
		problems, err = v.Check(definition, mustArguments(t, `{"a":1}`))
		if e, ok := errors.AsType[*UnusableError](err); !ok || e.First || problems != nil {
			t.Errorf("%s, again: %q, %v; want the error, not as the first one", name, problems, err)
		}
	}
	if asked {
		t.Error("a schema was fetched")
	}
	if _, err := v.Check([]byte(`{"name":"t"}`), raw.Object{}); err == nil {
		t.Error("a definition without a schema has no error")
	}
}

// TestArgumentsAreBounded has schemas whose comparison would not end while anybody waits.
func TestArgumentsAreBounded(t *testing.T) {
	var doubling strings.Builder
	for i := range 100 {
		fmt.Fprintf(&doubling, `"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	for name, row := range map[string]struct{ schema, arguments string }{
		"doubling":  {`{"type":"object","$ref":"#/$defs/d0","$defs":{` + doubling.String() + `"d100":{}}}`, `{}`},
		"draft 7":   {`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","allOf":[{"$ref":"#/$defs/d0"}],"$defs":{` + doubling.String() + `"d100":{"type":"object"}}}`, `{}`},
		"recursion": {`{"type":"object","allOf":[{"properties":{"a":{"$ref":"#"}}},{"properties":{"a":{"$ref":"#"}}}]}`, strings.Repeat(`{"a":`, 200) + `{}` + strings.Repeat(`}`, 200)},
		"in not":    {`{"type":"object","not":{"$ref":"#/$defs/d0"},"$defs":{` + doubling.String() + `"d100":{"minProperties":1}}}`, `{}`},
	} {
		began := time.Now()
		problems, err := (&Validator{}).Check(definitionOf(row.schema), mustArguments(t, row.arguments))
		if took := time.Since(began); took > time.Minute { // a machine that is slow, and not one that counts to 2^100
			t.Errorf("%s took %v", name, took)
		}
		if name != "in not" && (err != nil || len(problems) != 1 || !strings.Contains(problems[0], "too many")) {
			t.Errorf("%s: %q, %v", name, problems, err)
		}
	}
	v := &Validator{}
	for i := range mostSchemas + 10 {
		v.schema(fmt.Appendf(nil, "%d", i))
	}
	if len(v.schemas) > mostSchemas {
		t.Errorf("%d schemas are kept", len(v.schemas))
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
				if p, err := v.Check(bytes.Clone(definition), good); p != nil || err != nil {
					t.Errorf("%q, %v", p, err)
				}
				if p, err := v.Check(definition, bad); len(p) != 1 || err != nil {
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
		if got := visible.Text(in); got != want {
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
		if p, err := v.Check(definition, arguments); p != nil || err != nil {
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
			problems, err := v.Check(definition, mustArguments(t, `{"a":[`+strings.Repeat(n+",", 20)+n+`]}`))
			if err != nil || len(problems) != 1 || !strings.Contains(problems[0], "to be compared") {
				t.Errorf("%.20s in %s: %.200q, %v", n, schema, problems, err)
			}
		}
		if problems, err := v.Check(definition, mustArguments(t, `{"a":[1.7976931348623157e308]}`)); err != nil || len(problems) == 1 && strings.Contains(problems[0], "to be compared") {
			t.Errorf("the largest number that all readers know in %s: %q, %v", schema, problems, err)
		}
	}
	if _, err := v.Check(definitionOf(`{"properties":{"a":{"minimum":1e999999}}}`), mustArguments(t, `{"a":1}`)); err == nil {
		t.Error("a schema with such a number is used")
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %v", took)
	}
}
