package command

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"junction/cmd/pack/manifest"
	"junction/cmd/pack/template"
)

// values returns the values of a call: its arguments, the defaults of those that are missing, and
// paths in the form in which the command gets them. The error is for the model.
func values(t *manifest.Tool, arguments map[string]any) (map[string]any, error) {
	all := make(map[string]any, len(t.Parameters)+1)
	given := t.Parameters.WithDefaults(arguments)
	for _, p := range t.Parameters {
		v, ok := given[p.Name]
		if !ok {
			continue
		}
		if hasNUL(v) {
			return nil, fmt.Errorf("%s has a NUL character, which no command can get; remove it", p.Name)
		}
		if p.Within != "" {
			var err error
			if v, err = pathsWithin(p, v, t.WorkDir); err != nil {
				return nil, err
			}
		}
		all[p.Name] = v
	}
	return all, nil
}

// hasNUL reports whether the text of a value, or of an item of a list, has a NUL.
func hasNUL(v any) bool {
	items, isList := v.([]any)
	if !isList {
		items = []any{v}
	}
	return slices.ContainsFunc(items, func(item any) bool { return strings.ContainsRune(template.Value(item), 0) })
}

// pathsWithin checks a path, or a list of paths.
func pathsWithin(p *manifest.Parameter, v any, dir string) (any, error) {
	items, ok := v.([]any)
	if !ok {
		return pathWithin(p, template.Value(v), dir)
	}
	checked := make([]any, len(items))
	for i, item := range items {
		path, err := pathWithin(p, template.Value(item), dir)
		if err != nil {
			return nil, err
		}
		checked[i] = path
	}
	return checked, nil
}

// pathWithin returns the path for the command. Below the working directory the path begins with ./,
// so that it is no option; elsewhere it is absolute. It follows symbolic links as far as the path
// exists. It does not notice a link that is made after the check; only a sandbox prevents that.
func pathWithin(p *manifest.Parameter, path, dir string) (string, error) {
	root, err := filepath.EvalSymlinks(p.Within)
	if err != nil {
		return "", fmt.Errorf("the folder that %s must be inside cannot be used; it may have been removed", p.Name)
	}
	full := path
	if !filepath.IsAbs(path) {
		full = filepath.Join(root, path)
	}
	if full, err = resolved(full); err != nil {
		return "", fmt.Errorf("%s cannot be used as %s: it has a link that cannot be followed", quoted(path), p.Name)
	}
	if _, ok := manifest.Below(root, full); !ok {
		return "", fmt.Errorf("%s is outside the folder that %s must be inside; use a path below that folder",
			quoted(path), p.Name)
	}
	if work, err := filepath.EvalSymlinks(dir); err == nil {
		switch relative, ok := manifest.Below(work, full); {
		case ok && relative == ".":
			return relative, nil
		case ok:
			return "." + string(filepath.Separator) + relative, nil
		}
	}
	return full, nil
}

// resolved follows the symbolic links in the part of the path that exists.
func resolved(path string) (string, error) {
	path = filepath.Clean(path)
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		return real, nil
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) { // a link to nowhere, a loop, no permission
		return "", fmt.Errorf("%s cannot be resolved", path)
	}
	parent := filepath.Dir(path)
	if parent == path {
		return path, nil
	}
	if parent, err = resolved(parent); err != nil {
		return "", err
	}
	return filepath.Join(parent, filepath.Base(path)), nil
}

// words returns the words of the command. Every placeholder stays within one word.
func words(t *manifest.Tool, values map[string]any) ([]string, error) {
	b := builder{tool: t, values: values}
	if t.Shell {
		script, _ := t.Command[0].Text.Constant()
		b.words = []string{"/bin/sh", "-c", script, t.Name}
		return b.words, b.add(t.Command[1:])
	}
	err := b.add(t.Command)
	return b.words, err
}

type builder struct {
	tool    *manifest.Tool
	values  map[string]any
	words   []string
	options bool // the word -- was there: what follows is no option
}

func (b *builder) add(args manifest.Args) error {
	for _, a := range args {
		if a.Group != nil {
			if !b.wanted(a) {
				continue
			}
			if err := b.add(a.Group); err != nil {
				return err
			}
			continue
		}
		for _, word := range a.Text.Each(b.values) {
			if err := b.plain(a.Text, word); err != nil {
				return err
			}
			b.words = append(b.words, word)
		}
		if text, constant := a.Text.Constant(); constant && text == "--" {
			b.options = true
		}
	}
	return nil
}

// wanted reports whether all placeholders of a group have values, and its condition holds.
func (b *builder) wanted(a manifest.Arg) bool {
	if a.When != "" {
		if v := b.values[a.When]; v == nil || v == false || v == "" {
			return false
		}
	}
	wanted := true
	a.Group.Walk(func(_ string, inner *manifest.Arg, optional bool) {
		if !optional && inner.Group == nil && inner.Text.Missing(b.values) != "" {
			wanted = false
		}
	})
	return wanted
}

// plain refuses a word that a program could take for an option because of a value.
func (b *builder) plain(t manifest.Text, word string) error {
	lead := t.Lead()
	if lead == "" || b.options && !b.tool.Shell || !strings.HasPrefix(word, "-") {
		return nil
	}
	if p := b.tool.Parameters.Named(lead); p != nil && p.LeadingDash {
		return nil
	}
	return fmt.Errorf("%s begins with -, which the program could take for an option; "+
		"use a value for %s that begins otherwise", quoted(word), lead)
}

func quoted(s string) string {
	const most = 80
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return fmt.Sprintf("%q", s)
}
