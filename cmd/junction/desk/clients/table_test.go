package clients

import "testing"

// TestEachClientHasItsFacts: a row says where a person sees the servers of the client, how the client gets
// an entry, and how the entry gets the key. A program that adds entries has its arguments.
func TestEachClientHasItsFacts(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range table() {
		if c.ID == "" || c.Name == "" || seen[c.ID] {
			t.Errorf("%q, %q: the client has no name, or that of another one", c.ID, c.Name)
		}
		seen[c.ID] = true
		if c.Seen() == "" {
			t.Errorf("%s: nothing says where it lists its servers", c.ID)
		}
		if c.format == nil || len(c.keys) == 0 || len(c.user) == 0 || c.command == nil {
			t.Errorf("%s: a file, its form, the keys of servers, or the entry of junction stdio is missing", c.ID)
		}
		if (c.program == "") != (c.adds == nil) {
			t.Errorf("%s: has the program %q without arguments, or arguments without a program", c.ID, c.program)
		}
		if c.entry == nil && c.reads {
			t.Errorf("%s: starts only commands, and an entry with a URL refers to the key", c.ID)
		}
		if c.habits.keyring && c.habits.fields == nil {
			t.Errorf("%s: has a keyring, and no variable is in it", c.ID)
		}
	}
}
