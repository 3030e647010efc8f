package config

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// This file writes the comments of fields into config.example.yaml, above or behind their keys: the first
// paragraph of each.

// columns is the width of documents.
const columns = 100

// A form is a part of the schema.
type form struct {
	Ref         string `json:"$ref"`
	Description string
	Properties  ordered
	Items       *form
	AllOf       []*form
	AnyOf       []*form
	Others      json.RawMessage `json:"additionalProperties"`
}

// ordered are the properties of a form in the order of the fields.
type ordered struct {
	keys []string
	of   map[string]*form
}

func (o *ordered) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(strings.NewReader(string(text)))
	if _, err := d.Token(); err != nil {
		return err
	}
	o.of = map[string]*form{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		f := &form{}
		if err := d.Decode(f); err != nil {
			return err
		}
		o.keys, o.of[key.(string)] = append(o.keys, key.(string)), f
	}
	return nil
}

// A document is the schema, in which keys are looked up.
type document struct {
	form
	Definitions map[string]*form
}

func mustParseSchema(t *testing.T) *document {
	t.Helper()
	d := &document{}
	if err := json.Unmarshal(mustMakeSchema(t), d); err != nil {
		t.Fatal(err)
	}
	return d
}

// forms returns the form with all that it refers to.
func (d *document) forms(f *form) []*form {
	all := []*form{f}
	if f.Ref != "" {
		all = append(all, d.forms(d.Definitions[strings.TrimPrefix(f.Ref, "#/definitions/")])...)
	}
	for _, other := range slices.Concat(f.AllOf, f.AnyOf) {
		all = append(all, d.forms(other)...)
	}
	return all
}

// at returns the form of a path: keys, and [] for the items of a list; nil if there is none.
func (d *document) at(path []string) *form {
	f := &d.form
	for _, part := range path {
		if f = d.inside(f, part); f == nil {
			return nil
		}
	}
	return f
}

func (d *document) inside(f *form, part string) *form {
	var others *form
	for _, one := range d.forms(f) {
		switch of := one.Properties.of[part]; {
		case of != nil:
			return of
		case part == "[]" && one.Items != nil:
			return one.Items
		case strings.HasPrefix(string(one.Others), "{"):
			others = &form{}
			if json.Unmarshal(one.Others, others) != nil {
				return nil
			}
		}
	}
	return others
}

// keys returns the keys of a section, in the order of its fields.
func (d *document) keys(f *form) (keys []string) {
	for _, one := range d.forms(f) {
		keys = append(keys, one.Properties.keys...)
	}
	return keys
}

// short returns what documents have of a description.
func (f *form) short() string {
	text, _, _ := strings.Cut(f.Description, "\n\n")
	return text
}

// keyLine is a line of the example with a key, which may be commented out.
var keyLine = regexp.MustCompile(`^( *)#?(- )?("[^"]+"|[A-Za-z_][\w-]*):(?: +(.*?))??( +# .*)?$`)

// defaultOf is the last sentence of a text that tells the default.
var defaultOf = regexp.MustCompile(` Default:? ([^ ]+)\.$`)

// commented returns the example with the comments of the fields. A comment of one # directly above a key of
// the schema, or behind the key, is that of its field; prose has two. missing are the keys whose field has no
// comment in the file.
func (d *document) commented(text string) (made string, missing []string) {
	type section struct {
		column int
		path   []string
	}
	var out []string
	stack := []section{{-1, nil}}
	has := map[string]bool{} // by the comment of the field
	for line := range strings.SplitSeq(text, "\n") {
		m := keyLine.FindStringSubmatch(line)
		if m == nil {
			out = append(out, line)
			continue
		}
		column := len(m[1])
		for stack[len(stack)-1].column >= column {
			stack = stack[:len(stack)-1]
		}
		if m[2] != "" {
			stack = append(stack, section{column, slices.Concat(stack[len(stack)-1].path, []string{"[]"})})
			column += len(m[2])
		}
		path := slices.Concat(stack[len(stack)-1].path, []string{strings.Trim(m[3], `"`)})
		stack = append(stack, section{column, path})
		f := d.at(path)
		if f == nil || f.Description == "" {
			out = append(out, line)
			continue
		}
		comment := f.short()
		if known, seen := has[comment]; !known || !seen {
			has[comment] = false
		}
		above := 0
		for above < len(out) && strings.HasPrefix(out[len(out)-1-above], m[1]+"# ") {
			above++
		}
		if above == 0 && m[5] == "" {
			out = append(out, line)
			continue
		}
		has[comment] = true
		if dflt := defaultOf.FindStringSubmatch(comment); dflt != nil && dflt[1] == m[4] {
			comment = strings.TrimSuffix(comment, dflt[0])
			comment = strings.TrimSuffix(comment, ".") + "."
		}
		out = out[:len(out)-above]
		if behind := behind(comment); m[5] != "" {
			key := strings.TrimSuffix(line, m[5])
			space := m[5][:strings.Index(m[5], "#")]
			if whole := key + space + "# " + behind; utf8.RuneCountInString(whole) <= columns {
				out = append(out, whole)
				continue
			}
			line = key
		}
		out = append(out, wrap(comment, m[1]+"# ")...)
		out = append(out, line)
	}
	for comment, commented := range has {
		if !commented {
			missing = append(missing, comment)
		}
	}
	slices.Sort(missing)
	return strings.Join(out, "\n"), missing
}

// behind returns a comment as it stands behind a key: a part of a sentence, if it is only one.
func behind(comment string) string {
	if strings.Contains(comment, ". ") {
		return comment
	}
	first, size := utf8.DecodeRuneInString(comment)
	word, _, _ := strings.Cut(comment[size:], " ")
	if word == strings.ToLower(word) && !strings.HasPrefix(comment, "Junction") {
		comment = string(unicode.ToLower(first)) + comment[size:]
	}
	return strings.TrimSuffix(comment, ".")
}

// wrap breaks a text into lines of a document.
func wrap(text, prefix string) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if longer := line + " " + word; line != "" && utf8.RuneCountInString(prefix+longer) > columns+1 {
			lines, line = append(lines, prefix+strings.TrimSpace(line)), ""
		}
		line += " " + word
	}
	return append(lines, prefix+strings.TrimSpace(line))
}
