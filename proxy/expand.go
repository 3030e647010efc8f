package proxy

import (
	"strings"

	"github.com/yosida95/uritemplate/v3"
)

// expansion is a URI template (RFC 6570) in its parts, for templates of which only some variables
// are known.
type expansion []templatePart

// templatePart is a literal, or an expression if it has variables.
type templatePart struct {
	literal   string
	operator  string
	variables []string // with their modifiers
}

// parseTemplate returns the parts of a URI template; false if the text is no URI template.
func parseTemplate(text string) (expansion, bool) {
	if _, err := uritemplate.New(text); err != nil {
		return nil, false
	}
	var parts expansion
	for text != "" {
		before, after, _ := strings.Cut(text, "{")
		if before != "" {
			parts = append(parts, templatePart{literal: before})
		}
		inside, rest, _ := strings.Cut(after, "}")
		if text = rest; inside == "" {
			continue
		}
		p := templatePart{}
		if strings.ContainsRune("+#./;?&", rune(inside[0])) {
			p.operator, inside = inside[:1], inside[1:]
		}
		p.variables = strings.Split(inside, ",")
		parts = append(parts, p)
	}
	return parts, true
}

// variableName returns the name of a variable without its modifiers.
func variableName(variable string) string {
	name, _, _ := strings.Cut(strings.TrimSuffix(variable, "*"), ":")
	return name
}

// has reports whether the template has a variable of that name.
func (e expansion) has(name string) bool {
	for _, p := range e {
		for _, v := range p.variables {
			if variableName(v) == name {
				return true
			}
		}
	}
	return false
}

// expand returns what every expansion of the template with these values begins with, and whether
// that is all of it. If last is the name of a variable, expand stops behind the first occurrence of
// it, and reached reports whether it got so far.
func (e expansion) expand(values map[string]string, last string) (text string, whole, reached bool) {
	var b strings.Builder
	for _, p := range e {
		if p.variables == nil {
			b.WriteString(p.literal)
			continue
		}
		known := 0
		for ; known < len(p.variables) && !reached; known++ {
			name := variableName(p.variables[known])
			if _, ok := values[name]; !ok {
				break
			}
			reached = last != "" && name == last
		}
		if known > 0 {
			b.WriteString(p.expression(known, values))
		}
		if reached || known < len(p.variables) {
			return b.String(), false, reached
		}
	}
	return b.String(), true, reached
}

// expression expands the first n variables of an expression.
func (p *templatePart) expression(n int, values map[string]string) string {
	t, err := uritemplate.New("{" + p.operator + strings.Join(p.variables[:n], ",") + "}")
	if err != nil {
		return "" // parseTemplate has accepted the expression
	}
	given := uritemplate.Values{}
	for _, v := range p.variables[:n] {
		given.Set(variableName(v), uritemplate.String(values[variableName(v)]))
	}
	text, err := t.Expand(given)
	if err != nil {
		return ""
	}
	return text
}
