// Package canon writes JSON values in a canonical form, so that equal values have equal texts. Text
// keeps numbers as written and is stored in pins. Value compares numbers as decimals and is used
// for digests of requests.
package canon

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"junction/upstream/raw"
)

const (
	// bytes; the form of a longer object is replaced by its hash, so that sorting outer objects
	// copies little
	longObject   = 512
	longExponent = 18 // digits; a longer exponent is kept as written
)

// Value returns a text that is equal for two JSON values if and only if the values are equal. The
// order of members, escapes and the spelling of numbers do not count; numbers are compared as exact
// decimals. ok is false if the value has no such form: an object has a duplicate key, or a string
// is not UTF-8 or has half a surrogate pair. The text must be JSON. The time is linear in its
// length, except for sorting members.
//
// Value follows RFC 8785 except for numbers: RFC 8785 rounds them to doubles, so two requests with
// different large integers would be equal.
func Value(text []byte) (form []byte, ok bool) {
	b, i, ok := byValue.append(make([]byte, 0, len(text)), text, raw.SkipSpace(text, 0), 0)
	return b, ok && raw.SkipSpace(text, i) == len(text)
}

// Text returns a JSON text without white space, with sorted members and uniform string escapes.
// Numbers and strings that are not UTF-8 stay as written. Duplicate members stay in their order. So
// two texts have the same canonical text only if every parser reads the same value. Stored pins
// depend on this form.
func Text(text []byte) ([]byte, error) {
	text, err := raw.Scan(text, raw.DefaultDepth)
	if err != nil {
		return nil, err
	}
	form, _, _ := asWritten.append(make([]byte, 0, len(text)), text, 0, 0) // cannot fail: the text is JSON
	return form, nil
}

// Without returns an object without the members whose name drop reports; nil if no member is left. ok
// is false if a name is ambiguous.
func Without(o raw.Object, drop func(name string) bool) (text []byte, ok bool) {
	var edits []raw.Edit
	for m := range o.All() {
		name, err := m.Name()
		if err != nil {
			return nil, false
		}
		if drop(name) {
			edits = append(edits, raw.Edit{Name: name})
		}
	}
	if len(edits) == o.Len() {
		return nil, true
	}
	text, err := o.Splice(edits...)
	return text, err == nil
}

// style is one of the two forms.
type style bool

const (
	byValue   style = false // of Value
	asWritten style = true  // of Text
)

// append appends the form of the value at text[i] and returns the index after that value.
func (s style) append(b, text []byte, i, depth int) (form []byte, end int, ok bool) {
	if i >= len(text) || depth > raw.DefaultDepth {
		return b, i, false
	}
	switch text[i] {
	case '"':
		if end, ok = raw.StringEnd(text, i); ok {
			b, ok = s.appendString(b, text[i:end])
		}
		return b, end, ok
	case '{':
		return s.appendObject(b, text, i, depth+1)
	case '[':
		return s.appendArray(b, text, i, depth+1)
	}
	for end = i; end < len(text) && text[end] > ' ' && text[end] != ',' && text[end] != '}' && text[end] != ']'; {
		end++
	}
	switch c := text[i]; {
	case end == i:
		return b, i, false
	case s == asWritten || c == 't' || c == 'f' || c == 'n':
		return append(b, text[i:end]...), end, true
	}
	return appendNumber(b, text[i:end]), end, true
}

// appendString appends a string with the escapes of raw.AppendQuote.
func (s style) appendString(b, text []byte) (form []byte, ok bool) {
	if bytes.IndexByte(text, '\\') < 0 { // the string needs no escapes
		return append(b, text...), s == asWritten || utf8.Valid(text)
	}
	value, err := raw.String(text)
	if err != nil {
		return append(b, text...), s == asWritten
	}
	return raw.AppendQuote(b, value), true
}

func (s style) appendArray(b, text []byte, i, depth int) (form []byte, end int, ok bool) {
	b = append(b, '[')
	if i = raw.SkipSpace(text, i+1); i < len(text) && text[i] == ']' {
		return append(b, ']'), i + 1, true
	}
	for {
		if b, i, ok = s.append(b, text, i, depth); !ok {
			return b, i, false
		}
		if i = raw.SkipSpace(text, i); i >= len(text) {
			return b, i, false
		}
		if b = append(b, text[i]); text[i] == ']' {
			return b, i + 1, true
		}
		i = raw.SkipSpace(text, i+1)
	}
}

