package redact

import (
	"bytes"
	"slices"
	"strings"

	"junction/upstream/raw"
)

// This file puts removed text back into the arguments of a call.

// Restores reports whether some rule keeps the text that it removes.
func (r *Redactor) Restores() bool {
	return r != nil && (r.secrets && r.keep || slices.ContainsFunc(r.rules, keeps))
}

// With returns the Redactor for messages of one owner. It keeps the text that its rules restore.
func (r *Redactor) With(m *Memory, o Owner) *Redactor {
	own := *r
	own.share = &share{memory: m, owner: o}
	return &own
}

// Finding returns the Redactor for other messages that the owner reads. It removes the kept texts of the
// owner, too, and keeps none. Without a source, these are the texts of all upstreams. It is for one
// goroutine, and is r itself if no text is kept.
func (r *Redactor) Finding(m *Memory, o Owner) *Redactor {
	own := *r
	own.share = &share{memory: m, owner: o}
	if own.share.found = own.known(0); own.share.found == nil {
		return r
	}
	return &own
}

// Shared reports whether several callers have this Redactor.
func (r *Redactor) Shared() bool { return r == nil || r.share == nil }

// MarkError is the error of arguments with a mark that no text replaces.
type MarkError struct {
	Mark string
	Why  Lost
}

// Lost is the reason why no text replaces a mark.
type Lost uint8

const (
	_         Lost = iota
	NotKept        // the policy does not keep the text
	Gone           // the text was not kept, has expired, or belongs to another session, upstream or rule
	InName         // the mark is in the name of a member
	TooMuch        // the texts exceed maxRestored
	Misplaced      // the rules would not remove the text again at this place
)

func (e *MarkError) Error() string {
	return "the arguments contain " + e.Mark + ", for which there is no text"
}

// maxRestored bounds the texts that come back in one call, in bytes.
const maxRestored = 1 << 20

// Arguments returns the JSON of arguments with the text that marks stand for, and whether there was a
// mark. The error is a *MarkError. A mark is only what a rule of r could have written: with the name
// of a rule, and with a reference if r keeps the text of the rule. A text comes back only where the
// rules would remove it again: else a tool that returns its argument would show the text.
func (r *Redactor) Arguments(in []byte) (out []byte, changed bool, err error) {
	if r == nil || !bytes.Contains(in, []byte("redacted")) && !hidesASCII(in) {
		return in, false, nil
	}
	w := inserting{r: r, in: in}
	for i := 0; i < len(in); {
		n := bytes.IndexByte(in[i:], '"')
		if n < 0 {
			break
		}
		start := i + n
		end, ok := raw.StringEnd(in, start)
		if !ok {
			break // it is not JSON, so that a server cannot read it
		}
		i = end
		next := raw.SkipSpace(in, end)
		if err := w.string(start, end, next < len(in) && in[next] == ':'); err != nil {
			return nil, false, err
		}
	}
	if !w.changed {
		return in, false, nil
	}
	return append(w.out, in[w.from:]...), true, nil
}

// extent is a part of a text: its start and its end.
type extent [2]int

// inserting is the state of one search for marks.
type inserting struct {
	r       *Redactor
	in, out []byte
	from    int // what is before it in the input is in the output
	size    int // of the restored texts
	changed bool
	scratch []byte
	places  []extent // of the restored texts in one string of the output
}

// string restores the texts of the string between start and end, which include its quotes.
func (w *inserting) string(start, end int, isName bool) error {
	inside := w.in[start+1 : end-1]
	text := inside
	if bytes.IndexByte(inside, '\\') >= 0 {
		w.scratch = unescape(slices.Grow(w.scratch[:0], len(inside)), inside)
		text = w.scratch
	}
	begin := 0       // of the string in the output
	at, seen := 0, 0 // offsets in the escaped and in the unescaped string
	w.places = w.places[:0]
	for m, found := w.r.nextMark(text, 0); found; m, found = w.r.nextMark(text, m.end) {
		kept, number, why := w.r.stands(m, isName)
		if why == 0 && w.size+len(kept) > maxRestored {
			why = TooMuch
		}
		whole := number && m.start == 0 && m.end == len(text)
		if why == 0 && whole && len(w.r.find(kept, nil)) == 0 {
			why = Misplaced
		}
		if why != 0 {
			return &MarkError{string(text[m.start:m.end]), why}
		}
		w.size, w.changed = w.size+len(kept), true
		if whole {
			w.out, w.from = append(append(w.out, w.in[w.from:start]...), kept...), end
			return nil
		}
		if len(w.places) == 0 {
			w.out, w.from = append(w.out, w.in[w.from:start]...), start
			begin = len(w.out)
		}
		at, seen = advance(inside, at, seen, m.start)
		w.out = append(w.out, w.in[w.from:start+1+at]...)
		w.places = append(w.places, extent{len(w.out) - begin, len(w.out) - begin + len(kept)})
		w.out = append(w.out, kept...)
		at, seen = advance(inside, at, seen, m.end)
		w.from = start + 1 + at
	}
	if len(w.places) == 0 {
		return nil
	}
	w.out, w.from = append(w.out, w.in[w.from:end]...), end
	n := w.r.misplaced(w.out[begin:], w.places)
	if n < 0 {
		return nil
	}
	m, _ := w.r.nextMark(text, 0)
	for range n {
		m, _ = w.r.nextMark(text, m.end)
	}
	return &MarkError{string(text[m.start:m.end]), Misplaced}
}

