package schema

import (
	"context"
	"fmt"
	"math/big"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Bounds of a check. A step is about one comparison; 10 million steps take up to half a second.
const (
	maxValues        = 100_000 // in the arguments
	maxArgumentDepth = 1000
	maxSteps         = 10_000_000
	maxDepth         = 2000   // of nested subschemas and references
	lightSteps       = 20_000 // from which on a check waits for its turn
)

// A LimitError says which bound the arguments, or their check, exceed. They were not checked.
type LimitError struct {
	Limit string // what is counted
	Most  int
}

func (e *LimitError) Error() string { return fmt.Sprintf("more than %d %s", e.Most, e.Limit) }

// check compares the values of a call with a schema. It follows the library's compiled schema, and
// not the library's own validation, which makes an error for each item before it returns, and
// cannot be stopped.
type check struct {
	ctx      context.Context
	cost     Cost
	args     *values
	steps    int
	most     int // steps
	lookedAt int // steps at the last look at ctx
	depth    int
	done     func()              // ends the turn; nil before it has begun
	clean    func(string) string // see Validator.Check
	err      error               // a *LimitError, the error of ctx or of cost; the result is then unknown
}

// spend counts steps before they are made. It returns false if the check has to stop.
func (c *check) spend(n int) bool {
	if c.steps += n; c.err != nil || c.steps-c.lookedAt < 1024 && c.steps < c.most {
		return c.err == nil
	}
	c.lookedAt = c.steps
	switch {
	case c.steps >= c.most:
		c.err = &LimitError{"steps of the check", c.most}
	case c.ctx.Err() != nil:
		c.err = context.Cause(c.ctx)
	case c.done == nil && c.steps > lightSteps && c.cost != nil:
		c.done, c.err = c.cost.Turn(c.ctx)
	}
	return c.err == nil
}

// end ends the turn.
func (c *check) end() {
	if c.done != nil {
		c.done()
	}
}

// marks are the values of an array or object that some subschema has evaluated, one bit for each
// position, for unevaluatedItems and unevaluatedProperties.
type marks []uint64

// mark returns marks for the values of an array or object; nil if the check has to stop. There may be
// marks for each level of subschemas, so that their memory counts in steps.
func (c *check) mark(at int32) marks {
	n := int(c.args.nodes[at].children)
	if !c.spend(n / 4) {
		return nil
	}
	return make(marks, n/64+1)
}

func (m marks) set(i int) { m[i/64] |= 1 << (i % 64) }

func (m marks) has(i int) bool { return m[i/64]&(1<<(i%64)) != 0 }

func (m marks) add(other marks) {
	for i, bits := range other {
		m[i] |= bits
	}
}

// fits reports whether the value fits the schema. found collects the problems; nil stops at the
// first one. In seen, unless it is nil, fits marks what it has evaluated. If c.err is set, the result
// means nothing.
func (c *check) fits(s *jsonschema.Schema, at int32, found *problems, seen marks) bool {
	if !c.spend(1) {
		return false
	}
	if s.Bool != nil {
		return *s.Bool || found.add(c, at, "no value is allowed here")
	}
	if c.depth++; c.depth > maxDepth {
		c.err = &LimitError{"nested subschemas", maxDepth}
	}
	defer func() { c.depth-- }()
	if !c.spend(7) || !c.typed(s, at, found) {
		return false
	}
	if s.Ref != nil && s.DraftVersion < 2019 {
		return c.fits(s.Ref, at, found, seen)
	}
	own, rest := seen, c.rest(s, at)
	if rest != nil {
		if own = c.mark(at); own == nil {
			return false
		}
	}
	ok := c.referred(s, at, found, own)
	if ok || found.open() {
		switch c.args.nodes[at].kind {
		case objectKind:
			ok = c.object(s, at, found, own) && ok
		case arrayKind:
			ok = c.array(s, at, found, own) && ok
		case stringKind:
			ok = c.text(s, at, found) && ok
		case numberKind:
			ok = c.number(s, at, found) && ok
		}
	}
	if ok || found.open() {
		ok = c.combined(s, at, found, own) && ok
	}
	if (ok || found.open()) && rest != nil {
		ok = c.unevaluated(rest, at, found, own) && ok
		if seen != nil && ok {
			seen.add(own)
		}
	}
	return ok && c.err == nil
}

// typed checks the keywords that hold for every type. After a wrong type, no other keyword is
// checked.
func (c *check) typed(s *jsonschema.Schema, at int32, found *problems) bool {
	if s.Types != nil && !s.Types.IsEmpty() && !c.hasType(*s.Types, at) {
		return found.wrongType(c, at, s.Types.ToStrings())
	}
	if s.Const != nil && !c.equal(at, *s.Const) {
		return found.add(c, at, "must be %s", c.words([]any{*s.Const}))
	}
	if s.Enum == nil {
		return true
	}
	for _, v := range s.Enum.Values {
		if c.equal(at, v) {
			return true
		}
	}
	return found.add(c, at, "must be one of %s", c.words(s.Enum.Values))
}

func (c *check) hasType(types jsonschema.Types, at int32) bool {
	with := func(name string) bool {
		more := types
		more.Add(name)
		return more == types
	}
	kind := c.args.nodes[at].kind
	return with(kind.String()) || kind == numberKind && with("integer") && c.isInteger(at)
}

func (c *check) isInteger(at int32) bool {
	if n := c.args.bytes(at); !strings.ContainsAny(string(n), ".eE") {
		return true
	}
	return c.spend(numberSteps) && c.rat(at).IsInt()
}

// numberSteps are the steps for an exact number, of up to maxDigits digits.
const numberSteps = 100

func (c *check) rat(at int32) *big.Rat {
	n, ok := new(big.Rat).SetString(string(c.args.bytes(at)))
	if !ok {
		n = new(big.Rat) // impossible: the text was scanned
	}
	return n
}

// referred checks the targets of references.
func (c *check) referred(s *jsonschema.Schema, at int32, found *problems, seen marks) bool {
	ok := true
	targets := [...]*jsonschema.Schema{s.Ref, s.RecursiveRef, nil}
	if s.DynamicRef != nil {
		targets[2] = s.DynamicRef.Ref
	}
	for _, target := range targets {
		if target != nil && (ok || found.open()) {
			ok = c.fits(target, at, found, seen) && ok
		}
	}
	return ok
}

// text checks the keywords of strings.
func (c *check) text(s *jsonschema.Schema, at int32, found *problems) bool {
	if s.MinLength == nil && s.MaxLength == nil && s.Pattern == nil {
		return true
	}
	if !c.spend(readingSteps(c.args.bytes(at), c.args.nodes[at].escaped)) {
		return false
	}
	ok := true
	if n := c.args.length(at); s.MinLength != nil && n < *s.MinLength {
		ok = found.add(c, at, "must have at least %d characters, got %d", *s.MinLength, n)
	} else if s.MaxLength != nil && n > *s.MaxLength {
		ok = found.add(c, at, "must have at most %d characters, got %d", *s.MaxLength, n)
	}
	if s.Pattern != nil && (ok || found.open()) && !c.matches(s.Pattern, c.args.string(at)) {
		ok = found.add(c, at, "must match %s", short(c.shown(s.Pattern.String()), maxShownWords))
	}
	return ok
}

// readingSteps are the steps to read a string. Reading the escapes takes four times as long.
func readingSteps(quoted []byte, escaped bool) int {
	if escaped {
		return len(quoted) / 4
	}
	return len(quoted) / 16
}

// nameOf returns the name of a member.
func (c *check) nameOf(at int32) string {
	if !c.spend(readingSteps(c.args.quotedName(at), c.args.nodes[at].unclear)) {
		return ""
	}
	return c.args.nameOf(at)
}

// member returns the member of an object; 0 if there is none.
func (c *check) member(at int32, name string) int32 {
	if !c.spend((1 + min(int(c.args.nodes[at].children), fewMembers)) * (1 + len(name)/16)) {
		return 0
	}
	return c.args.member(at, name)
}

// matches matches a pattern: bytes times instructions, of which about four take a step.
func (c *check) matches(p jsonschema.Regexp, text string) bool {
	code := maxPatternCode
	if own, ok := p.(*pattern); ok {
		code = own.code
	}
	return c.spend((len(text)+1)*code/4+1) && p.MatchString(text)
}

// number checks the keywords of numbers.
func (c *check) number(s *jsonschema.Schema, at int32, found *problems) bool {
	if s.Minimum == nil && s.Maximum == nil && s.ExclusiveMinimum == nil && s.ExclusiveMaximum == nil &&
		s.MultipleOf == nil {
		return true
	}
	if !c.spend(5 * numberSteps) {
		return false
	}
	n, ok := c.rat(at), true
	for _, bound := range []struct {
		limit *big.Rat
		bad   func(order int) bool
		text  string
	}{
		{s.Minimum, func(o int) bool { return o < 0 }, "must be at least %s"},
		{s.Maximum, func(o int) bool { return o > 0 }, "must be at most %s"},
		{s.ExclusiveMinimum, func(o int) bool { return o <= 0 }, "must be more than %s"},
		{s.ExclusiveMaximum, func(o int) bool { return o >= 0 }, "must be less than %s"},
	} {
		if bound.limit != nil && bound.bad(n.Cmp(bound.limit)) {
			ok = found.add(c, at, bound.text, bound.limit.RatString())
		}
	}
	if s.MultipleOf != nil && s.MultipleOf.Sign() != 0 && !new(big.Rat).Quo(n, s.MultipleOf).IsInt() {
		ok = found.add(c, at, "must be a multiple of %s", s.MultipleOf.RatString())
	}
	return ok
}
