package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"junction/auth"
	"junction/cmd/junction/prose"
)

// Problem is one mistake of the file, or one warning: where it is, and in Text what is wrong and
// what would be right. Text quotes only what the file says, never what a reference in it stands
// for.
type Problem struct {
	File string
	Line int    // 1 is the first; never 0
	Path string // such as upstreams.github.url; empty when it concerns the whole file
	Text string
}

// String returns FILE:LINE: PATH: TEXT in one line.
func (p Problem) String() string {
	if p.Path == "" {
		return fmt.Sprintf("%s:%d: %s", p.File, p.Line, prose.OneLine(p.Text))
	}
	return fmt.Sprintf("%s:%d: %s: %s", p.File, p.Line, prose.OneLine(p.Path), prose.OneLine(p.Text))
}

// Problems are all mistakes of a file in the order of their lines. As an error it is never empty.
type Problems []Problem

// Error returns one mistake per line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// sort keeps the order in which the mistakes of one line were found.
func (ps *Problems) sort() {
	slices.SortStableFunc(*ps, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	*ps = slices.Compact(*ps)
}

// Warnings are problems that do not keep the program from starting.
type Warnings []Problem

// bad reports a mistake of the value at path.
func (d *decoder) bad(path, format string, args ...any) {
	d.mark(path)
	d.at(d.line(path), path, format, args...)
}

// invalid reports a mistake of a value that the walk could read. It is silent where the walk was
// not: what it says would be about a stand-in.
func (d *decoder) invalid(path, format string, args ...any) {
	if !d.wrong[path] {
		d.at(d.line(path), path, format, args...)
	}
}

// check reports the problem at path, if there is one.
func (d *decoder) check(path, problem string) {
	if problem != "" {
		d.invalid(path, "%s", problem)
	}
}

// at adds a mistake.
func (d *decoder) at(line int, path, format string, args ...any) {
	d.problems = append(d.problems, Problem{File: d.file, Line: line, Path: auth.Redact(path), Text: d.conceal(path, fmt.Sprintf(format, args...))})
}

// plaintextKey is what is wrong with an API key in the file, where others read it. Our own keys are
// the one secret that we know by its looks.
const plaintextKey = "an API key in plain text; take it out of the file, and replace it if others could read it"

// plaintext reports an API key that stands at path.
func (d *decoder) plaintext(path string) {
	remedy := ""
	switch {
	case strings.HasPrefix(path, "auth.") && strings.HasSuffix(path, ".hash"):
		remedy = "; junction keys hash prints the hash that belongs here"
	case strings.HasPrefix(path, "upstreams."):
		remedy = "; ${VAR} or ${file:/path} keeps it elsewhere"
	}
	d.bad(path, "holds %s%s", plaintextKey, remedy)
}

// conceal returns a message on path with what references stand for put back into the references,
// since it may be secret, and without API keys.
func (d *decoder) conceal(path, text string) string {
	// The longest first, because one may be part of another. One of three letters is no secret, and
	// may be part of any word.
	refs := slices.SortedFunc(slices.Values(d.secrets[entry(path)]), func(a, b reference) int {
		return cmp.Or(cmp.Compare(len(b.value), len(a.value)), cmp.Compare(a.text, b.text))
	})
	for _, r := range refs {
		if len(r.value) > 3 {
			text = strings.ReplaceAll(text, r.value, r.text)
		}
	}
	return auth.Redact(text)
}

// entry returns the first two keys of path: a message may quote any value of the upstream that it
// is about.
func entry(path string) string {
	if i := strings.IndexByte(path, '.'); i >= 0 {
		if j := strings.IndexByte(path[i+1:], '.'); j >= 0 {
			return path[:i+1+j]
		}
	}
	return path
}

// mark notes that the value at path is not what the file means it to be.
func (d *decoder) mark(path string) {
	d.wrong[path] = true
	for path != "" {
		if path = above(path); !d.wrong[path] {
			d.wrong[path] = false
		}
	}
}

// has reports whether the file gives the key.
func (d *decoder) has(path string) bool { return d.lines[path] > 0 }

// broken reports whether the walk complained about the value at path or about anything in it.
func (d *decoder) broken(path string) bool {
	_, ok := d.wrong[path]
	return ok
}

// within reports whether the walk complained about what the value at path is in, as a whole.
func (d *decoder) within(path string) bool {
	for path != "" {
		if path = above(path); d.wrong[path] {
			return true
		}
	}
	return false
}

// line returns where path stands in the file, or the nearest of what it is in.
func (d *decoder) line(path string) int {
	for path != "" {
		if l := d.lines[path]; l > 0 {
			return l
		}
		path = above(path)
	}
	return 1
}

// above returns the path of what path is in; that of the whole file is "".
func above(path string) string { return path[:max(0, strings.LastIndexAny(path, ".["))] }
