package raw_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"junction/upstream/raw"
)

func TestGet(t *testing.T) {
	const text = ` {"a":{"b":[1],"c":{"d": "x" },"C2":0,"n":null},"dup":{"x":1,"x":2}} `
	for _, test := range []struct {
		path, want string
		err        error
	}{
		{"", text, nil},
		{"a/b", "[1]", nil},
		{"a/c/d", `"x"`, nil},
		{"a/n", "null", nil},
		{"b", "", raw.ErrAbsent},
		{"a/x/d", "", raw.ErrAbsent},
		{"a/b/d", "", raw.ErrAbsent},
		{"a/n/d", "", raw.ErrAbsent},
		{"dup", `{"x":1,"x":2}`, nil},
		{"dup/x", "", raw.ErrAmbiguous},
		{"dup/y", "", raw.ErrAbsent},
		{"A/b", "", raw.ErrAmbiguous},
	} {
		got, err := raw.Get([]byte(text), split(test.path)...)
		if string(got) != test.want || err != test.err {
			t.Errorf("Get(%q) = %q, %v; want %q, %v", test.path, got, err, test.want, test.err)
		}
	}
	_, err := raw.Get([]byte(`{"a":1`), "a")
	if _, ok := errors.AsType[*raw.SyntaxError](err); !ok {
		t.Errorf("Get from half a text: %v, want a syntax error", err)
	}
}

func TestGetAliases(t *testing.T) {
	text := []byte(`{"a":"xy","b":1}`)
	got, err := raw.Get(text, "a")
	if err != nil || &got[0] != &text[5] {
		t.Errorf("Get = %q, %v, a copy; want a slice of the text", got, err)
	}
	if _ = append(got, "..."...); string(text) != `{"a":"xy","b":1}` {
		t.Errorf("append to the result changed the text to %q", text)
	}
}

func TestSet(t *testing.T) {
	for _, test := range []struct {
		text, path, value, want string
		err                     error
	}{
		{`{"a":1}`, "", `[]`, `[]`, nil},
		{`{"a":1}`, "a", `2`, `{"a":2}`, nil},
		{`{"a":{"b": {"c":1} , "x":1.0}}`, "a/b/c", `2`, `{"a":{"b": {"c":2} , "x":1.0}}`, nil},
		{`{"a":{"b":{}}}`, "a/b/c", `2`, `{"a":{"b":{"c":2}}}`, nil},
		{`{"a":{"b":1,"c":2}}`, "a/b", ``, `{"a":{"c":2}}`, nil},
		{`{"a":{}}`, "a/b/c", `2`, ``, raw.ErrAbsent},
		{`{"a":[]}`, "a/b", `2`, ``, raw.ErrAbsent},
		{`[]`, "a", `2`, ``, raw.ErrAbsent},
		{`{"a":{"B":1}}`, "a/b", `2`, ``, raw.ErrAmbiguous},
		{`{"a":{"b":1},"A":0}`, "a/b", `2`, ``, raw.ErrAmbiguous},
	} {
		got, err := raw.Set([]byte(test.text), []byte(test.value), split(test.path)...)
		if string(got) != test.want || err != test.err {
			t.Errorf("Set(%q, %q, %q) = %q, %v; want %q, %v", test.text, test.value, test.path, got, err, test.want, test.err)
		}
	}
}

func split(path string) []string {
	if path == "" {
		return nil
	}
	return strings.Split(path, "/")
}

func TestElements(t *testing.T) {
	for _, test := range []struct {
		text string
		want []string
	}{
		{`[]`, nil},
		{" [ ] ", nil},
		{`[1]`, []string{"1"}},
		{` [ 1.0 , "]" ,[[]],{"a":[]},null ] `, []string{"1.0", `"]"`, "[[]]", `{"a":[]}`, "null"}},
	} {
		elements, err := raw.Elements([]byte(test.text))
		var got []string
		for _, e := range elements {
			got = append(got, string(e))
		}
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("Elements(%q) = %q, %v; want %q", test.text, got, err, test.want)
		}
	}
	for _, text := range []string{`{}`, `null`, `"[]"`, ` 1 `} {
		if got, err := raw.Elements([]byte(text)); err != raw.ErrAbsent {
			t.Errorf("Elements(%q) = %q, %v; want %v", text, got, err, raw.ErrAbsent)
		}
	}
	for _, text := range []string{``, ` `, `[`, `[1`, `[1,`, `[1,]`, `[,]`, `[1 2]`, `[1]]`, `[1] 2`, `[1}`, `x`, `{`} {
		got, err := raw.Elements([]byte(text))
		if _, ok := errors.AsType[*raw.SyntaxError](err); !ok {
			t.Errorf("Elements(%q) = %q, %v; want a syntax error", text, got, err)
		}
	}
	if _, err := raw.Elements([]byte(strings.Repeat("[", raw.DefaultDepth) + strings.Repeat("]", raw.DefaultDepth))); err != nil {
		t.Errorf("Elements at the default depth: %v", err)
	}
	if _, err := raw.Elements([]byte(strings.Repeat("[", raw.DefaultDepth+1) + strings.Repeat("]", raw.DefaultDepth+1))); err != raw.ErrDepth {
		t.Errorf("Elements past the default depth: %v, want %v", err, raw.ErrDepth)
	}
}

