package transport

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// TestShortenedWordsAreCleanedFirst: no part of what a reader must not see is in the text of an error,
// although the error shows one line of an answer, and shortens that. The text for the log stays as it is.
func TestShortenedWordsAreCleanedFirst(t *testing.T) {
	secret := regexp.MustCompile(`(?s)KEY-[a-z]{20}|BEGIN.*END`)
	clean := func(text string) string { return secret.ReplaceAllString(text, "[x]") }
	const key = "KEY-abcdefghijklmnopqrst"
	long := strings.Repeat("a", 190) + " "
	for _, row := range []struct{ media, body, want string }{
		{"text/plain", "no " + key, "no [x]"},
		{"text/plain", long + key, long + "[x]"},
		{"text/plain", "\n\n BEGIN a\nb END", "[x]"},
		{"text/plain", long + "KEY-abc\x01defghijklmnopqrst", long + "[x]"},
		{"text/plain", strings.Repeat("a", statusBody-30) + key + "more", strings.Repeat("a", 200) + "…"},
		{"text/plain", strings.Repeat(key+" ", 300)[:statusBody], ""}, // the end of the body is no match
		{"application/json", `{"error":"` + long[20:] + key + `"}`, `{"error":"` + long[20:] + `[x]"}`},
		{"text/html", "<title>" + long + "\n KEY&#45;abcdefghijklmnopqrst</title>", long + "[x]"},
		{"image/png", key, ""},
	} {
		e := &StatusError{Status: 400, Body: []byte(row.body[:min(len(row.body), statusBody)]), media: row.media}
		want := "the server answered 400 Bad Request"
		if row.want != "" {
			want += ": " + row.want
		}
		for name, err := range map[string]error{"alone": e, "wrapped": fmt.Errorf("%w: %w", errors.New("a"), fmt.Errorf("b: %w", e)),
			"as text": fmt.Errorf("b: %w", Text(fmt.Errorf("c: %w", e)))} {
			head, _, _ := strings.Cut(err.Error(), "the server")
			if got := Clean(err, clean); got != head+want {
				t.Errorf("%.60q, %s: the reader sees\n%s, want\n%s", row.body, name, got, head+want)
			}
		}
		if got := Clean(e, func(text string) string { return text }); got != e.Error() {
			t.Errorf("without a match, the reader sees %s, want %s", got, e)
		}
	}
	if err := Text(fmt.Errorf("a: %w", ErrNotSent)); errors.Is(err, ErrNotSent) || err.Error() != fmt.Sprint("a: ", ErrNotSent) {
		t.Errorf("Text returns %v, with its chain", err)
	}
}
