package protocol

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream/client"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// What clients of older versions are spared, because they do not know it.

func TestStructuredContentThatIsNoObject(t *testing.T) {
	harness.Waits(t)
	const kept = `"outputSchema":{"type":"object","x":1.0}`
	tools := []json.RawMessage{
		[]byte(`{"name":"echo","inputSchema":{"type":"object"},"outputSchema":{"type":"array","items":{"type":"integer"}}}`),
		[]byte(`{"name":"object","inputSchema":{"type":"object"},` + kept + `}`),
		[]byte(`{"name":"any","inputSchema":{"type":"object"},"outputSchema":{"anyOf":[{"type":"object"},{"type":"null"}]}}`),
	}
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		_, j := harness.Over(t, p, upstreamtest.Script{Tools: tools}, nil)
		c := j.Talk(t)
		definitions, _ := c.List(t, "")
		for i, d := range definitions {
			_, err := raw.Get(d, "outputSchema")
			if has := err == nil; has != (p.Client == client.EraModern || i == 1) {
				t.Errorf("definition %s", d)
			}
		}
		if !strings.Contains(string(definitions[1]), kept) {
			t.Errorf("definition %s, want %s in it", definitions[1], kept)
		}
		for _, row := range []struct{ structured, content string }{
			{`[1,{"a":1.0}]`, `[]`},
			{`[1,{"a":1.0}]`, `[{"type":"text","text":"[1,{\"a\":1.0}]"}]`},
			{`9007199254740993`, `[]`}, {`"é"`, `[]`}, {`false`, `[]`},
			{`{"a":1.0}`, `[]`},
		} {
			got := c.Succeed(t, "up__echo",
				`{"result":{"content":`+row.content+`,"structuredContent":`+row.structured+`,"x":1.0}}`)
			if harness.Member(got, "x") != "1.0" {
				t.Errorf("result = %s, want all else in it", got)
			}
			if p.Client == client.EraModern || row.structured[0] == '{' {
				if harness.Member(got, "structuredContent") != row.structured || harness.Member(got, "content") != row.content {
					t.Errorf("result = %s, want it unchanged", got)
				}
				continue
			}
			if structured := harness.Member(got, "structuredContent"); structured != "" {
				t.Errorf("a legacy client got structuredContent %s", structured)
			}
			list, _ := raw.Get(got, "content")
			blocks, _ := raw.Elements(list)
			said := 0
			for _, b := range blocks {
				if words, err := raw.Get(b, "text"); err == nil {
					if s, _ := raw.String(words); s == row.structured {
						said++
					}
				}
			}
			if said != 1 {
				t.Errorf("content = %s, want %s as a text in it, once", list, row.structured)
			}
			if rest := strings.TrimSuffix(strings.TrimPrefix(row.content, "["), "]"); !strings.Contains(string(list), rest) {
				t.Errorf("content = %s, want what the upstream said in it", list)
			}
		}
	})
}

// content is one block of each type; the second and the third are younger than the first version.
const content = `[{"type":"text","text":"t","x":1.0},{"type":"audio","data":"AAAA","mimeType":"audio/wav"},` +
	`{"type":"resource_link","uri":"note:1","name":"the note"},` +
	`{"type":"resource","resource":{"uri":"note:2","text":"r"}},{"type":"image","data":"","mimeType":"image/png"}]`

func TestContentTypesOfOlderVersions(t *testing.T) {
	harness.Waits(t)
	for _, version := range harness.LegacyVersions {
		for _, up := range harness.Eras {
			harness.RunPair(t, client.EraLegacy, up, version+" stdio", func(t *testing.T, p harness.Pair) {
				p.Transport = "stdio"
				prompt := `{"messages":[{"role":"user","content":{"type":"audio","data":"AAAA","mimeType":"audio/wav"}},` +
					`{"role":"user","content":{"type":"resource_link","uri":"note:1","name":"n"}}]}`
				_, j := harness.Over(t, p,
					upstreamtest.Script{Prompts: []json.RawMessage{[]byte(`{"name":"p"}`)},
						Messages:  map[string]json.RawMessage{"p": []byte(prompt)},
						Resources: []json.RawMessage{}}, nil)
				c := harness.TalkAs(t, j.URL, p.Client, version, `{}`)
				list, err := raw.Get(c.Succeed(t, "up__echo", `{"result":{"content":`+content+`}}`), "content")
				if err != nil {
					t.Fatal(err)
				}
				messages, _ := raw.Get(c.Must(t, "prompts/get", `"name":"up__p"`), "messages")
				all := string(list) + string(messages)
				for kind, since := range map[string]string{"audio": "2025-03-26", "resource_link": "2025-06-18"} {
					if got, want := strings.Count(all, `"type":"`+kind+`"`), map[bool]int{true: 2,
						false: 0}[version >= since]; got != want {
						t.Errorf("%d blocks of type %s for %s, want %d:\n%s", got, kind, version, want, all)
					}
				}
				blocks, _ := raw.Elements(list)
				if len(blocks) != 5 {
					t.Fatalf("content = %s, want five blocks", list)
				}
				if string(blocks[0]) != `{"type":"text","text":"t","x":1.0}` ||
					string(blocks[4]) != `{"type":"image","data":"","mimeType":"image/png"}` {
					t.Errorf("content = %s, want what every version knows as it was", list)
				}
				if version < "2025-06-18" {
					if link := string(blocks[2]); !strings.Contains(link, `"type":"text"`) ||
						!strings.Contains(link, "mcp://up/note:1") || !strings.Contains(link, "the note") {
						t.Errorf("the link became %s, want a text with its name and where to read it", link)
					}
				}
				if version < "2025-03-26" {
					if sound := string(blocks[1]); !strings.Contains(sound, `AAAA`) && !strings.Contains(sound, `"type":"text"`) {
						t.Errorf("the sound became %s", sound)
					}
				}
			})
		}
	}
}