// misplaced returns the number of the first place in a string, with its quotes, of which the rules do
// not remove exactly the text; -1 for none.
func (r *Redactor) misplaced(text []byte, places []extent) int {
	rules := *r
	rules.share = nil
	w := redacting{Redactor: &rules, text: text}
	w.look(0, len(text), inText)
	i := 0 // both lists are in order
	for n, p := range places {
		for i < len(w.cuts) && w.cuts[i].start < p[0] {
			i++
		}
		if i == len(w.cuts) || w.cuts[i].start != p[0] || w.cuts[i].end != p[1] {
			return n
		}
	}
	return -1
}

// foundMark is a mark in a text.
type foundMark struct {
	start, end      int
	name, reference string
	referred        bool // it has a reference
	keep            bool // the text of the rule is kept
}

// nextMark returns the next mark in an unescaped text.
func (r *Redactor) nextMark(text []byte, from int) (m foundMark, found bool) {
	for m, found = r.nextNamed(text, from); found; m, found = r.nextNamed(text, m.start+len(markStart)) {
		if m.referred && isReference(m.reference) || !m.referred && (r.share == nil || !m.keep) {
			return m, true
		}
	}
	return m, false
}

// nextNamed returns the next text in the form of a mark with the name of a rule, with any reference.
func (r *Redactor) nextNamed(text []byte, from int) (m foundMark, found bool) {
	const longest = 100 // of a name and a reference
	for {
		n := bytes.Index(text[from:], []byte(markStart))
		if n < 0 {
			return m, false
		}
		m.start = from + n
		from = m.start + len(markStart)
		body := text[from:min(len(text), from+longest)]
		n = bytes.IndexByte(body, ']')
		if n < 0 {
			continue
		}
		m.end = from + n + 1
		m.name, m.reference, m.referred = strings.Cut(string(body[:n]), referenceStart)
		if m.keep, found = r.named(m.name); found {
			return m, true
		}
	}
}

// marksIn returns the marks in an unescaped text that r or another Redactor with its rules has written, or
// that have the same bytes. A server cannot make one up: a reference counts only if it names a kept text.
func (r *Redactor) marksIn(text []byte, form markForm) (list []span) {
	if form == inURI {
		return r.uriMarksIn(text)
	}
	for m, found := r.nextNamed(text, 0); found; m, found = r.nextNamed(text, m.start+len(markStart)) {
		if !m.referred || m.reference == noReference || r.share != nil && r.share.has(m.name, m.reference) {
			list = append(list, span{start: m.start, end: m.end})
		}
	}
	return list
}

// uriMarksIn is marksIn for a URI.
func (r *Redactor) uriMarksIn(text []byte) (list []span) {
	if !bytes.Contains(text, []byte(uriMarkStart)) {
		return nil
	}
	var names []string
	for _, rule := range r.rules {
		names = append(names, rule.Name)
	}
	if r.secrets {
		for _, s := range secretShapes {
			names = append(names, s.name)
		}
	}
	for from := 0; ; {
		n := bytes.Index(text[from:], []byte(uriMarkStart))
		if n < 0 {
			return list
		}
		start := from + n
		from = start + len(uriMarkStart)
		end := 0
		for _, name := range names {
			if mark := appendURIMark(nil, name); len(mark) > end-start && bytes.HasPrefix(text[start:], mark) {
				end = start + len(mark)
			}
		}
		if end > 0 {
			list, from = append(list, span{start: start, end: end}), end
		}
	}
}

// named reports whether a rule has the name, and whether all rules of the name keep their text.
func (r *Redactor) named(name string) (keep, known bool) {
	keep = true
	for _, rule := range r.rules {
		if rule.Name == name {
			keep, known = keep && rule.Restore, true
		}
	}
	if r.secrets && slices.ContainsFunc(secretShapes, func(s *secretShape) bool { return s.name == name }) {
		keep, known = keep && r.keep, true
	}
	return keep, known
}

// isReference reports whether a text has the form of a reference.
func isReference(text string) bool {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	return text == noReference || len(text) == referenceSize && strings.Trim(text, alphabet) == ""
}

// stands returns the text that a mark stands for, or the reason why there is none.
func (r *Redactor) stands(m foundMark, isName bool) (inside []byte, number bool, why Lost) {
	switch {
	case m.reference == "" || !m.keep:
		return nil, false, NotKept
	case isName:
		return nil, false, InName
	case r.share == nil:
		return nil, false, Gone
	}
	inside, number, ok := r.share.get(m.name, m.reference)
	if !ok {
		return nil, false, Gone
	}
	return inside, number, 0
}
