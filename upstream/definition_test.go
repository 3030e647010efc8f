package upstream

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"junction/upstream/client"
	"junction/upstream/definition"
	"junction/upstream/raw"
)

// listed returns the catalog of a server of the era that lists one definition, and what legacy
// clients see of it.
func listed(t *testing.T, era client.Era, p Part, text string) (c *Catalog, legacy string) {
	t.Helper()
	c = &Catalog{Era: era}
	c.index[p] = map[string]int{}
	c.add(p, []byte(text), 0)
	if c.Items(p) == 0 {
		return c, ""
	}
	legacy = string(c.Item(p, 0).Definition.Text())
	if p == PartTools && len(c.Tools[0].Older) > 0 {
		text, err := c.Tools[0].Definition.Splice(c.Tools[0].Older...)
		if err != nil {
			t.Fatal(err)
		}
		legacy = string(text)
	}
	return c, legacy
}

// TestForeignDefinitionsAreMendedOrLeftOutAlone has, of each rule, a definition that typed clients
// reject with its whole list.
func TestForeignDefinitionsAreMendedOrLeftOutAlone(t *testing.T) {
	const same = "the same"
	tool := func(members string) string { return `{"name":"a", "inputSchema":{"type":"object"}` + members + `}` }
	input := func(members string) string {
		return `{"name":"a","inputSchema":{"type":"object"` + members + `},"x":1.0}`
	}
	property := func(schema string) string { return input(`,"properties":{"a":` + schema + `}`) }
	output := func(schema string) string { return tool(`,"outputSchema":` + schema) }
	resource := func(members string) string { return `{"uri":"a","name":"n"` + members + `}` }
	for _, tt := range []struct {
		name    string
		part    Part
		in      string
		modern  string // what modern clients see; "" is nothing
		legacy  string // what legacy clients see
		changes string // of a legacy server; the reason, where the definition is left out
	}{
		// The shapes of the issue.
		{"an outputSchema of another type", PartTools, output(`{"type":"array"}`), same, tool(""), `outputSchema.type is not "object"`},
		{"an outputSchema without a type", PartTools, output(`{"anyOf":[{}]}`), same, tool(""), "outputSchema.type is missing"},
		{"an icon without src", PartTools, tool(`,"icons":[{"mimeType":"image/png"},{"src":"x", "y":1.0}]`), tool(`,"icons":[{"src":"x", "y":1.0}]`), same, "icons[0].src is missing"},
		{"an unknown taskSupport", PartTools, tool(`,"execution":{"taskSupport":"maybe","x":1.0}`), same, tool(`,"execution":{"x":1.0}`),
			`execution.taskSupport is not "required" or "optional" or "forbidden"`},
		{"properties are an empty array", PartTools, input(`,"properties":[]`), input(`,"properties":{}`), same, "inputSchema.properties is an empty array"},
		{"required is a string", PartTools, input(`,"required":"a"`), input(``), same, "inputSchema.required is no array"},
		{"nil maps", PartTools, input(`,"properties":null,"required":null`), input(`,"properties":{},"required":[]`), same,
			"inputSchema.properties is null; .required is null"},
		{"a property without an object", PartTools, input(`,"properties":{"a":true, "b":false,"\u0063":{"x":1.0}}`), same,
			input(`,"properties":{"a":{},"b":{"not":{}},"\u0063":{"x":1.0}}`), "inputSchema.properties has a schema that is no object"},

		{"properties are text", PartTools, input(`,"properties":"x"`), input(""), same, "inputSchema.properties is no object"},
		{"a requirement is a number", PartTools, input(`,"required":["a",1]`), input(`,"required":["a"]`), same, "inputSchema.required[1] is no string"},
		{"$schema is null", PartTools, input(`,"$schema":null`), input(""), same, "inputSchema.$schema is no string"},
		{"definitions are an array", PartTools, input(`,"$defs":[1]`), input(""), same, "inputSchema.$defs is no object"},
		{"a schema is null", PartTools, input(`,"properties":{"a":null}`), input(`,"properties":{"a":{}}`), same, "inputSchema.properties.a is no schema"},
		{"an outputSchema that is null", PartTools, output("null"), tool(""), same, "outputSchema is no object"},
		{"a nil map in an outputSchema", PartTools, output(`{"type":"object","properties":null}`), output(`{"type":"object","properties":{}}`), same, "outputSchema.properties is null"},
		{"an outputSchema that does not compile", PartTools, output(`{"type":"object","properties":{"a":{"id":"x"}}}`), same, tool(""),
			"outputSchema.properties[…].id is not supported by draft-07"},
		{"a $ref to nothing", PartTools, output(`{"type":"object","items":[{"$ref":"#/$defs/x"}]}`), output(`{"type":"object","items":[{}]}`), same,
			"outputSchema.items[0].$ref refers to nothing"},
		{"a $ref to elsewhere", PartTools, output(`{"type":"object","items":{"$ref":"x.json"}}`), same, tool(""), "outputSchema.items.$ref refers to another document"},
		{"a $ref to something", PartTools, output(`{"type":"object","not":{"$ref":"#/$defs/x~1y"},"$defs":{"x/y":{}}}`), same, same, ""},
		{"a pattern that is none", PartTools, output(`{"type":"object","patternProperties":{"(":{},"a":{}}}`), output(`{"type":"object","patternProperties":{"a":{}}}`), same,
			"outputSchema.patternProperties[…] is no regular expression"},
		{"nullable without a type", PartTools, output(`{"type":"object","properties":{"a":{"nullable":true,"anyOf":[{}]}}}`), same, tool(""),
			"outputSchema.properties[…].nullable is without type"},
		{"nullable with a type", PartTools, output(`{"type":"object","properties":{"a":{"nullable":true,"type":"string"}}}`), same, same, ""},
		{"a lookahead", PartTools, output(`{"type":"object","patternProperties":{"^(?=x)":{}}}`), same, same, ""},
		{"title and description are null", PartTools, tool(`,"title":null,"description":null`), tool(""), same, "title is no string; .description is no string"},
		{"a hint is text", PartTools, tool(`,"annotations":{"readOnlyHint":"yes","x":1.0}`), tool(`,"annotations":{"x":1.0}`), same,
			"annotations.readOnlyHint is neither true nor false"},
		{"execution is text", PartTools, tool(`,"execution":"x"`), tool(""), same, "execution is no object"},
		{"execution is null", PartTools, tool(`,"execution":null`), same, tool(""), "execution is no object"},
		{"_meta is an array", PartTools, tool(`,"_meta":[]`), tool(""), same, "_meta is no object"},
		{"icons are an object", PartTools, tool(`,"icons":{}`), tool(""), same, "icons is no array"},
		{"an icon's theme", PartTools, tool(`,"icons":[{"src":"x","theme":"sepia","sizes":[1]}]`), tool(`,"icons":[{"src":"x"}]`), same,
			`icons[0].sizes[0] is no string; .theme is not "light" or "dark"`},
		{"members in another letter case", PartTools, input(`,"Required":["a"],"required":["a"]`), same, same, ""},
		{"members twice, one of them wrong", PartTools, input(`,"required":["a"],"required":"a"`), "", "", "inputSchema.required occurs twice, or in another letter case"},
		// Schemas that no draft of JSON Schema allows.
		{"a type that is none", PartTools, property(`{"type":"nonsense", "x":1.0}`), property(`{"x":1.0}`), same, "inputSchema.properties.a.type is no type"},
		{"types, one of them wrong", PartTools, property(`{"type":["string","any"]}`), property(`{}`), same, "inputSchema.properties.a.type is no type"},
		{"a pattern that does not end", PartTools, property(`{"pattern":"("}`), property(`{}`), same, "inputSchema.properties.a.pattern is no regular expression"},
		{"an enum that is text", PartTools, property(`{"enum":"x"}`), property(`{}`), same, "inputSchema.properties.a.enum is no array"},
		{"a minimum that is text", PartTools, property(`{"minimum":"1"}`), property(`{}`), same, "inputSchema.properties.a.minimum is no number"},
		{"items that are text", PartTools, property(`{"type":"array","items":"x"}`), property(`{"type":"array"}`), same, "inputSchema.properties.a.items is no schema"},
		{"additionalProperties that are text", PartTools, input(`,"additionalProperties":"no"`), input(``), same, "inputSchema.additionalProperties is no schema"},
		{"a $ref to a definition that is missing", PartTools, property(`{"$ref":"#/$defs/b"}`), property(`{}`), same, "inputSchema.properties.a.$ref refers to nothing"},
		{"required in a property", PartTools, property(`{"required":true,"type":"string"}`), property(`{"type":"string"}`), same,
			"inputSchema.properties.a.required is no array"},
		{"a property that is text", PartTools, property(`"string"`), property(`{}`), same, "inputSchema.properties.a is no schema"},
		{"a length below 0", PartTools, property(`{"minLength":-1}`), property(`{}`), same, "inputSchema.properties.a.minLength is no whole number from 0"},
		{"no alternatives", PartTools, property(`{"anyOf":[]}`), property(`{}`), same, "inputSchema.properties.a.anyOf is empty"},
		{"no items", PartTools, property(`{"type":"array","items":[]}`), property(`{"type":"array"}`), same, "inputSchema.properties.a.items is empty"},
		{"an alternative that is text", PartTools, property(`{"oneOf":[{},"x"]}`), property(`{}`), same, "inputSchema.properties.a.oneOf[1] is no schema"},
		{"a name that is required twice", PartTools, property(`{"required":["b","b"]}`), property(`{"required":["b"]}`), same,
			"inputSchema.properties.a.required has a name twice, or one that is no string"},
		{"many mistakes", PartTools, property(`{"type":1,"enum":1,"title":1,"not":1,"format":1}`), property(`{}`), same,
			"inputSchema.properties.a.type is no type; inputSchema.properties.a.enum is no array; inputSchema.properties.a.title is no string; 2 more in inputSchema"},
		{"a mistake far inside", PartTools, property(`{"items":[{"not":{"allOf":[true,{"maximum":null}]}}]}`), property(`{"items":[{"not":{"allOf":[true,{}]}}]}`), same,
			"inputSchema.properties.a.items[0].not.allOf[1].maximum is no number"},
		{"schemas of each draft", PartTools, property(`{"exclusiveMinimum":true, "maximum":1e2,"items":[{}],"dependencies":{"b":["c"]},"if":true,"enum":[],"minItems":2.0,` +
			`"pattern":"^(?!\\.)(?<y>\\d{4})\\k<y>[^]$","examples":[{"type":"nonsense"}],"default":{"type":1},"const":{"$ref":"#/x"},"type":["string","null"]}`), same, same, ""},
		{"references that are right", PartTools, input(`,"properties":{"a":{"$ref":"#/properties/b"},"b":{"items":{"$ref":"#"}},"c":{"$ref":"https://x.org/s"},"d":{"$ref":"#d"}}`), same, same, ""},
		{"patterns of other dialects", PartTools, input(`,"properties":{"a":{"pattern":"(?i)x"},"b":{"pattern":"[[:alpha]"},"c":{"pattern":"[]a]"},"d":{"pattern":"a++"},"e":{"pattern":"\\p{L}"}}`),
			same, same, ""},
		{"no inputSchema", PartTools, `{"name":"a"}`, `{"name":"a","inputSchema":{"type":"object"}}`, same, "inputSchema is missing"},
		{"an inputSchema that is null", PartTools, `{"name":"a","inputSchema":null}`, `{"name":"a","inputSchema":{"type":"object"}}`, same, "inputSchema is missing"},
		{"an empty inputSchema", PartTools, `{"name":"a","inputSchema":{}}`, `{"name":"a","inputSchema":{"type":"object"}}`, same, "inputSchema.type is missing"},
		{"only properties", PartTools, `{"name":"a","inputSchema":{"properties":{"b":{"type":"string"}},"x":1.0}}`,
			`{"name":"a","inputSchema":{"properties":{"b":{"type":"string"}},"x":1.0,"type":"object"}}`, same, "inputSchema.type is missing"},
		{"only $schema", PartTools, `{"name":"a","inputSchema":{"$schema":"http://json-schema.org/draft-07/schema#"}}`,
			`{"name":"a","inputSchema":{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}}`, same, "inputSchema.type is missing"},
		{"a type that is null", PartTools, `{"name":"a","inputSchema":{"type":null}}`, `{"name":"a","inputSchema":{"type":"object"}}`, same, "inputSchema.type is missing"},
		{"a list of one type", PartTools, `{"name":"a","inputSchema":{"type":["object"]}}`, `{"name":"a","inputSchema":{"type":"object"}}`, same, `inputSchema.type is not "object"`},
		{"an object or null", PartTools, `{"name":"a","inputSchema":{"type":["null","object"]}}`, `{"name":"a","inputSchema":{"type":"object"}}`, same, `inputSchema.type is not "object"`},
		{"an object or text", PartTools, `{"name":"a","inputSchema":{"type":["object","string"]}}`, "", "", `inputSchema.type is not "object"`},
		{"null alone", PartTools, `{"name":"a","inputSchema":{"type":["null"]}}`, "", "", `inputSchema.type is not "object"`},
		{"an inputSchema that is true", PartTools, `{"name":"a","inputSchema":true}`, "", "", "inputSchema is no object"},
		{"an inputSchema of another type", PartTools, `{"name":"a","inputSchema":{"type":"array"}}`, "", "", `inputSchema.type is not "object"`},
		{"two titles", PartTools, tool(`,"title":"a","title":"b"`), "", "", "title occurs twice, or in another letter case"},

		{"arguments are nil", PartPrompts, `{"name":"a","arguments":null}`, `{"name":"a","arguments":[]}`, same, "arguments is null"},
		{"an argument's description", PartPrompts, `{"name":"a","arguments":[{"name":"b","description":1}]}`, `{"name":"a","arguments":[{"name":"b"}]}`, same,
			"arguments[0].description is no string"},
		{"an argument without a name", PartPrompts, `{"name":"a","arguments":[{"name":"b"},{}]}`, "", "", "arguments[1].name is missing"},
		{"arguments are an object", PartPrompts, `{"name":"a","arguments":{}}`, "", "", "arguments is no array"},

		{"no name", PartResources, `{"uri":"a"}`, "", "", "name is missing"},
		{"a size with a fraction", PartResources, resource(`,"size":1.5`), resource(""), same, "size is no integer"},
		{"a size of 1.0", PartResources, resource(`,"size":1.0`), same, same, ""},
		{"an unknown audience", PartResources, resource(`,"annotations":{"audience":["user","all"],"priority":1}`), resource(`,"annotations":{"priority":1}`), same,
			`annotations.audience[1] is not "user" or "assistant"`},
		{"a priority of 2", PartTemplates, strings.Replace(resource(`,"annotations":{"priority":2}`), "uri", "uriTemplate", 1),
			strings.Replace(resource(`,"annotations":{}`), "uri", "uriTemplate", 1), same, "annotations.priority is no number from 0 to 1"},
		{"a date", PartResources, resource(`,"annotations":{"lastModified":"2026-02-29T00:00:00Z"}`), resource(`,"annotations":{}`), same,
			"annotations.lastModified is no date and time (RFC 3339)"},
		{"a time with a zone", PartResources, resource(`,"annotations":{"lastModified":"2028-02-29T00:00:00.5+01:00"}`), same, same, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			modern, legacy := tt.modern, tt.legacy
			if modern == same {
				modern = tt.in
			}
			if legacy == same {
				legacy = modern
			}
			c, older := listed(t, client.EraLegacy, tt.part, tt.in)
			if modern == "" {
				if c.Items(tt.part) != 0 || len(c.Left) != 1 || c.Left[0].Reason != tt.changes {
					t.Errorf("%d are listed, left out is %+v; want %q", c.Items(tt.part), c.Left, tt.changes)
				}
				return
			}
			if c.Items(tt.part) != 1 {
				t.Fatalf("it is left out: %+v", c.Left)
			}
			if got := string(c.Item(tt.part, 0).Definition.Text()); got != modern {
				t.Errorf("modern clients see %s\nwant                %s", got, modern)
			}
			if older != legacy {
				t.Errorf("legacy clients see %s\nwant                %s", older, legacy)
			}
			got := ""
			for _, m := range c.Mended {
				got += m.Changes
			}
			if got != tt.changes {
				t.Errorf("changes = %q, want %q", got, tt.changes)
			}
			// A modern server may define what only legacy clients do not know, so that there is no
			// change to report.
			if c, again := listed(t, client.EraModern, tt.part, tt.in); again != legacy || (len(c.Mended) > 0) != (modern != tt.in) {
				t.Errorf("of a modern server, legacy clients see %s, changes are %+v", again, c.Mended)
			}
		})
	}
}