func TestFormsOfOlderVersions(t *testing.T) {
	harness.Waits(t)
	const (
		titled = `"requestedSchema":{"type":"object","properties":{"c":{"type":"string","title":"Colour",` +
			`"oneOf":[{"const":"r","title":"Red"},{"const":"g"}],"default":"r"},"n":{"type":"integer","x":1.0}}}`
		older = `"requestedSchema":{"type":"object","properties":{"c":{"type":"string","title":"Colour","enum":["r","g"],` +
			`"enumNames":["Red","g"],"default":"r"},"n":{"type":"integer","x":1.0}}}`
		multi = `"requestedSchema":{"type":"object","properties":{"m":{"type":"array","items":{"type":"string","enum":["a",` +
			`"b"]}}}}`
	)
	for _, version := range []string{"2025-06-18", "2025-11-25"} {
		for _, up := range harness.Eras {
			harness.RunPair(t, client.EraLegacy, up, version+" stdio", func(t *testing.T, p harness.Pair) {
				p.Transport = "stdio"
				_, j := harness.Over(t, p, upstreamtest.Script{}, nil)
				c := harness.TalkAs(t, j.URL, p.Client, version, `{"elicitation":{}}`)
				ask := func(schema string) harness.Query {
					return harness.Asking(`{"method":"elicitation/create","params":{"mode":"form","message":"M",` + schema + `}}`)
				}
				m, asked := c.Converse(t, ask(titled), harness.AnswersTo)
				want := `{"mode":"form","message":"[up] M",` + titled + `}`
				if version < "2025-11-25" {
					want = `{"message":"[up] M",` + older + `}`
				}
				if len(asked) != 1 || m.Error != nil {
					t.Fatalf("%d questions and %s", len(asked), m.Append(nil))
				}
				harness.WantJSON(t, "question", asked[0].Params, want)
				m, asked = c.Converse(t, ask(multi), harness.AnswersTo)
				switch {
				case version >= "2025-11-25" && (len(asked) != 1 || m.Error != nil):
					t.Errorf("%d questions and %s, want one", len(asked), m.Append(nil))
				case version < "2025-11-25" && len(asked) > 0:
					t.Errorf("a client of %s was asked %s", version, asked[0].Params)
				case version < "2025-11-25" && p.Upstream == client.EraLegacy &&
					!strings.Contains(harness.AnswersOf(t, m), `"error":`):
					t.Errorf("the upstream was answered %s, want an error", harness.AnswersOf(t, m))
				case version < "2025-11-25" && p.Upstream == client.EraModern && m.Error == nil &&
					harness.Member(m.Result, "isError") != "true":
					t.Errorf("got %s, want an error", m.Append(nil))
				}
			})
		}
	}
}

// TestCapabilitiesOfOlderVersions holds that a client is believed to be able to do what its
// version has, and no more.
func TestCapabilitiesOfOlderVersions(t *testing.T) {
	harness.Waits(t)
	const declared = `{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{},"context":{}},` +
		`"roots":{"listChanged":true},"tasks":{"requests":{"sampling":{"createMessage":{}}}},"experimental":{"x":{}},` +
		`"extensions":{"io.modelcontextprotocol/tasks":{},"x/y":{}}}`
	want := map[string]string{
		"2024-11-05": `{"sampling":{},"roots":%s}`, "2025-03-26": `{"sampling":{},"roots":%s}`,
		"2025-06-18": `{"elicitation":{},"sampling":{},"roots":%s}`,
		"2025-11-25": `{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":%s}`,
	}
	for _, version := range harness.LegacyVersions {
		for _, up := range harness.Eras {
			harness.RunPair(t, client.EraLegacy, up, version+" stdio", func(t *testing.T, p harness.Pair) {
				p.Transport = "stdio"
				_, j := harness.Over(t, p, upstreamtest.Script{}, harness.Exactly)
				got := harness.Member(harness.TalkAs(t, j.URL, p.Client, version, declared).Succeed(t, "up__capabilities", `{}`),
					"structuredContent", "capabilities")
				roots := `{}`
				if p.Upstream == client.EraLegacy {
					roots = `{"listChanged":true}`
				}
				harness.WantJSON(t, "capabilities", []byte(got), fmt.Sprintf(want[version], roots))
			})
		}
	}
}

// TestStructuredContentIsAddedToOtherText has a server which says in words something, and in
// structuredContent something else: both are for the client.
func TestStructuredContentIsAddedToOtherText(t *testing.T) {
	harness.Waits(t)
	harness.EachTransport(t, client.EraLegacy, client.EraModern, func(t *testing.T, p harness.Pair) {
		_, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		got := j.Talk(t).Succeed(t, "up__echo",
			`{"result":{"content":[{"type":"text","text":"two numbers"}],"structuredContent":[1,2]}}`)
		if want := `[{"type":"text","text":"two numbers"},{"type":"text","text":"[1,2]"}]`; harness.Member(got,
			"content") != want || harness.Member(got, "structuredContent") != "" {
			t.Errorf("result = %s, want the content %s alone", got, want)
		}
	})
}