// formMember is a member in a form: form[start:end] is its key and value. The key ends at colon.
type formMember struct{ start, colon, end int }

// appendObject appends the members sorted by key. RFC 8785 sorts by UTF-16 code units; a
// comparison needs only a fixed order. asWritten keeps duplicate members, in their order.
func (s style) appendObject(b, text []byte, i, depth int) (form []byte, end int, ok bool) {
	begin := len(b)
	b = append(b, '{')
	var few [8]formMember
	members := few[:0]
	for i = raw.SkipSpace(text, i+1); ; i = raw.SkipSpace(text, i+1) {
		if i < len(text) && text[i] == '}' { // an object without members
			break
		}
		var m formMember
		if b, i, m, ok = s.appendMember(b, text, i, depth); !ok {
			return b, i, false
		}
		members = append(members, m)
		if i = raw.SkipSpace(text, i); i >= len(text) {
			return b, i, false
		}
		if text[i] == '}' {
			break
		}
	}
	byKey := func(m, o formMember) int { return bytes.Compare(b[m.start:m.colon], b[o.start:o.colon]) }
	if !slices.IsSortedFunc(members, byKey) {
		whole := bytes.Clone(b[begin:])
		slices.SortStableFunc(members, byKey)
		b = b[:begin+1]
		for k, m := range members {
			size := len(b)
			b = append(b, whole[m.start-begin:m.end-begin]...)
			members[k] = formMember{size, size + m.colon - m.start, len(b)}
		}
	}
	if s == asWritten {
		if len(members) > 0 {
			b = b[:len(b)-1] // the comma
		}
		return append(b, '}'), i + 1, true
	}
	for k := 1; k < len(members); k++ {
		if byKey(members[k-1], members[k]) == 0 {
			return b, i, false
		}
	}
	if b = append(b, '}'); len(b)-begin > longObject {
		sum := sha256.Sum256(b[begin:])
		b = append(append(b[:begin], '#'), sum[:]...)
	}
	return b, i + 1, true
}

// appendMember appends the member at text[i] and a comma.
func (s style) appendMember(b, text []byte, i, depth int) (form []byte, end int, m formMember, ok bool) {
	if i >= len(text) || text[i] != '"' {
		return b, i, m, false
	}
	m.start = len(b)
	if end, ok = raw.StringEnd(text, i); !ok {
		return b, i, m, false
	}
	if b, ok = s.appendString(b, text[i:end]); !ok {
		return b, i, m, false
	}
	m.colon = len(b)
	if end = raw.SkipSpace(text, end); end >= len(text) || text[end] != ':' {
		return b, i, m, false
	}
	if b, end, ok = s.append(append(b, ':'), text, raw.SkipSpace(text, end+1), depth); !ok {
		return b, i, m, false
	}
	b = append(b, ',')
	m.end = len(b)
	return b, end, m, true
}

// appendNumber appends a number as its decimal digits without zeros at either end, and the
// exponent of the last digit: 1, 1.0 and 10e-1 are 1e0. All zeros are 0.
func appendNumber(b, text []byte) []byte {
	mantissa, power := string(text), ""
	if e := bytes.IndexAny(text, "eE"); e >= 0 {
		mantissa, power = mantissa[:e], mantissa[e+1:]
	}
	mantissa, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return append(b, '0')
	}
	sign := ""
	if rest, minus := strings.CutPrefix(power, "-"); minus {
		sign, power = "-", rest
	}
	power = strings.TrimLeft(power, "+0")
	if len(power) > longExponent {
		return append(append(b, '~'), text...) // no other form begins with ~
	}
	exponent, _ := strconv.ParseInt(sign+"0"+power, 10, 64)
	short := strings.TrimRight(digits, "0")
	exponent += int64(len(digits) - len(short) - len(fraction))
	if negative {
		b = append(b, '-')
	}
	return strconv.AppendInt(append(append(b, short...), 'e'), exponent, 10)
}
