package raw

import (
	"bytes"
	"encoding/json"
	"testing"
)

// TestPlainBlocks: with every byte at every place of a long string, both ways to skip what is plain stop before it, and not much before it.
func TestPlainBlocks(t *testing.T) {
	for name, skip := range map[string]func([]byte, int) int{"plainBlocks": plainBlocks, "plainWords": plainWords} {
		for c := range 256 {
			ends := c < 0x20 || c == '"' || c == '\\'
			for at := range 200 {
				text := bytes.Repeat([]byte("aé"), 67)[:200]
				text[at] = byte(c)
				for _, from := range []int{0, 1, 31, 100, 200} {
					got, first := skip(text, from), len(text)
					if ends && at >= from {
						first = at
					}
					if got < from || got > first || got+64 <= first {
						t.Fatalf("%s from %d with %#x at %d = %d", name, from, c, at, got)
					}
				}
			}
		}
		for n := range 300 { // it reads nothing beyond the end
			text := bytes.Repeat([]byte("x"), n+100)[:n]
			if got := skip(text, 0); got > n || got+64 <= n {
				t.Fatalf("%s of %d bytes = %d", name, n, got)
			}
		}
	}
}

// FuzzPlainBlocks holds long strings to what encoding/json takes for one.
func FuzzPlainBlocks(f *testing.F) {
	f.Add(bytes.Repeat([]byte("plain text "), 20), byte('"'), 100)
	f.Add(bytes.Repeat([]byte("é日本"), 40), byte('\\'), 70)
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
