package schema

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// pattern is a compiled pattern of a schema. JSON Schema has the expressions of ECMA-262; Go has
// RE2, whose time is bounded. A pattern that RE2 cannot express makes its schema unusable, except
// for lookaheads at the beginning (^(?!\.)(?=.*[0-9])…), which many generators write: each of them
// becomes an expression of its own.
type pattern struct {
	source string
	yes    []*regexp.Regexp // all must match
	no     []*regexp.Regexp // none may match
	code   int              // instructions of all
}

func (p *pattern) String() string { return p.source }

// MatchString implements jsonschema.Regexp. Its steps are at most the bytes times the instructions.
func (p *pattern) MatchString(s string) bool {
	for _, re := range p.yes {
		if !re.MatchString(s) {
			return false
		}
	}
	for _, re := range p.no {
		if re.MatchString(s) {
			return false
		}
	}
	return true
}

// patterns compiles the patterns of one schema.
type patterns struct {
	known map[string]*pattern
	code  int // instructions of all
}

func newPatterns() *patterns { return &patterns{known: map[string]*pattern{}} }

// compile implements jsonschema.RegexpEngine. It bounds the instructions before Go compiles them: a
// pattern of 80 bytes may have 10,000.
func (all *patterns) compile(source string) (jsonschema.Regexp, error) {
	if p := all.known[source]; p != nil {
		return p, nil
	}
	if len(source) > maxPattern {
		return nil, fmt.Errorf("the pattern has more than %d bytes", maxPattern)
	}
	p := &pattern{source: source}
	rest := goSyntax(source)
	for {
		inner, negative, after, ok := lookahead(rest)
		if !ok {
			break
		}
		if err := p.add("^(?:"+inner+")", negative); err != nil {
			return nil, err
		}
		rest = "^" + after
	}
	if err := p.add(rest, false); err != nil {
		return nil, err
	}
	if all.code += p.code; all.code > maxAllCode {
		return nil, fmt.Errorf("the patterns together have more than %d instructions", maxAllCode)
	}
	all.known[source] = p
	return p, nil
}

func (p *pattern) add(expression string, negative bool) error {
	tree, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return err
	}
	if p.code += instructions(tree); p.code > maxPatternCode {
		return fmt.Errorf("the pattern has more than %d instructions", maxPatternCode)
	}
	re, err := regexp.Compile(expression)
	if err != nil {
		return err
	}
	if negative {
		p.no = append(p.no, re)
	} else {
		p.yes = append(p.yes, re)
	}
	return nil
}

// instructions returns about the size of the program of an expression. It stops above maxPatternCode.
func instructions(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)/8
	if re.Op == syntax.OpLiteral {
		n = len(re.Rune)
	}
	for _, sub := range re.Sub {
		if n += instructions(sub); n > maxPatternCode {
			return n
		}
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return n
}

// lookahead splits ^(?!inner)after and ^(?=inner)after. ok is false for all other expressions, if
// after has an alternative, to which the lookahead would not belong, and if after begins with a
// repetition of the lookahead.
func lookahead(expression string) (inner string, negative bool, after string, ok bool) {
	rest, ok := strings.CutPrefix(expression, "^(?")
	if !ok || rest == "" || rest[0] != '!' && rest[0] != '=' {
		return "", false, "", false
	}
	end, alternative := -1, false
	err := walk(rest, 1, func(i, depth int, c byte) {
		switch {
		case c == ')' && depth == 0 && end < 0:
			end = i
		case c == '|' && depth == -1:
			alternative = true
		}
	})
	if err != nil || end < 0 || alternative || end+1 < len(rest) && strings.IndexByte("*+?{", rest[end+1]) >= 0 {
		return "", false, "", false
	}
	return rest[1:end], rest[0] == '!', rest[end+1:], true
}

// walk calls f for each byte of an expression that is neither escaped nor in a class, with the depth
// of its group. The depth is below zero after a group that began before the expression.
func walk(expression string, from int, f func(i, depth int, c byte)) error {
	depth, class := 0, false
	for i := from; i < len(expression); i++ {
		switch c := expression[i]; {
		case c == '\\':
			i++
		case class:
			class = c != ']'
		case c == '[':
			class = true
			// ] is a member as the first of a class in Go; in ECMA-262 the class is empty
			if strings.HasPrefix(expression[i+1:], "]") || strings.HasPrefix(expression[i+1:], "^]") {
				return errors.New("an empty class")
			}
		case c == '(':
			f(i, depth, c)
			depth++
		case c == ')':
			f(i, depth, c)
			depth--
		default:
			f(i, depth, c)
		}
	}
	return nil
}

// goSyntax rewrites the escapes of ECMA-262 that Go writes in another way: \uXXXX and \u{X}.
func goSyntax(source string) string {
	if !strings.Contains(source, `\u`) {
		return source
	}
	var b strings.Builder
	for i := 0; i < len(source); i++ {
		if source[i] != '\\' || i+1 == len(source) {
			b.WriteByte(source[i])
			continue
		}
		rest := source[i+2:]
		switch {
		case source[i+1] == 'u' && strings.HasPrefix(rest, "{"):
			b.WriteString(`\x`)
		case source[i+1] == 'u' && len(rest) >= 4:
			b.WriteString(`\x{` + rest[:4] + `}`)
			i += 4
		default:
			b.WriteString(source[i : i+2])
		}
		i++
	}
	return b.String()
}
