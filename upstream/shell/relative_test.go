package shell_test

import (
	"slices"
	"strings"
	"testing"

	"junction/upstream/shell"
)

// TestRelative: the words that mean another file in another folder are found, and no name of a package, no URL and
// no path of a container.
func TestRelative(t *testing.T) {
	for _, test := range []struct {
		command  string
		here     []string // what the folder has
		unknown  string   // the words without a known folder
		relative string
	}{
		{"./bin/notes", nil, "./bin/notes", "./bin/notes"},
		{"bin/notes", nil, "bin/notes", "bin/notes"},
		{"/srv/notes x", nil, "", ""},
		{"~/notes", nil, "", ""},
		{"node server.js", []string{"server.js"}, "server.js", "server.js"},
		{"node /srv/server.js", nil, "", ""},
		{"node --import x server.js", []string{"server.js"}, "", "server.js"},
		{"sh -c server.js", nil, "", ""},
		{"python -m tool", []string{"tool.py"}, "", "tool"},
		{"python -m a.b", []string{"a/b/__main__.py"}, "", "a.b"},
		{"fs .", nil, ".", "."},
		{"fs ..", nil, "..", ".."},
		{"fs --root=./src --x=y", nil, "./src", "./src"},
		{"fs --config=fs.json", []string{"fs.json"}, "", "fs.json"},
		{"fs data", []string{"data"}, "", "data"},
		{"fs https://a.example.com/. @scope/data ${folder}", []string{"@scope/data"}, "", ""},
		{"npx -y notes data", []string{"notes", "data"}, "", "data"},
		{"docker run -v ./x:/x y", []string{"y"}, "", ""},
	} {
		command := strings.Fields(test.command)
		has := func(path string) bool { return slices.Contains(test.here, path) }
		if got := strings.Join(shell.Relative(command, has), " "); got != test.relative {
			t.Errorf("Relative(%s) = %q, want %q", test.command, got, test.relative)
		}
		if got := strings.Join(shell.Relative(command, nil), " "); got != test.unknown {
			t.Errorf("without a known folder, Relative(%s) = %q, want %q", test.command, got, test.unknown)
		}
	}
}
