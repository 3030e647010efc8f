package redact

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"

	"junction/upstream/raw"
)

// This file walks the JSON of a message.

// redacting is the state of one search of a text.
type redacting struct {
	*Redactor
	text    []byte
	kept    Kept
	known   *knownTexts
	cuts    []span // in text
	found   []span // in the current string; memory is reused
	scratch []byte // memory is reused
	// names of the open objects that are cut, or that could be the result of a cut
	keys   []key
	broken bool // a name or a choice that the client would return is cut
	texts  int  // that were kept
}

// key is the name of a member: its string in the text, and its cuts.
type key struct{ start, end, from, to int }

// value searches the value at i and returns its end. as is the member that has the value; nil for
// none that belongs to the protocol. ok may be false if the text is not JSON.
func (w *redacting) value(i int, at place, as *member, depth int) (end int, ok bool) {
	if i >= len(w.text) || depth > raw.DefaultDepth {
		return 0, false
	}
	switch c := w.text[i]; {
	case c == '"':
		if end, ok = raw.StringEnd(w.text, i); ok {
			w.string(i, end, as)
		}
		return end, ok
	case c == '{':
		return w.object(i, at, depth+1)
	case c == '[':
		return w.array(i, at, as, depth+1)
	default:
		if end = w.scalarEnd(i); c == '-' || '0' <= c && c <= '9' {
			w.number(i, end, as)
		}
		return end, true
	}
}

func (w *redacting) scalarEnd(i int) int {
	for i < len(w.text) && w.text[i] > ' ' && w.text[i] != ',' && w.text[i] != '}' && w.text[i] != ']' {
		i++
	}
	return i
}

// string searches a string, unless it is a value of the protocol.
func (w *redacting) string(start, end int, as *member) {
	switch {
	case as.keeps(w.text[start+1 : end-1]):
	case as != nil && as.uri:
		w.look(start, end, inURI)
	default:
		w.look(start, end, inText)
	}
}

// number searches a number as it is written. Patterns of secrets match no number.
func (w *redacting) number(start, end int, as *member) {
	if len(w.rules) == 0 && w.known == nil || as != nil && as.number {
		return
	}
	text := w.text[start:end]
	if w.found = w.find(text, w.found[:0]); len(w.found) == 0 {
		if t := w.known.number(text); t != nil {
			w.found = append(w.found, span{rule: t.name, keep: t.keep})
		}
	}
	if len(w.found) > 0 {
		cut := span{start: start, end: end, rule: w.found[0].rule, as: inNumber}
		if !slices.ContainsFunc(w.found, func(s span) bool { return !s.keep }) {
			cut.reference = w.put(cut.rule, text, text, true)
		}
		w.cuts = append(w.cuts, cut)
	}
}

// array searches an array.
func (w *redacting) array(i int, at place, as *member, depth int) (end int, ok bool) {
	if as != nil && as.number {
		as = nil // no member of the protocol has several numbers
	}
	if i = raw.SkipSpace(w.text, i+1); i < len(w.text) && w.text[i] == ']' {
		return i + 1, true
	}
	for i < len(w.text) {
		i, ok = w.value(i, at, as, depth)
		if i = raw.SkipSpace(w.text, i); !ok || i >= len(w.text) {
			return 0, false
		}
		if w.text[i] == ']' {
			return i + 1, true
		}
		i = raw.SkipSpace(w.text, i+1)
	}
	return 0, false
}

// object searches an object. Only at its end is it known whether its data or blob is binary.
func (w *redacting) object(i int, at place, depth int) (end int, ok bool) {
	var late binaryParts
	keys := len(w.keys)
	for i = raw.SkipSpace(w.text, i+1); i < len(w.text); i = raw.SkipSpace(w.text, i+1) {
		if w.text[i] == '}' { // without members
			return i + 1, true
		}
		start := i
		i, ok = raw.StringEnd(w.text, i)
		if !ok {
			return 0, false
		}
		name := w.text[start+1 : i-1]
		as := at.rule(name)
		if as == nil {
			w.name(start, i, at)
		}
		if i = raw.SkipSpace(w.text, i); i >= len(w.text) || w.text[i] != ':' {
			return 0, false
		}
		i = raw.SkipSpace(w.text, i+1)
		if end, ok = w.member(i, name, at, as, depth, &late); !ok {
			return 0, false
		}
		if i = raw.SkipSpace(w.text, end); i >= len(w.text) {
			return 0, false
		}
		if w.text[i] == '}' {
			break
		}
	}
	w.unlessBinary(late.data, late.media)
	w.unlessBinary(late.blob, late.located)
	if len(w.keys) > keys {
		w.unique(w.keys[keys:])
		w.keys = w.keys[:keys]
	}
	return i + 1, i < len(w.text)
}

// binaryParts has the members of an object of MCP that may be binary content. The object declares that
// they are: it is an image or audio (media), or it has a URI (located).
type binaryParts struct {
	data, blob     [2]int
	media, located bool
}

