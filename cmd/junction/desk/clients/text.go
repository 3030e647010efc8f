package clients

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"junction/upstream/files"
)

// syntax is the set of references that a client expands in the values of its file.
type syntax int

const (
	dollar     syntax = 1 << iota // ${NAME}
	fallback                      // ${NAME:-default}
	unbraced                      // $NAME
	dollarEnv                     // ${env:NAME}
	dollarFile                    // ${file:/path}
	folders                       // ${workspaceFolder}, ${userHome}
	inputs                        // ${input:id}
	braces                        // {env:NAME}, {file:/path}
)

// A Value is a text with references and secrets taken apart.
type Value []part

type part struct {
	kind     kind
	text     string // the literal, the secret, the name of the variable, or the path
	fallback string // of a variable
	label    string // of a secret: what it is, for the name of its file
	about    string // of a variable: what VS Code asks for, for a person
}

type kind int

const (
	plainText kind = iota
	folder         // a literal that is no secret
	window         // the folder in which the client of a call works
	variable
	fileRef
	secret
)

// reader turns values of one server into Values.
type reader struct {
	place  Place
	home   Home
	asked  map[string]any // the input with which VS Code asks for a value, by its id
	notes  []string
	client syntax
	only   []string // the only variables that the client expands; nil for all
}

func (r *reader) note(format string, args ...any) {
	if line := fmt.Sprintf(format, args...); !slices.Contains(r.notes, line) {
		r.notes = append(r.notes, line)
	}
}

var (
	references   = regexp.MustCompile(`\$\{[^{}]*\}|\$[A-Za-z_][A-Za-z0-9_]*|\{(env|file):[^{}]*\}`)
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// value takes s apart by the client's syntax. What the client does not expand is literal.
func (r *reader) value(s string) Value {
	var v Value
	done := 0
	for _, m := range references.FindAllStringIndex(s, -1) {
		var p part
		var ok bool
		whole := s[m[0]:m[1]]
		switch {
		case strings.HasPrefix(whole, "${"):
			p, ok = r.reference(whole[2 : len(whole)-1])
		case strings.HasPrefix(whole, "$"):
			p, ok = part{kind: variable, text: whole[1:]}, r.client&unbraced != 0
		default:
			p, ok = r.braced(whole[1 : len(whole)-1])
		}
		if p.kind == variable && r.isWindow(p.text) {
			p = part{kind: window, text: whole}
		}
		if p.kind == variable && r.only != nil && !slices.Contains(r.only, p.text) {
			ok = false
		}
		if ok {
			v = append(v.literal(s[done:m[0]]), p)
			done = m[1]
		}
	}
	return v.literal(s[done:])
}

func (v Value) literal(s string) Value {
	if s == "" {
		return v
	}
	return append(v, part{text: s})
}

// reference returns what ${body} means to the client.
func (r *reader) reference(body string) (part, bool) {
	name, rest, hasColon := strings.Cut(body, ":")
	switch {
	case hasColon && name == "env" && r.client&dollarEnv != 0:
		return part{kind: variable, text: rest}, variableName.MatchString(rest)
	case hasColon && name == "file" && r.client&dollarFile != 0:
		return r.file(rest), true
	case hasColon && name == "input" && r.client&inputs != 0:
		return r.input(rest), true
	case r.client&folders != 0:
		if p, ok := r.folder(body); ok {
			return p, true
		}
		if hasColon {
			r.note("${%s} of %s is kept as it is", name+":…", r.place.Client.Name)
		}
	}
	if r.client&dollar == 0 || !variableName.MatchString(name) {
		return part{}, false
	}
	if hasColon {
		value, ok := strings.CutPrefix(rest, "-")
		return part{kind: variable, text: name, fallback: value}, ok && r.client&fallback != 0
	}
	return part{kind: variable, text: name}, true
}

func (r *reader) braced(body string) (part, bool) {
	kind, rest, _ := strings.Cut(body, ":")
	if r.client&braces == 0 {
		return part{}, false
	}
	if kind == "file" {
		return r.file(rest), true
	}
	return part{kind: variable, text: rest}, variableName.MatchString(rest)
}

func (r *reader) file(path string) part {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		path = filepath.Join(r.home.Dir, rest)
	} else if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(r.place.File), path)
	}
	return part{kind: fileRef, text: path}
}

