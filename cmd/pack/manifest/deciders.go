package manifest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"junction/upstream/sandbox"
)

// Deciders returns the files that decide what the commands of a pack may use: its manifests, which
// are read again when they change, the files that their references name, and the programs of tools
// without a sandbox. path is the file or the folder of the pack. The manifests need not have been
// read: p may be nil.
func (p *Pack) Deciders(path string) (list sandbox.Deciders) {
	add := func(what, path string) {
		if path, err := filepath.Abs(path); err == nil {
			list = append(list, sandbox.Decider{What: what, Path: path})
		}
	}
	add("the manifest", path) // in a folder, another manifest could be added
	found, _ := Files(path)   // what cannot be read decides nothing
	for _, file := range found {
		add("the manifest", file)
	}
	if p == nil {
		return list
	}
	for _, m := range p.Manifests {
		for _, want := range m.Wants() {
			if file, ok := strings.CutPrefix(want, "file:"); ok {
				add("a file that the manifest refers to", inside(m.Dir, file))
			}
		}
		for _, t := range m.Tools {
			if t.Sandbox != nil || len(t.Command) == 0 {
				continue
			}
			program := "/bin/sh"
			if !t.Shell {
				program = t.Command[0].Text.Text(nil, nil)
			}
			search := os.Getenv("PATH")
			if own, ok := t.Env["PATH"]; ok {
				search = own.Text(nil, nil)
			}
			for _, file := range sandbox.Searched(program, t.WorkDir, search) {
				add("the program of the tool "+t.Name, file)
			}
		}
	}
	return list
}

// confine reports the tools whose sandbox would let their command change a Decider of the pack: a
// mistake of a tool with require, and a warning about others.
func (p *Pack) confine(path string, decoders []*decoder) {
	var write []string
	for _, m := range p.Manifests {
		for _, t := range m.Tools {
			if t.Sandbox != nil {
				write = append(write, t.Sandbox.Write...)
			}
		}
	}
	if len(write) == 0 {
		return
	}
	deciders := p.Deciders(path).In(write)
	for i, m := range p.Manifests {
		for _, t := range m.Tools {
			if t.Sandbox == nil || len(deciders) == 0 {
				continue
			}
			for k, file := range t.Sandbox.Write {
				changed := deciders.Changed(file)
				if changed == nil {
					continue
				}
				at := fmt.Sprintf("tools.%s.sandbox.write[%d]", t.Name, k)
				const text = "lets the command change %s, which decides what commands may use; name a narrower path"
				if t.Sandbox.Require {
					decoders[i].bad(at, text, changed)
				} else {
					p.Warnings = append(p.Warnings, m.At(at, text, changed))
				}
			}
		}
	}
}
