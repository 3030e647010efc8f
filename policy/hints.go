package policy

import (
	"fmt"
	"strings"

	"junction/upstream/raw"
)

// This file selects tools by the hints of their definitions (annotations). Hints are the server's word
// about itself: a rule may name the upstreams that it trusts for them.

// Hints are what the annotations of a tool state, with the defaults of MCP for what they do not state.
// The zero value is a tool without annotations: it may change and destroy anything, everywhere.
type Hints struct {
	ReadOnly   bool // readOnlyHint: true
	Additive   bool // destructiveHint: false
	Idempotent bool // idempotentHint: true
	Closed     bool // openWorldHint: false
}

// HintsOf returns the hints of a tool. A value that is not a boolean, or that occurs twice, counts as
// missing. MCP gives destructiveHint and idempotentHint a meaning only if a tool changes something: a
// tool that only reads is neither destructive nor not idempotent. A tool that declares both
// readOnlyHint: true and destructiveHint: true is destructive.
func HintsOf(definition raw.Object) Hints {
	annotations, _ := definition.Object("annotations")
	is := func(hint, value string) bool {
		v, err := annotations.Get(hint)
		return err == nil && string(v) == value
	}
	h := Hints{ReadOnly: is("readOnlyHint", "true") && !is("destructiveHint", "true"),
		Additive: is("destructiveHint", "false"), Idempotent: is("idempotentHint", "true"),
		Closed: is("openWorldHint", "false")}
	h.Additive, h.Idempotent = h.Additive || h.ReadOnly, h.Idempotent || h.ReadOnly
	return h
}

// hintSet is a set of Hints: one bit for each value.
type hintSet uint16

// bit returns the set of these hints alone.
func (h Hints) bit() hintSet {
	at := 0
	for i, is := range [...]bool{h.ReadOnly, h.Additive, h.Idempotent, h.Closed} {
		if is {
			at |= 1 << i
		}
	}
	return 1 << at
}

// allHints are the values that HintsOf returns.
var allHints = func() (all hintSet) {
	for i := range 16 {
		h := Hints{i&1 != 0, i&2 != 0, i&4 != 0, i&8 != 0}
		if !h.ReadOnly || h.Additive && h.Idempotent {
			all |= h.bit()
		}
	}
	return all
}()

// byHints is the compiled annotations of a selector. A nil byHints selects every item.
type byHints struct {
	set     hintSet
	trusted Globs // nil: all upstreams
	of      *Annotations
}

func compileHints(c *Annotations) *byHints {
	if c == nil {
		return nil
	}
	r := &byHints{trusted: CompileGlobs(c.Trusted), of: c}
	for i := range 16 {
		h := Hints{i&1 != 0, i&2 != 0, i&4 != 0, i&8 != 0}
		fits := h.bit()&allHints != 0
		for _, f := range c.fields() {
			fits = fits && (f.want == nil || *f.want == f.of(h))
		}
		if fits {
			r.set |= h.bit()
		}
	}
	return r
}

// at returns the hints of an upstream's tools that the rule selects. The tools of an upstream that is
// not trusted have no hints for the rule, so that it selects all of them or none.
func (r *byHints) at(upstream string) hintSet {
	switch {
	case r == nil, r.set&(Hints{}).bit() != 0 && !r.trusts(upstream):
		return allHints
	case !r.trusts(upstream):
		return 0
	}
	return r.set
}

func (r *byHints) trusts(upstream string) bool {
	return r.trusted == nil || r.trusted.matches(upstream)
}

// selects reports whether the annotations of a rule select an item. Only tools have hints.
func (r *byHints) selects(it *Item) bool {
	return r == nil || it.Kind == Tool && r.at(it.Upstream)&it.Hints.bit() != 0
}

// unmet returns why the annotations do not select a tool, and whether they would if the rule trusted the
// upstream.
func (r *byHints) unmet(it *Item) (why string, untrusted bool) {
	if r.set&it.Hints.bit() != 0 {
		return fmt.Sprintf("the hints of %s are not trusted (trusted: %s)", it.Upstream,
			strings.Join(r.of.Trusted, ", ")), true
	}
	var is []string
	for _, f := range r.of.fields() {
		if has := f.of(it.Hints); f.want != nil && *f.want != has {
			is = append(is, fmt.Sprintf("%s of the tool is %t", f.key, has))
		}
	}
	return strings.Join(is, ", "), false
}

// mayKind reports whether the annotations may select items of a kind at an upstream.
func (r *byHints) mayKind(k Kind, upstream string) bool {
	return r == nil || k == Tool && r.at(upstream) != 0
}

// hintField is one hint of a selector: its key, the wanted value, and the value in Hints.
type hintField struct {
	key  string
	want *bool
	of   func(Hints) bool
}

func (c *Annotations) fields() []hintField {
	return []hintField{
		{"readOnlyHint", c.ReadOnly, func(h Hints) bool { return h.ReadOnly }},
		{"destructiveHint", c.Destructive, func(h Hints) bool { return !h.Additive }},
		{"idempotentHint", c.Idempotent, func(h Hints) bool { return h.Idempotent }},
		{"openWorldHint", c.OpenWorld, func(h Hints) bool { return !h.Closed }},
	}
}

// text returns the wanted hints as in the file, without trusted.
func (c *Annotations) text() string {
	if c == nil {
		return ""
	}
	text := ""
	for _, f := range c.fields() {
		if f.want == nil {
			continue
		}
		if text != "" {
			text += ", "
		}
		text += f.key + ": "
		if *f.want {
			text += "true"
		} else {
			text += "false"
		}
	}
	return "annotations: { " + text + " }"
}

// annotations checks the annotations of a selector with this verdict.
func (v *validator) annotations(at string, verdict Verdict, s *Selector) {
	a := s.Annotations
	if a == nil {
		return
	}
	at += ".annotations"
	v.list(at+".trusted", a.Trusted, v.toolGlob)
	given := false
	for _, f := range a.fields() {
		given = given || f.want != nil
	}
	switch {
	case !given:
		v.bad(at, "names no hint; write one of readOnlyHint, destructiveHint, idempotentHint and openWorldHint, "+
			"such as { readOnlyHint: false }")
	case s.Prompts != nil || s.Resources != nil || s.Skills != nil:
		v.bad(at, "applies to tools, because nothing else has these hints; write a separate rule for prompts, "+
			"resources and skills")
	case compileHints(a).set == 0:
		v.bad(at, "selects no tool: by its hints, a read-only tool is idempotent and not destructive; remove a hint")
	case verdict.Allows() && a.Trusted == nil && s.Upstreams == nil:
		v.bad(at, "lets each server allow its own tools; name the upstreams whose hints you trust, such as "+
			`trusted: [files], or trusted: "*" for all`)
	}
}
