package foreign

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	mcpclient "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"junction/integration/harness"
	"junction/integration/harness/npm"
	"junction/proxy"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// wholeDefinitions are definitions with every member of the published schemas. Their key is %s.
var wholeDefinitions = [upstream.Parts]string{
	upstream.PartTools: `{"name":%s,"title":"T","description":"d","icons":[` + wholeIcon + `],"inputSchema":` +
		wholeSchema + `,"outputSchema":` + wholeSchema +
		`,"annotations":{"title":"T","readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,` +
		`"openWorldHint":false},"execution":{"taskSupport":"optional"},"_meta":{"x":1.0}}`,
	upstream.PartPrompts: `{"name":%s,"title":"T","description":"d","icons":[` + wholeIcon +
		`],"arguments":[{"name":"a","title":"A","description":"d","required":true}],"_meta":{"x":1.0}}`,
	upstream.PartResources: `{"uri":%s,"name":"n","title":"T","description":"d","mimeType":"text/plain","size":7,"icons":[` + wholeIcon +
		`],"annotations":` + wholeAnnotations + `,"_meta":{"x":1.0}}`,
	upstream.PartTemplates: `{"uriTemplate":%s,"name":"n","title":"T","description":"d","mimeType":"text/plain","icons":[` + wholeIcon +
		`],"annotations":` + wholeAnnotations + `,"_meta":{"x":1.0}}`,
}

const (
	wholeIcon   = `{"src":"https://example.com/i.png","mimeType":"image/png","sizes":["48x48"],"theme":"dark"}`
	wholeSchema = `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object",` +
		`"properties":{"a":{"type":"string","description":"d","pattern":"^a","enum":["a"]},"b":{"type":"array",` +
		`"items":{"$ref":"#/$defs/n"}}},` +
		`"required":["a"],"$defs":{"n":{"type":"number"}},"additionalProperties":false}`
	wholeAnnotations = `{"audience":["user"],"priority":0.5,"lastModified":"2026-11-22T06:00:00Z"}`
)

// mutation is a definition of which one member is another value.
type mutation struct {
	part       upstream.Part
	key        string // name, URI or URI template
	change     string // the path of the member and its value
	definition []byte
}

// mutated returns the definition with each member, at any depth, removed and replaced by each of
// the values that servers write there.
func mutated(t *testing.T, p upstream.Part) []mutation {
	t.Helper()
	const own = `"\u0000"` // stands for the key
	var list []mutation
	whole := fmt.Sprintf(wholeDefinitions[p], own)
	var walk func(v []byte, path string, rebuild func([]byte) []byte)
	walk = func(v []byte, path string, rebuild func([]byte) []byte) {
		if path != "" {
			// mcp-go cannot read a type that is an array, which JSON Schema allows.
			wrapped := "[" + string(v) + "]"
			if path == ".outputSchema.type" {
				wrapped = "false"
			}
			for _, value := range []string{"", "null", "[]", "{}", `""`, "0", "true", `"unknown"`, wrapped, "-1.5", `"("`} {
				key := fmt.Sprintf("note:%d", len(list))
				definition := bytes.Replace(rebuild([]byte(value)), []byte(own), raw.Quote(key), 1)
				list = append(list, mutation{p, key, path + " " + value, definition})
			}
		}
		if o, err := raw.Parse(v); err == nil {
			for m := range o.All() {
				name, _ := m.Name()
				walk(m.Value, path+"."+name, func(value []byte) []byte {
					text, err := o.Splice(raw.Edit{Name: name, Value: value})
					if err != nil {
						t.Fatal(err)
					}
					return rebuild(text)
				})
			}
		} else if elements, err := raw.Elements(v); err == nil {
			for i := range elements {
				walk(elements[i], fmt.Sprintf("%s[%d]", path, i), func(value []byte) []byte {
					with := append([][]byte{}, elements...)
					with[i] = value
					if len(value) == 0 {
						with = append(with[:i], with[i+1:]...)
					}
					return rebuild(fmt.Appendf(nil, "[%s]", bytes.Join(with, []byte(","))))
				})
			}
		}
	}
	walk([]byte(whole), "", func(v []byte) []byte { return v })
	return list
}

// sdkLists is what lists.mjs prints.
type sdkLists struct {
	Listed map[string]struct {
		Keys  []any
		Error string
	}
	Accepted map[string][]*string
}

