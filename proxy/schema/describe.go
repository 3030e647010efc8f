package schema

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"junction/upstream/raw"
	"junction/upstream/shell"
)

const (
	maxProblems   = 10
	maxForms      = 32 // of anyOf or oneOf that nearest compares
	maxShownName  = 60
	maxShownWords = 120
)

// problems are the first problems of the arguments. They omit the values: a value may be secret, and
// the caller has it. The nil value collects nothing.
type problems struct {
	list []problem
	more bool // there are others
}

type problem struct {
	text string
	at   int32
	want []string // the types, if the value has another type
}

// open reports whether more problems are looked for.
func (p *problems) open() bool { return p != nil && !p.more }

// add adds a problem of a value. It returns false, the result of the check that found it.
func (p *problems) add(c *check, at int32, format string, args ...any) bool {
	return p.put(c, problem{at: at}, func() string {
		return c.args.place(at) + ": " + fmt.Sprintf(format, args...)
	})
}

// put adds a problem unless there are too many.
func (p *problems) put(c *check, one problem, text func() string) bool {
	switch {
	case p == nil || !c.spend(100):
	case len(p.list) == maxProblems:
		p.more = true
	default:
		one.text = text()
		p.list = append(p.list, one)
	}
	return false
}

func (p *problems) wrongType(c *check, at int32, want []string) bool {
	return p.put(c, problem{at: at, want: want}, func() string {
		return c.args.place(at) + ": must be " + strings.Join(want, " or ") + ", got " + c.args.nodes[at].kind.String()
	})
}

// missing adds that an object lacks a member.
func (p *problems) missing(c *check, s *jsonschema.Schema, at int32, name string) bool {
	return p.put(c, problem{at: at}, func() string {
		at := c.args.under(at, c.shown(name))
		property := s.Properties[name]
		switch {
		case property == nil:
		case property.Types != nil && !property.Types.IsEmpty():
			return at + ": missing; must be " + strings.Join(property.Types.ToStrings(), " or ")
		case property.Enum != nil:
			return at + ": missing; must be one of " + c.words(property.Enum.Values)
		}
		return at + ": missing"
	})
}

// unknown adds that a schema has no such member.
func (p *problems) unknown(c *check, s *jsonschema.Schema, at int32) bool {
	return p.put(c, problem{at: at}, func() string {
		text := c.args.place(at) + ": unknown argument"
		if len(s.Properties) > 0 && c.spend(8*len(s.Properties)) {
			var names []string
			for n, name := range slices.Sorted(maps.Keys(s.Properties)) {
				if n > maxShownWords {
					break
				}
				names = append(names, c.shown(name))
			}
			text += "; there are " + short(strings.Join(names, ", "), maxShownWords)
		}
		return text
	})
}

// nearest adds the problems of a value that fits none of several forms. It lists all types if the
// value has another type, else the problems with the nearest form.
func (p *problems) nearest(c *check, forms []*jsonschema.Schema, at int32) bool {
	if p == nil || c.err != nil {
		return false
	}
	var types []string
	var best *problems
	for _, form := range forms[:min(len(forms), maxForms)] {
		own := &problems{}
		if c.fits(form, at, own, nil); c.err != nil {
			return false
		}
		if len(own.list) == 1 && own.list[0].want != nil && own.list[0].at == at {
			types = append(types, own.list[0].want...)
			continue // a form of another type
		}
		if best == nil || len(own.list) < len(best.list) {
			best = own
		}
	}
	switch {
	case best != nil:
		for _, one := range best.list {
			if len(forms) > 1 {
				one.text += " (in the nearest of several forms)"
			}
			p.put(c, problem{at: one.at}, func() string { return one.text })
		}
		return false
	case len(types) > 0:
		return p.wrongType(c, at, slices.Compact(types))
	}
	return p.add(c, at, "has none of the forms that are allowed")
}

// lines returns the problems, one line each.
func (p *problems) lines() []string {
	var lines []string
	for _, one := range p.list {
		lines = append(lines, one.text)
	}
	slices.Sort(lines)
	lines = slices.Compact(lines)
	switch {
	case len(lines) == 0:
		return []string{"the arguments: do not fit the schema"}
	case p.more:
		lines = append(lines, "and more")
	}
	return lines
}

// shown returns a text of the schema without what the caller must not read. It comes before each cut,
// because a part of such a text would not be found.
func (c *check) shown(text string) string {
	switch {
	case c.clean == nil:
		return text
	case !c.spend(len(text)):
		return "…"
	}
	return c.clean(text)
}

// words formats values of a schema and cuts a long list.
func (c *check) words(list []any) string {
	var b strings.Builder
	for i, v := range list {
		if b.Len() > maxShownWords {
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		switch v := v.(type) {
		case []any:
			b.WriteString("[…]")
		case map[string]any:
			b.WriteString("{…}")
		case string:
			v = c.shown(v)
			b.Write(raw.Quote(v[:min(len(v), 2*maxShownWords)]))
		case nil:
			b.WriteString("null")
		default: // a bool or a number
			b.WriteString(c.shown(fmt.Sprint(v)))
		}
	}
	return short(b.String(), maxShownWords)
}

// short cuts an untrusted text and makes invisible characters visible.
func short(s string, most int) string {
	if len(s) > most {
		for most > 0 && !utf8.RuneStart(s[most]) {
			most--
		}
		s = s[:most] + "…"
	}
	return shell.Visible(s)
}
