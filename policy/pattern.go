package policy

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"junction/upstream/raw"
)

// A glob is a pattern for a whole text. Matching takes time linear in the text, except for segments
// with a ?: the segments between stars are searched one after the other.
type glob struct {
	segments []segment // the parts between stars; one if there is no star
}

// A segment is the literal pieces between question marks; one if there is none.
type segment []string

// globProblem returns what is wrong with a glob, or "".
func globProblem(s string) string {
	if n := len(s) - len(strings.TrimRight(s, `\`)); n%2 == 1 {
		return `ends in a single \; write \\ for a backslash`
	}
	return ""
}

func compileGlob(s string) glob {
	var g glob
	var seg segment
	var piece []byte
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s):
			i++
			piece = append(piece, s[i])
		case c == '?':
			seg, piece = append(seg, string(piece)), nil
		case c == '*':
			g.segments = append(g.segments, append(seg, string(piece)))
			seg, piece = nil, nil
		default:
			piece = append(piece, c)
		}
	}
	g.segments = append(g.segments, append(seg, string(piece)))
	return g
}

// literal returns the only text that the glob matches, or false if there are others.
func (g glob) literal() (string, bool) {
	if len(g.segments) == 1 && len(g.segments[0]) == 1 {
		return g.segments[0][0], true
	}
	return "", false
}

// everything reports whether the glob consists of stars.
func (g glob) everything() bool {
	for _, s := range g.segments {
		if len(s) != 1 || s[0] != "" {
			return false
		}
	}
	return len(g.segments) > 1
}

func (g glob) match(s string) bool {
	head, last := g.segments[0], len(g.segments)-1
	n := head.begin(s)
	if n < 0 || last == 0 {
		return n == len(s)
	}
	s = s[n:]
	for _, seg := range g.segments[1:last] {
		if n = seg.find(s); n < 0 {
			return false
		}
		s = s[n:]
	}
	return g.segments[last].end(s)
}

// begin returns the length of the segment at the beginning of s, or -1.
func (seg segment) begin(s string) int {
	n := 0
	for i, piece := range seg {
		if i > 0 {
			_, size := utf8.DecodeRuneInString(s[n:])
			if size == 0 {
				return -1
			}
			n += size
		}
		if !strings.HasPrefix(s[n:], piece) {
			return -1
		}
		n += len(piece)
	}
	return n
}

// find returns the end of the first match of the segment in s, or -1.
func (seg segment) find(s string) int {
	if len(seg) == 1 {
		if i := strings.Index(s, seg[0]); i >= 0 {
			return i + len(seg[0])
		}
		return -1
	}
	for i := 0; ; {
		if n := seg.begin(s[i:]); n >= 0 {
			return i + n
		}
		_, size := utf8.DecodeRuneInString(s[i:])
		if size == 0 {
			return -1
		}
		i += size
	}
}

// end reports whether s ends in the segment.
func (seg segment) end(s string) bool {
	if len(seg) == 1 {
		return strings.HasSuffix(s, seg[0])
	}
	for i := len(seg) - 1; i >= 0; i-- {
		var ok bool
		if s, ok = strings.CutSuffix(s, seg[i]); !ok {
			return false
		}
		if i > 0 {
			_, size := utf8.DecodeLastRuneInString(s)
			if size == 0 {
				return false
			}
			s = s[:len(s)-size]
		}
	}
	return true
}

// A reading is the arguments of one call, with a cache of values that were read, since rules mostly
// read the same ones.
type reading struct {
	arguments raw.Object
	texts     recent[string]
	objects   recent[raw.Object]
}

// recent caches the latest parsed values.
type recent[T any] struct {
	values [4]struct {
		at   *byte // the first byte of the value
		what T
	}
	n int // number of values parsed
}

// get returns a value of the arguments, which parse reads.
func (r *recent[T]) get(value []byte, parse func([]byte) (T, error)) (T, error) {
	for i := range r.values {
		if r.values[i].at == &value[0] {
			return r.values[i].what, nil
		}
	}
	what, err := parse(value)
	if err == nil {
		next := &r.values[r.n%len(r.values)]
		next.at, next.what = &value[0], what
		r.n++
	}
	return what, err
}

// A condition is one entry of a where.
type condition struct {
	name string   // as in the file
	path []string // the argument, then members and indices below it
	any  []test
}

// A test is one glob or one expression.
type test struct {
	text string // as in the file, for explanations and comparison
	glob glob
	re   *regexp.Regexp // nil for a glob
}

func (t *test) match(s string) bool {
	if t.re != nil {
		return t.re.MatchString(s)
	}
	return t.glob.match(s)
}

// each is the path segment that stands for every element.
const each = "*"

// pointerProblem returns what is wrong with the name of a condition if it is a JSON pointer (RFC
// 6901), or "".
func pointerProblem(name string) string {
	if !strings.HasPrefix(name, "/") {
		return ""
	}
	for i := range len(name) {
		if name[i] == '~' && (i+1 == len(name) || name[i+1] != '0' && name[i+1] != '1') {
			return "is not a JSON pointer; write ~0 for a ~ in a name, and ~1 for a slash"
		}
	}
	if name == "/"+each || strings.HasPrefix(name, "/"+each+"/") {
		return "has * instead of the name of an argument; name the argument"
	}
	return ""
}

func compileCondition(name string, p Pattern, v Verdict) condition {
	c := condition{name: name, path: []string{name}}
	if pointer, ok := strings.CutPrefix(name, "/"); ok {
		c.path = strings.Split(pointer, "/")
		for i, s := range c.path {
			c.path[i] = strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~")
		}
	}
	for _, a := range p {
		if a.Re != "" {
			c.any = append(c.any, test{text: a.Re, re: regexp.MustCompile(a.Re)})
			continue
		}
		t := test{text: a.Glob, glob: compileGlob(a.Glob)}
		c.any = append(c.any, t)
		// 22, 22.0 and 2.2e1 are the same number, in the file and in the call.
		if s, ok := t.glob.literal(); ok && v.doubts() {
			if n, ok := number(s); ok && n != s {
				c.any = append(c.any, test{text: a.Glob, glob: glob{[]segment{{n}}}})
			}
		}
	}
	return c
}

// holds reports whether the condition of a rule with the verdict v holds. The error is
// raw.ErrAmbiguous if it must read an ambiguous value.
func (c *condition) holds(a *reading, v Verdict) (bool, error) {
	value, err := a.arguments.Get(c.path[0])
	if err != nil {
		return false, unlessAbsent(err)
	}
	return c.below(a, value, c.path[1:], v)
}

// below follows the rest of the path.
func (c *condition) below(a *reading, value []byte, path []string, v Verdict) (bool, error) {
	if len(path) == 0 {
		return c.judge(a, value, v)
	}
	unclear := v.doubts() // a value that cannot be judged is not allowed, and is denied
	switch value[0] {
	case 'n':
		return false, nil
	case '{':
		if path[0] == each {
			return unclear, nil
		}
		o, err := a.objects.get(value, raw.Parse)
		if err != nil {
			return false, err
		}
		if value, err = o.Get(path[0]); err != nil {
			return false, unlessAbsent(err)
		}
		return c.below(a, value, path[1:], v)
	case '[':
		elements, err := raw.ElementsWithin(value, raw.MaxMembers)
		if err != nil {
			return false, err
		}
		if path[0] != each {
			i, ok := index(path[0])
			if !ok {
				return unclear, nil
			}
			if i >= len(elements) {
				return false, nil
			}
			return c.below(a, elements[i], path[1:], v)
		}
		for _, e := range elements {
			if ok, err := c.below(a, e, path[1:], v); err != nil || ok == v.doubts() {
				return ok && err == nil, err
			}
		}
		return !v.doubts() && len(elements) > 0, nil
	}
	return unclear, nil
}

// judge compares the value at the end of the path.
func (c *condition) judge(a *reading, value []byte, v Verdict) (bool, error) {
	switch value[0] {
	case '"':
		s, err := a.texts.get(value, raw.String)
		if err != nil {
			return false, err
		}
		// In C a text ends at its first NUL, so parsers may disagree.
		if begin, _, cut := strings.Cut(s, "\x00"); cut {
			return v.doubts() && (c.match(s) || c.match(begin)), nil
		}
		return c.match(s), nil
	case 'n':
		return false, nil
	}
	if !v.doubts() {
		return false, nil
	}
	s := string(value)
	switch value[0] {
	case '{', '[':
		return true, nil
	case 't', 'f':
		return c.match(s), nil
	}
	if c.match(s) {
		return true, nil
	}
	n, ok := number(s)
	return !ok || c.match(n), nil // a number that most parsers reject cannot be judged
}

func (c *condition) match(s string) bool {
	return slices.ContainsFunc(c.any, func(t test) bool { return t.match(s) })
}

// number returns the normalised form of a JSON number; false if most parsers would reject it.
func number(s string) (string, bool) {
	if s == "" || s[0] != '-' && (s[0] < '0' || s[0] > '9') {
		return "", false
	}
	if _, err := raw.Scan([]byte(s), 1); err != nil {
		return "", false
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return "", false
	}
	format := byte('f')
	switch a := math.Abs(f); {
	case a == 0:
		return "0", true
	case a < 1e-6 || a >= 1e21:
		format = 'e'
	}
	return strconv.FormatFloat(f, format, -1, 64), true
}

// index parses an index of an element (RFC 6901, section 4).
func index(s string) (int, bool) {
	if len(s) > 9 || len(s) > 1 && s[0] == '0' {
		return 0, false
	}
	i, err := strconv.ParseUint(s, 10, 64)
	return int(i), err == nil
}

func unlessAbsent(err error) error {
	if err == raw.ErrAbsent {
		return nil
	}
	return err
}

// covers reports whether c, of a deny, holds whenever d, of an allow or ask, does. It recognises
// only simple cases: the same patterns or more, and *.
func (c *condition) covers(d *condition) bool {
	if !slices.Equal(c.path, d.path) {
		return false
	}
	if slices.ContainsFunc(c.any, func(t test) bool { return t.re == nil && t.glob.everything() }) {
		return true
	}
	for _, t := range d.any {
		if !slices.ContainsFunc(c.any,
			func(u test) bool { return u.text == t.text && (u.re == nil) == (t.re == nil) }) {
			return false
		}
	}
	return true
}
