// Package redact removes secrets and other matches from messages of upstreams before a client reads
// them. Redactor walks the JSON of a message (redact.go) and unescapes its strings as a client does
// (escape.go). It finds tokens by the prefixes that their issuers documented (secrets.go).
package redact

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"strings"

	"junction/policy"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// Redactor replaces matches in messages of upstreams by [redacted: NAME]. It guards against
// accidents, such as a token in a log file that a tool returns. It does not stop a malicious
// upstream from passing a secret on.
//
// Redactor matches the unescaped strings of a message. It skips member names, binary content and,
// in objects that MCP defines, the keywords and handles of the protocol (see fixedMembers). Bytes
// that no rule matches stay unchanged.
//
// A Redactor is immutable and safe for concurrent use. A nil Redactor removes nothing.
type Redactor struct {
	rules   []policy.Redaction
	needles [][]byte // literal start of each rule's matches, written alike in JSON; nil if the rule has none
	secrets bool
}

// New returns a Redactor; nil if there are no rules and secrets is false.
func New(rules []policy.Redaction, secrets bool) *Redactor {
	if len(rules) == 0 && !secrets {
		return nil
	}
	r := &Redactor{rules: rules, secrets: secrets}
	for _, rule := range rules {
		var needle []byte
		if prefix, _ := rule.Re.LiteralPrefix(); prefix != "" && !strings.ContainsFunc(prefix, mayEscape) {
			needle = []byte(prefix)
		}
		r.needles = append(r.needles, needle)
	}
	return r
}

// mayEscape reports whether JSON may escape a character, or the character is beyond ASCII.
func mayEscape(c rune) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' || c == '/' }

// errUnread is the error for a text that cannot be searched. Such a text must not be sent.
var errUnread = errors.New("it cannot be looked through for what must not be shown")

// Result returns the redacted result and the number of redactions. Without redactions it returns o
// itself.
func (r *Redactor) Result(o raw.Object) (raw.Object, int, error) {
	text, n, err := r.Text(o.Text())
	if err != nil || n == 0 {
		return o, 0, err
	}
	o, err = raw.Parse(text)
	return o, n, err
}

// Error redacts the message and the data of an upstream's error, and returns the number of
// redactions. It drops a message or data that cannot be searched.
func (r *Redactor) Error(e *jsonrpc.Error) (*jsonrpc.Error, int) {
	if r == nil {
		return e, 0
	}
	data, inData, err := r.Text(e.Data)
	if err != nil {
		data, inData = nil, 1
	}
	message, inMessage, err := r.Text(raw.Quote(e.Message))
	words := e.Message
	if inMessage > 0 {
		words, err = raw.String(message)
	}
	if err != nil {
		words, inMessage = "", 1
	}
	if inData+inMessage == 0 {
		return e, 0
	}
	// members other than these three are dropped
	return &jsonrpc.Error{Code: e.Code, Message: words, Data: data}, inData + inMessage
}

