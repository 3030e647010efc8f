package call

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"junction/upstream/client"
	"junction/upstream/jsonrpc"
)

// typed returns a prompter at which a person types these lines and then ends the input.
func typed(lines ...string) (*prompter, *strings.Builder) {
	c := make(chan string, len(lines))
	for _, l := range lines {
		c <- l
	}
	close(c)
	out := &strings.Builder{}
	return &prompter{out, c}, out
}

// TestPrompt: what a person types becomes values of the types that the form wants, and nothing else.
func TestPrompt(t *testing.T) {
	form := func(fields, required string) string {
		return `{"message":"?","requestedSchema":{"type":"object","properties":` + fields + `,"required":` + required + `}}`
	}
	for _, test := range []struct {
		name, params string
		lines        []string
		want         string
	}{
		{"text", form(`{"a":{"type":"string"}}`, `["a"]`), []string{"", " x "}, `{"action":"accept","content":{"a":"x"}}`},
		{"optional", form(`{"a":{"type":"string"}}`, `[]`), []string{""}, `{"action":"accept"}`},
		{"default", form(`{"a":{"type":"integer","default":4}}`, `["a"]`), []string{""}, `{"action":"accept","content":{"a":4}}`},
		{"integer", form(`{"a":{"type":"integer"}}`, `["a"]`), []string{"x", "1.5", "12345678901234567890"},
			`{"action":"accept","content":{"a":12345678901234567890}}`},
		{"number", form(`{"a":{"type":"number"}}`, `["a"]`), []string{"2"}, `{"action":"accept","content":{"a":2}}`},
		{"boolean", form(`{"a":{"type":"boolean"}}`, `["a"]`), []string{"maybe", "No"}, `{"action":"accept","content":{"a":false}}`},
		{"choice", form(`{"a":{"type":"string","oneOf":[{"const":"r","title":"Red"},{"const":"g","title":"Green"}]}}`, `["a"]`),
			[]string{"0", "3", "Green"}, `{"action":"accept","content":{"a":"g"}}`},
		{"choice without titles", form(`{"a":{"enum":["Allow once","Do not allow"]}}`, `["a"]`),
			[]string{"", "y", "yes", "Allow", "allow once", "2"}, `{"action":"accept","content":{"a":"Do not allow"}}`},
		{"empty choice", form(`{"a":{"enum":["","b"]}}`, `["a"]`), []string{"", "2"}, `{"action":"accept","content":{"a":"b"}}`},
		{"n", form(`{"a":{"enum":["Allow once","Do not allow"]}}`, `["a"]`), []string{"n", "1"}, `{"action":"decline"}`},
		{"No", form(`{"a":{"enum":["Allow once","Do not allow"]}}`, `["a"]`), []string{"", "No", "1"}, `{"action":"decline"}`},
		{"n that is a choice", form(`{"a":{"enum":["y","n"]}}`, `["a"]`), []string{"n"}, `{"action":"accept","content":{"a":"n"}}`},
		{"date", form(`{"a":{"type":"string","format":"date"}}`, `["a"]`), []string{"tomorrow", "2027-02-30", "2027-06-30"},
			`{"action":"accept","content":{"a":"2027-06-30"}}`},
		{"order of the server", form(`{"b":{"type":"integer"},"a":{"type":"string","format":"email"}}`, `["a"]`),
			[]string{"1", "Ann <a@b.c>", "a@b.c"}, `{"action":"accept","content":{"a":"a@b.c","b":1}}`},
		{"declined", form(`{"a":{"type":"string"}}`, `["a"]`), nil, `{"action":"decline"}`},
		{"URL", `{"mode":"url","message":"?","url":"https://example.com/x"}`, []string{"y"}, `{"action":"accept"}`},
		{"URL declined", `{"mode":"url","message":"?","url":"https://example.com/x"}`, []string{""}, `{"action":"decline"}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, _ := typed(test.lines...)
			a, err := p.ask(t.Context(), json.RawMessage(test.params))
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := json.Marshal(a); string(got) != test.want {
				t.Errorf("the answer is %s, want %s", got, test.want)
			}
		})
	}
}

// TestPromptHints: each field says whether it is required, and what it looks like.
func TestPromptHints(t *testing.T) {
	p, out := typed("2027-06-30", "")
	_, err := p.ask(t.Context(), json.RawMessage(`{"message":"?","requestedSchema":{"properties":{`+
		`"day":{"type":"string","format":"date"},"at":{"type":"string"}},"required":["day"]}}`))
	want := "\n?\nday (such as 2027-06-30; required; Ctrl-D declines): at (optional; Ctrl-D declines): "
	if got := out.String(); err != nil || got != want {
		t.Errorf("it shows %q, %v; want %q", got, err, want)
	}
}

// TestPromptShowsNoControls: text of a server cannot move the cursor.
func TestPromptShowsNoControls(t *testing.T) {
	p, out := typed()
	_, err := p.ask(t.Context(), json.RawMessage(`{"message":"a\u001b[2J\nb","requestedSchema":{"properties":{"x":{"title":"\u001b]0;t\u0007"}}}}`))
	if err != nil || strings.ContainsAny(out.String(), "\x1b\x07") || !strings.Contains(out.String(), "\nb\n") {
		t.Errorf("it shows %q, %v", out, err)
	}
}

// TestPromptLegacy: a question of a legacy server gets the same answer, and other requests get an
// error.
func TestPromptLegacy(t *testing.T) {
	p, _ := typed("Anna")
	e := &endpoint{prompts: p}
	got, err := e.Ask(t.Context(), &client.ServerRequest{Method: "elicitation/create",
		Params: []byte(`{"message":"?","requestedSchema":{"properties":{"name":{"type":"string"}}}}`)})
	if err != nil || string(got) != `{"action":"accept","content":{"name":"Anna"}}` {
		t.Errorf("the result is %s, %v", got, err)
	}
	var refused *jsonrpc.Error
	if got, err = e.Ask(t.Context(), &client.ServerRequest{Method: "roots/list"}); !errors.As(err, &refused) {
		t.Errorf("roots/list gets %s, %v", got, err)
	}
}