func TestString(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{`""`, ""},
		{`"plain"`, "plain"},
		{`"\"\\\/\b\f\n\r\t"`, "\"\\/\b\f\n\r\t"},
		{`"\u0041\u00e9\u20AC\ud834\udD1E\u0000"`, "Aé€𝄞\x00"},
		{`"x\ufffdy` + "\ufffd" + `"`, "x\ufffdy\ufffd"}, // the character itself is no replacement
		{`"𝄞é` + "\u2028\x7f" + `"`, "𝄞é\u2028\x7f"},
		{`"12345678\n12345678"`, "12345678\n12345678"},
	} {
		if got, err := raw.String([]byte(test.text)); err != nil || got != test.want {
			t.Errorf("String(%q) = %q, %v; want %q", test.text, got, err, test.want)
		}
	}
	for _, text := range []string{
		`"\ud800"`, `"\udc00"`, `"\ud800\ud800"`, `"\ud800x"`, `"\ud800\n"`, `"\ud800\u0041"`, `"\udc00\ud800"`, `"x\uDBFF"`,
		"\"\xff\"", "\"\xed\xa0\x80\"", "\"\xc0\xaf\"", "\"\\n\xe2\x82\"", "\"\xe2\\u0041\"",
	} {
		if got, err := raw.String([]byte(text)); err != raw.ErrAmbiguous {
			t.Errorf("String(%q) = %q, %v; want %v", text, got, err, raw.ErrAmbiguous)
		}
	}
	for _, text := range []string{``, `null`, `1`, `{}`, ` "x"`, `x"`} {
		if got, err := raw.String([]byte(text)); err != raw.ErrAbsent {
			t.Errorf("String(%q) = %q, %v; want %v", text, got, err, raw.ErrAbsent)
		}
	}
	for _, text := range []string{`"`, `"x`, `"x\"`, `"x" `, `"x"y"`, `"\x"`, `"\u12"`, `"\u12g4"`, "\"\n\"", `"\`, `"\ud800\u12"`} {
		got, err := raw.String([]byte(text))
		if _, ok := errors.AsType[*raw.SyntaxError](err); !ok {
			t.Errorf("String(%q) = %q, %v; want a syntax error", text, got, err)
		}
	}
}

func TestQuote(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"", `""`},
		{"a\"b\\c/d", `"a\"b\\c/d"`},
		{"\n\r\t\b\x00\x1f\x7f", "\"\\n\\r\\t\\u0008\\u0000\\u001f\x7f\""},
		{"<é𝄞\u2028>", "\"<é𝄞\u2028>\""},
		{"x\xffy\xed\xa0\x80", "\"x\ufffdy\ufffd\ufffd\ufffd\""},
	} {
		got := raw.Quote(test.text)
		if string(got) != test.want || !json.Valid(got) {
			t.Errorf("Quote(%q) = %q, want %q", test.text, got, test.want)
		}
		if got := raw.AppendQuote([]byte("x"), test.text); string(got) != "x"+test.want {
			t.Errorf("AppendQuote(x, %q) = %q, want %q", test.text, got, "x"+test.want)
		}
	}
}

func TestAppendLine(t *testing.T) {
	text := []byte("{\r\n\t\"a\\n\" : [1,\n2]\r}\n")
	got := raw.AppendLine([]byte("a\nb"), text)
	if want := "a\nb{  \t\"a\\n\" : [1, 2] } "; string(got) != want {
		t.Errorf("AppendLine = %q, want %q", got, want)
	}
	if string(text) != "{\r\n\t\"a\\n\" : [1,\n2]\r}\n" {
		t.Errorf("AppendLine changed the text to %q", text)
	}
}

// TestEscape: an escape is one character, also as a surrogate pair, and a text that ends within it
// is read to its end at most.
func TestEscape(t *testing.T) {
	for _, row := range []struct {
		text string
		r    rune
		size int
		ok   bool
	}{
		{`\nx`, '\n', 2, true},
		{`\/`, '/', 2, true},
		{`\"`, '"', 2, true},
		{`\u00e9x`, 'é', 6, true},
		{`\uFFFD`, utf8.RuneError, 6, true},
		{`\ud83d\uDE00`, '😀', 12, true},
		{`\ud83dx`, utf8.RuneError, 6, false},
		{`\ud83d\u0061`, utf8.RuneError, 6, false},
		{`\ude00\ud83d`, utf8.RuneError, 6, false},
		{`\ud83d\ude0`, utf8.RuneError, 6, false},
		{`\u00`, utf8.RuneError, 4, false},
		{`\`, utf8.RuneError, 1, false},
	} {
		if r, size, ok := raw.Escape([]byte(row.text)); r != row.r || size != row.size || ok != row.ok {
			t.Errorf("%s is %q, %d, %v; want %q, %d, %v", row.text, r, size, ok, row.r, row.size, row.ok)
		}
	}
}
