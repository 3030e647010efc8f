package prose

import (
	"strings"
	"testing"
)

func TestCut(t *testing.T) {
	for _, test := range []struct {
		s     string
		width int
		want  string
	}{
		{"", 0, ""}, {"a", 0, ""}, {"a", 1, "a"}, {"ab", 1, "…"}, {"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"ä ö", 3, "ä ö"}, {"ä öü", 3, "ä…"}, {"abc", -1, ""},
	} {
		if got := Cut(test.s, test.width); got != test.want {
			t.Errorf("Cut(%q, %d) = %q, want %q", test.s, test.width, got, test.want)
		}
	}
}

func TestClosest(t *testing.T) {
	names := []string{"demo__ask", "demo__count", "demo__echo", "gh__create_issue", "gh__list_issues", "memory__echo", "nonpx", "me"}
	for _, test := range []struct{ want, near string }{
		{"echo", "demo__echo memory__echo"},
		{"demo_echo", "demo__echo"},
		{"DEMO__ECHO", "demo__echo"},
		{"gh__craete_issue", "gh__create_issue"},
		{"issue", "gh__create_issue gh__list_issues"},
		{"nothing_like_it", ""},
		{"nope", ""}, // half of its letters differ from those of nonpx
		{"nonpy", "nonpx"},
		{"ab", ""},
		{"", ""},
	} {
		if got := strings.Join(Closest(names, test.want), " "); got != test.near {
			t.Errorf("Closest(%q) = %q, want %q", test.want, got, test.near)
		}
	}
}
