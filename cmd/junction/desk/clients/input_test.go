package clients

import (
	"os"
	"slices"
	"strings"
	"testing"

	"junction/cmd/junction/desk/clients/format"
)

// TestVSCodeAsksForTheKey: the input is beside the servers, in the form that VS Code documents: type,
// id, description and password. The entry refers to it.
func TestVSCodeAsksForTheKey(t *testing.T) {
	const hidden = `{"type": "promptString", "id": "junction-key", "password": true}`
	const shown = `{"type": "promptString", "id": "junction-key"}`
	for _, test := range []struct{ name, text, id, inputs string }{
		{"a file without inputs", `{"servers": {}}`, "junction-key", "[junction-key]"},
		{"no file content", ``, "junction-key", "[junction-key]"},
		{"other inputs", `{"inputs": [{"id": "a"}], "servers": {}}`, "junction-key", "[a junction-key]"},
		{"an input of a person", `{"inputs": [` + hidden + `]}`, "junction-key", "[junction-key]"},
		{"an input that shows what is typed", `{"inputs": [` + shown + `]}`, "junction-key-2",
			"[junction-key junction-key-2]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := mustOutfit(t, map[string]string{".config/Code/User/mcp.json": test.text})
			p := mustPlace(t, o, "vscode")
			mustConnect(t, o, p, testTarget)
			text := mustRead(t, p.File)
			if !strings.Contains(text, `"Bearer ${input:`+test.id+`}"`) || inputsIn(t, text) != test.inputs {
				t.Errorf("the file is\n%s", text)
			}
			mustConnect(t, o, p, testTarget)
			if again := mustRead(t, p.File); again != text {
				t.Errorf("a second Connect changed the file:\n%s", again)
			}
			mustDisconnect(t, o, p)
			if got := mustRead(t, p.File); got != test.text {
				t.Errorf("after Disconnect the file is %q; want %q", got, test.text)
			}
		})
	}
}

// inputsIn returns the IDs of the inputs of a text.
func inputsIn(t testing.TB, text string) string {
	t.Helper()
	items, present, err := format.JSON{}.Items([]byte(text), inputList)
	if err != nil {
		t.Fatal(err)
	}
	if !present {
		return "none"
	}
	var ids []string
	for _, item := range items {
		m, _ := item.(map[string]any)
		id, _ := m["id"].(string)
		ids = append(ids, id)
		if len(m) == 4 && (m["type"] != "promptString" || m["description"] != "API key for Junction" || m["password"] != true) {
			t.Errorf("the input is %v", m)
		}
	}
	return "[" + strings.Join(ids, " ") + "]"
}

// TestVSCodeWritesItsFileAnew: VS Code has written the file in another layout since. The entry and its input
// are taken out; an input that another server uses stays, and so do those of the person.
func TestVSCodeWritesItsFileAnew(t *testing.T) {
	const own = `{"type":"promptString","id":"junction-key","description":"API key for Junction","password":true}`
	const entry = `"junction":{"type":"http","url":"` + testURL + `","headers":{"Authorization":"Bearer ${input:junction-key}"}}`
	for _, test := range []struct{ name, was, is, want string }{
		{"another layout", `{"servers": {}}`, `{"inputs":[` + own + `],"servers":{` + entry + `}}`, "none"},
		{"a list of the person", `{"inputs": [], "servers": {}}`, `{"inputs":[` + own + `],"servers":{` + entry + `}}`, "[]"},
		{"a new input", `{"servers": {}}`, `{"inputs":[{"id":"a"},` + own + `],"servers":{` + entry + `}}`, "[a]"},
		{"another server uses it", `{"servers": {}}`, `{"inputs":[` + own + `],"servers":{` + entry +
			`,"b":{"url":"http://x/","headers":{"A":"${input:junction-key}"}}}}`, "[junction-key]"},
		{"the entry is gone", `{"servers": {}}`, `{"inputs":[` + own + `],"servers":{}}`, "none"},
		{"both are gone", `{"servers": {}}`, `{"servers":{}}`, "none"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := mustOutfit(t, map[string]string{".config/Code/User/mcp.json": test.was})
			p := mustPlace(t, o, "vscode")
			mustConnect(t, o, p, testTarget)
			if err := os.WriteFile(p.File, []byte(test.is), 0o600); err != nil {
				t.Fatal(err)
			}
			mustDisconnect(t, o, p)
			text := mustRead(t, p.File)
			if got := inputsIn(t, text); got != test.want || strings.Contains(text, `"junction"`) {
				t.Errorf("the inputs are %s; want %s\n%s", got, test.want, text)
			}
		})
	}
}

// TestAnInputThatIsSharedStays: a person has added a server that uses the input, in the file as Connect has
// written it.
func TestAnInputThatIsSharedStays(t *testing.T) {
	o := mustOutfit(t, map[string]string{".config/Code/User/mcp.json": "{\n  \"servers\": {\n  }\n}\n"})
	p := mustPlace(t, o, "vscode")
	mustConnect(t, o, p, testTarget)
	rewrite(t, p, `"servers": {`, `"servers": {"b": {"url": "http://x/", "headers": {"A": "${input:junction-key}"}},`)
	mustDisconnect(t, o, p)
	text := mustRead(t, p.File)
	if inputsIn(t, text) != "[junction-key]" || !slices.Equal(names(t, o, p), []string{"b"}) {
		t.Errorf("the file is\n%s", text)
	}
}

// TestInputsThatAreNoList: the file of VS Code stays as it is.
func TestInputsThatAreNoList(t *testing.T) {
	const text = `{"inputs": {}, "servers": {}}`
	o := mustOutfit(t, map[string]string{".config/Code/User/mcp.json": text})
	p := mustPlace(t, o, "vscode")
	_, err := o.Connect(t.Context(), p, testTarget, nil)
	if err == nil || !strings.Contains(err.Error(), "the value of inputs is not a list") || mustRead(t, p.File) != text {
		t.Errorf("Connect = %v", err)
	}
}

// TestVSCodeSnippetHasTheInput: the command and the link of VS Code define the input that the entry
// refers to.
func TestVSCodeSnippetHasTheInput(t *testing.T) {
	c, _ := Lookup("vscode")
	s, err := c.Snippet(testTarget)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{s.Command, s.Entry} {
		if !strings.Contains(text, `${input:junction-key}`) || !strings.Contains(text, `promptString`) {
			t.Errorf("the snippet is %s", text)
		}
	}
	open := testTarget
	open.Key = false
	if s, err := c.Snippet(open); err != nil || strings.Contains(s.Command+s.Entry+s.Link, "input") {
		t.Errorf("without keys the snippet is %+v, %v", s, err)
	}
}
