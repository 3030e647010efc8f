package manifest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"gopkg.in/yaml.v3"

	"junction/cmd/pack/template"
	"junction/upstream/files"
	"junction/upstream/yamlread"
)

// An expander replaces the references of one file:
//
//	${VAR}  ${env:VAR}   the environment variable; a mistake if it is not set
//	${VAR:-default}      the default if the variable is not set or empty
//	${file:path}         the content of a file without the newline at its end
//	${PACK_DIR}          the folder of the manifest
//	$${                  the two characters ${
//
// A value is neither expanded again nor searched for placeholders.
type expander struct {
	Options
	dir   string
	files []string // that references name
	wants []string // the bodies of all references
	left  *int64   // bytes that all files which manifests name may have
}

// maxReferenced limits the size of a file that a reference names.
const maxReferenced = 64 << 10

// maxFiles limits the bytes of all files that the manifests of a pack name. Each counts as often as it is named.
const maxFiles = 32 << 20

// expand returns s with its references replaced, and the mistakes. A wrong reference becomes empty.
// open means that a reference was left as it is, so that the value is not known.
func (e *expander) expand(s string) (out string, open bool, mistakes []string) {
	out, closed := yamlread.Expand(s, func(body string) string {
		value, left, problem := e.resolve(body)
		if problem != "" {
			mistakes = append(mistakes, problem)
		}
		open = open || left
		return value
	})
	if !closed {
		mistakes = append(mistakes, "has a ${ without its }; close it, or write $${ for the text ${")
	}
	return out, open, mistakes
}

// resolve returns the value of ${body}, or a problem. left means that it is the reference itself.
func (e *expander) resolve(body string) (value string, left bool, problem string) {
	name, fallback, hasFallback := strings.Cut(strings.TrimPrefix(body, "env:"), ":-")
	file, isFile := strings.CutPrefix(body, "file:")
	switch {
	case body == "PACK_DIR":
		return e.dir, false, ""
	case isFile && file == "":
		return "", false, "${file:} names no file; write ${file:path}"
	case !isFile && !yamlread.IsVariable(name):
		return "", false, fmt.Sprintf("%q is no reference; write ${VAR}, ${VAR:-default} or ${file:path}, "+
			"or $${ for the text ${", "${"+body+"}")
	}
	e.wants = append(e.wants, body)
	switch {
	case e.Unresolved && !(isFile && e.PackFiles && e.has(file)):
		return "${" + body + "}", true, ""
	case isFile:
		full := inside(e.dir, file)
		e.files = append(e.files, full)
		text, err := e.read(full, maxReferenced)
		if err != nil {
			return "", false, yamlread.Unread(file, full, err)
		}
		return strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r"), false, ""
	}
	getenv := e.Getenv
	if getenv == nil {
		getenv = os.LookupEnv
	}
	value, ok := getenv(name)
	switch {
	case hasFallback && value == "":
		return fallback, false, ""
	case !ok && e.Unset != nil:
		return "", false, e.Unset(name)
	case !ok:
		return "", false, fmt.Sprintf("the environment variable %s is not set; set it, or write ${%s:-default}", name,
			name)
	}
	return value, false, ""
}

// has reports whether a file is one of the pack: in the folder of the manifest, also through links.
// A file that does not exist counts by its path.
func (e *expander) has(file string) bool {
	full := inside(e.dir, file)
	if _, below := Below(e.dir, full); !below {
		return false
	}
	root, err := filepath.EvalSymlinks(e.dir)
	if err != nil {
		return false
	}
	real, err := filepath.EvalSymlinks(full)
	if err != nil {
		return true
	}
	_, below := Below(root, real)
	return below
}

// read reads a file, which counts for maxFiles.
func (e *expander) read(file string, most int64) ([]byte, error) {
	text, err := files.Read(file, most)
	if err != nil {
		return nil, err
	}
	if *e.left -= int64(len(text)); *e.left < 0 {
		return nil, fmt.Errorf("with it, the files that the manifests name have more than %d MiB together",
			maxFiles>>20)
	}
	return text, nil
}

// Ref is a text with references and without placeholders.
type Ref struct {
	Source string // as the file has it
	text   string
	open   bool
}

// Open reports whether the value has references that were left as they are.
func (r Ref) Open() bool { return r.open }

// Value returns the text with its references replaced. It may be secret.
func (r Ref) Value() string { return r.text }

func (r *Ref) decode(d *decoder, path string, n *yaml.Node) {
	var t Text
	t.decode(d, path, n)
	if names := t.Names(); len(names) > 0 {
		d.bad(path, "has the placeholder {{%s}}, but must not depend on the arguments of a call; "+
			"write a fixed value", names[0])
	}
	r.Source, r.text, r.open = t.Source, t.Text(nil, nil), t.open
}

// Text is a template with references. The Template has the values of the references, which may be
// secret.
type Text struct {
	template.Template
	Source string // as the file has it; empty if the key is missing
	open   bool
}

func (t *Text) decode(d *decoder, path string, n *yaml.Node) {
	t.read(d, path, n)
	t.resolve(d, path)
}

// read reads the text, and leaves its references.
func (t *Text) read(d *decoder, path string, n *yaml.Node) {
	if n.Kind != yaml.ScalarNode || yamlread.Empty(n) {
		d.bad(path, "must be text, not %s", kind(n))
		return
	}
	t.Source, t.Template = n.Value, template.Parse(n.Value)
}

// resolve replaces the references.
func (t *Text) resolve(d *decoder, path string) {
	t.Template = t.Map(func(s string) string {
		out, open, mistakes := d.refs.expand(s)
		for _, w := range mistakes {
			d.bad(path, "%s", w)
		}
		t.open = t.open || open
		return out
	})
}

// Variables are environment variables of a command.
type Variables map[string]Text

// or returns the variables; defaults complete them.
func (v Variables) or(defaults Variables) Variables {
	if len(defaults) == 0 {
		return v
	}
	all := maps.Clone(defaults)
	maps.Copy(all, v)
	return all
}
