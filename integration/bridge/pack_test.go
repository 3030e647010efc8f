package bridge

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
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
	harness.Waits(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"pack.yaml": promptPack, "classify.md": "Classify:\n{{text}}\n",
		"guide.md": "Be brief.\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := []string{harness.PackBinary(t), "serve", dir}
	j := harness.Start(t, harness.Pair{}, harness.Setup{Upstreams: map[string]upstream.Config{
		"modern": {Command: command}, "legacy": {Command: command, Era: client.EraLegacy}}})
	j.Offers(t, "modern", "legacy")
	for _, clientEra := range []client.Era{client.EraLegacy, client.EraModern} {
		for _, server := range []string{"legacy", "modern"} {
			t.Run(string(clientEra)+" client "+server+" pack", func(t *testing.T) {
				able := harness.TalkAs(t, j.URL, clientEra, "2025-11-25", `{"sampling":{}}`)
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
				unable := harness.TalkAs(t, j.URL, clientEra, "2025-11-25", `{}`)
				m = unable.Begin(t, harness.Called(server+"__classify", `{"text":"x"}`)).Answer(t)
				if got := string(m.Append(nil)); strings.Contains(got, "structuredContent") || !strings.Contains(got, "sampling") {
					t.Errorf("a client without sampling got %s", got)
				}
			})
		}
	}
}

// TestPackReload: the manifest of an upstream changes while a tool of it runs. The call ends as it
// began, and the clients hear of the new tools, in every pair of eras.
func TestPackReload(t *testing.T) {
	harness.Waits(t)
	for _, client := range harness.Eras {
		for _, server := range harness.Eras {
			t.Run(string(client)+" client "+string(server)+" pack", func(t *testing.T) {
				begun, finish := make(chan struct{}), make(chan struct{})
				api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					close(begun)
					<-finish
					w.Write([]byte("waited"))
				}))
				defer api.Close()
				harness.PackBinary(t)
				p := harness.NewProgram(t)
				manifest := filepath.Join(p.Dir, "packs", "dev", "pack.yaml")
				mustWrite(t, manifest, "tools: { wait: { description: Wait., http: { url: "+api.URL+"/wait } } }\n")
				p.MustConfigure(t, "upstreams: { dev: { pack: ./packs/dev, era: "+string(server)+" } }\n")
				p.MustServe(t)
				p.MustReady(t, harness.Patience)
				c := harness.Talk(t, p.URL, client)
				hears := c.HearTools(t)
				call := c.Begin(t, harness.Called("dev__wait", `{}`))
				<-begun

				mustWrite(t, manifest, "tools: { next: { description: Next., command: [echo, next] } }\n")
				harness.ListChanges(t, hears, 1)
				if names := c.Names(t); !slices.Equal(names, []string{"dev__next"}) {
					t.Errorf("the tools are %v", names)
				}
				if got := c.Succeed(t, "dev__next", `{}`); !strings.Contains(string(got), "next") {
					t.Errorf("the new tool returns %s", got)
				}
				close(finish)
				if got := string(call.Answer(t).Result); !strings.Contains(got, "waited") {
					t.Errorf("the call in progress returns %s", got)
				}
			})
		}
	}
}

// mustWrite replaces a file in the way of an editor, and creates its folder.
func mustWrite(t *testing.T, file, text string) {
	t.Helper()
	err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file+".new", []byte(text), 0o600),
		os.Rename(file+".new", file))
	if err != nil {
		t.Fatal(err)
	}
}
