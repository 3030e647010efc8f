// Package template puts the arguments of a call into texts with placeholders:
//
//	{{name}}      the value of the argument
//	{{name...}}   each item of a list; in a list of arguments, one argument for each item
//	\{{name}}     the text {{name}} itself
//
// A placeholder has a name of letters, digits, _ and -. All other braces are plain text, so that
// the templates of other programs, such as {{.Names}}, need no escape. Values are inserted as they
// are and never parsed again.
package template

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strings"
)

// A Template is a text with placeholders. The zero value is the empty text.
type Template struct {
	parts []part
}

// part is a piece of text, or a placeholder if name is set.
type part struct {
	text, name string
	spread     bool
}

var placeholder = regexp.MustCompile(`\\?\{\{\s*([A-Za-z_][A-Za-z0-9_-]*)(\.\.\.)?\s*\}\}`)

// Parse parses a template. Every text is a valid template.
func Parse(s string) Template {
	var t Template
	if s != "" && !strings.Contains(s, "{{") { // the pattern takes long for a large text
		return Template{[]part{{text: s}}}
	}
	end := 0
	text := func(s string) {
		if n := len(t.parts); n > 0 && t.parts[n-1].name == "" {
			t.parts[n-1].text += s
		} else if s != "" {
			t.parts = append(t.parts, part{text: s})
		}
	}
	for _, m := range placeholder.FindAllStringSubmatchIndex(s, -1) {
		text(s[end:m[0]])
		end = m[1]
		if s[m[0]] == '\\' {
			text(s[m[0]+1 : m[1]])
			continue
		}
		t.parts = append(t.parts, part{name: s[m[2]:m[3]], spread: m[4] >= 0})
	}
	text(s[end:])
	return t
}

// Names returns the names of the placeholders, in their order.
func (t Template) Names() []string {
	var names []string
	for _, p := range t.parts {
		if p.name != "" {
			names = append(names, p.name)
		}
	}
	return names
}

// Constant returns the text of a template, and whether the template has no placeholders.
func (t Template) Constant() (text string, ok bool) { return t.Prefix(), len(t.Names()) == 0 }

// Map returns the template with its pieces of plain text replaced by f. Text that f returns is not
// parsed.
func (t Template) Map(f func(string) string) Template {
	parts := make([]part, len(t.parts))
	for i, p := range t.parts {
		if p.name == "" {
			p.text = f(p.text)
		}
		parts[i] = p
	}
	return Template{parts}
}

// Spread returns the name of the list that the template is repeated for; "" if there is none.
func (t Template) Spread() string {
	for _, p := range t.parts {
		if p.spread {
			return p.name
		}
	}
	return ""
}

func (t Template) first() (p part) {
	if len(t.parts) > 0 {
		p = t.parts[0]
	}
	return p
}

// Lead returns the name of the placeholder that the text begins with; "" if it begins with plain
// text.
func (t Template) Lead() string { return t.first().name }

// Prefix returns the text before the first placeholder.
func (t Template) Prefix() string { return t.first().text }

// Whole returns the name of the placeholder if the template is nothing else; otherwise "".
func (t Template) Whole() string {
	if len(t.parts) != 1 {
		return ""
	}
	return t.Lead()
}

// Missing returns the first placeholder that has no value; "" if there is none.
func (t Template) Missing(values map[string]any) string {
	for _, p := range t.parts {
		if p.name != "" && values[p.name] == nil {
			return p.name
		}
	}
	return ""
}

// Text returns the text with the values, which may be encoded by encode; nil leaves them as they
// are. A value that is missing is empty. A list with ... is its items, separated by commas.
func (t Template) Text(values map[string]any, encode func(string) string) string {
	var b strings.Builder
	for _, p := range t.parts {
		text := p.text
		if p.name != "" {
			text = valueOf(values[p.name], p.spread)
			if encode != nil {
				text = encode(text)
			}
		}
		b.WriteString(text)
	}
	return b.String()
}

// Each returns the text for each item of the list that Spread names, or one text if there is none.
func (t Template) Each(values map[string]any) []string {
	name := t.Spread()
	items, ok := values[name].([]any)
	if !ok {
		return []string{t.Text(values, nil)}
	}
	texts := make([]string, len(items))
	for i, item := range items {
		one := maps.Clone(values)
		one[name] = item
		texts[i] = t.Text(one, nil)
	}
	return texts
}

func valueOf(v any, spread bool) string {
	items, ok := v.([]any)
	if !spread || !ok {
		return Value(v)
	}
	texts := make([]string, len(items))
	for i, item := range items {
		texts[i] = Value(item)
	}
	return strings.Join(texts, ",")
}

// Value returns the text of a JSON value: a string as it is, nothing for null, and JSON for all
// others. Numbers keep their digits if they are of type json.Number.
func Value(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case json.Number:
		return v.String()
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
