package clients

import (
	"strings"
	"testing"
)

// TestUndo takes changes back, also where the text has changed before them, and refuses to guess.
func TestUndo(t *testing.T) {
	block := strings.Repeat("same ", 20)
	for _, test := range []struct{ name, before, after, now, want string }{
		{"nothing else", "abc", "axc", "axc", "abc"},
		{"text before it", "abc", "axc", "-axc", "-abc"},
		{"text after it", "abc", "axc", "axc-", "abc-"},
		{"whole characters", "é", "è", "-è", "-é"},
		{"a place that is like others", block + "x" + block, block + block, block + block, block + "x" + block},
		{"an uncertain place", block + "x" + block, block + block, "-" + block + block, ""},
		{"gone", "abc", "axc", "ayc", ""},
		{"several times", "b", "x", "x.x", "b.x"},
	} {
		got, ok := diff([]byte(test.before), []byte(test.after)).undo([]byte(test.now))
		if string(got) != test.want || ok != (test.want != "") {
			t.Errorf("%s: undo = %q, %v; want %q", test.name, got, ok, test.want)
		}
	}
}
