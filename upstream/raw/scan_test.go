package raw_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"junction/upstream/raw"
)

// TestScanValid has one row per rule of the grammar; want is what remains without the white space
// around it.
func TestScanValid(t *testing.T) {
	for _, text := range []string{
		`null`, `true`, `false`, `""`, `"x"`, `{}`, `[]`, `0`, `-0`, `1.0`, `-0.0`, `1e400`, `1E+0`, `1e-0`, `-1.5e+300`, `9007199254740993`,
		`123456789012345678901234567890.123456789012345678901234567890`,
		`"\"\\\/\b\f\n\r\t\u00e9\uD834\uDD1E"`, `"\ud800"`, "\"\xff\xfe\"", "\"\u2028\x7f\"", `"\u0000"`,
		`{"a":1,"a":2}`, `{"":{"":[]}}`, `[[],{},[[]]]`, "[1\n,\t2\r ,3 ]", "{ \"a\"\n:\t1\r , \"b\" : [ ] }",
		`"` + strings.Repeat("x", 7) + `"`, `"` + strings.Repeat("x", 8) + `"`, `"` + strings.Repeat("é", 1000) + `"`,
	} {
		for _, space := range []string{"", " ", " \t\r\n"} {
			got, err := raw.Scan([]byte(space+text+space), 3)
			if err != nil || string(got) != text {
				t.Errorf("Scan(%q) = %q, %v; want %q", space+text+space, got, err, text)
			}
		}
		if !json.Valid([]byte(text)) {
			t.Errorf("encoding/json finds %q invalid", text)
		}
	}
}

func TestScanInvalid(t *testing.T) {
	for _, test := range []struct {
		text string
		want int // where it stops being JSON
	}{
		{"", 0}, {"  ", 2}, {"\ufeff{}", 0}, {"x", 0}, {"\v1", 0}, {"\u00a01", 0},
		{"nul", 3}, {"nulL", 3}, {"truE", 3}, {"True", 0}, {"NaN", 0}, {"-Infinity", 1}, {"nullx", 4}, {"1 2", 2}, {"{}{}", 2}, {"1,", 1},
		{"01", 1}, {"-", 1}, {"-x", 1}, {"+1", 0}, {".5", 0}, {"1.", 2}, {"1.e3", 2}, {"1e", 2}, {"1e+", 3}, {"1e.", 2}, {"0x10", 1}, {"1_000", 1},
		{`"`, 1}, {`"abc`, 4}, {"\"a\nb\"", 2}, {"\"a\x00b\"", 2}, {"\"1234567\x1f\"", 8}, {`'a'`, 0}, {`"\`, 2}, {`"\"`, 3}, {`"\x41"`, 2}, {`"\'"`, 2},
		{`"\u`, 3}, {`"\u12`, 5}, {`"\u123"`, 6}, {`"\u12G4"`, 5}, {`"\U0041"`, 2},
		{`{`, 1}, {`{"a"`, 4}, {`{"a":`, 5}, {`{"a":1`, 6}, {`{"a":1,`, 7}, {`{"a":1,}`, 7}, {`{,}`, 1}, {`{a:1}`, 1}, {`{1:1}`, 1}, {`{"a" 1}`, 5}, {`{"a":1 "b":2}`, 7},
		{`{"a":1]`, 6}, {`{"a":}`, 5}, {`{"a":1,,"b":2}`, 7}, {`{"a":1}/**/`, 7}, {`{"a`, 3},
		{`[`, 1}, {`[1`, 2}, {`[1,`, 3}, {`[1,]`, 3}, {`[,1]`, 1}, {`[1 2]`, 3}, {`[1}`, 2}, {`]`, 0}, {`}`, 0}, {`["a]`, 4},
	} {
		_, err := raw.Scan([]byte(test.text), 100)
		bad, ok := errors.AsType[*raw.SyntaxError](err)
		if !ok || bad.Offset != test.want {
			t.Errorf("Scan(%q) = %v, want a syntax error at byte %d", test.text, err, test.want)
		}
		if json.Valid([]byte(test.text)) {
			t.Errorf("encoding/json finds %q valid", test.text)
		}
	}
}

func TestScanDepth(t *testing.T) {
	for _, test := range []struct{ open, inner, end string }{
		{"[", "", "]"},
		{"[", "1", "]"},
		{`{"a":`, "{}", "}"},
		{`[{"a":`, "[]", "}]"},
		{" [ ", `"[[[["`, " ] "},
	} {
		per := strings.Count(test.open, "[") + strings.Count(test.open, "{")
		for _, n := range []int{1, 2, 100, 5000} {
			text := []byte(strings.Repeat(test.open, n) + test.inner + strings.Repeat(test.end, n))
			depth := n * per
			if test.inner == "{}" || test.inner == "[]" {
				depth++
			}
			for _, limit := range []int{depth, depth + 1} {
				if _, err := raw.Scan(text, limit); err != nil {
					t.Errorf("Scan of %d × %q with limit %d: %v", n, test.open, limit, err)
				}
			}
			for _, limit := range []int{depth - 1, 0} {
				if _, err := raw.Scan(text, limit); err != raw.ErrDepth {
					t.Errorf("Scan of %d × %q with limit %d: %v, want %v", n, test.open, limit, err, raw.ErrDepth)
				}
			}
		}
	}
	// What is not closed is as deep as what is.
	if _, err := raw.Scan([]byte(strings.Repeat("[", 1<<20)), 1000); err != raw.ErrDepth {
		t.Errorf("Scan of a million open brackets: %v, want %v", err, raw.ErrDepth)
	}
	for _, depth := range []int{0, -1} {
		if _, err := raw.Scan([]byte("1"), depth); err != nil {
			t.Errorf("Scan of a number with limit %d: %v", depth, err)
		}
	}
}

// TestScanAliases checks that an append to the result does not overwrite the text after it.
func TestScanAliases(t *testing.T) {
	text := []byte(` {"a":[1,2]} `)
	got, err := raw.Scan(text, 10)
	if err != nil {
		t.Fatal(err)
	}
	if &got[0] != &text[1] {
		t.Errorf("the result is a copy")
	}
	if _ = append(got, 'x'); text[len(text)-1] != ' ' {
		t.Errorf("append to the result changed the text to %q", text)
	}
}

// TestScanEveryOffset puts each byte at every place of a string that is looked at in steps of
// several bytes, and then byte by byte.
func TestScanEveryOffset(t *testing.T) {
	for c := range 256 {
		for at := range 40 {
			for _, fill := range []byte{'x', ' ', 0x7f, 0x80, 0xff, '!', '#', '[', ']'} {
				text := []byte(`"` + strings.Repeat(string([]byte{fill}), 40) + `"`)
				text[1+at] = byte(c)
				_, err := raw.Scan(text, 1)
				if got, want := err == nil, json.Valid(text); got != want {
					t.Fatalf("Scan(%q) = %v, encoding/json says valid = %v", text, err, want)
				}
			}
		}
	}
}
