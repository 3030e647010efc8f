package bridge

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/proxy"
	"junction/upstream"
	"junction/upstream/raw"
)

const promptPack = `
tools:
  classify:
    description: Say what kind of text it is.
    prompt: { file: classify.md, system: You classify texts., model: haiku, max_tokens: 50 }
    parameters: { text: The text. }
    output: json
    output_schema: { type: object, properties: { kind: { enum: [poem, prose] } }, required: [kind] }
prompts:
  review: { description: Review a text., text: "Review this: {{text}}", parameters: { text: The text. } }
resources:
  guide: { file: guide.md, description: How to write. }
`

// TestPackAsksTheModel: a prompt of a pack is answered by the model of the client, in every pair of
// eras. An answer that does not fit the schema is asked for once more, with the reason.
func TestPackAsksTheModel(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"pack.yaml": promptPack, "classify.md": "Classify:\n{{text}}\n",
		"guide.md": "Be brief.\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := []string{harness.PackBinary(t), "serve", dir}
	j := harness.MustStand(t, proxy.Limits{}, map[string]upstream.Config{
		"modern": {Command: command}, "legacy": {Command: command, Era: upstream.EraLegacy}})
	for _, client := range []upstream.Era{upstream.EraLegacy, upstream.EraModern} {
		for _, server := range []string{"legacy", "modern"} {
			t.Run(string(client)+" client "+server+" pack", func(t *testing.T) {
				able := harness.TalkAs(t, j.URL, client, "2025-11-25", `{"sampling":{}}`)
				ask := func(answers ...string) (result string, asked []harness.ServerRequest) {
					n := 0
					m, asked := able.Converse(t, harness.Called(server+"__classify", `{"text":"{{text}} Roses"}`),
						func(harness.ServerRequest) string {
							n++
							return `"result":{"role":"assistant","model":"m","content":{"type":"text","text":` +
								string(raw.Quote(answers[n-1])) + `}}`
						})
					return string(m.Result), asked
				}
				result, asked := ask("```json\n{\"kind\":\"poem\"}\n```")
				if len(asked) != 1 || !strings.Contains(result, `"structuredContent":{"kind":"poem"}`) {
					t.Fatalf("%d questions, %s", len(asked), result)
				}
				for _, want := range []string{`Classify:\n{{text}} Roses`, `"systemPrompt":"You classify texts."`,
					`"hints":[{"name":"haiku"}]`, `"maxTokens":50`, `\"enum\"`} {
					if !strings.Contains(string(asked[0].Params), want) {
						t.Errorf("no %s in %s", want, asked[0].Params)
					}
				}
				result, asked = ask("It is a poem.", `{"kind":"prose"}`)
				if len(asked) != 2 || !strings.Contains(result, `"structuredContent":{"kind":"prose"}`) ||
					!strings.Contains(string(asked[1].Params), "This answer cannot be used") {
					t.Errorf("%d questions, %s", len(asked), result)
				}
				result, asked = ask("It is a poem.", `{"kind":"novel"}`)
				if len(asked) != 2 || !strings.Contains(result, `"isError":true`) || !strings.Contains(result, "no valid answer twice") {
					t.Errorf("%d questions, %s", len(asked), result)
				}
				m, _ := able.Converse(t, harness.Query{Method: "prompts/get", Params: `"name":"` + server +
					`__review","arguments":{"text":"my {{text}}"}`}, harness.AnswersTo)
				if !strings.Contains(string(m.Result), `"text":"Review this: my {{text}}"`) {
					t.Errorf("the prompt is %s", m.Append(nil))
				}
				unable := harness.TalkAs(t, j.URL, client, "2025-11-25", `{}`)
				m = unable.Begin(t, harness.Called(server+"__classify", `{"text":"x"}`)).Answer(t)
				if got := string(m.Append(nil)); strings.Contains(got, "structuredContent") || !strings.Contains(got, "sampling") {
					t.Errorf("a client without sampling got %s", got)
				}
			})
		}
	}
}
