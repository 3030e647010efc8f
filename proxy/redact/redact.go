// Package redact removes secrets and other matches from messages of upstreams before a client reads
// them. Redactor walks the JSON of a message (walk.go), knows the members of the protocol
// (members.go), and unescapes strings as a client does (escape.go). It finds tokens by the prefixes
// that their issuers documented (secrets.go), and the matches of the policy's patterns (match.go).
// Memory (memory.go) keeps removed text for later arguments (arguments.go).
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

// Redactor replaces matches in messages of upstreams by [redacted: NAME], and in URIs by
// redacted-NAME, so that the URI stays valid. It guards against accidents, such as a token in a log
// file that a tool returns. It does not stop a malicious upstream from passing a secret on.
//
// Redactor matches the unescaped strings of a message, the names of members, and, with the patterns
// of the policy, numbers as they are written. It leaves only what the protocol defines (members.go),
// the value that Kept names, and binary content. Bytes that no rule matches stay unchanged.
//
// A Redactor is immutable and safe for concurrent use. A nil Redactor removes nothing.
type Redactor struct {
	rules   []policy.Redaction
	needles [][]byte // literal start of each rule's matches, written alike in JSON; nil if the rule has none
	secrets bool
	keep    bool   // known secrets may come back in arguments
	share   *share // nil if no text is kept
}

// Kept is a value of the upstream that Junction replaces itself or has replaced before, so that the
// client never reads the upstream's own.
type Kept uint8

const (
	Nothing       Kept = iota
	RequestState       // requestState of a result
	TaskID             // taskId of a result
	ProgressToken      // progressToken of a notification
	MetaToken          // progressToken in _meta of a server request
)

