package clients

import (
	"encoding/base64"
	"net/url"
	"strings"

	"junction/cmd/junction/desk/clients/format"
	"junction/upstream/shell"
)

// A Snippet is what a person uses to connect a client to Junction. A text is "" if the client has
// nothing of the kind.
type Snippet struct {
	Command string // of the client or of Junction, for a shell
	Link    string // a URL that the client opens; it contains no secret
	File    string // of the client, for a person to find
	Entry   string // the content of File, if it has no other server
}

// Snippet returns how a person connects the client. The URL of t has no user and no password.
func (c *Client) Snippet(t Target) (Snippet, error) {
	entry, err := c.shownEntry(t)
	if err != nil {
		return Snippet{}, err
	}
	s := Snippet{File: c.shownFile(), Entry: strings.TrimSpace(string(entry))}
	if c.snippet != nil {
		c.snippet(c, t, &s)
	}
	if s.Command == "" && t.Key && c.key == ByFile {
		s.Command = shell.Junction("", "connect", c.ID, "--url", t.URL)
	}
	return s, nil
}

// shownEntry returns the content of a file with the entry of Junction alone.
func (c *Client) shownEntry(t Target) ([]byte, error) {
	text, err := c.format.Add(nil, c.keys, t.Name, c.entryFor(t))
	if err == nil && t.Key && c.key == ByInput {
		text, err = format.JSON{}.AddItem(text, inputList, keyInput(inputID(t.Name)))
	}
	return text, err
}

// shownFile returns the file of the user as people write it. A file whose folder differs between
// systems is that of a project, or its name alone.
func (c *Client) shownFile() string {
	for _, p := range c.user {
		switch {
		case strings.HasPrefix(p.file, "$"):
		case p.base == appConfig && len(c.project) > 0:
			return c.project[0].file
		case p.base == appConfig:
			return p.file[strings.LastIndexByte(p.file, '/')+1:]
		case p.base == config:
			return "~/.config/" + p.file
		default:
			return "~/" + p.file
		}
	}
	return ""
}

// keyHeader returns the flag for the API key. The client expands the variable, not the shell.
func keyHeader(t Target) string {
	if !t.Key {
		return ""
	}
	return " --header 'Authorization: Bearer ${" + KeyVariable + "}'"
}

// shellWord quotes a text for a POSIX shell if that is necessary.
func shellWord(s string) string {
	special := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') &&
			!strings.ContainsRune("-_.:/@%+,", r)
	}
	if !strings.ContainsFunc(s, special) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func claudeSnippet(_ *Client, t Target, s *Snippet) {
	s.Command = "claude mcp add --scope user --transport http " + t.Name + " " + shellWord(t.URL) + keyHeader(t)
}

// claudeAdds returns the arguments with which Claude Code adds an entry.
func claudeAdds(t Target) []string {
	args := []string{"mcp", "add", "--scope", "user", "--transport", "http", t.Name, t.URL}
	if t.Key {
		args = append(args, "--header", "Authorization: Bearer ${"+KeyVariable+"}")
	}
	if t.form.headers != "" {
		args = append(args, "--header", FolderHeader+": "+t.form.value)
	}
	return args
}

func codexSnippet(_ *Client, t Target, s *Snippet) {
	s.Command = "codex mcp add " + t.Name + " --url " + shellWord(t.URL)
	if t.Key {
		s.Command += " --bearer-token-env-var " + KeyVariable
	}
}

func geminiSnippet(_ *Client, t Target, s *Snippet) {
	s.Command = "gemini mcp add --scope user --transport http" + keyHeader(t) + " " + t.Name + " " + shellWord(t.URL)
}

func cursorSnippet(c *Client, t Target, s *Snippet) {
	if c.Commanded(t) {
		return
	}
	entry := format.Literal(c.entryFor(t).Tree())
	s.Link = "cursor://anysphere.cursor-deeplink/mcp/install?name=" + url.QueryEscape(t.Name) +
		"&config=" + url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(entry)))
}

func vsCodeSnippet(c *Client, t Target, s *Snippet) {
	named := c.entryFor(t).Tree()
	named["name"] = t.Name
	if t.Key { // VS Code takes them out of the text
		named[inputList] = []any{keyInput(inputID(t.Name)).Tree()}
	}
	text := format.Literal(named)
	s.Command = "code --add-mcp " + shellWord(text)
	s.Link = "vscode:mcp/install?" + strings.ReplaceAll(url.QueryEscape(text), "+", "%20")
}