// member searches the value of a member at i. It stores a value that may be binary until the object
// ends.
func (w *redacting) member(i int, name []byte, at place, as *member, depth int, late *binaryParts) (end int, ok bool) {
	if i >= len(w.text) {
		return 0, false
	}
	isText := w.text[i] == '"'
	if w.kept.has(name, at, depth) && w.text[i] != '{' && w.text[i] != '[' {
		if isText {
			return raw.StringEnd(w.text, i)
		}
		return w.scalarEnd(i), true
	}
	if at != protocol {
		before := len(w.cuts)
		end, ok = w.value(i, at.inside(as), as, depth)
		if at == form && len(w.cuts) > before && !as.readOnly() {
			w.broken = true
		}
		return end, ok
	}
	inside, later := at.inside(as), (*[2]int)(nil)
	switch string(name) {
	case "data":
		later = &late.data
	case "blob":
		later = &late.blob
	case "arguments":
		if w.text[i] == '[' { // of the definition of a prompt
			inside = protocol
		}
	case "uri":
		late.located = true
	}
	if !isText || later == nil {
		if end, ok = w.value(i, inside, as, depth); ok && string(name) == "type" {
			kind := string(w.text[i:end])
			late.media = kind == `"image"` || kind == `"audio"`
		}
		return end, ok
	}
	if end, ok = raw.StringEnd(w.text, i); ok {
		w.unlessBinary(*later, false) // an earlier member of the same name
		*later = [2]int{i, end}
	}
	return end, ok
}

// unlessBinary searches a string. If the object declares it as binary and it is base64, no rule is
// for it.
func (w *redacting) unlessBinary(at [2]int, declared bool) {
	if at[1] == 0 {
		return
	}
	isBinary := declared && runLength(w.text[at[0]+1:at[1]-1], base64Text, 0) == at[1]-at[0]-2
	w.search(at[0], at[1], inText, !isBinary)
}

// name searches the name of a member. Only a name with a mark can be equal to a redacted name.
func (w *redacting) name(start, end int, at place) {
	from := len(w.cuts)
	cut := w.look(start, end, inText)
	if cut && at.returned() {
		w.broken = true
	}
	plain := w.text[start+1 : end-1]
	if bytes.IndexByte(plain, '\\') >= 0 {
		plain = w.scratch
	}
	if cut || bytes.Contains(plain, []byte(markStart)) {
		w.keys = append(w.keys, key{start, end, from, len(w.cuts)})
	}
}

// unique gives the redacted names of an object that are equal to another name a number, so that no
// member hides another one.
func (w *redacting) unique(keys []key) {
	taken, last := map[string]bool{}, map[string]int{}
	name := func(k key) string {
		text := mark(w.text[:k.end], w.cuts[k.from:k.to], k.start)
		s, _ := raw.String(text) // half a surrogate pair: names of "" get a number
		return s
	}
	for _, k := range keys {
		if k.from == k.to {
			taken[name(k)] = true
		}
	}
	for _, k := range keys {
		if k.from == k.to {
			continue
		}
		own := name(k)
		if !taken[own] {
			taken[own] = true
			continue
		}
		n := max(last[own], 1)
		suffix := ""
		for suffix == "" || taken[own+suffix] {
			n++
			suffix = " (" + strconv.Itoa(n) + ")"
		}
		last[own], taken[own+suffix] = n, true
		w.cuts = append(w.cuts, span{start: k.end - 1, end: k.end - 1, suffix: suffix})
	}
}

// put keeps a text that is cut, and returns its reference; "" if the Redactor keeps nothing.
func (w *redacting) put(rule string, inside, plain []byte, number bool) string {
	if w.share == nil || w.share.found != nil {
		return ""
	}
	if w.texts++; w.texts > maxMessage {
		return noReference
	}
	return cmp.Or(w.share.put(rule, inside, plain, number), noReference)
}

// look adds the cuts of the string between start and end, which include its quotes. It leaves the
// unescaped text in scratch.
func (w *redacting) look(start, end int, form markForm) (cut bool) {
	return w.search(start, end, form, true)
}

// search is look, with the rules or only for the known texts.
func (w *redacting) search(start, end int, form markForm, rules bool) (cut bool) {
	if !rules && w.known == nil {
		return false
	}
	in := w.text[start+1 : end-1]
	text := in
	if bytes.IndexByte(in, '\\') >= 0 {
		w.scratch = unescape(slices.Grow(w.scratch[:0], len(in)), in)
		text = w.scratch
	}
	w.found = w.found[:0]
	if rules {
		w.match(text)
	}
	if w.known != nil {
		n := len(w.found)
		if w.found = w.known.find(text, w.found); len(w.found) > n {
			w.join()
		}
	}
	if len(w.found) > 0 { // a text may be searched twice
		w.found = outside(w.marksIn(text, form), w.found)
	}
	if len(w.found) == 0 {
		return false
	}
	at, seen := 0, 0 // offsets in the escaped and in the unescaped string
	for _, s := range w.found {
		at, seen = advance(in, at, seen, s.start)
		cut := span{start: start + 1 + at, rule: s.rule, as: form}
		at, seen = advance(in, at, seen, s.end)
		if cut.end = start + 1 + at; s.keep && form == inText {
			cut.reference = w.put(s.rule, w.text[cut.start:cut.end], text[s.start:s.end], s.number)
		}
		w.cuts = append(w.cuts, cut)
	}
	return len(w.found) > 0
}

// match finds what the rules remove from an unescaped text.
func (w *redacting) match(text []byte) {
	if w.secrets {
		w.found = secrets(text, w.found)
		for i := range w.found {
			w.found[i].keep = w.keep
		}
	}
	if w.found = w.find(text, w.found); len(w.found) > 0 {
		w.join()
		w.found = outside(binaryIn(text), w.found)
	}
}

// join sorts the found spans, and joins those that overlap.
func (w *redacting) join() {
	slices.SortStableFunc(w.found, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end))
	})
	w.found = merge(w.found)
}
