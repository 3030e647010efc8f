package redact

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"unicode/utf8"
)

// This file finds the kept texts in later answers, also where no rule matches them: a tool may return
// its argument with other characters around it.

const (
	shortest = 8 // characters of a text that is searched for
	headSize = 8 // bytes at the start of a text by which it is found
	// cost of a message's comparisons: for each byte, and for each message
	costOfByte, costOfMessage = 16, 64 << 10
)

// knownTexts are the kept texts of one owner, for the search of one message. A nil knownTexts has
// none.
type knownTexts struct {
	memory   *Memory
	redactor *Redactor
	list     []*removed // by head
	heads    [1 << 14 / 64]uint64
	escaped  bool             // some head may be escaped in JSON
	open     map[uint32]texts // those whose head was found
	left     int              // cost of further comparisons
}

// texts are the texts of one head, in order.
type texts []knownText

// knownText is an unescaped text.
type knownText struct {
	plain  []byte
	name   string // of the rule
	keep   bool   // the rule still keeps its text
	number bool
	inside int // index of the longest other text with which this one begins; -1 for none
}

// headOf returns the head of a text, and whether JSON may escape it. It is 0 for a text that is not
// searched for.
func (m *Memory) headOf(plain []byte) (head uint32, escaped bool) {
	if len(plain) < headSize || utf8.RuneCount(plain) < shortest {
		return 0, false
	}
	return m.head(plain), bytes.ContainsFunc(plain[:headSize], mayEscape)
}

// head returns a number for the first bytes of a text. The text cannot be computed from it.
func (m *Memory) head(text []byte) uint32 {
	return uint32(binary.LittleEndian.Uint64(text)*m.seed>>32) | 1
}

// known returns the texts that messages of the owner are searched for. It leaves out the texts of
// rules that r does not have.
func (r *Redactor) known(size int) *knownTexts {
	switch {
	case r.share == nil:
		return nil
	case r.share.found != nil:
		r.share.found.left = costOfByte*size + costOfMessage
		return r.share.found
	}
	m, o := r.share.memory, r.share.owner
	m.mu.Lock()
	defer m.mu.Unlock()
	var k *knownTexts
	for key, t := range m.sessions[o.Session] {
		if o.Source != nil && key.source != o.Source || t.head == 0 {
			continue
		}
		if k == nil {
			k = &knownTexts{memory: m, redactor: r, left: costOfByte*size + costOfMessage}
		}
		k.list, k.escaped = append(k.list, t), k.escaped || t.escaped
		k.heads[t.head>>18/64] |= 1 << (t.head >> 18 % 64)
	}
	if k != nil {
		slices.SortFunc(k.list, func(a, b *removed) int { return cmp.Compare(a.head, b.head) })
	}
	return k
}

// next returns the first place from i on where a text could begin, and the head there; or -1.
func (k *knownTexts) next(text []byte, i int) (int, uint32) {
	for ; i+headSize <= len(text); i++ {
		h := k.memory.head(text[i:])
		if k.heads[h>>18/64]&(1<<(h>>18%64)) == 0 {
			continue
		}
		if _, found := slices.BinarySearchFunc(k.list, h, compareHead); found {
			return i, h
		}
	}
	return -1, 0
}

func compareHead(t *removed, h uint32) int { return cmp.Compare(t.head, h) }

// noneIn reports that a JSON text has none of the texts, without parsing it.
func (k *knownTexts) noneIn(text []byte) bool {
	if k == nil {
		return true
	}
	if k.escaped {
		return false
	}
	i, _ := k.next(text, 0)
	return i < 0
}

// find appends the texts in an unescaped string to found. If the comparisons cost too much, the whole
// string counts as one.
func (k *knownTexts) find(text []byte, found []span) []span {
	for i, h := k.next(text, 0); i >= 0; i, h = k.next(text, i+1) {
		t, spent := k.opened(h).longest(text, i)
		if k.left -= spent; k.left < 0 {
			return append(found, span{end: len(text), rule: k.opened(h)[0].name})
		}
		if t != nil {
			found = append(found, span{start: i, end: i + len(t.plain), rule: t.name, keep: t.keep, number: t.number})
		}
	}
	return found
}

// number returns the text that is a number of the message; nil for none. A text is searched for in
// no part of a number.
func (k *knownTexts) number(text []byte) *knownText {
	if k == nil {
		return nil
	}
	i, h := k.next(text, 0)
	if i != 0 {
		return nil
	}
	for _, t := range k.opened(h) {
		if bytes.Equal(t.plain, text) {
			return &t
		}
	}
	return nil
}

// opened returns the texts of a head.
func (k *knownTexts) opened(h uint32) texts {
	if list, ok := k.open[h]; ok {
		return list
	}
	var list texts
	i, _ := slices.BinarySearchFunc(k.list, h, compareHead)
	for ; i < len(k.list) && k.list[i].head == h; i++ {
		t := k.list[i]
		inside, err := k.memory.box.Open(t.sealed)
		keep, known := k.redactor.named(t.name)
		if err != nil || !known {
			continue
		}
		if bytes.IndexByte(inside, '\\') >= 0 {
			inside = unescape(make([]byte, 0, len(inside)), inside)
		}
		list = append(list, knownText{inside, t.name, keep, t.number, -1})
	}
	slices.SortFunc(list, func(a, b knownText) int {
		return cmp.Or(bytes.Compare(a.plain, b.plain), strings.Compare(a.name, b.name))
	})
	for i := range list {
		j := i - 1
		for j >= 0 && !bytes.HasPrefix(list[i].plain, list[j].plain) {
			j = list[j].inside
		}
		list[i].inside = j
	}
	if k.open == nil {
		k.open = map[uint32]texts{}
	}
	k.open[h] = list
	return list
}

// longest returns the longest text that is at i of a string, and the cost of the comparisons. A number
// counts only where no other digit touches it.
func (list texts) longest(text []byte, i int) (t *knownText, spent int) {
	from := text[i:]
	low, high, common := 0, len(list), 0 // texts before low are at most from, and those from high on are more
	for low < high {
		middle := (low + high) / 2
		n := commonLength(list[middle].plain, from)
		spent += headSize + n/8
		if p := list[middle].plain; n == len(p) || n < len(from) && p[n] < from[n] {
			low, common = middle+1, n
		} else {
			high = middle
		}
	}
	for j := low - 1; j >= 0; j = list[j].inside {
		spent++
		if t := &list[j]; len(t.plain) <= common && !(t.number && touched(text, i, i+len(t.plain))) {
			return t, spent
		}
	}
	return nil, spent
}

// commonLength returns the length of the common start of two texts.
func commonLength(a, b []byte) int {
	n, most := 0, min(len(a), len(b))
	for n+8 <= most && binary.LittleEndian.Uint64(a[n:]) == binary.LittleEndian.Uint64(b[n:]) {
		n += 8
	}
	for n < most && a[n] == b[n] {
		n++
	}
	return n
}

// touched reports whether a digit is next to a part of a text.
func touched(text []byte, start, end int) bool {
	isDigit := func(c byte) bool { return '0' <= c && c <= '9' }
	return start > 0 && isDigit(text[start-1]) || end < len(text) && isDigit(text[end])
}
