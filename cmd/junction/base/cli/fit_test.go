package cli

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestFit: lines are broken between words, and no word is lost.
func TestFit(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"short", "a b\n\nc", "a b\n\nc"},
		{"a sentence", "one two three four five six seven\n", "one two three four\nfive six seven\n"},
		{"the width itself", "12345678901234567 90\n", "12345678901234567 90\n"},
		{"indented", "    one two three four five\n", "    one two three\n    four five\n"},
		{"a row", "name  one two three four five\n", "name  one two three\n      four five\n"},
		{"a row with a late cell", "a long name  one two three\n", "a long name  one two\n  three\n"},
		{"an item", "  1. one two three four five\n", "  1. one two three\n     four five\n"},
		{"advice", "    → one two three four five\n", "    → one two three\n      four five\n"},
		{"advice with a long word", "→ http://127.0.0.1:8420/mcp now\n", "→ http://127.0.0.1:8420/mcp\n  now\n"},
		{"a long word", "see http://127.0.0.1:8420/mcp now\n", "see\nhttp://127.0.0.1:8420/mcp\nnow\n"},
		{"one long word", "http://127.0.0.1:8420/mcp\n", "http://127.0.0.1:8420/mcp\n"},
		{"runes", "ääää öööö üüüü ßßßß éééé\n", "ääää öööö üüüü ßßßß\néééé\n"},
		{"spaces at the end", "aaaaaaaaaaaaaaaaaaaa     \n", "aaaaaaaaaaaaaaaaaaaa     \n"},
	} {
		got := Fit(test.text, 20)
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
	text := strings.Repeat("a word and another one  ", 100)
	got := Fit(text, 60)
	if strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(text), " ") {
		t.Error("words are lost")
	}
	for line := range strings.Lines(got) {
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > 60 {
			t.Errorf("too wide: %q", line)
		}
	}
	if Fit(text, 10) != text {
		t.Error("a terminal of 10 columns is not left alone")
	}
}
