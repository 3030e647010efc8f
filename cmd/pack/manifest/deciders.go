package manifest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"junction/cmd/pack/template"
	"junction/upstream/sandbox"
)

// Deciders returns the files that decide what the commands of a pack may use: its manifests, which
// are read again when they change, the files that their references name, and the programs of tools
// without a sandbox. path is the file or the folder of the pack. The manifests need not have been
// read: p may be nil. A program whose references known cannot resolve is left out.
func (p *Pack) Deciders(path string, known Known) (list sandbox.Deciders) {
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
			if t.Sandbox != nil || !t.Runs() || len(t.Command) == 0 { // the latter is a mistake
				continue
			}
			for _, file := range known.programs(m, t) {
				add("the program of the tool "+t.Name, file)
			}
		}
	}
	return list
}

// Known tells Deciders the environment of the process that serves the pack.
type Known struct {
	Getenv func(variable string) (string, bool)
	// Expand replaces the references that were left in a text of the manifest. It is told in which part
	// of the manifest the text is, and returns false if it cannot.
	Expand func(m *Manifest, where, text string) (string, bool)
}

// programs returns the paths that decide which program a tool runs.
func (k Known) programs(m *Manifest, t *Tool) []string {
	known := true
	at := func(key string) string { return "tools." + t.Name + "." + key }
	value := func(key string, text Text) string {
		if !text.open {
			return text.Text(nil, nil)
		}
		return template.Parse(text.Source).Map(func(s string) string {
			if k.Expand == nil {
				known = false
				return ""
			}
			s, ok := k.Expand(m, at(key), s)
			known = known && ok
			return s
		}).Text(nil, nil)
	}
	program, dir, search := "/bin/sh", t.WorkDir, ""
	if !t.Shell {
		program = value("command[0]", t.Command[0].Text)
	}
	switch own, given := t.Env["PATH"]; {
	case filepath.IsAbs(program) || !known:
	case filepath.Base(program) != program:
		if t.Dir.open {
			text := Text{Template: template.Parse(t.Dir.Source), Source: t.Dir.Source, open: true}
			dir = inside(m.Dir, value("dir", text))
		}
	case given:
		search = value("env.PATH", own)
	default:
		search, _ = k.Getenv("PATH")
	}
	if !known {
		return nil
	}
	return sandbox.Searched(program, dir, search)
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
	deciders := p.Deciders(path, Known{Getenv: os.LookupEnv}).In(write)
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
