package schema

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"math/big"
	"slices"
)

// equal compares a value with a value of the schema.
func (c *check) equal(at int32, want any) bool {
	n := &c.args.nodes[at]
	if !c.spend(1) {
		return false
	}
	switch want := want.(type) {
	case nil:
		return n.kind == nullKind
	case bool:
		return n.kind == boolKind && (c.args.text[n.start] == 't') == want
	case string:
		if n.kind != stringKind {
			return false
		}
		if !n.escaped {
			return c.spend(len(want)/64) && string(c.args.text[n.start+1:n.end-1]) == want
		}
		return c.spend(readingSteps(c.args.bytes(at), true)) && c.args.string(at) == want
	case []any:
		if n.kind != arrayKind || int(n.children) != len(want) {
			return false
		}
		i := 0
		for item := range c.args.each(at) {
			if !c.equal(item, want[i]) {
				return false
			}
			i++
		}
		return true
	case map[string]any:
		if n.kind != objectKind || int(n.children) != len(want) {
			return false
		}
		for member := range c.args.each(at) {
			v, ok := want[c.nameOf(member)]
			if !ok || !c.equal(member, v) {
				return false
			}
		}
		return true
	}
	if n.kind != numberKind || !c.spend(numberSteps) {
		return false
	}
	other, ok := new(big.Rat).SetString(fmt.Sprint(want)) // a json.Number
	return ok && c.rat(at).Cmp(other) == 0
}

// same returns the positions of two equal items of an array: the first item that has an equal one
// before it.
func (c *check) same(array int32) (first, second int, found bool) {
	type hashed struct {
		hash     uint64
		at       int32
		position int32
	}
	seed := maphash.MakeSeed()
	list := make([]hashed, 0, c.args.nodes[array].children)
	for item := range c.args.each(array) {
		var h maphash.Hash
		h.SetSeed(seed)
		if c.hash(&h, item); c.err != nil {
			return 0, 0, false
		}
		list = append(list, hashed{h.Sum64(), item, int32(len(list))})
	}
	slices.SortFunc(list, func(a, b hashed) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.position, b.position))
	})
	for i, one := range list {
		for j := i - 1; j >= 0 && list[j].hash == one.hash && !(found && second <= int(one.position)); j-- {
			if c.alike(one.at, list[j].at) {
				first, second, found = int(list[j].position), int(one.position), true
			}
		}
	}
	return first, second, found && c.err == nil
}

// hash writes a form of a value that is equal for equal values.
func (c *check) hash(h *maphash.Hash, at int32) {
	n := &c.args.nodes[at]
	if !c.spend(16 + int(n.end-n.start)/16) {
		return
	}
	h.WriteByte(byte(n.kind))
	switch n.kind {
	case boolKind:
		h.WriteByte(c.args.text[n.start])
	case stringKind:
		if c.spend(readingSteps(c.args.bytes(at), n.escaped)) {
			h.WriteString(c.args.string(at))
		}
	case numberKind:
		if c.spend(numberSteps) {
			h.WriteString(c.rat(at).RatString())
		}
	case arrayKind:
		for item := range c.args.each(at) {
			c.hash(h, item)
		}
	case objectKind: // in any order
		var sum uint64
		for member := range c.args.each(at) {
			var one maphash.Hash
			one.SetSeed(h.Seed())
			one.WriteString(c.nameOf(member))
			c.hash(&one, member)
			sum += one.Sum64()
		}
		maphash.WriteComparable(h, sum)
	}
}

// alike reports whether two values of the arguments are equal.
func (c *check) alike(a, b int32) bool {
	x, y := &c.args.nodes[a], &c.args.nodes[b]
	if !c.spend(1+int(x.end-x.start)/16) || x.kind != y.kind || x.children != y.children {
		return false
	}
	switch x.kind {
	case boolKind:
		return c.args.text[x.start] == c.args.text[y.start]
	case stringKind:
		return c.spend(readingSteps(c.args.bytes(a), x.escaped)+readingSteps(c.args.bytes(b), y.escaped)) &&
			c.args.string(a) == c.args.string(b)
	case numberKind:
		return c.spend(2*numberSteps) && c.rat(a).Cmp(c.rat(b)) == 0
	case arrayKind:
		other := b + 1
		for item := range c.args.each(a) {
			if !c.alike(item, other) {
				return false
			}
			other = c.args.nodes[other].next
		}
	case objectKind:
		for member := range c.args.each(a) {
			other := c.args.member(b, c.nameOf(member))
			if other == 0 || !c.alike(member, other) {
				return false
			}
		}
	}
	return true
}