// TestForeignOddDefinitionKeepsTheLists lists each odd definition between good ones, which stay.
func TestForeignOddDefinitionKeepsTheLists(t *testing.T) {
	for p := range Parts {
		c := &Catalog{Era: client.EraLegacy}
		c.index[p] = map[string]int{}
		good := func(i int) string {
			return fmt.Sprintf(`{%q:"good%d","name":"good%d","inputSchema":{"type":"object"}}`, p.Key(), i, i)
		}
		if p.Key() == "name" {
			good = func(i int) string { return fmt.Sprintf(`{"name":"good%d","inputSchema":{"type":"object"}}`, i) }
		} else if p == PartSkills {
			good = func(i int) string {
				return fmt.Sprintf(`{"uri":"skill://s%[1]d/SKILL.md","frontmatter":{"name":"s%[1]d","description":""},`+
					`"resources":"dynamic"}`, i)
			}
		}
		for i, odd := range []string{`null`, `[]`, `{}`, `"x"`, `{"name":1,"uri":[],"uriTemplate":{}}`, `{"name":"","uri":"","uriTemplate":""}`} {
			c.add(p, []byte(odd), 0)
			c.add(p, []byte(good(i)), 0)
		}
		if c.Items(p) != 6 || len(c.Left) != 6 {
			t.Errorf("%d of 6 good definitions of a %s are listed, %d of 6 are left out", c.Items(p), p, len(c.Left))
		}
	}
}

