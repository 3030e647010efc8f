package clients

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"junction/upstream/prose"
	"junction/upstream/shell"
)

// A Look is everything that an upstream would run, send and read, for the person who decides about
// an entry that somebody else may have written. Its texts are whole, and have no hidden characters.
type Look struct {
	Name        string   `json:"name"`
	From        string   `json:"from,omitempty"` // where the entry was found
	Disabled    bool     `json:"disabled,omitempty"`
	Command     string   `json:"command,omitempty"` // as a shell reads it
	Dir         string   `json:"dir,omitempty"`
	Isolation   string   `json:"isolation,omitempty"`
	URL         string   `json:"url,omitempty"`
	Headers     []string `json:"headers,omitempty"`     // NAME: VALUE
	Env         []string `json:"env,omitempty"`         // NAME=VALUE
	Published   []string `json:"published,omitempty"`   // names of headers and variables with a value of the publisher
	Environment []string `json:"environment,omitempty"` // variables of Junction that are read
	Files       []string `json:"files,omitempty"`       // whose content is read
	Limits      string   `json:"limits,omitempty"`      // of time, if they are not the defaults
	Tools       string   `json:"tools,omitempty"`       // that clients get, if not all
	Lacks       string   `json:"lacks,omitempty"`       // the program of the command, if it is not installed
	Notes       []string `json:"notes,omitempty"`
}

// maxLook is the number of bytes of a Look that a person can be expected to read.
const maxLook = 8 << 10

