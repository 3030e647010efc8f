package stdio

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

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

// purse is an account of a fixed size, for one goroutine.
type purse struct{ used, most, size int64 }

var errPurse = errors.New("the purse is empty")

func (p *purse) Reserve(n int64) error {
	if p.used+n > p.size {
		return errPurse
	}
	p.used += n
	p.most = max(p.most, p.used)
	return nil
}

func (p *purse) Release(n int64) { p.used -= n }

// TestLinesCountWhileTheyAreRead: a large line counts while it is read. One that has no room is
// dropped before it is in memory, and the next one is read. A large line before does not make a
// smaller one need more than it takes.
func TestLinesCountWhileTheyAreRead(t *testing.T) {
	p := &purse{size: 1 << 20}
	line := func(n int) string { return strings.Repeat("x", n) }
	sizes := []int{10, 200 << 10, 3 << 20, 10, 700 << 10, 600 << 10, 60 << 10, 1 << 20, 20}
	var text strings.Builder
	for _, n := range sizes {
		text.WriteString(line(n) + "\n")
	}
	l := lineReader{r: strings.NewReader(text.String()), limit: 4 << 20, spare: new(lineBuffers), account: p}
	for i, n := range sizes {
		got, long, err := l.next()
		dropped := n >= 1<<20 // with its end
		switch {
		case err != nil:
			t.Fatal(err)
		case !dropped && string(got) != line(n):
			t.Errorf("line %d of %d bytes is %.20q of %d", i, n, got, len(got))
		case dropped && (long == nil || long.size != n || !errors.Is(l.refused, errPurse)):
			t.Errorf("line %d of %d bytes: %d bytes, %+v, %v", i, n, len(got), long, l.refused)
		}
	}
	if _, _, err := l.next(); err != io.EOF || p.used != 0 || p.most > p.size || p.most == 0 {
		t.Errorf("at the end: %v, with %d bytes in use, and %d at most", err, p.used, p.most)
	}
}

// TestGuessOfALine: the size of the line before is a guess. If it has no room, the line gets what it
// needs.
func TestGuessOfALine(t *testing.T) {
	p := &purse{size: 300 << 10}
	line := strings.Repeat("x", 200<<10)
	l := lineReader{r: strings.NewReader(line + "\n" + line + "\n"), limit: 4 << 20, spare: new(lineBuffers), account: p, large: 2 << 20}
	for range 2 {
		if got, _, err := l.next(); err != nil || string(got) != line || l.refused != nil {
			t.Errorf("the line is %d bytes, %v, %v", len(got), err, l.refused)
		}
	}
}