// mustListWith runs lists.mjs.
func mustListWith(t *testing.T, which, url string, definitions []byte) sdkLists {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), npm.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "lists.mjs", which, url)
	cmd.Dir = npm.MustFolder(t)
	cmd.Stdin = bytes.NewReader(definitions)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var l sdkLists
	if err == nil {
		err = json.Unmarshal(out, &l)
	}
	if err != nil {
		t.Fatalf("lists.mjs %s: %v\n%s%s", which, err, out, &stderr)
	}
	return l
}

// goRejects returns why mcp-go's types reject a list of this definition alone; nil if they accept
// it.
func goRejects(p upstream.Part, definition []byte) error {
	into := [upstream.Parts]any{new(mcp.ListToolsResult), new(mcp.ListPromptsResult), new(mcp.ListResourcesResult),
		new(mcp.ListResourceTemplatesResult)}[p]
	return json.Unmarshal(fmt.Appendf(nil, `{%q:[%s]}`, p.Member(), definition), into)
}

// goLists lists everything with mcp-go's client, of which an error is that of a list that it
// rejects.
func goLists(t *testing.T, url, version string) {
	t.Helper()
	c, err := mcpclient.NewStreamableHttpClient(url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := harness.Patient(t)
	var initialize mcp.InitializeRequest
	initialize.Params.ProtocolVersion = version
	initialize.Params.ClientInfo = mcp.Implementation{Name: "lists", Version: "1"}
	if _, err := c.Initialize(ctx, initialize); err != nil {
		t.Fatal(err)
	}
	var errs [upstream.Parts]error
	_, errs[upstream.PartTools] = c.ListTools(ctx, mcp.ListToolsRequest{})
	_, errs[upstream.PartPrompts] = c.ListPrompts(ctx, mcp.ListPromptsRequest{})
	_, errs[upstream.PartResources] = c.ListResources(ctx, mcp.ListResourcesRequest{})
	_, errs[upstream.PartTemplates] = c.ListResourceTemplates(ctx, mcp.ListResourceTemplatesRequest{})
	for p, err := range errs {
		if err != nil {
			t.Errorf("mcp-go of %s rejects %s: %v", version, upstream.Part(p).Method(), err)
		}
	}
}

// isBroken reports whether a schema of a definition compiles in no draft of JSON Schema. It ignores
// $schema, so a definition may mix drafts as far as one of them allows all of it.
func isBroken(t *testing.T, definition []byte) bool {
	t.Helper()
	for _, name := range []string{"inputSchema", "outputSchema"} {
		text, err := raw.Get(definition, name)
		if err != nil {
			continue
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if o, ok := doc.(map[string]any); ok {
			delete(o, "$schema")
		}
		if !slices.ContainsFunc(drafts, func(d *jsonschema.Draft) bool {
			c := jsonschema.NewCompiler()
			c.DefaultDraft(d)
			if err := c.AddResource("mem:schema", doc); err != nil {
				return false
			}
			_, err := c.Compile("mem:schema")
			return err == nil
		}) {
			return true
		}
	}
	return false
}

var drafts = []*jsonschema.Draft{jsonschema.Draft2020, jsonschema.Draft2019, jsonschema.Draft7, jsonschema.Draft6,
	jsonschema.Draft4}

// forbidden are the changes that JSON Schema or the published schemas forbid, although the clients
// of an era accept them.
var forbidden = regexp.MustCompile(
	`^\.(in|out)putSchema\.(\$schema [^"]|(type|properties|required|required\[0\]|\$defs) ` +
		`null$)|^\.arguments\[0\]\.title null$`)

// TestForeignClientsKeepTheirListsWhateverAServerDefines puts a list of every mutation of every
// definition behind Junction. Clients that others wrote accept the list. Each good definition is in
// it, and each mutation that all clients of an era and a draft of JSON Schema accept is in it
// unchanged.
func TestForeignClientsKeepTheirListsWhateverAServerDefines(t *testing.T) {
	if testing.Short() {
		t.Skip("three clients parse thousands of definitions")
	}
	defer harness.Computes(t)()
	npm.MustFolder(t)
	var mutations [upstream.Parts][]mutation
	var all [upstream.Parts][]json.RawMessage // each mutation, with a good definition beside it
	alone := map[string][]json.RawMessage{}
	for p := range upstream.PartSkills {
		mutations[p] = mutated(t, p)
		for i, m := range mutations[p] {
			good := fmt.Sprintf(wholeDefinitions[p], raw.Quote(fmt.Sprintf("good:%d", i)))
			all[p] = append(all[p], m.definition, []byte(good))
			alone[p.Member()] = append(alone[p.Member()], m.definition)
		}
	}
	definitions, err := json.Marshal(alone)
	if err != nil {
		t.Fatal(err)
	}
	var urls []string
	for _, up := range harness.Eras {
		p := harness.Pair{Client: client.EraLegacy, Upstream: up, Transport: "http"}
		s := p.Serve(t, upstreamtest.Script{Tools: all[upstream.PartTools], Prompts: all[upstream.PartPrompts],
			Resources: all[upstream.PartResources], Templates: all[upstream.PartTemplates]})
		j := harness.Start(t, p,
			harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Limits: proxy.Limits{Page: 10_000}})
		j.Offers(t, "up")
		urls = append(urls, j.URL+"/up")
	}
	for _, c := range []struct {
		era     client.Era
		version string
		sdks    []string
	}{{client.EraLegacy, "2025-11-25", []string{"v1", "legacy"}},
		{client.EraModern, "2026-07-28", []string{"modern"}}} {
		t.Run(string(c.era)+" clients", func(t *testing.T) {
			rejected, accepted := map[string]bool{}, map[string]bool{} // mutations, by some client of the era
			for _, sdk := range c.sdks {
				l := mustListWith(t, sdk, urls[0], definitions)
				for p := range upstream.PartSkills {
					if reason := l.Listed[p.Member()].Error; reason != "" {
						t.Errorf("the SDK %s rejects %s: %.3000s", sdk, p.Method(), reason)
					}
					for i, reason := range l.Accepted[p.Member()] {
						id := p.String() + mutations[p][i].key
						rejected[id] = rejected[id] || reason != nil
						accepted[id] = accepted[id] || reason == nil
					}
				}
			}
			for _, url := range urls {
				goLists(t, url, c.version)
				for p := range upstream.PartSkills {
					listed := listedBy(t, harness.Talk(t, url, c.era), p)
					unchanged := 0
					for i, m := range mutations[p] {
						if _, ok := listed[fmt.Sprintf("good:%d", i)]; !ok {
							t.Errorf("the good %s beside %s is not listed", p, m.change)
						}
						if strings.HasPrefix(m.change, "."+p.Key()+" ") { // it has another key, or none
							continue
						}
						got, id := listed[m.key], p.String()+m.key
						if got == nil && accepted[id] {
							t.Errorf("%s: %s is not listed, though a client accepts it", p, m.change)
						}
						if rejected[id] || goRejects(p, m.definition) != nil || forbidden.MatchString(m.change) {
							continue
						}
						if isBroken(t, m.definition) {
							if got != nil && isBroken(t, got) && !strings.HasSuffix(strings.Split(m.change, " ")[0], ".$ref") {
								t.Errorf("%s: no draft of JSON Schema allows %s; it is listed as\n%s", p, m.change, got)
							}
							continue
						}
						if unchanged++; !bytes.Equal(got, m.definition) {
							t.Errorf("%s: all clients accept %s; it is listed as\n%s\nwant\n%s", p, m.change, got, m.definition)
						}
					}
					if unchanged == 0 || unchanged == len(mutations[p]) {
						t.Errorf("%d of %d mutations of a %s are accepted, which shows nothing", unchanged, len(mutations[p]), p)
					}
				}
			}
		})
	}
}

// listedBy returns the definitions of a list by their keys.
func listedBy(t *testing.T, c *harness.Talker, p upstream.Part) map[string][]byte {
	t.Helper()
	m := c.Begin(t, harness.Query{Method: p.Method()}).Answer(t)
	if m.Error != nil {
		t.Fatalf("%s = error %v", p.Method(), m.Error)
	}
	list, err := raw.Get(m.Result, p.Member())
	if err != nil {
		t.Fatal(err)
	}
	items, err := raw.Elements(list)
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string][]byte{}
	for _, item := range items {
		listed[harness.Text(t, item, p.Key())] = item
	}
	return listed
}
