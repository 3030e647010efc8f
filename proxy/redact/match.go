package redact

import "bytes"

// This file finds the matches in one text.

// find appends the matches of the policy's own patterns in an unescaped text. A rule with very many matches redacts
// the whole text, so that the marks do not inflate the output.
func (r *Redactor) find(text []byte, found []span) []span {
	for i, rule := range r.rules {
		if r.needles[i] != nil && !bytes.Contains(text, r.needles[i]) {
			continue
		}
		most := 1000 + len(text)/8
		matches := rule.Re.FindAllIndex(text, most+1)
		if len(matches) > most {
			found = append(found, span{end: len(text), rule: rule.Name, keep: rule.Restore})
			continue
		}
		for _, m := range matches {
			if m[1] > m[0] { // skip empty matches
				found = append(found, span{start: m[0], end: m[1], rule: rule.Name, keep: rule.Restore})
			}
		}
	}
	return found
}

// merge joins overlapping spans, which are sorted by start. A joined span gets the rule of the
// first. Its text is kept if all rules keep theirs.
func merge(spans []span) []span {
	out := spans[:1]
	for _, s := range spans[1:] {
		if last := &out[len(out)-1]; s.start < last.end {
			last.end, last.keep, last.number = max(last.end, s.end), last.keep && s.keep, false
		} else {
			out = append(out, s)
		}
	}
	return out
}

// binaryIn returns the spans of base64 payloads of data: URIs (RFC 2397) in a text.
func binaryIn(text []byte) (list []span) {
	const mark, longest = ";base64,", 100 // length of the URI's part before the payload
	for i := 0; ; {
		n := bytes.Index(text[i:], []byte(mark))
		if n < 0 {
			return list
		}
		start := i + n + len(mark)
		head := text[max(i, start-longest):start]
		i = start
		if at := bytes.LastIndex(head, []byte("data:")); at >= 0 && !bytes.ContainsAny(head[at:], " \t\r\n\"'<>()") {
			i += payloadLength(text[start:])
			list = append(list, span{start: start, end: i})
		}
	}
}

// payloadLength returns the length of the base64 with which a text begins. It ends at the padding: a
// line end or a backslash belongs to the text that follows, except in \/ of JSON within the text.
func payloadLength(text []byte) int {
	n := 0
	for {
		n += runLength(text[n:], base64URI, 0)
		if !bytes.HasPrefix(text[n:], []byte(`\/`)) {
			return n + runLength(text[n:min(len(text), n+2)], base64Padding, 0)
		}
		n += 2
	}
}

// outside returns the parts of the spans that are outside all holes. Both lists are sorted. It
// expects few holes.
func outside(holes, spans []span) []span {
	if len(holes) == 0 {
		return spans
	}
	var out []span
	k := 0
	for _, s := range spans {
		for ; k < len(holes) && holes[k].end <= s.start; k++ {
		}
		for j := k; j < len(holes) && holes[j].start < s.end; j++ {
			if holes[j].start > s.start {
				out = append(out, span{start: s.start, end: holes[j].start, rule: s.rule, keep: s.keep})
			}
			s.start = holes[j].end
		}
		if s.start < s.end {
			out = append(out, s)
		}
	}
	return out
}
