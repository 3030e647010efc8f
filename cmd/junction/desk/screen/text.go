package screen

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"junction/cmd/junction/ops/admin"
	"junction/cmd/junction/ops/diagnose"
	"junction/upstream"
	"junction/upstream/prose"
	"junction/upstream/shell"
)

// Text contains what the first screen shows about a proxy, beside the upstreams.
type Text struct {
	URL    string // for clients
	Status string // URL of the status page; "" without an admin address
	Config string // the full path of the configuration file; "" without one
	Keys   bool   // clients need an API key
	Open   bool   // there is no authentication, and the file does not state it
	Flags  string // that commands about this proxy need, after a space, such as " --config FILE"
	Demo   bool   // there is no configuration file
	// Warnings are about mistakes of the file that hide all tools from clients.
	Warnings []string
	// Disabled are the upstreams of the file that are not served.
	Disabled []string
	// Trouble returns what fails beside the upstreams, and whether all of it was checked; it may be nil.
	Trouble func() (list []Trouble, checked bool)
}

// Trouble is a part that Junction depends on, and that fails.
type Trouble struct{ Part, Error, Advice string }

// troubleOf returns the lines about the parts that fail, on an empty page.
func troubleOf(b *prose.Page, list []Trouble) string {
	for _, t := range list {
		b.Wrap("  ", "    ", t.Part+": "+prose.Flat(t.Error))
		if t.Advice != "" {
			b.Wrap("    → ", "      ", t.Advice)
		}
	}
	return b.String()
}

// header returns the addresses and the warnings, on an empty page.
func (t *Text) header(b *prose.Page) string {
	text := "Junction serves " + t.URL + "\n"
	if t.Status != "" {
		text += "Status page     " + t.Status + "\n"
	}
	if t.Config != "" {
		text += "Configuration   " + prose.Flat(t.Config) + "\n"
	}
	if t.Open {
		text += "Callers         all programs and users of this machine (no authentication).\n" +
			"                Before you add a reverse proxy or a tunnel, configure auth.\n"
	}
	for _, w := range t.Warnings {
		b.Wrap("Warning: ", "  ", prose.Flat(w))
	}
	return text + b.String() + "\n"
}

// clients returns the lines to paste into clients. With keys, these read a key from the
// environment.
func (t *Text) clients() string {
	lines := admin.ClientLines
	if t.Keys {
		lines = clientLinesWithKey
	}
	return strings.ReplaceAll(lines, "URL", t.URL)
}

// clientLinesWithKey are the lines for clients that need an API key. The key is in no file of a client and
// in no argument. VS Code and Cursor start from the desktop, where JUNCTION_KEY of a shell is not set.
const clientLinesWithKey = `
With your key in JUNCTION_KEY where the client starts (junction keys create
makes a key):

Claude Code
  claude mcp add --scope user \
    --transport http junction URL \
    --header 'Authorization: Bearer ${JUNCTION_KEY}'
Codex
  codex mcp add junction --url URL \
    --bearer-token-env-var JUNCTION_KEY
VS Code, which asks for the key
  code --add-mcp \
    '{"name":"junction","type":"http","url":"URL",
     "headers":{"Authorization":"Bearer ${input:junction-key}"},
     "inputs":[{"type":"promptString","id":"junction-key",
       "description":"API key for Junction","password":true}]}'
Cursor, which reads the key from a file that only you can read
  junction connect cursor --url URL
`