// Look returns what an entry would do as the upstream of a name. The error says that the entry is too
// long to be looked at.
func (e *Entry) Look(name, from string) (*Look, error) {
	l := &Look{Name: name, From: from, Disabled: e.Off, Published: quoted(e.Published), Limits: e.limits(),
		Tools: e.offered()}
	for _, note := range e.Notes {
		l.Notes = append(l.Notes, visible(note))
	}
	if e.Runs() {
		var words []string
		for _, v := range e.Command {
			words = append(words, v.shown(e.Foreign))
		}
		l.Command = shell.Join(words...)
	} else {
		l.URL = visible(e.address())
	}
	if dir := e.Dir.shown(true); dir != "" {
		l.Dir = shell.Quote(dir)
	}
	if e.Windows {
		l.Isolation = isolationFolder
		if why := shell.RunsFrom(e.CommandLine()); why != "" && l.Dir != "" && e.Dir[0].kind == window {
			l.Notes = append(l.Notes, "it starts in the folder of the client, and "+visible(why)+": an agent that can "+
				"write there gets a program of its own started outside of its sandbox")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		l.Headers = append(l.Headers, shell.Quote(name)+": "+e.field(name, e.Headers[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(e.Env)) {
		l.Env = append(l.Env, shell.Quote(name)+"="+e.field(name, e.Env[name]))
	}
	l.Environment = slices.Clone(e.InheritEnv)
	for _, v := range e.values() {
		for _, p := range v {
			switch p.kind {
			case variable:
				l.Environment = append(l.Environment, p.text)
			case fileRef:
				l.Files = append(l.Files, p.text)
			}
		}
	}
	l.Environment, l.Files = quoted(l.Environment), quoted(l.Files)
	if n := l.size(); n > maxLook {
		return l, fmt.Errorf("its command, URL and values have %d bytes, and Junction shows at most %d for a "+
			"question; add it by hand", n, maxLook)
	}
	return l, nil
}

// quoted returns a sorted list of texts without hidden characters.
func quoted(list []string) []string {
	var out []string
	for _, s := range list {
		out = append(out, shell.Quote(s))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// visible returns a text with escapes for all characters beyond ASCII, so that no letter of a host
// looks like another one.
func visible(s string) string {
	q := strconv.QuoteToASCII(s)
	return strings.NewReplacer(`\"`, `"`, `\u2026`, "…").Replace(q[1 : len(q)-1])
}

// shown returns the value with the names of references. Secrets become … unless whole is true.
func (v Value) shown(whole bool) string {
	var b strings.Builder
	for _, p := range v {
		switch {
		case p.kind == secret && !whole:
			b.WriteString("…")
		case p.kind == variable && p.fallback != "" && !whole && secretName(p.text):
			b.WriteString("${" + p.text + ":-…}")
		case p.kind == variable && p.fallback != "":
			b.WriteString("${" + p.text + ":-" + p.fallback + "}")
		case p.kind == variable:
			b.WriteString("${" + p.text + "}")
		case p.kind == fileRef:
			b.WriteString("${file:" + p.text + "}")
		case p.kind == window:
			b.WriteString(FolderWord)
		default:
			b.WriteString(p.text)
		}
	}
	return b.String()
}

// oneWord is a text that no shell takes apart.
var oneWord = regexp.MustCompile(`^[A-Za-z0-9_.~+/=:-]*$`)

// field returns a header or a variable of a command, without its literals: each may be a secret, whatever its name.
// Those of the publisher of a server are shown. If somebody else has written a command, only one word in a variable
// with the name of a secret counts as a secret: other text could be what runs.
func (e *Entry) field(name string, v Value) string {
	isWord := func(p part) bool { return p.kind == secret && oneWord.MatchString(p.text) }
	whole := e.Foreign && e.Runs() && !(secretName(name) && slices.ContainsFunc(v, isWord))
	if !whole && !slices.Contains(e.Published, name) {
		v = v.masked()
	}
	text := v.shown(whole)
	if text == "…" {
		return text
	}
	return shell.Quote(text)
}

// masked returns the value with its literals as secrets. The scheme of a credential is none, and neither are values
// that no secret has.
func (v Value) masked() (out Value) {
	for _, p := range v {
		if p.fallback != "" && !notSecret.MatchString(p.fallback) {
			p.fallback = "…"
		}
		if p.kind != plainText || notSecret.MatchString(p.text) {
			out = append(out, p)
			continue
		}
		begin := len(scheme.FindString(p.text))
		if out = append(out, part{text: p.text[:begin]}); begin < len(p.text) {
			out = append(out, part{kind: secret})
		}
	}
	return out
}

// address returns the URL. The host is shown whole. Behind it, a word that looks like a secret does not
// change where requests go.
func (e *Entry) address() string {
	text := ""
	for i, p := range e.URL {
		_, rest, _ := strings.Cut(text, "://")
		whole := !strings.ContainsAny(rest, "/?#") || e.Foreign && !oneWord.MatchString(p.text)
		text += e.URL[i : i+1].shown(whole)
	}
	return text
}

func (l *Look) size() (n int) {
	for _, list := range [][]string{{l.Command, l.Dir, l.URL, l.Tools}, l.Headers, l.Env, l.Environment, l.Files} {
		for _, s := range list {
			n += len(s)
		}
	}
	return n
}

// write writes the look. It cuts nothing off: a long value continues in lines that begin with a bar.
func (l *Look) write(b *prose.Page) {
	b.WriteString(l.Name)
	if l.Disabled {
		b.WriteString(", disabled")
	}
	if l.From != "" {
		b.WriteString(", from " + l.From)
	}
	b.WriteByte('\n')
	row := func(label string, values ...string) {
		for _, v := range values {
			if v != "" {
				breakLine(b, fmt.Sprintf("  %-11s ", label), "            | ", v)
			}
		}
	}
	row("runs", l.Command)
	row("in", l.Dir)
	if l.Isolation != "" {
		row("isolation", l.Isolation+": a process for each folder of a client ("+FolderWord+")")
	}
	row("connects to", l.URL)
	row("header", l.Headers...)
	row("variable", l.Env...)
	if len(l.Published) > 0 {
		row("publisher", "sets "+strings.Join(l.Published, ", "))
	}
	row("reads", strings.Join(l.Environment, ", "))
	row("reads file", l.Files...)
	row("time limits", l.Limits)
	row("tools", l.Tools)
	row("note", l.Notes...)
}

// breakLine writes a text in lines of at most b.Columns characters, with all its spaces.
func breakLine(b *prose.Page, first, others, text string) {
	prefix := first
	for {
		room := b.Columns() - utf8.RuneCountInString(prefix)
		r := []rune(text)
		if len(r) <= room {
			b.WriteString(prefix + text + "\n")
			return
		}
		at := room
		for i := room; i > room/8; i-- {
			if r[i-1] == ' ' {
				at = i
				break
			}
		}
		b.WriteString(prefix + string(r[:at]) + "\n")
		text, prefix = string(r[at:]), others
	}
}

// Looks writes several looks on an empty page, and a last paragraph with all that would be read: the
// person reads it next to the question. It returns the text of the page.
func Looks(b *prose.Page, list []*Look) string {
	var commands, urls, disabled int
	var variables, files, absent []string
	for _, l := range list {
		if l.Lacks != "" {
			absent = append(absent, fmt.Sprintf("%s (%s)", visible(l.Lacks), l.Name))
		}
		l.write(b)
		b.WriteByte('\n')
		switch {
		case l.Disabled:
			disabled++
		case l.Command != "":
			commands++
		default:
			urls++
		}
		variables, files = append(variables, l.Environment...), append(files, l.Files...)
	}
	var parts []string
	if commands > 0 {
		verb := "would run with your rights"
		parts = append(parts, prose.Count(commands, "command")+" "+verb)
	}
	if urls > 0 {
		parts = append(parts, prose.Count(urls, "URL")+" would get requests")
	}
	if disabled > 0 {
		verb := " would do nothing until you enable it"
		if disabled > 1 {
			verb = " would do nothing until you enable them"
		}
		parts = append(parts, prose.Count(disabled, "disabled server")+verb)
	}
	text := strings.Join(parts, ", and ") + "."
	for _, l := range []struct {
		what string
		list []string
	}{{"Variables of Junction's environment that would be read", variables}, {"Files that would be read", files},
		{"Programs that are not installed", absent}} {
		if slices.Sort(l.list); len(l.list) > 0 {
			text += " " + l.what + ": " + strings.Join(slices.Compact(l.list), ", ") + "."
		}
	}
	breakLine(b, "", "", text)
	return b.String()
}
