package record

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// TestLines reads lines of each length, and goes on after the end of a file that grows. A line that
// is too long ends the reading, and what was read of it stays within the limit.
func TestLines(t *testing.T) {
	const most = 200 << 10
	long := strings.Repeat("x", most-1)
	r := &growing{}
	l := NewLines(r)
	l.most = most
	next := func() (string, error) {
		line, err := l.Next()
		return string(line), err
	}
	r.text = "a\n\n" + long + "\nto"
	for _, want := range []string{"a", "", long} {
		if got, err := next(); got != want || err != nil {
			t.Fatalf("a line of %d bytes, %v; want %d", len(got), err, len(want))
		}
	}
	if _, err := next(); err != io.EOF || l.Torn() != 2 {
		t.Fatalf("the end is %v after %d bytes", err, l.Torn())
	}
	r.text = "rn\n"
	if got, err := next(); got != "torn" || err != nil || l.Torn() != 0 {
		t.Fatalf("the line that grew is %q, %v", got, err)
	}
	r.text = long + "xx\n"
	if got, err := next(); !errors.Is(err, ErrLongLine) || cap(l.line) > 2*most {
		t.Fatalf("a line of %d bytes is read, %v, with %d bytes of memory", len(got), err, cap(l.line))
	}
}

// growing is a file that has more text from time to time.
type growing struct{ text string }

func (g *growing) Read(b []byte) (int, error) {
	n := copy(b, g.text)
	if g.text = g.text[n:]; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}
