package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"junction/cmd/junction/prose"
)

// Problem is one mistake of a manifest, or one warning: its place, the fault and the remedy. It
// never quotes the value of a reference.
type Problem struct {
	File string
	Line int    // 1 is the first
	Path string // such as tools.search.command; empty for the whole file
	Text string
}

// String returns FILE:LINE: PATH: TEXT in one line.
func (p Problem) String() string {
	at := fmt.Sprintf("%s:%d: ", p.File, p.Line)
	if p.Path != "" {
		at += prose.OneLine(p.Path) + ": "
	}
	return at + prose.OneLine(p.Text)
}

// Problems are all mistakes, by file and line. As an error it is never empty.
type Problems []Problem

// Error returns one mistake per line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// sort sorts by line; mistakes of one line keep their order.
func (ps *Problems) sort() {
	slices.SortStableFunc(*ps, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	*ps = slices.Compact(*ps)
}

// bad reports a mistake at path.
func (d *decoder) bad(path, format string, args ...any) {
	d.at(d.line(path), path, format, args...)
}

func (d *decoder) at(line int, path, format string, args ...any) {
	d.problems = append(d.problems, Problem{d.file, line, path, fmt.Sprintf(format, args...)})
}

// warn reports a condition outside the file.
func (d *decoder) warn(path, format string, args ...any) {
	d.warnings = append(d.warnings, Problem{d.file, d.line(path), path, fmt.Sprintf(format, args...)})
}

// line returns the line of path, or that of its nearest parent.
func (d *decoder) line(path string) int {
	for path != "" {
		if n := d.lines[path]; n > 0 {
			return n
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return 1
}
