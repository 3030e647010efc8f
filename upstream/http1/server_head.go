package http1

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
)

const (
	firstBuffer = 4 << 10  // large enough for nearly all small requests
	maxHead     = 16 << 10 // a larger head is not plain
	maxFields   = 64
)

// head contains the request line and the header of a plain request. Identical requests on a
// connection share it.
type head struct {
	text   string // as it was sent
	method string
	path   string
	host   string
	header http.Header
	length int64 // of the body
}

// headKind tells what the bytes that were read so far are.
type headKind int

const (
	notPlain headKind = iota // not a plain request
	partial                  // may become a plain request
	plain                    // the head is complete
)

// find returns the length of the head at the start of b. from is the length that was searched
// before, when the result was partial.
func find(b []byte, from int) (int, headKind) {
	if len(b) == 0 {
		return 0, partial
	}
	for _, method := range methods {
		n := min(len(method), len(b))
		if string(b[:n]) != method[:n] {
			continue
		}
		for i := from; ; {
			at := bytes.IndexByte(b[i:], '\n')
			if at < 0 {
				return 0, partial
			}
			i += at + 1
			switch {
			case i < 2 || b[i-2] != '\r':
				return 0, notPlain // after a bare LF the client may wait for the response
			case i >= 4 && b[i-3] == '\n':
				return i, plain
			}
		}
	}
	return 0, notPlain
}

// methods are followed by a space.
var methods = []string{"POST ", "GET ", "DELETE "}

// parse parses a complete head, or its first lines. It returns false if the request is not plain.
// It accepts only what net/http accepts, with the same meaning (FuzzHead).
func parse(text string, whole bool) (*head, bool) {
	line, rest, _ := strings.Cut(text, "\r\n")
	method, target, _ := strings.Cut(line, " ")
	target, ok := strings.CutSuffix(target, " HTTP/1.1")
	if !ok || !plainPath(target) {
		return nil, false
	}
	h := &head{text: text, method: method, path: target}
	n := strings.Count(rest, "\n")
	if whole {
		n-- // the last line is empty
	}
	if n > maxFields {
		return nil, false
	}
	lengths := 0
	var few [maxFields]Field
	fields, err := parseFields(few[:0], rest, n)
	if err != nil || !isASCII(rest) {
		return nil, false
	}
	values := make([]string, n)
	h.header = make(http.Header, n)
	for i, f := range fields {
		name, value := f.Name, f.Value
		switch name {
		case "Host":
			if h.host != "" || !hostBytes.all(value) {
				return nil, false
			}
			h.host = value
			continue
		case "Content-Length":
			length, err := strconv.ParseUint(value, 10, 62)
			if err != nil || lengths > 0 || strconv.FormatUint(length, 10) != value {
				return nil, false
			}
			lengths++
			h.length = int64(length)
		case "Connection":
			if !strings.EqualFold(value, "keep-alive") {
				return nil, false
			}
		case "Transfer-Encoding", "Trailer", "Te", "Upgrade", "Expect", "Http2-Settings", "Keep-Alive",
			"Proxy-Connection", "Pragma":
			return nil, false
		}
		if before := h.header[name]; before != nil {
			h.header[name] = append(before, value)
			continue
		}
		values[i] = value
		h.header[name] = values[i : i+1 : i+1]
	}
	return h, !whole || h.host != "" && (lengths > 0) == (method == http.MethodPost)
}

// plainPath reports whether a target is a path without escapes and without a query.
func plainPath(target string) bool {
	return strings.HasPrefix(target, "/") && !strings.HasPrefix(target, "//") && pathBytes.all(target)
}

func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= 0x80 {
			return false
		}
	}
	return true
}
