package policy

import (
	"regexp/syntax"
	"slices"
	"unicode"
)

// This file compares two patterns: whether some text matches both, and whether one matches every
// text of the other.

// A token is one step of a glob: a character, star or one.
type token rune

const (
	star token = -1 - iota // any run of characters
	one                    // one character
)

// tokens returns the steps of the glob.
func (g glob) tokens() []token {
	var all []token
	for i, seg := range g.segments {
		if i > 0 {
			all = append(all, star)
		}
		for k, piece := range seg {
			if k > 0 {
				all = append(all, one)
			}
			all = append(all, characters(piece)...)
		}
	}
	return inOrder(all)
}

func characters(s string) []token {
	all := make([]token, 0, len(s))
	for _, r := range s {
		all = append(all, token(r))
	}
	return all
}

// inOrder normalises each run of stars and question marks: the question marks, then one star.
func inOrder(all []token) []token {
	kept := all[:0]
	stars := false
	for _, t := range all {
		if t == star {
			stars = true
			continue
		}
		if t != one && stars {
			kept, stars = append(kept, star), false
		}
		kept = append(kept, t)
	}
	if stars {
		kept = append(kept, star)
	}
	return kept
}

// meet reports whether some text matches both.
func meet(a, b []token) bool { return compare(a, b, true) }

// includes reports whether every text that matches b matches a.
func includes(a, b []token) bool { return compare(a, b, false) }

// compare works backwards through both: can[j] is whether the rest of a after i fits the rest of b
// after j. A star of a takes any tokens of b; a star of b takes tokens of a only if mutual.
func compare(a, b []token, mutual bool) bool {
	can, below := make([]bool, len(b)+1), make([]bool, len(b)+1)
	for i := len(a); i >= 0; i-- {
		can, below = below, can
		for j := len(b); j >= 0; j-- {
			switch {
			case i == len(a) && j == len(b):
				can[j] = true
			case i < len(a) && a[i] == star:
				can[j] = below[j] || j < len(b) && can[j+1]
			case j < len(b) && b[j] == star:
				can[j] = mutual && (can[j+1] || i < len(a) && below[j])
			case i < len(a) && j < len(b):
				can[j] = below[j+1] && (a[i] == b[j] || a[i] == one || mutual && b[j] == one)
			default:
				can[j] = false
			}
		}
	}
	return can[0]
}

// after returns the possible rests of a after it has matched text.
func after(a []token, text string) (all [][]token) {
	at := []int{0}
	for _, c := range characters(text) {
		var next []int
		for _, i := range at {
			for ; i < len(a) && a[i] == star; i++ {
				next = append(next, i)
			}
			if i < len(a) && (a[i] == c || a[i] == one) {
				next = append(next, i+1)
			}
		}
		slices.Sort(next)
		at = slices.Compact(next)
	}
	for _, i := range at {
		all = append(all, a[i:])
	}
	return all
}

// mayMeet reports whether some text may match both conditions.
func (c *condition) mayMeet(o *condition) bool {
	return slices.ContainsFunc(c.any, func(t test) bool {
		return slices.ContainsFunc(o.any, func(u test) bool { return t.mayMeet(&u) })
	})
}

// mayMeet reports whether some text may match both tests. False is certain; true is not.
func (t *test) mayMeet(o *test) bool {
	if text, ok := t.literal(); ok {
		return o.match(text)
	}
	if text, ok := o.literal(); ok {
		return t.match(text)
	}
	return slices.ContainsFunc(t.shapes(), func(a []token) bool {
		return slices.ContainsFunc(o.shapes(), func(b []token) bool { return meet(a, b) })
	})
}

// literal returns the only text that the test matches, or false if there may be others.
func (t *test) literal() (string, bool) {
	if t.re != nil {
		return "", false
	}
	return t.glob.literal()
}

// shapes returns globs, at least one of which matches each text that the test matches.
func (t *test) shapes() (all [][]token) {
	if t.re == nil {
		return [][]token{t.glob.tokens()}
	}
	re, err := syntax.Parse(t.re.String(), syntax.Perl)
	if err != nil {
		return [][]token{{star}}
	}
	for _, s := range shapesOf(re) {
		tokens := s.tokens
		if !s.begin {
			tokens = slices.Concat([]token{star}, tokens)
		}
		if !s.end {
			tokens = append(slices.Clip(tokens), star)
		}
		all = append(all, inOrder(slices.Clone(tokens)))
	}
	return all
}

// A shape is a glob for the matches of an expression, and whether they are anchored at the
// beginning or the end of the text.
type shape struct {
	tokens     []token
	begin, end bool
}

// maxShapes limits the globs for one expression.
const maxShapes = 32

func shapesOf(re *syntax.Regexp) (all []shape) {
	switch re.Op {
	case syntax.OpNoMatch:
		return nil
	case syntax.OpBeginText:
		return []shape{{begin: true}}
	case syntax.OpEndText:
		return []shape{{end: true}}
	case syntax.OpEmptyMatch, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return []shape{{}}
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return []shape{{tokens: []token{one}}}
	case syntax.OpLiteral:
		s := shape{}
		for _, r := range re.Rune {
			t := token(r)
			if re.Flags&syntax.FoldCase != 0 && unicode.SimpleFold(r) != r {
				t = one
			}
			s.tokens = append(s.tokens, t)
		}
		return []shape{s}
	case syntax.OpCapture:
		return shapesOf(re.Sub[0])
	case syntax.OpQuest:
		all = append(shapesOf(re.Sub[0]), shape{})
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			all = append(all, shapesOf(sub)...)
		}
	case syntax.OpConcat:
		all = []shape{{}}
		for _, sub := range re.Sub {
			var longer []shape
			behind := shapesOf(sub)
			for _, x := range all {
				for _, y := range behind {
					longer = append(longer, x.then(y))
				}
			}
			if all = longer; len(all) > maxShapes {
				break
			}
		}
	default: // repetitions
		return []shape{{tokens: []token{star}}}
	}
	if len(all) > maxShapes {
		return []shape{{tokens: []token{star}}}
	}
	return all
}

// then returns the shape of x followed by y. It drops anchors in the middle.
func (x shape) then(y shape) shape {
	return shape{
		tokens: slices.Concat(x.tokens, y.tokens),
		begin:  x.begin || y.begin && len(x.tokens) == 0,
		end:    y.end || x.end && len(y.tokens) == 0,
	}
}
