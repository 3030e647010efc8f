package http1

import (
	"net/textproto"
	"strconv"
	"strings"

	"junction/upstream/prose"
)

// This file parses header lines, for requests and responses. It accepts only what net/http accepts,
// with the same meaning (FuzzHead, FuzzResponse).

// Field is one field of an HTTP header.
type Field struct{ Name, Value string }

// byteSet contains the bytes that a part of a head may have.
type byteSet [256]bool

const alphanumerics = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

var (
	tokenBytes = setOf(alphanumerics + "!#$%&'*+-.^_`|~") // RFC 9110, section 5.6.2
	pathBytes  = setOf(alphanumerics + "/-_.~")
	hostBytes  = setOf(alphanumerics + "-.:[]") // of names, addresses and ports
)

func setOf(bytes string) (in byteSet) {
	for _, c := range []byte(bytes) {
		in[c] = true
	}
	return in
}

// all reports whether s has only bytes of the set, and at least one.
func (in *byteSet) all(s string) bool {
	for i := range len(s) {
		if !in[s[i]] {
			return false
		}
	}
	return s != ""
}

// IsToken reports whether s is an HTTP token (RFC 9110, section 5.6.2), such as a header name.
func IsToken(s string) bool { return tokenBytes.all(s) }

// parseFields appends the fields in the first n lines of text. Their names are canonical.
func parseFields(fields []Field, text string, n int) ([]Field, error) {
	for range n {
		var line string
		line, text, _ = cutLine(text)
		f, err := parseField(line)
		if err != nil {
			return nil, err
		}
		fields = append(fields, f)
	}
	return fields, nil
}

// cutLine splits off the first line of the text; end is its line end.
func cutLine(text string) (line, rest, end string) {
	i := strings.IndexByte(text, '\n')
	line, rest = text[:i], text[i+1:]
	if strings.HasSuffix(line, "\r") {
		return line[:i-1], rest, "\r\n"
	}
	return line, rest, "\n"
}

// parseField parses one header line. It rejects continuation lines (obs-fold), and white space in
// or after a name.
func parseField(line string) (Field, error) {
	colon := 0
	canonical, upper := true, true
	for ; colon < len(line) && tokenBytes[line[colon]]; colon++ {
		c := line[colon]
		canonical = canonical && !(upper && 'a' <= c && c <= 'z' || !upper && 'A' <= c && c <= 'Z')
		upper = c == '-'
	}
	if colon == 0 || colon == len(line) || line[colon] != ':' {
		return Field{}, notHTTP("a line of its header is %s", prose.Whole(strconv.Quote(line), 60))
	}
	name, value := line[:colon], strings.Trim(line[colon+1:], " \t")
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return Field{}, notHTTP("its field %s has control characters", prose.Whole(name, 60))
		}
	}
	if !canonical {
		name = textproto.CanonicalMIMEHeaderKey(name)
	}
	return Field{Name: name, Value: value}, nil
}
