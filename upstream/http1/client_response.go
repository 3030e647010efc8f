package http1

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"

	"junction/upstream/prose"
)

// This file reads HTTP/1 responses (RFC 9112), faster than net/http, which copies a header in three
// layers. It accepts only responses that net/http accepts (FuzzResponse). It rejects responses that
// two programs could understand differently, because a proxy between Junction and the server may
// understand them in the other way.

var (
	errHeaderTooLarge = errors.New("the header of the answer is too large")
	errNotHTTP        = errors.New("the answer is not HTTP")
)

func notHTTP(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errNotHTTP}, args...)...)
}

// readResponseHead reads the status line and the header of a response. scratch is a reusable
// buffer. resp gets everything except the body and the header. ContentLength is -1 if the body is
// chunked or ends with the connection. Close means that no other response can follow. The header is
// appended to fields with canonical names: most responses are read without using most of it.
func readResponseHead(r *bufio.Reader, scratch *[]byte, resp *http.Response, fields []Field) ([]Field, error) {
	text, err := readBlock(r, scratch)
	if err != nil {
		return nil, err
	}
	status, rest, _ := cutLine(text)
	if err := parseStatus(status, resp); err != nil {
		return nil, err
	}
	if fields, err = parseFields(fields, rest, strings.Count(rest, "\n")-1); err != nil {
		return nil, err
	}
	return fields, frame(resp, fields)
}

// headerOf returns an http.Header with the fields, whose names must be canonical.
func headerOf(fields []Field) http.Header {
	h := make(http.Header, len(fields))
	for _, f := range fields {
		h[f.Name] = append(h[f.Name], f.Value)
	}
	return h
}

// readBlock returns the lines up to the first empty one, including that line. Lines end with CR LF
// or LF.
func readBlock(r *bufio.Reader, scratch *[]byte) (string, error) {
	b := (*scratch)[:0]
	defer func() { *scratch = b }()
	for start := 0; ; {
		part, err := r.ReadSlice('\n')
		b = append(b, part...)
		switch {
		case len(b) > maxResponseHead:
			return "", errHeaderTooLarge
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF:
			return "", io.ErrUnexpectedEOF
		case err != nil:
			return "", err
		}
		if n := len(b) - start; n == 1 || n == 2 && b[start] == '\r' {
			return string(b), nil
		}
		start = len(b)
	}
}

func parseStatus(line string, resp *http.Response) error {
	const proto = "HTTP/1.x "
	if len(line) < len(proto)+3 || line[:7] != "HTTP/1." || line[7] != '0' && line[7] != '1' || line[8] != ' ' {
		return notHTTP("it begins with %s", prose.Whole(strconv.Quote(line), 60))
	}
	resp.Proto, resp.ProtoMajor, resp.ProtoMinor, resp.Status = line[:8], 1, int(line[7]-'0'), line[9:]
	code := resp.Status[:3]
	if c, err := strconv.ParseUint(code, 10, 16); err == nil && c >= 100 &&
		(len(resp.Status) == 3 || resp.Status[3] == ' ') {
		resp.StatusCode = int(c)
		return nil
	}
	return notHTTP("its status is %s", prose.Whole(strconv.Quote(resp.Status), 60))
}

// frame determines the end of the body (RFC 9112, section 6.3), and whether the connection can be
// reused (section 9.3).
func frame(resp *http.Response, fields []Field) error {
	length, chunked, declared := int64(-1), false, ""
	var ends, stays bool // values of the header field Connection
	for _, f := range fields {
		switch f.Name {
		case "Content-Length":
			n, err := strconv.ParseUint(f.Value, 10, 63)
			if err != nil || declared != "" && declared != f.Value {
				return notHTTP("its Content-Length is %s", prose.Whole(strconv.Quote(f.Value), 60))
			}
			length, declared = int64(n), f.Value
		case "Transfer-Encoding":
			if chunked || !strings.EqualFold(f.Value, "chunked") || resp.ProtoMinor == 0 {
				return notHTTP("its Transfer-Encoding is %s", prose.Whole(strconv.Quote(f.Value), 60))
			}
			chunked = true
			resp.TransferEncoding = []string{f.Value}
		case "Connection":
			ends, stays = ends || mentions(f.Value, "close"), stays || mentions(f.Value, "keep-alive")
		}
	}
	if chunked && length >= 0 {
		return notHTTP("it has both Transfer-Encoding and Content-Length")
	}
	resp.ContentLength = length
	resp.Close = resp.ProtoMinor == 0 && !stays || ends
	switch {
	case resp.StatusCode < 200 && (length >= 0 || chunked):
		return notHTTP("it is interim and has a body")
	case resp.StatusCode < 200:
		resp.ContentLength = 0
	case resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified:
		resp.Close = resp.Close || length > 0 || chunked // a body that is not allowed is not read
		resp.ContentLength, resp.TransferEncoding = 0, nil
	case length < 0 && !chunked:
		resp.Close = true
	}
	return nil
}

// mentions reports whether word is one of the comma-separated words of value.
func mentions(value, word string) bool {
	for w := range strings.SplitSeq(value, ",") {
		if strings.EqualFold(strings.Trim(w, " \t"), word) {
			return true
		}
	}
	return false
}

// content reads the body of a response.
type content struct {
	r      *bufio.Reader
	chunks io.Reader // nil unless the body is chunked
	left   int64     // of a body with a known length; otherwise negative
}

func contentOf(resp *http.Response, r *bufio.Reader) content {
	c := content{r: r, left: resp.ContentLength}
	if len(resp.TransferEncoding) > 0 {
		c.chunks = httputil.NewChunkedReader(r)
	}
	return c
}

// Read returns io.EOF with the last bytes, if the end is known.
func (c *content) Read(p []byte) (n int, err error) {
	switch {
	case c.chunks != nil:
		if n, err = c.chunks.Read(p); err == io.EOF {
			err = skipTrailer(c.r)
		}
		return n, err
	case c.left == 0:
		return 0, io.EOF
	case c.left > 0 && int64(len(p)) > c.left:
		p = p[:c.left]
	}
	n, err = c.r.Read(p)
	if c.left < 0 {
		return n, err
	}
	switch c.left -= int64(n); {
	case c.left == 0:
		return n, io.EOF
	case err == io.EOF:
		return n, io.ErrUnexpectedEOF
	}
	return n, err
}

// skipTrailer reads and drops the trailer after the last chunk. It returns io.EOF.
func skipTrailer(r *bufio.Reader) error {
	var scratch []byte
	text, err := readBlock(r, &scratch)
	if err != nil {
		return err
	}
	for text != "" {
		line, rest, end := cutLine(text)
		if end != "\r\n" {
			return notHTTP("a line of its trailer is %s", prose.Whole(strconv.Quote(line), 60))
		}
		if text = rest; text == "" {
			break
		}
		if _, err := parseField(line); err != nil {
			return err
		}
	}
	return io.EOF
}
