// Package redact removes secrets and other matches from messages of upstreams before a client
// reads them. Redactor walks the JSON of a message (redact.go), reads its strings as a client does
// (escape.go) and finds tokens by the prefixes that their issuers documented (secrets.go).
package redact

import (
	"bytes"
	"cmp"
	"errors"
	"regexp"
	"slices"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// Rule is a rule of an operator's: what it matches in a text is replaced by its name.
type Rule struct {
	Name string
	Re   *regexp.Regexp
}

// Redactor removes from what an upstream says what a client must not read, and marks the place:
// [redacted: NAME]. It guards against accidents, such as a token in a log file that a tool shows;
// an upstream that wants a secret out finds a way.
//
// It looks at the strings of a message as a reader sees them, without their escapes. Not looked at
// are the names of members, binary content, and, where MCP itself defines the object, the words and
// the handles of the protocol (see fixedMembers). All bytes that no rule matches stay as they are.
//
// It is immutable, and may be used by several goroutines at once. A nil redactor removes nothing.
type Redactor struct {
	rules   []Rule
	needles [][]byte // of the rules: what each match begins with, as JSON has it too; nil when there is no such
	secrets bool
}

// New returns nil when there is nothing to look for.
func New(rules []Rule, secrets bool) *Redactor {
	if len(rules) == 0 && !secrets {
		return nil
	}
	r := &Redactor{rules: rules, secrets: secrets}
	for _, rule := range rules {
		prefix, _ := rule.Re.LiteralPrefix()
		needle := []byte(prefix)
		for _, c := range needle {
			// JSON may write it in a short way of its own, or as bytes beyond ASCII
			if c < ' ' || c > '~' || c == '"' || c == '\\' || c == '/' {
				needle = nil
				break
			}
		}
		if len(needle) == 0 {
			needle = nil
		}
		r.needles = append(r.needles, needle)
	}
	return r
}

// errUnread means that a text could not be looked through. It must not be sent then.
var errUnread = errors.New("it cannot be looked through for what must not be shown")

// Result returns a result without what is to be removed, and in how many places something was. It
// is the same object when there was nothing.
func (r *Redactor) Result(o raw.Object) (raw.Object, int, error) {
	text, n, err := r.Text(o.Text())
	if err != nil || n == 0 {
		return o, 0, err
	}
	o, err = raw.Parse(text)
	return o, n, err
}

// Error is result for an upstream's error: its message and its data. What cannot be looked through
// is left out.
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
	// without members beyond the three
	return &jsonrpc.Error{Code: e.Code, Message: words, Data: data}, inData + inMessage
}

// Text is result for any JSON text without white space around it, such as the params of a
// notification. It is the same slice when there was nothing; an empty one is no text, and stays.
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
	// binary members are judged when their object ends
	slices.SortFunc(w.cuts, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	return mark(text, w.cuts), len(w.cuts), nil
}

// nothingIn reports, without reading the structure, that no rule can match anything in a JSON text.
// It is the whole cost of most results.
func (r *Redactor) nothingIn(text []byte) bool {
	for _, needle := range r.needles {
		if needle == nil || bytes.Contains(text, needle) {
			return false
		}
	}
	return (!r.secrets || secretStart(text, 0) < 0) && !hidesASCII(text)
}

// hidesASCII reports whether the text has a character of ASCII that is written as a number.
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

// mark replaces the spans, which are in order and do not overlap.
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

// fixedMembers are the members of MCP's own objects whose strings stay: words that tell a reader
// the kind of what is there, without which the message means nothing any more, and handles that
// come back to us or to the upstream and must be what they were. A uri is a handle: it is asked for
// again byte by byte, and many clients refuse a whole result over one that is no URI. Who must not
// see a URI is denied the resource. In structured content and in _meta, which are what an upstream
// makes of them, no member is a word of MCP's.
// words
var fixedMembers = newSet("type", "role", "mimeType", "resultType", "cacheScope", "method", "mode", "status", "level",
	"audience", "lastModified",
	// handles
	"uri", "url", "src", "elicitationId", "taskId", "requestState", "nextCursor", "progressToken", "requestId",
	// of the form that a person is asked to fill in
	"required", "enum", "const", "format", "pattern", "$schema", "$ref")

// handleMembers are those that stay in _meta.
var handleMembers = newSet("taskId", "progressToken", "resourceUri", "ui/resourceUri", "openai/outputTemplate",
	"io.modelcontextprotocol/subscriptionId")

func newSet(names ...string) map[string]bool {
	set := map[string]bool{}
	for _, name := range names {
		set[name] = true
	}
	return set
}

// redacting is one text being looked through.
type redacting struct {
	*Redactor
	text    []byte
	cuts    []span // in text
	found   []span // in the string at hand; memory that is used again
	scratch []byte // as is this
}

// value looks through the value at i and returns where it ends. Fixed are the members whose strings
// stay. The text is JSON, or else ok may be false.
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

// array looks through an array; kept says that its strings stay.
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

// object looks through an object. Whether its data or blob is binary is known at its end only.
func (w *redacting) object(i int, fixed map[string]bool, depth int) (end int, ok bool) {
	var data, blob [2]int
	media, located := false, false // it is an image or sound, or something that has a URI
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

// member looks through the value of a member at i, or puts it into data or blob until the object
// has ended.
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
		if !text { // of a log message
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
		w.unlessBinary(*later, false) // one of the same name before it
		*later = [2]int{i, end}
	}
	return end, ok
}

// unlessBinary looks at a string that is binary content where it stands, if it says so and is
// base64.
func (w *redacting) unlessBinary(at [2]int, binary bool) {
	if at[1] == 0 || binary && runLength(w.text[at[0]+1:at[1]-1], base64Text, 0) == at[1]-at[0]-2 {
		return
	}
	w.look(at[0], at[1])
}

// look adds what is to be removed from the string between start and end, its quotes included.
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
	at, seen := 0, 0 // in the string as it was written, and as it is read
	for _, s := range w.found {
		at, seen = advance(in, at, seen, s.start)
		cut := span{start: start + 1 + at, rule: s.rule}
		at, seen = advance(in, at, seen, s.end)
		cut.end = start + 1 + at
		w.cuts = append(w.cuts, cut)
	}
}

// find appends what the rules match in a text, as it is read. A rule that matches almost everywhere
// takes the whole text, so that what is written for its matches does not become larger and larger.
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
			if m[1] > m[0] { // of nothing there is nothing to remove
				found = append(found, span{m[0], m[1], rule.Name})
			}
		}
	}
	return found
}

// merge joins spans that overlap, which are in the order of their starts, under the name of the
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

// binaryIn returns the payloads of the data: URIs (RFC 2397) in a text.
func binaryIn(text []byte) (list []span) {
	const mark, longest = ";base64,", 100 // of what stands between data: and the mark
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

// outside returns what of the spans is in none of the holes, of which there are few; both are in
// order.
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
