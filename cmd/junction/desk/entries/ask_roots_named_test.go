package entries

import (
	"testing"

	"junction/cmd/junction/desk/clients"
)

// TestEachFolderOfACommandIsNamed: the sentence about a command that names several folders has all of them.
func TestEachFolderOfACommandIsNamed(t *testing.T) {
	one, other := t.TempDir(), t.TempDir()
	n := New{Name: "files", Entry: &clients.Entry{Command: []clients.Value{}}}
	for _, word := range []string{"server", one, "--flag", other} {
		n.Entry.Command = append(n.Entry.Command, clients.Literal(word))
	}
	if got, want := n.named(), one+" and "+other; got != want {
		t.Errorf("the folders are %q, want %q", got, want)
	}
}
