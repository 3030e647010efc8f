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
	own.share = &share{m, o}
	return &own
}

// MarkError is the error of arguments with a mark that no text replaces.
type MarkError struct {
	Mark string
	Why  Lost
}

// Lost is the reason why no text replaces a mark.
type Lost uint8

const (
	_       Lost = iota
	NotKept      // the policy does not keep the text
	Gone         // the text was not kept, has expired, or is that of another session, upstream or rule
	InName       // the mark is in the name of a member
	TooMuch      // the texts exceed maxRestored
)

func (e *MarkError) Error() string {
	return "the arguments contain " + e.Mark + ", for which there is no text"
}

// maxRestored bounds the texts that come back in one call, in bytes.
const maxRestored = 1 << 20

// Arguments returns the JSON of arguments with the text that marks stand for, and whether there was a
// mark. The error is a *MarkError. A mark is only what a rule of r could have written: with the name
// of a rule, and with a reference if r keeps the text of the rule.
func (r *Redactor) Arguments(in []byte) (out []byte, changed bool, err error) {
	if r == nil || !bytes.Contains(in, []byte("redacted")) && !hidesASCII(in) {
		return in, false, nil
	}
	var scratch []byte
	from, restored := 0, 0
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
		text := in[start+1 : end-1]
		if bytes.IndexByte(text, '\\') >= 0 {
			scratch = unescape(slices.Grow(scratch[:0], len(text)), text)
			text = scratch
		}
		next := raw.SkipSpace(in, end)
		isName := next < len(in) && in[next] == ':'
		at, seen := 0, 0 // offsets in the escaped and in the unescaped string
		for m, found := r.nextMark(text, 0); found; m, found = r.nextMark(text, m.end) {
			inside, number, why := r.stands(m, isName)
			if why == 0 && restored+len(inside) > maxRestored {
				why = TooMuch
			}
			if why != 0 {
				return nil, false, &MarkError{string(text[m.start:m.end]), why}
			}
			restored, changed = restored+len(inside), true
			if number && m.start == 0 && m.end == len(text) {
				out, from = append(append(out, in[from:start]...), inside...), end
				break
			}
			at, seen = advance(in[start+1:end-1], at, seen, m.start)
			out = append(append(out, in[from:start+1+at]...), inside...)
			at, seen = advance(in[start+1:end-1], at, seen, m.end)
			from = start + 1 + at
		}
	}
	if !changed {
		return in, false, nil
	}
	return append(out, in[from:]...), true, nil
}

// foundMark is a mark in a text.
type foundMark struct {
	start, end      int
	name, reference string
	keep            bool // the text of the rule is kept
}

// nextMark returns the next mark in an unescaped text.
func (r *Redactor) nextMark(text []byte, from int) (m foundMark, found bool) {
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
		var referred bool
		m.end = from + n + 1
		m.name, m.reference, referred = strings.Cut(string(body[:n]), referenceStart)
		var known bool
		if m.keep, known = r.named(m.name); !known {
			continue
		}
		if referred && isReference(m.reference) || !referred && (r.share == nil || !m.keep) {
			return m, true
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
