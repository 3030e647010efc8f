package yamledit

import "testing"

// TestFlowWithQuotesAndComments: braces and commas in quotes and comments end no mapping.
func TestFlowWithQuotesAndComments(t *testing.T) {
	for text, want := range map[string]string{
		"u: { a: { x: 'it''s, }' }, b: 1 }\n":           "u: { b: 1 }\n",
		"u: { b: 1, a: { x: \"\\\"},\" } }\n":           "u: { b: 1 }\n",
		"u: { a: { x: 1 }, # of a, }\n  b: 1 }\n":       "u: { # of a, }\n  b: 1 }\n",
		"u: { a: [ { c: 2 }, [ 3 ] ], b: [ 1 ] }\n":     "u: { b: [ 1 ] }\n",
		"u: { b: 1, a: { x: 1 }, c: \"a: 1, b: 2\" }\n": "u: { b: 1, c: \"a: 1, b: 2\" }\n",
	} {
		got, err := Remove([]byte(text), "u", "a")
		if err != nil || string(got) != want {
			t.Errorf("Remove(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
}

// TestUnsetKeepsWhatIsNotItsOwn: comments stay, no edit leaves an entry empty, and no edit reaches through an alias.
func TestUnsetKeepsWhatIsNotItsOwn(t *testing.T) {
	const text, want = "u:\n  a:\n    c: 1\n    # a comment\n    on: 1\n", "u:\n  a:\n    c: 1\n    # a comment\n"
	if got, err := Unset([]byte(text), "u", "a", "on"); err != nil || string(got) != want {
		t.Errorf("Unset(%q) = %q, %v; want %q", text, got, err, want)
	}
	for _, text := range []string{"", "u:\n  a:\n    on: 1\n", "u: { a: { on: 1 } }\n", "u: { a: 1 }\n", "u:\n  a: { x: 1 }\n",
		"x: &x { on: 1, c: 1 }\nu: { a: *x }\n", "u: [ a ]\n", "u:\n  a: {\n"} {
		if out, err := Unset([]byte(text), "u", "a", "on"); err == nil {
			t.Errorf("Unset(%q) = %q; want an error", text, out)
		}
	}
}
