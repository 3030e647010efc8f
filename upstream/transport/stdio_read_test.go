package transport

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"junction/upstream/jsonrpc"
)

// readLines returns what a lineReader makes of r: the lines, and the sizes of those that are too
// long.
func readLines(t *testing.T, r io.Reader, limit int) (lines []string, long []int) {
	t.Helper()
	l := lineReader{r: r, limit: limit, spare: new(lineBuffers)}
	var kept [][]byte
	for {
		line, o, err := l.next()
		switch {
		case err == io.EOF:
			for _, k := range kept { // now, so that a line which aliases the buffer is seen to change
				lines = append(lines, string(k))
			}
			return lines, long
		case err != nil:
			t.Fatalf("next: %v", err)
		case o != nil:
			long = append(long, o.size)
		default:
			kept = append(kept, line)
		}
	}
}

// wantLines is what readLines should return, worked out in the simplest way.
func wantLines(text string, limit int) (lines []string, long []int) {
	for line := range strings.SplitSeq(text, "\n") {
		switch {
		case len(line) > limit:
			long = append(long, len(line))
		case strings.TrimRight(line, " \t\r") != "":
			lines = append(lines, line)
		}
	}
	return lines, long
}

func checkLines(t *testing.T, text string, limit int) {
	t.Helper()
	want, wantLong := wantLines(text, limit)
	for name, r := range map[string]io.Reader{
		"whole": strings.NewReader(text), "halves": iotest.HalfReader(strings.NewReader(text)),
		"with EOF": iotest.DataErrReader(strings.NewReader(text)), "bytes": iotest.OneByteReader(strings.NewReader(text)),
	} {
		if name == "bytes" && len(text) > 10_000 {
			continue // it takes long, and small texts have everything that it could find
		}
		if got, long := readLines(t, r, limit); !slices.Equal(got, want) || !slices.Equal(long, wantLong) {
			t.Errorf("%s, limit %d: %d lines and %v too long, want %d and %v", name, limit, len(got), long, len(want), wantLong)
		}
	}
}

func TestLineReader(t *testing.T) {
	for limit := range 7 {
		checkLines(t, "a\n\nbb\r\n \nccc\n\n12345\n123456\nx", limit)
	}
	var text strings.Builder
	for i, n := range []int{0, 1, 5, lineBuffer - 1, lineBuffer, lineBuffer + 1, 3, 3 * lineBuffer, 0, 5 * lineBuffer, 70_000, 2, 70_000, 4 * lineBuffer} {
		text.WriteString(strings.Repeat(string(rune('a'+i)), n))
		text.WriteString("\n")
	}
	for _, limit := range []int{1, 5, lineBuffer - 1, lineBuffer, lineBuffer + 1, 70_000, 1 << 20} {
		checkLines(t, text.String(), limit)
		checkLines(t, text.String()+"the end", limit)
	}
}

func TestLineReaderTellsWhy(t *testing.T) {
	broken := errors.New("broken")
	l := lineReader{r: io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(broken)), limit: 10, spare: new(lineBuffers)}
	for _, want := range []string{"a", "b"} {
		if line, _, err := l.next(); string(line) != want || err != nil {
			t.Errorf("next = %q, %v, want %q", line, err, want)
		}
	}
	if _, _, err := l.next(); err != broken {
		t.Errorf("next = %v, want %v", err, broken)
	}
}

func FuzzLineReader(f *testing.F) {
	f.Add([]byte("a\nbb\r\n\nccc"), byte(2))
	f.Fuzz(func(t *testing.T, text []byte, limit byte) {
		if bytes.ContainsRune(text, 0) {
			text = bytes.ReplaceAll(text, []byte{0}, bytes.Repeat([]byte("0"), lineBuffer/2)) // so that buffers fill up
		}
		if len(text) < 1<<20 {
			checkLines(t, string(text), int(limit)*1000+1)
		}
	})
}

func TestOutline(t *testing.T) {
	for _, row := range []struct {
		text string
		want jsonrpc.ID
	}{
		{`{"jsonrpc":"2.0","id":5,"result":{"x":[1,{"id":6}]}}`, `5`},
		{`{"result":{"id":6,"x":"}\"]"},"id":"a}\"b"}`, `"a}\"b"`},
		{` { "result" : [NaN, undefined, 'x'] , "id" : 5 } `, `5`},
		{`{"result":"` + strings.Repeat("x", outlineKept) + `","id":5}`, ``}, // its outline would be too large
		{`{"result":{"x":"` + strings.Repeat("x", outlineKept) + `"},"id":5}`, `5`},
		{`{"id":5,"method":"x","params":{}}`, ``},
		{`{"id":5,"Method":"x","params":{}}`, ``},
		{`{"id":5,"id":6,"result":{}}`, ``},
		{`{"id":5,"result":{`, ``},
		{`}}}{"id":5,"result":{}}`, ``},
		{`[{"id":5,"result":{}}]`, ``},
		{`garbage`, ``},
		{``, ``},
	} {
		var o outline
		for i := range len(row.text) {
			o.add([]byte{row.text[i]})
		}
		if got := o.answers(); got != row.want || o.size != len(row.text) {
			t.Errorf("the outline of %.100s answers %q, want %q; size %d, want %d", row.text, got, row.want, o.size, len(row.text))
		}
	}
}

func TestFlood(t *testing.T) {
	var f LogLimit
	for range logLimit {
		if ok, dropped := f.allow(time.Unix(1000, 0)); !ok || dropped != 0 {
			t.Fatalf("allow = %v, %d, want true, 0", ok, dropped)
		}
	}
	now := time.Unix(1000, 0)
	for i, row := range []struct {
		after   time.Duration
		ok      bool
		dropped int
	}{{0, false, 0}, {logWindow - 1, false, 0}, {1, true, 2}, {0, true, 0}, {0, true, 0}, {0, true, 0}, {0, true, 0}, {0, false, 0}} {
		now = now.Add(row.after)
		if ok, dropped := f.allow(now); ok != row.ok || dropped != row.dropped {
			t.Errorf("%d: allow = %v, %d, want %v, %d", i, ok, dropped, row.ok, row.dropped)
		}
	}
}
