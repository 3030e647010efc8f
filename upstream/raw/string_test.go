package raw

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// blocks are the ways to skip them.
var blocks = map[string]func([]byte, int) int{"skipBlocks": skipBlocks, "skipWords": skipWords}

// TestBlocks: all ways stop where the bytes need a look, or where less than a block is left,
// whatever stands where in a long string.
func TestBlocks(t *testing.T) {
	check := func(text []byte, from int) {
		t.Helper()
		stop := skipSimple(text, from)
		for name, skip := range blocks {
			got := skip(text, from)
			if rest := len(text) - got; got > stop || got < stop && rest >= 64 || got < len(text) && skipSimple(text, got) != stop {
				t.Fatalf("%s(%q, %d) = %d, of %d; it stops at %d", name, text, from, got, len(text), stop)
			}
		}
	}
	for c := range 256 {
		for at := range 140 {
			text := bytes.Repeat([]byte("aé"), 67)[:200]
			text[at] = byte(c)
			check(text, 0)
			check(text, 9)
			text[at], text[at+1] = '\\', byte(c)
			check(text, 0)
			text[at+2] = '"'
			check(text, 0)
			check(text, at)
		}
	}
	for run := range 140 { // of backslashes
		for at := range 70 {
			text := bytes.Repeat([]byte("n"), 300)
			copy(text[at:], bytes.Repeat([]byte{'\\'}, run))
			check(text, 0)
			text[at+run] = '"'
			check(text, 0)
		}
	}
	for n := range 300 { // nothing beyond the end is read
		text := bytes.Repeat([]byte("x"), n+100)[:n]
		copy(text[n:n+100], bytes.Repeat([]byte{'"'}, 100))
		check(text, 0)
		check(append(text[:n:n], '\\'), 0)
	}
}

// FuzzLongString holds long strings to what encoding/json takes for one.
func FuzzLongString(f *testing.F) {
	f.Add(bytes.Repeat([]byte("plain text "), 20), byte('"'), 100)
	f.Add(bytes.Repeat([]byte("é日本"), 40), byte('\\'), 70)
	f.Add(bytes.Repeat([]byte(`{\"a\":[\n\\\"\u00e9\\\"]}`), 20), byte('\\'), 64)
	f.Fuzz(func(t *testing.T, text []byte, c byte, at int) {
		text = bytes.Repeat(text, 1+400/max(len(text), 1))
		if len(text) > 0 {
			text[uint(at)%uint(len(text))] = c
		}
		text = append(append([]byte{'"'}, text...), '"')
		if _, err := Scan(text, 1); (err == nil) != json.Valid(text) {
			t.Errorf("Scan(%q) = %v, json.Valid says %v", text, err, json.Valid(text))
		}
	})
}

// TestEscapesInLongStrings: an escape at any place of a long string, across the ends of blocks too,
// is one; what only looks like one is found where it is wrong, and a quote that is not escaped ends
// the string wherever it stands.
func TestEscapesInLongStrings(t *testing.T) {
	for _, test := range []struct {
		text string
		bad  int // what of it cannot stand there; -1 when all of it can, -2 when it ends the string
	}{
		{`\n`, -1}, {`\"`, -1}, {`\\`, -1}, {`\/`, -1}, {`\u00e9`, -1}, {`\\\\\\\"`, -1}, {`\\\"\\`, -1}, {`\uD834\uDD1E\n`, -1},
		{`\u00e9xxxx\u00e9xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\u00e9\n\u00e9`, -1}, {`\u00e9\u00e`, 11},
		{`\x`, 1}, {`\u12G4`, 4}, {`\u123"`, 5}, {"a\n", 1}, {`"`, -2}, {`\\"`, -2}, {`\\\\"`, -2}, {`\"\\"`, -2},
	} {
		for at := range 150 {
			for _, after := range []int{0, 1, 20, 40, 100} {
				text := `"` + strings.Repeat("x", at) + test.text + strings.Repeat("y", after) + `"`
				_, err := Scan([]byte(text), 1)
				if valid := json.Valid([]byte(text)); valid != (err == nil) {
					t.Fatalf("Scan(%s) = %v, json.Valid says %v", text, err, valid)
				}
				want := 1 + at + test.bad
				switch test.bad {
				case -1:
					want = -1
				case -2:
					want = 1 + at + len(test.text)
				}
				got := -1
				if bad, ok := errors.AsType[*SyntaxError](err); ok {
					got = bad.Offset
				}
				if got != want {
					t.Fatalf("Scan(%s) stops at %d, want %d", text, got, want)
				}
			}
		}
	}
}