// TestForeignDefinitionsInMemory shows that the insides of definitions, which are parsed to be
// checked, are given back.
func TestForeignDefinitionsInMemory(t *testing.T) {
	text := []byte(`{"name":"a","inputSchema":{"type":"object","properties":{"a":{"type":"string"}}}}`)
	c, _ := listed(t, client.EraLegacy, PartTools, string(text))
	kept, err := definition.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	inner := func(o raw.Object) float64 {
		return testing.AllocsPerRun(10, func() {
			if _, err := o.Object("inputSchema"); err != nil {
				t.Error(err)
			}
		})
	}
	if with, without := inner(kept), inner(c.Tools[0].Definition); with != 0 || without == 0 {
		t.Errorf("inputSchema is parsed again with %v allocations, and with %v in a catalog; want none, and some", with, without)
	}
}

// TestSkillsInMemory: a catalog keeps at most 300 bytes of a skill beside the bytes of its entry. The test
// of the same name in proxy/scope has the rest of 1 KB.
func TestSkillsInMemory(t *testing.T) {
	const n = 10_000
	texts, size := make([][]byte, n), 0
	for i := range texts {
		texts[i] = fmt.Appendf(nil, `{"uri":"skill://s%[1]d/SKILL.md","frontmatter":{"name":"s%[1]d","description":"d"},`+
			`"resources":[{"uri":"skill://s%[1]d/SKILL.md","digest":"sha256:%064[1]d","size":1},`+
			`{"uri":"skill://s%[1]d/a/b.md","digest":"sha256:%064[1]d","size":1}]}`, i)
		size += len(texts[i])
	}
	heap := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	c := &Catalog{Era: client.EraModern}
	c.index[PartSkills] = map[string]int{}
	before := heap()
	for _, text := range texts {
		c.add(PartSkills, text, 0)
	}
	beside := (heap() - before) / n // the entries alias texts
	if c.Items(PartSkills) != n {
		t.Fatalf("%d skills are listed, want %d: %v", c.Items(PartSkills), n, c.Left)
	}
	t.Logf("%d bytes beside the %d of an entry", beside, size/n)
	if beside > 300 {
		t.Errorf("a catalog keeps %d bytes beside an entry, want at most 300", beside)
	}
	runtime.KeepAlive(texts)
	runtime.KeepAlive(c)
}