// Text redacts any JSON text without surrounding white space, such as the params of a notification.
// It returns the number of redactions. Without redactions, and for an empty text, it returns the
// same slice.
func (r *Redactor) Text(text []byte) ([]byte, int, error) {
	if r == nil || len(text) == 0 || r.nothingIn(text) {
		return text, 0, nil
	}
	w := redacting{Redactor: r, text: text}
	if end, ok := w.value(0, fixedMembers, 0); !ok || end != len(text) {
		return nil, 0, errUnread
	}
	if len(w.cuts) == 0 {
		return text, 0, nil
	}
	// cuts of binary members come last, when their object ends
	slices.SortFunc(w.cuts, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	return mark(text, w.cuts), len(w.cuts), nil
}

// nothingIn reports that no rule can match a JSON text, without parsing it. For most results this
// is the whole cost of redaction.
func (r *Redactor) nothingIn(text []byte) bool {
	for _, needle := range r.needles {
		if needle == nil || bytes.Contains(text, needle) {
			return false
		}
	}
	return (!r.secrets || secretStart(text, 0) < 0) && !hidesASCII(text)
}

// hidesASCII reports whether the text contains an ASCII character as a \u00XX escape.
func hidesASCII(text []byte) bool {
	for i := 0; ; i += 4 {
		n := bytes.Index(text[i:], []byte(`\u00`))
		if n < 0 {
			return false
		}
		if i += n; i+4 < len(text) && text[i+4] < '8' {
			return true
		}
	}
}

// mark replaces the cuts by their marks. The cuts are sorted and do not overlap.
func mark(text []byte, cuts []span) []byte {
	out := make([]byte, 0, len(text)+32*len(cuts))
	from := 0
	for _, c := range cuts {
		out = append(out, text[from:c.start]...)
		out = append(out, "[redacted: "...)
		name := raw.Quote(c.rule)
		out = append(append(out, name[1:len(name)-1]...), ']')
		from = c.end
	}
	return append(out, text[from:]...)
}

// fixedMembers are the members of MCP's own objects whose strings are not redacted. The first group
// are keywords, without which the message loses its meaning. The second group are handles that
// return to Junction or to the upstream and must not change. A uri is a handle: clients request it
// again byte by byte, and many reject a whole result for an invalid URI. To hide a URI, deny the
// resource. In structured content, which the upstream defines, these members are redacted too;
// _meta has handleMembers instead.
var fixedMembers = newSet("type", "role", "mimeType", "resultType", "cacheScope", "method", "mode", "status", "level",
	"audience", "lastModified",
	// handles
	"uri", "url", "src", "elicitationId", "taskId", "requestState", "nextCursor", "progressToken", "requestId",
	// keywords of an elicitation form
	"required", "enum", "const", "format", "pattern", "$schema", "$ref")

// handleMembers are the members of _meta that are not redacted.
var handleMembers = newSet("taskId", "progressToken", "resourceUri", "ui/resourceUri", "openai/outputTemplate",
	"io.modelcontextprotocol/subscriptionId")

func newSet(names ...string) map[string]bool {
	set := map[string]bool{}
	for _, name := range names {
		set[name] = true
	}
	return set
}

// redacting is the state of one search of a text.
type redacting struct {
	*Redactor
	text    []byte
	cuts    []span // in text
	found   []span // in the current string; memory is reused
	scratch []byte // memory is reused
}

// value searches the value at i and returns its end. Strings of the fixed members are not redacted.
// ok may be false if the text is not JSON.
func (w *redacting) value(i int, fixed map[string]bool, depth int) (end int, ok bool) {
	if i >= len(w.text) || depth > raw.DefaultDepth {
		return 0, false
	}
	switch w.text[i] {
	case '"':
		if end, ok = raw.StringEnd(w.text, i); ok {
			w.look(i, end)
		}
		return end, ok
	case '{':
		return w.object(i, fixed, depth+1)
	case '[':
		return w.array(i, fixed, false, depth+1)
	}
	for i < len(w.text) && w.text[i] > ' ' && w.text[i] != ',' && w.text[i] != '}' && w.text[i] != ']' {
		i++
	}
	return i, true
}

// array searches an array. If kept is set, its strings are not redacted.
func (w *redacting) array(i int, fixed map[string]bool, kept bool, depth int) (end int, ok bool) {
	if i = raw.SkipSpace(w.text, i+1); i < len(w.text) && w.text[i] == ']' {
		return i + 1, true
	}
	for i < len(w.text) {
		if kept && w.text[i] == '"' {
			i, ok = raw.StringEnd(w.text, i)
		} else {
			i, ok = w.value(i, fixed, depth)
		}
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
func (w *redacting) object(i int, fixed map[string]bool, depth int) (end int, ok bool) {
	var data, blob [2]int
	media, located := false, false // an image or audio; has a URI
	for i = raw.SkipSpace(w.text, i+1); i < len(w.text); i = raw.SkipSpace(w.text, i+1) {
		if w.text[i] == '}' { // without members
			return i + 1, true
		}
		key := i + 1
		keyEnd, ok := raw.StringEnd(w.text, i)
		if !ok {
			return 0, false
		}
		name := w.text[key : keyEnd-1]
		if i = raw.SkipSpace(w.text, keyEnd); i >= len(w.text) || w.text[i] != ':' {
			return 0, false
		}
		i = raw.SkipSpace(w.text, i+1)
		if end, ok = w.member(i, name, fixed, depth, &data, &blob); !ok {
			return 0, false
		}
		switch string(name) {
		case "type":
			kind := string(w.text[i:end])
			media = kind == `"image"` || kind == `"audio"`
		case "uri":
			located = true
		}
		if i = raw.SkipSpace(w.text, end); i >= len(w.text) {
			return 0, false
		}
		if w.text[i] == '}' {
			break
		}
	}
	w.unlessBinary(data, media)
	w.unlessBinary(blob, located)
	return i + 1, i < len(w.text)
}

// member searches the value of a member at i. It stores a value that may be binary in data or blob
// until the object ends.
func (w *redacting) member(i int, name []byte, fixed map[string]bool, depth int, data, blob *[2]int) (end int,
	ok bool) {
	if i >= len(w.text) {
		return 0, false
	}
	text, list := w.text[i] == '"', w.text[i] == '['
	switch {
	case fixed[string(name)] && text:
		return raw.StringEnd(w.text, i)
	case fixed[string(name)] && list:
		return w.array(i, fixed, true, depth+1)
	}
	later := data
	switch string(name) {
	case "_meta":
		return w.value(i, handleMembers, depth)
	case "structuredContent", "input", "arguments":
		return w.value(i, nil, depth)
	case "data":
		if !text { // the data of a log message
			return w.value(i, nil, depth)
		}
	case "blob":
		later = blob
	default:
		text = false
	}
	if !text {
		return w.value(i, fixed, depth)
	}
	if end, ok = raw.StringEnd(w.text, i); ok {
		w.unlessBinary(*later, false) // an earlier member of the same name
		*later = [2]int{i, end}
	}
	return end, ok
}

// unlessBinary searches a string, unless the object declares it as binary and it is base64.
func (w *redacting) unlessBinary(at [2]int, binary bool) {
	if at[1] == 0 || binary && runLength(w.text[at[0]+1:at[1]-1], base64Text, 0) == at[1]-at[0]-2 {
		return
	}
	w.look(at[0], at[1])
}

// look adds the cuts of the string between start and end, which include its quotes.
func (w *redacting) look(start, end int) {
	in := w.text[start+1 : end-1]
	text := in
	if bytes.IndexByte(in, '\\') >= 0 {
		w.scratch = unescape(slices.Grow(w.scratch[:0], len(in)), in)
		text = w.scratch
	}
	w.found = w.find(text, w.found[:0])
	if len(w.found) == 0 {
		return
	}
	slices.SortStableFunc(w.found, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.start, b.start),
			cmp.Compare(b.end, a.end))
	})
	w.found = outside(binaryIn(text), merge(w.found))
	at, seen := 0, 0 // offsets in the escaped and in the unescaped string
	for _, s := range w.found {
		at, seen = advance(in, at, seen, s.start)
		cut := span{start: start + 1 + at, rule: s.rule}
		at, seen = advance(in, at, seen, s.end)
		cut.end = start + 1 + at
		w.cuts = append(w.cuts, cut)
	}
}

