//go:build unix

package manifest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestToolChangesNothingThatDecides: a tool whose sandbox lets its command change a file that decides
// what commands may use is a mistake with require, and a warning without.
func TestToolChangesNothingThatDecides(t *testing.T) {
	for name, row := range map[string]struct{ write, rest, want string }{
		"nothing":           {"${PACK_DIR}/notes", "", ""},
		"the folder":        {"${PACK_DIR}", "", "the manifest, DIR"},
		"a folder above it": {"${PACK_DIR}/..", "", "the manifest, DIR"},
		"the manifest":      {"${PACK_DIR}/pack.yaml", "", "the manifest, DIR/pack.yaml"},
		"another manifest":  {"${PACK_DIR}/b.pack.yaml", "", "the manifest, DIR/b.pack.yaml"},
		"a file it refers to": {"${PACK_DIR}/notes", ", env: { A: '${file:notes/a}' }",
			"a file that the manifest refers to, DIR/notes/a"},
		"the program of another tool": {"${PACK_DIR}/notes", " }\n  u: { description: d, command: [./notes/run]",
			"the program of the tool u, DIR/notes/run"},
	} {
		for _, require := range []string{"true", "false"} {
			t.Run(name+" "+require, func(t *testing.T) {
				dir, err := filepath.EvalSymlinks(t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				write := func(name, text string) {
					if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
						t.Fatal(err)
					}
				}
				if err := os.Mkdir(filepath.Join(dir, "notes"), 0o700); err != nil {
					t.Fatal(err)
				}
				write("notes/a", "a")
				write("notes/run", "#!/bin/sh\n")
				write("b.pack.yaml", "tools: { b: { description: d, command: ['true'] } }\n")
				write("pack.yaml", "tools:\n  t: { description: d, command: ['true'], sandbox: { write: ['"+row.write+
					"'], require: "+require+" }"+row.rest+" }\n")
				p, err := Load(dir, all, Options{})
				got := ""
				if problems, _ := errors.AsType[Problems](err); len(problems) == 1 && require == "true" {
					got = problems[0].String()
				} else if err != nil {
					t.Fatal(err)
				} else if len(p.Warnings) == 1 && require == "false" {
					got = p.Warnings[0].String()
				}
				want := ""
				if row.want != "" {
					want = dir + "/pack.yaml:2: tools.t.sandbox.write[0]: lets the command change " + row.want +
						", which decides what commands may use; name a narrower path"
				}
				if got != strings.ReplaceAll(want, "DIR", dir) {
					t.Errorf("Load says %q, want %q", got, want)
				}
			})
		}
	}
}
