package schema

import (
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// object checks the keywords of objects.
func (c *check) object(s *jsonschema.Schema, at int32, found *problems, seen marks) bool {
	n, ok := int(c.args.nodes[at].children), true
	if s.MinProperties != nil && n < *s.MinProperties {
		ok = found.add(c, at, "must have at least %d members, got %d", *s.MinProperties, n)
	}
	if s.MaxProperties != nil && n > *s.MaxProperties {
		ok = found.add(c, at, "must have at most %d members, got %d", *s.MaxProperties, n)
	}
	for _, name := range s.Required {
		if !ok && !found.open() {
			return false
		}
		if c.member(at, name) == 0 {
			ok = found.missing(c, s, at, name)
		}
	}
	if s.Properties != nil || s.PatternProperties != nil || s.AdditionalProperties != nil {
		ok = c.members(s, at, found, seen) && ok
	}
	if s.PropertyNames != nil && (ok || found.open()) {
		ok = c.names(s.PropertyNames, at, found) && ok
	}
	return (ok || found.open()) && c.dependent(s, at, found, seen) && ok
}

// members checks the values of an object.
func (c *check) members(s *jsonschema.Schema, at int32, found *problems, seen marks) bool {
	ok, i := true, -1
	named := len(s.Properties)+len(s.PatternProperties) > 0
	for m := range c.args.each(at) {
		i++
		if !ok && !found.open() || !c.spend(1) {
			return false
		}
		name, known := "", false
		if named {
			name = c.nameOf(m)
		}
		if property := s.Properties[name]; named && property != nil {
			known = true
			ok = c.fits(property, m, found, nil) && ok
		}
		for p, property := range s.PatternProperties {
			if c.matches(p, name) {
				known = true
				ok = c.fits(property, m, found, nil) && ok
			}
		}
		if !known && s.AdditionalProperties != nil {
			known = true
			if allowed, isBool := s.AdditionalProperties.(bool); isBool && !allowed {
				ok = found.unknown(c, s, m)
			} else if other := subschema(s.AdditionalProperties); other != nil {
				ok = c.fits(other, m, found, nil) && ok
			}
		}
		if known && seen != nil {
			seen.set(i)
		}
	}
	return ok
}

// names checks the names of the members. The library compares a name as a string; here the name
// takes the place of a value for a moment.
func (c *check) names(s *jsonschema.Schema, at int32, found *problems) bool {
	ok := true
	for m := range c.args.each(at) {
		if !ok && !found.open() || !c.spend(1) {
			return false
		}
		n := &c.args.nodes[m]
		value := *n
		n.kind, n.start, n.end, n.escaped, n.children = stringKind, n.name, n.nameEnd, n.unclear, 0
		fits := c.fits(s, m, nil, nil)
		*n = value
		if !fits && c.err == nil {
			ok = found.add(c, at, "%s is no name for a member", c.args.shownName(m))
		}
	}
	return ok
}

// dependent checks what the presence of a member requires.
func (c *check) dependent(s *jsonschema.Schema, at int32, found *problems, seen marks) bool {
	more := len(s.Dependencies) + len(s.DependentRequired) + len(s.DependentSchemas)
	if more == 0 || !c.spend(8*more) {
		return c.err == nil
	}
	ok := true
	need := func(name string, list []string) {
		var absent []string
		for _, other := range list {
			if c.member(at, other) == 0 {
				absent = append(absent, c.shown(other))
			}
		}
		if len(absent) > 0 {
			ok = found.add(c, at, "%s needs %s as well", short(c.shown(name), maxShownName),
				short(strings.Join(absent, ", "), maxShownWords))
		}
	}
	present := func(name string) bool {
		return (ok || found.open()) && c.member(at, name) != 0
	}
	for _, name := range slices.Sorted(maps.Keys(s.Dependencies)) {
		if !present(name) {
			continue
		}
		if list, isList := s.Dependencies[name].([]string); isList {
			need(name, list)
		} else if other := subschema(s.Dependencies[name]); other != nil {
			ok = c.fits(other, at, found, seen) && ok
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.DependentRequired)) {
		if present(name) {
			need(name, s.DependentRequired[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.DependentSchemas)) {
		if present(name) {
			ok = c.fits(s.DependentSchemas[name], at, found, seen) && ok
		}
	}
	return ok
}

// array checks the keywords of arrays.
func (c *check) array(s *jsonschema.Schema, at int32, found *problems, seen marks) bool {
	n, ok := int(c.args.nodes[at].children), true
	if s.MinItems != nil && n < *s.MinItems {
		ok = found.add(c, at, "must have at least %d items, got %d", *s.MinItems, n)
	}
	if s.MaxItems != nil && n > *s.MaxItems {
		ok = found.add(c, at, "must have at most %d items, got %d", *s.MaxItems, n)
	}
	if s.UniqueItems && n > 1 && (ok || found.open()) {
		if first, second, twice := c.same(at); twice {
			ok = found.add(c, at, "items %d and %d are the same", first, second)
		}
	}
	ok = (ok || found.open()) && c.items(s, at, found, seen) && ok
	return (ok || found.open()) && c.contains(s, at, found, seen) && ok
}

// items checks the items by their positions.
func (c *check) items(s *jsonschema.Schema, at int32, found *problems, seen marks) bool {
	first, rest := s.PrefixItems, s.Items2020
	closed := false // no item may follow the first ones
	if s.DraftVersion < 2020 {
		first, rest = nil, subschema(s.Items)
		if list, isList := s.Items.([]*jsonschema.Schema); isList {
			allowed, isBool := s.AdditionalItems.(bool)
			first, rest, closed = list, subschema(s.AdditionalItems), isBool && !allowed
			if isBool && allowed {
				rest = &jsonschema.Schema{Bool: &allowed}
			}
		}
	}
	if first == nil && rest == nil {
		return true
	}
	ok, i := true, 0
	for item := range c.args.each(at) {
		if !ok && !found.open() || !c.spend(1) {
			return false
		}
		switch {
		case i < len(first):
			ok = c.fits(first[i], item, found, nil) && ok
		case closed:
			return found.add(c, at, "does not fit additionalItems of the schema")
		case rest != nil:
			ok = c.fits(rest, item, found, nil) && ok
		default:
			return ok
		}
		if seen != nil {
			seen.set(i)
		}
		i++
	}
	return ok
}

// contains counts the items that fit a subschema.
func (c *check) contains(s *jsonschema.Schema, at int32, found *problems, seen marks) bool {
	if s.Contains == nil {
		return true
	}
	n, i := 0, 0
	for item := range c.args.each(at) {
		if c.spend(1) && c.fits(s.Contains, item, nil, nil) {
			n++
			if seen != nil && s.DraftVersion >= 2020 {
				seen.set(i)
			}
		}
		if c.err != nil {
			return false
		}
		i++
	}
	switch {
	case s.MinContains != nil && n < *s.MinContains:
		return found.add(c, at, "does not fit minContains of the schema")
	case s.MinContains == nil && n == 0:
		return found.add(c, at, "does not fit contains of the schema")
	case s.MaxContains != nil && n > *s.MaxContains:
		return found.add(c, at, "does not fit maxContains of the schema")
	}
	return true
}

// rest returns the subschema for values that no other keyword has evaluated; nil if there is none.
func (c *check) rest(s *jsonschema.Schema, at int32) *jsonschema.Schema {
	switch c.args.nodes[at].kind {
	case objectKind:
		return s.UnevaluatedProperties
	case arrayKind:
		return s.UnevaluatedItems
	}
	return nil
}

// unevaluated checks the values that no other keyword has evaluated.
func (c *check) unevaluated(rest *jsonschema.Schema, at int32, found *problems, seen marks) bool {
	ok, i := true, 0
	for child := range c.args.each(at) {
		if !ok && !found.open() || !c.spend(1) {
			return false
		}
		if !seen.has(i) {
			ok = c.fits(rest, child, found, nil) && ok
			seen.set(i)
		}
		i++
	}
	return ok
}

// combined checks the keywords that combine subschemas.
func (c *check) combined(s *jsonschema.Schema, at int32, found *problems, seen marks) bool {
	ok := true
	if s.Not != nil && c.fits(s.Not, at, nil, nil) {
		ok = found.add(c, at, "this value is not allowed")
	}
	for _, all := range s.AllOf {
		if !ok && !found.open() {
			return false
		}
		ok = c.fits(all, at, found, seen) && ok
	}
	if len(s.AnyOf) > 0 && (ok || found.open()) {
		ok = c.anyOf(s, at, found, seen) && ok
	}
	if len(s.OneOf) > 0 && (ok || found.open()) {
		ok = c.oneOf(s, at, found, seen) && ok
	}
	if s.If == nil || !ok && !found.open() {
		return ok && c.err == nil
	}
	then := s.Else
	if c.try(s.If, at, seen) {
		then = s.Then
	}
	return (then == nil || c.fits(then, at, found, seen)) && ok && c.err == nil
}

// try checks a subschema that need not fit. It marks only what a fitting subschema has evaluated.
func (c *check) try(s *jsonschema.Schema, at int32, seen marks) bool {
	var own marks
	if seen != nil {
		if own = c.mark(at); own == nil {
			return false
		}
	}
	ok := c.fits(s, at, nil, own)
	if ok {
		seen.add(own)
	}
	return ok
}

func (c *check) anyOf(s *jsonschema.Schema, at int32, found *problems, seen marks) bool {
	fitting := false
	for _, one := range s.AnyOf {
		if fitting = c.try(one, at, seen) || fitting; fitting && seen == nil {
			return true
		}
	}
	return fitting || found.nearest(c, s.AnyOf, at)
}

func (c *check) oneOf(s *jsonschema.Schema, at int32, found *problems, seen marks) bool {
	fitting := 0
	for _, one := range s.OneOf {
		if c.try(one, at, seen) {
			fitting++
		}
		if fitting > 1 {
			return found.add(c, at, "fits two of the forms that exclude each other")
		}
	}
	return fitting == 1 || found.nearest(c, s.OneOf, at)
}
