package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Problem is one mistake of the file, or one warning: where it is, and in Text what is wrong and what would be right.
// Text quotes only what the file says, never what a reference in it stands for.
type Problem struct {
	File string
	Line int    // 1 is the first; never 0
	Path string // such as upstreams.github.url; empty when it concerns the whole file
	Text string
}

// String returns FILE:LINE: PATH: TEXT in one line.
func (p Problem) String() string {
	if p.Path == "" {
		return fmt.Sprintf("%s:%d: %s", p.File, p.Line, oneLine(p.Text))
	}
	return fmt.Sprintf("%s:%d: %s: %s", p.File, p.Line, oneLine(p.Path), oneLine(p.Text))
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

// show quotes a value of the file for a message: not longer than a line holds.
func show(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return strconv.Quote(s)
}

// oneLine keeps what the file contains from breaking the line of a message, or from driving the terminal.
func oneLine(s string) string {
	const most = 400
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	q := strconv.Quote(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}