// folder returns what a predefined variable of VS Code and Cursor stands for.
func (r *reader) folder(name string) (part, bool) {
	switch name {
	case "userHome":
		return part{kind: folder, text: r.home.Dir}, true
	case "pathSeparator", "/":
		return part{kind: folder, text: string(filepath.Separator)}, true
	case "workspaceFolder", "workspaceRoot":
		return part{kind: window, text: "${" + name + "}"}, true
	case "workspaceFolderBasename":
		if r.place.folder != "" {
			return part{kind: folder, text: filepath.Base(r.place.folder)}, true
		}
		r.note("${%s} differs between the windows of %s, and is not replaced", name, r.place.Client.Name)
	}
	return part{}, false
}

var notInVariable = regexp.MustCompile(`[^A-Za-z0-9]+`)

// input returns the variable that replaces a value that VS Code asks for. VS Code keeps the answer
// where other programs cannot read it.
func (r *reader) input(id string) part {
	name := strings.ToUpper(strings.Trim(notInVariable.ReplaceAllString(id, "_"), "_"))
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		name = "INPUT_" + name
	}
	p := part{kind: variable, text: name}
	about := ""
	if in, ok := r.asked[id].(map[string]any); ok {
		if description, _ := in["description"].(string); description != "" {
			about, p.about = " ("+short(description)+")", short(description)
		}
		if d, _ := in["default"].(string); in["password"] != true && !strings.ContainsAny(d, "{}") {
			p.fallback = d
		}
	}
	if p.fallback == "" {
		r.note(setVariable+"%s to the value that VS Code asks for%s", name, about)
	}
	return p
}

// maxReferenced is the most bytes of a file that Junction's configuration reads for a reference.
const maxReferenced = 64 << 10

// Expand returns what the value stands for. A variable that is not set stands for its default.
func (v Value) Expand(getenv func(string) (string, bool)) string {
	var b strings.Builder
	for _, p := range v {
		switch p.kind {
		case variable:
			value, _ := getenv(p.text)
			if value == "" {
				value = p.fallback
			}
			b.WriteString(value)
		case fileRef:
			text, _ := files.Read(p.text, maxReferenced)
			b.WriteString(strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r"))
		case window:
			b.WriteString(FolderWord)
		default:
			b.WriteString(p.text)
		}
	}
	return b.String()
}

// Render returns the value as Junction's configuration writes it. keep stores a secret and returns
// the path of its file.
func (v Value) Render(keep func(label, secret string) (string, error)) (string, error) {
	if len(v) == 1 && v[0].kind == plainText {
		name, isReference := strings.CutPrefix(v[0].text, "env:") // to Junction, and not to the client
		if isReference && variableName.MatchString(name) {
			v = Value{{kind: secret, text: v[0].text, label: "value"}}
		}
	}
	var b strings.Builder
	for _, p := range v {
		reference := ""
		switch p.kind {
		case window:
			reference = FolderWord
		case plainText, folder:
			b.WriteString(strings.ReplaceAll(p.text, "${", "$${"))
			continue
		case variable:
			reference = "${" + p.text + "}"
			if p.fallback != "" {
				reference = "${" + p.text + ":-" + p.fallback + "}"
			}
		case fileRef:
			reference = "${file:" + p.text + "}"
		case secret:
			file, err := keep(p.label, p.text)
			if err != nil {
				return "", err
			}
			reference = "${file:" + file + "}"
		}
		if strings.HasSuffix(b.String(), "$") {
			return "", fmt.Errorf("a $ directly before a reference cannot be written in Junction's configuration")
		}
		b.WriteString(reference)
	}
	return b.String(), nil
}

// Variables returns the environment variables that the value refers to and that have no default.
func (v Value) Variables() []string {
	var names []string
	for _, p := range v {
		if p.kind == variable && p.fallback == "" {
			names = append(names, p.text)
		}
	}
	return names
}

// secrets returns the labels of the secrets in the value.
func (v Value) secrets() []string {
	var labels []string
	for _, p := range v {
		if p.kind == secret {
			labels = append(labels, p.label)
		}
	}
	return labels
}

// short cuts a text of a file for a message, and keeps it on one line.
func short(s string) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }), " ")
	if r := []rune(s); len(r) > 60 {
		s = string(r[:60]) + "…"
	}
	return s
}
