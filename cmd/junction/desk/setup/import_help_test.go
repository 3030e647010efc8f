package setup

import (
	"io"
	"strings"
	"testing"

	"junction/cmd/junction/desk/clients"
)

// TestHelpOfImportNamesEachClient: the first sentence of the help has the clients in the order of the table.
func TestHelpOfImportNamesEachClient(t *testing.T) {
	var names []string
	for _, c := range clients.All() {
		names = append(names, c.Name)
	}
	last := len(names) - 1
	want := "the configuration files of " + strings.Join(names[:last], ", ") + " and " + names[last] + "."
	if help := strings.Join(strings.Fields(importCommand(io.Discard, io.Discard, new(string)).Long), " "); !strings.Contains(help, want) {
		t.Errorf("the help of junction import does not say %q: %.300s", want, help)
	}
}