// next returns the last line: what to do next.
func (t *Text) next(list []diagnose.UpstreamStatus) string {
	var signIn, failed []string
	for _, u := range list {
		switch {
		case u.State == upstream.StateSignIn.String() && u.SignIn:
			signIn = append(signIn, prose.Flat(u.Name))
		case u.Broken():
			failed = append(failed, prose.Flat(u.Name))
		}
	}
	var parts []string
	if len(signIn) > 0 {
		parts = append(parts, "sign in with "+shell.Join("junction", "login", signIn[0])+t.Flags)
		if len(signIn) > 1 {
			parts[0] += " (then " + strings.Join(signIn[1:], ", ") + ")"
		}
	}
	if len(failed) > 0 {
		parts = append(parts, "correct "+strings.Join(failed, ", ")+" as shown above, then check with junction doctor"+
			t.Flags)
	}
	switch {
	case len(parts) > 0:
	case len(list) == 0 && len(t.Disabled) > 0:
		parts = []string{"enable an upstream, for example with " + shell.Join("junction", "enable", t.Disabled[0]) +
			t.Flags}
	case len(list) == 0:
		parts = []string{"add the servers of your clients with junction setup" + t.Flags + ", or one with junction " +
			"add NAME" + t.Flags + " -- COMMAND"}
	case t.Demo:
		parts = []string{"stop this demo (Ctrl-C) and run junction setup, which adds your servers and connects your " +
			"clients; or try the demo: junction connect CLIENT"}
	default:
		parts = []string{"connect a client with a line above, or with junction connect CLIENT" + t.Flags}
	}
	summary := ""
	if slices.ContainsFunc(list, func(u diagnose.UpstreamStatus) bool { return u.Broken() }) {
		summary = "\n" + diagnose.Summary(list) + "."
	}
	return summary + "\nNext: " + strings.Join(parts, "; ") + "\n"
}

// tried reports whether the first attempt to connect has ended.
func tried(u *diagnose.UpstreamStatus) bool { return u.State != upstream.StateStarting.String() }

// columns are the widths of the table.
type columns [3]int

// table returns the table of the upstreams, the broken ones first, and its columns. b is an empty page.
func (t *Text) table(b *prose.Page, list []diagnose.UpstreamStatus, now time.Time) (string, columns) {
	var c columns
	list = diagnose.BrokenFirst(list)
	if len(list) == 0 && len(t.Disabled) > 0 {
		return "  all upstreams are disabled\n", c
	}
	if len(list) == 0 {
		return "  no upstreams are configured\n", c
	}
	title := [3]string{"UPSTREAM", "STATE", "TOOLS"}
	c.widen(title)
	for i := range list {
		c.widen(cells(&list[i], now))
	}
	b.WriteString(c.line(title) + "\n")
	for i := range list {
		c.row(b, &list[i], now)
	}
	return b.String(), c
}

func (c *columns) widen(cells [3]string) {
	for i, cell := range cells {
		c[i] = max(c[i], utf8.RuneCountInString(cell))
	}
}

func (c *columns) line(cells [3]string) string {
	return fmt.Sprintf("  %-*s  %-*s  %*s", c[0], cells[0], c[1], cells[1], c[2], cells[2])
}

func cells(u *diagnose.UpstreamStatus, now time.Time) [3]string {
	tools := strconv.Itoa(u.Tools)
	if u.Tools == 0 && u.Era == "" {
		tools = "-" // never listed
	}
	return [3]string{prose.Flat(u.Name), u.Shown(now), tools}
}

// row writes the lines of one upstream. The error is never shortened: if the first line has no
// room for it, it gets lines of its own. The remedy follows.
func (c *columns) row(b *prose.Page, u *diagnose.UpstreamStatus, now time.Time) {
	line := c.line(cells(u, now))
	text := prose.Tilde(prose.Flat(cmp.Or(u.Error, u.Note)))
	if text == "" || utf8.RuneCountInString(line)+2+utf8.RuneCountInString(text) <= b.Columns() {
		b.WriteString(strings.TrimRight(line+"  "+text, " ") + "\n")
	} else {
		b.WriteString(strings.TrimRight(line, " ") + "\n")
		b.Wrap("    ", "    ", text)
	}
	if u.Advice != "" {
		b.Wrap("    → ", "      ", prose.Tilde(prose.Flat(u.Advice)))
	}
}
