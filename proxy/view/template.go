package view

import (
	"strings"

	"github.com/yosida95/uritemplate/v3"
)

// Expansion is a parsed URI template (RFC 6570) of which only some variables may be known.
type Expansion []templatePart

// templatePart is a literal, or an expression if it has variables.
type templatePart struct {
	literal   string
	operator  string
	Variables []string // with their modifiers
}

// ParseTemplate returns the parts of a URI template; false if the text is no URI template.
func ParseTemplate(text string) (Expansion, bool) {
	if _, err := uritemplate.New(text); err != nil {
		return nil, false
	}
	var parts Expansion
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
		p.Variables = strings.Split(inside, ",")
		parts = append(parts, p)
	}
	return parts, true
}

// VariableName returns the name of a variable without its modifiers.
func VariableName(variable string) string {
	name, _, _ := strings.Cut(strings.TrimSuffix(variable, "*"), ":")
	return name
}

// Has reports whether the template has a variable of that name.
func (e Expansion) Has(name string) bool {
	for _, p := range e {
		for _, v := range p.Variables {
			if VariableName(v) == name {
				return true
			}
		}
	}
	return false
}

// Expand returns the common beginning of all expansions of the template with these values, and
// whether it is the whole expansion. If last is the name of a variable, Expand stops after its
// first occurrence, and reached reports whether it came so far.
func (e Expansion) Expand(values map[string]string, last string) (text string, whole, reached bool) {
	var b strings.Builder
	for _, p := range e {
		if p.Variables == nil {
			b.WriteString(p.literal)
			continue
		}
		known := 0
		for ; known < len(p.Variables) && !reached; known++ {
			name := VariableName(p.Variables[known])
			if _, ok := values[name]; !ok {
				break
			}
			reached = last != "" && name == last
		}
		if known > 0 {
			b.WriteString(p.expression(known, values))
		}
		if reached || known < len(p.Variables) {
			return b.String(), false, reached
		}
	}
	return b.String(), true, reached
}

// expression expands the first n variables of an expression.
func (p *templatePart) expression(n int, values map[string]string) string {
	t, err := uritemplate.New("{" + p.operator + strings.Join(p.Variables[:n], ",") + "}")
	if err != nil {
		return "" // cannot happen: ParseTemplate has accepted the expression
	}
	given := uritemplate.Values{}
	for _, v := range p.Variables[:n] {
		given.Set(VariableName(v), uritemplate.String(values[VariableName(v)]))
	}
	text, err := t.Expand(given)
	if err != nil {
		return ""
	}
	return text
}

// literals returns the texts around the expressions of a URI template: one more than there are
// expressions.
func literals(text string) []string {
	var list []string
	for {
		before, after, found := strings.Cut(text, "{")
		_, rest, closed := strings.Cut(after, "}")
		if !found || !closed {
			return append(list, text)
		}
		list, text = append(list, before), rest
	}
}

// matches reports whether the URI can be an expansion of the template with these literals. An
// expression matches any text, so matches may return true for a wrong owner but not false for the
// right one. It adds the searched bytes to steps.
func matches(literals []string, uri string, steps *int) bool {
	last := len(literals) - 1
	if last == 0 {
		return uri == literals[0]
	}
	rest, ok := strings.CutPrefix(uri, literals[0])
	for _, l := range literals[1:last] {
		if ok {
			*steps += len(rest)
			_, rest, ok = strings.Cut(rest, l)
		}
	}
	return ok && strings.HasSuffix(rest, literals[last])
}