// has reports whether a member at a depth is the kept one.
func (k Kept) has(name []byte, at place, depth int) bool {
	switch k {
	case RequestState:
		return at == protocol && depth == 1 && string(name) == "requestState"
	case TaskID:
		return at == protocol && depth == 1 && string(name) == "taskId"
	case ProgressToken:
		return at == protocol && depth == 1 && string(name) == "progressToken"
	case MetaToken:
		return at == meta && depth == 2 && string(name) == "progressToken"
	}
	return false
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

// For returns the Redactor of safeguards; nil if they redact nothing.
func For(g *policy.Safeguards) *Redactor {
	r := New(g.Redactions, g.Secrets)
	if r != nil {
		r.keep = !g.LoseSecrets
	}
	return r
}

func keeps(rule policy.Redaction) bool { return rule.Restore }

// mayEscape reports whether JSON may escape a character, or the character is beyond ASCII.
func mayEscape(c rune) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' || c == '/' }

// Errors of a text that must not be sent.
var (
	errUnread = errors.New("it cannot be looked through for what must not be shown")
	errForm   = errors.New("it asks with a name, a choice or a default that the policy redacts, so that no " +
		"answer would fit")
)

// Result returns the redacted result and the number of redactions. Without redactions it returns o
// itself.
func (r *Redactor) Result(o raw.Object, kept Kept) (raw.Object, int, error) {
	text, n, err := r.Text(o.Text(), kept)
	if err != nil || n == 0 {
		return o, 0, err
	}
	o, err = raw.Parse(text)
	return o, n, err
}

// Error redacts all members of an upstream's error, and returns the number of redactions. If the error
// cannot be searched as a whole, only its message and its data are left, without those that cannot be
// searched.
func (r *Redactor) Error(e *jsonrpc.Error) (*jsonrpc.Error, int) {
	if r == nil {
		return e, 0
	}
	text, n, err := r.textAt(failure, e.Append(nil), Nothing)
	if err == nil && n == 0 {
		return e, 0
	}
	if err == nil {
		if clean, err := jsonrpc.ParseError(text); err == nil {
			return clean, n
		}
	}
	data, inData, err := r.Text(e.Data, Nothing)
	if err != nil {
		data, inData = nil, 1
	}
	message, inMessage, err := r.Text(raw.Quote(e.Message), Nothing)
	words := e.Message
	if inMessage > 0 {
		words, err = raw.String(message)
	}
	if err != nil {
		words, inMessage = "", 1
	}
	return &jsonrpc.Error{Code: e.Code, Message: words, Data: data}, max(inData+inMessage, 1)
}

// Item redacts the definition of an item of a list. handle is the member by which clients name the
// item. ok is false if the handle is redacted or the definition cannot be searched: no client could
// use the item.
func (r *Redactor) Item(definition []byte, handle string) (text []byte, ok bool) {
	text, n, err := r.Text(definition, Nothing)
	if err != nil || n == 0 {
		return text, err == nil
	}
	before, err := raw.Get(definition, handle)
	if err != nil {
		return nil, false
	}
	after, err := raw.Get(text, handle)
	return text, err == nil && bytes.Equal(before, after)
}

// Leaves reports whether nothing in a skill is redacted. Digests and sizes are not searched.
func (r *Redactor) Leaves(skill raw.Object) bool {
	if r == nil {
		return true
	}
	for m := range skill.All() {
		if name, err := m.Name(); err == nil && name == "resources" {
			continue
		}
		if _, n, err := r.Text(m.Value, Nothing); err != nil || n > 0 {
			return false
		}
	}
	uri, _ := skill.String("uri")
	files, _ := skill.Elements("resources")
	for _, f := range files {
		o, err := raw.Parse(f)
		if err != nil {
			return false
		}
		for m := range o.All() {
			name, err := m.Name()
			if err == nil && (name == "digest" || name == "size") {
				continue
			}
			if err == nil && name == "uri" {
				uri, err := raw.String(m.Value)
				if err != nil || r.URI(uri) != uri {
					return false
				}
				continue
			}
			one := append(append(append([]byte{'{'}, m.Key...), ':'), m.Value...)
			if _, n, err := r.Text(append(one, '}'), Nothing); err != nil || n > 0 {
				return false
			}
		}
	}
	return r.URI(uri) == uri
}

// String redacts a text without JSON. A text that cannot be searched is "".
func (r *Redactor) String(text string) string { return r.string(text, "text") }

// URI redacts a URI without JSON.
func (r *Redactor) URI(uri string) string { return r.string(uri, "uri") }

// string redacts a text as the value of a member.
func (r *Redactor) string(value, member string) string {
	if r == nil {
		return value
	}
	o := append(raw.AppendQuote([]byte(`{"`+member+`":`), value), '}')
	text, n, err := r.Text(o, Nothing)
	if err != nil {
		return ""
	} else if n == 0 {
		return value
	}
	v, _ := raw.Get(text, member)
	value, _ = raw.String(v)
	return value
}

// Text redacts any JSON text without surrounding white space, such as the params of a notification.
// It returns the number of redactions. Without redactions, and for an empty text, it returns the
// same slice.
func (r *Redactor) Text(text []byte, kept Kept) ([]byte, int, error) {
	return r.textAt(protocol, text, kept)
}

// textAt is Text, for a value of any place.
func (r *Redactor) textAt(at place, text []byte, kept Kept) ([]byte, int, error) {
	if r == nil || len(text) == 0 {
		return text, 0, nil
	}
	known := r.known(len(text))
	if r.nothingIn(text) && known.noneIn(text) {
		return text, 0, nil
	}
	w := redacting{Redactor: r, text: text, kept: kept, known: known}
	switch end, ok := w.value(0, at, nil, 0); {
	case !ok || end != len(text):
		return nil, 0, errUnread
	case w.broken:
		return nil, 0, errForm
	case len(w.cuts) == 0:
		return text, 0, nil
	}
	// cuts of binary members and of equal names come last, when their object ends
	slices.SortStableFunc(w.cuts, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	n := 0
	for _, c := range w.cuts {
		if c.suffix == "" {
			n++
		}
	}
	return mark(text, w.cuts, 0), n, nil
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

// markForm is the form of a mark, which depends on what it replaces.
type markForm uint8

const (
	inText   markForm = iota
	inURI             // only letters, digits and hyphens: valid in each part of a URI
	inNumber          // a string in place of the number
)

// markStart is the start of each mark in a text, and uriMarkStart in a URI. referenceStart is before the
// reference to a kept text, and noReference replaces the reference of a text that could not be kept.
const (
	markStart      = "[redacted: "
	uriMarkStart   = "redacted-"
	referenceStart = " #"
	noReference    = "none"
)

// mark returns the text from a place on, with the cuts replaced by their marks. The cuts are sorted
// and do not overlap.
func mark(text []byte, cuts []span, from int) []byte {
	out := make([]byte, 0, len(text)-from+32*len(cuts))
	for _, c := range cuts {
		out = append(out, text[from:c.start]...)
		out = c.appendMark(out)
		from = c.end
	}
	return append(out, text[from:]...)
}

func (s *span) appendMark(out []byte) []byte {
	if s.suffix != "" {
		return append(out, s.suffix...)
	}
	if s.as == inURI {
		return appendURIMark(out, s.rule)
	}
	if s.as == inNumber {
		out = append(out, '"')
	}
	out = append(out, markStart...)
	name := raw.Quote(s.rule)
	out = append(out, name[1:len(name)-1]...)
	if s.reference != "" {
		out = append(append(out, referenceStart...), s.reference...)
	}
	out = append(out, ']')
	if s.as == inNumber {
		out = append(out, '"')
	}
	return out
}

// appendURIMark appends the mark of a rule in a URI.
func appendURIMark(out []byte, rule string) []byte {
	out = append(out, uriMarkStart...)
	for _, c := range []byte(rule) {
		if !wordCharacters[c] {
			c = '-'
		}
		out = append(out, c)
	}
	return out
}