// find appends the matches of the rules in an unescaped text. A rule with very many matches redacts
// the whole text, so that the marks do not inflate the output.
func (r *Redactor) find(text []byte, found []span) []span {
	if r.secrets {
		found = secrets(text, found)
	}
	for i, rule := range r.rules {
		if r.needles[i] != nil && !bytes.Contains(text, r.needles[i]) {
			continue
		}
		most := 1000 + len(text)/8
		matches := rule.Re.FindAllIndex(text, most+1)
		if len(matches) > most {
			found = append(found, span{0, len(text), rule.Name})
			continue
		}
		for _, m := range matches {
			if m[1] > m[0] { // skip empty matches
				found = append(found, span{m[0], m[1], rule.Name})
			}
		}
	}
	return found
}

// merge joins overlapping spans, which are sorted by start. A joined span gets the rule of the
// first.
func merge(spans []span) []span {
	out := spans[:1]
	for _, s := range spans[1:] {
		if last := &out[len(out)-1]; s.start < last.end {
			last.end = max(last.end, s.end)
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
			i += runLength(text[start:], base64Text, 0)
			list = append(list, span{start: start, end: i})
		}
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
				out = append(out, span{s.start, holes[j].start, s.rule})
			}
			s.start = holes[j].end
		}
		if s.start < s.end {
			out = append(out, s)
		}
	}
	return out
}
