package transport

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"junction/upstream/prose"
)

// This file inflates the answers of servers that compress although Junction asks for identity.

const (
	// Junction asks for identity: small answers gain nothing, and a proxy may hold the events of a
	// compressed stream back.
	headerAcceptEncoding  = "Accept-Encoding"
	headerContentEncoding = "Content-Encoding"

	// mostInflation is how many bytes a compressed one may become, in a stream that has become longer
	// than one message may be. Deflate reaches 1,032; text, about 20.
	mostInflation = 200

	// mostEmpty is how many compressed bytes may become nothing, one after the other: empty members of
	// gzip, and empty blocks, with which servers keep a stream alive.
	mostEmpty = 1 << 20
)

// registered are the content codings of IANA, except identity. Anything else changes nothing: some
// servers write utf-8 or none there, and the reference clients read their text.
var registered = []string{"gzip", "x-gzip", "deflate", "br", "zstd", "compress", "x-compress", "dcb", "dcz",
	"aes128gcm", "exi", "pack200-gzip"}

// unknownCoding is the error for a Content-Encoding that Junction does not read.
type unknownCoding string

func (e unknownCoding) Error() string {
	return fmt.Sprintf("the answer has Content-Encoding %s, and Junction reads gzip or deflate alone; "+
		"turn the compression off at the server", prose.Whole(fmt.Sprintf("%q", string(e)), 60))
}

// errInflates means that an answer is much larger than its compressed form.
var errInflates = fmt.Errorf("the compressed answer becomes more than %d times as large", mostInflation)

// errEmpty means that an answer is compressed nothing.
var errEmpty = fmt.Errorf("%w: the compressed answer has %s without content", ErrInvalid, FormatSize(mostEmpty))

// isCoded reports whether the response has a Content-Encoding.
func (t *trip) isCoded() bool {
	if t.Response.Header != nil {
		return t.Response.Header[headerContentEncoding] != nil
	}
	return t.exchange.Get(headerContentEncoding) != ""
}

// inflate makes the trip read the inflated body. Its length is then unknown. limit is the
// limit of one message. A body in an unknown coding fails when it is read, because its status may matter more.
func (t *trip) inflate(limit int) {
	var codings []string
	for _, value := range t.header()[headerContentEncoding] {
		for coding := range strings.SplitSeq(value, ",") {
			if coding = strings.ToLower(strings.TrimSpace(coding)); slices.Contains(registered, coding) {
				codings = append(codings, coding)
			}
		}
	}
	if len(codings) == 0 || t.ContentLength == 0 {
		return
	}
	b := &inflated{Closer: t.Body, coding: strings.Join(codings, ", "), limit: int64(limit)}
	b.source.r = t.Body
	b.in = bufio.NewReaderSize(&b.source, 4<<10)
	t.Body, t.ContentLength = b, -1
}

// inflated is the body of a compressed response. What the server has flushed is read at once.
type inflated struct {
	io.Closer
	coding string
	source source
	in     *bufio.Reader // of source
	out    io.Reader     // nil before the first byte
	member *gzip.Reader  // out, for gzip
	wrote  int64
	limit  int64
	err    error
}

// source is the compressed body.
type source struct {
	r    io.Reader
	read int64
	used int64 // of read, when the last byte was inflated
	err  error
}

func (s *source) Read(p []byte) (n int, err error) {
	if s.read-s.used > mostEmpty { // the inflater reads on until it has a byte
		s.err = errEmpty
		return 0, s.err
	}
	n, err = s.r.Read(p)
	s.read, s.err = s.read+int64(n), err
	return n, err
}

func (b *inflated) Read(p []byte) (n int, err error) {
	if b.err != nil {
		return 0, b.err
	}
	if n, err = b.next(p); err != nil {
		b.err = b.reason(err)
	}
	if n > 0 {
		b.source.used = b.source.read
	}
	if b.wrote += int64(n); b.wrote > b.limit && b.wrote-b.limit > mostInflation*b.source.read {
		n, b.err = 0, fmt.Errorf("%w: %w", ErrInvalid, errInflates)
	}
	return n, b.err
}

// next reads the next bytes of the inflated body.
func (b *inflated) next(p []byte) (int, error) {
	for {
		if b.out == nil {
			if err := b.open(); err != nil {
				return 0, err
			}
		}
		n, err := b.out.Read(p)
		if n > 0 && err == io.EOF {
			return n, nil // at once; the end is found again
		}
		if err != io.EOF {
			return n, err
		}
		// Another member may follow (RFC 1952, section 2.2). The end of the body must be read, or else the
		// connection cannot be used again.
		start, _ := b.in.Peek(len(gzipMagic))
		if b.member == nil || !bytes.Equal(start, gzipMagic) {
			return 0, io.EOF
		}
		if err := b.member.Reset(b.in); err != nil {
			return 0, err
		}
		b.member.Multistream(false)
	}
}

var gzipMagic = []byte{0x1f, 0x8b}

// open reads the head of the compressed data. An empty body is the end.
func (b *inflated) open() (err error) {
	start, err := b.in.Peek(2)
	if len(start) == 0 {
		return err
	}
	switch b.coding {
	case "gzip", "x-gzip":
		if b.member, err = gzip.NewReader(b.in); err == nil {
			b.member.Multistream(false)
			b.out = b.member
		}
	case "deflate":
		// zlib (RFC 9110, section 8.4.1.2), or the bare format that some servers send
		if len(start) == 2 && start[0]&0x0f == 8 && (int(start[0])<<8|int(start[1]))%31 == 0 {
			b.out, err = zlib.NewReader(b.in)
		} else {
			b.out, err = flate.NewReader(b.in), nil
		}
	default:
		err = unknownCoding(b.coding)
	}
	return err
}

// reason returns the error for a body that cannot be read further. If the body has ended as HTTP demands,
// compressed data without their end are whole: servers leave the end out, and curl and browsers read
// them.
func (b *inflated) reason(err error) error {
	switch {
	case err == io.EOF:
		return err
	case b.source.err != nil && b.source.err != io.EOF:
		return b.source.err
	case errors.Is(err, io.ErrUnexpectedEOF) && b.source.err == io.EOF:
		return io.EOF
	case errors.As(err, new(unknownCoding)):
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return fmt.Errorf("%w: the answer with Content-Encoding %s cannot be inflated: %w", ErrInvalid, b.coding, err)
}
