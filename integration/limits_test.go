package integration

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/scanner"
	"go/token"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"
)

// The most that a reader is asked to take in at once. Lines of a package are counted without blank
// lines and comments, all others as an editor counts them. Tests of a package do not count as part
// of it.
const (
	packageLines = 6000
	packageFiles = 24
	coreFiles    = 20 // of the packages proxy and upstream
	fileLines    = 500
	testLines    = 800 // of a file of tests
	funcLines    = 80  // outside of tests
	codeColumns  = 120 // outside of tests; a tab counts as four
)

// mostFiles returns how many files a package may have.
func mostFiles(dir string) int {
	if dir == "proxy" || dir == "upstream" {
		return coreFiles
	}
	return packageFiles
}

// TestLayoutLimits holds packages, files and functions to the limits of their size.
func TestLayoutLimits(t *testing.T) {
	found := mustParseTree(t, os.DirFS("..")).overLimits()
	for _, name := range slices.Sorted(maps.Keys(found)) {
		t.Errorf("%s: %s; split it", name, found[name])
	}
}

// TestLayoutLimitsAreFound exceeds each limit by one, and reaches each once.
func TestLayoutLimitsAreFound(t *testing.T) {
	const clause = "package p\n"
	lines := func(n int) string { return strings.Repeat("var _ = 1\n", n) }
	function := func(n int) string { return "func f() {\n" + strings.Repeat("\n", n-2) + "}\n" }
	files := fstest.MapFS{}
	add := func(name, text string) { files[name] = &fstest.MapFile{Data: []byte(text)} }
	many := func(dir string, n int) {
		for i := range n {
			add(fmt.Sprintf("%s/f%02d.go", dir, i), clause)
		}
	}
	for i := range 12 {
		// With their clauses these are 6,001 lines of code in one package, and 6,000 in the other.
		add(fmt.Sprintf("code/f%02d.go", i), clause+lines(499)+map[int]string{0: "var _ = 1 // 1\n"}[i])
		add(fmt.Sprintf("less/f%02d.go", i), clause+lines(499)+"// 1\n\n/* 2\n3 */\n")
	}
	many("files/more", 25)
	many("files/most", 24)
	many("integration/harness", 30) // test support
	many("proxy", 21)
	many("upstream", 20)
	add("file/more.go", clause+strings.Repeat("\n", 500))
	add("file/most.go", clause+strings.Repeat("\n", 499))
	add("file/more_test.go", clause+lines(800))
	add("file/most_test.go", clause+lines(799))
	add("columns/more.go", clause+"var _ = 1 //"+strings.Repeat("é", 109)+"\nfunc f() {\n\t_ = 1 //"+
		strings.Repeat("e", 109)+"\n}\n")
	add("columns/most.go", clause+"var _ = 1 //"+strings.Repeat("é", 108)+"\nfunc f() {\n\t_ = 1 //"+
		strings.Repeat("e", 108)+"\n}\ntype t struct {\n\tx int `"+strings.Repeat("e", 120)+"`\n}\n")
	add("func/more.go", clause+function(81))
	add("func/most.go", clause+function(80))
	add("func/test_test.go", clause+function(81))
	got := maps.Clone(mustParseTree(t, files).overLimits())
	for i := range 12 { // the files of the packages exceed the limit of a file, too
		delete(got, fmt.Sprintf("code/f%02d.go", i))
		delete(got, fmt.Sprintf("less/f%02d.go", i))
	}
	want := map[string]string{
		"code: lines":       "6001 lines of code, at most 6000",
		"files/more: files": "25 files, at most 24",
		"proxy: files":      "21 files, at most 20",
		"file/more.go":      "501 lines, at most 500",
		"file/more_test.go": "801 lines, at most 800",
		"columns/more.go:2": "121 columns, at most 120",
		"columns/more.go:4": "121 columns, at most 120",
		"func/more.go: f":   "81 lines, at most 80",
	}
	if !maps.Equal(got, want) {
		t.Errorf("over their limits are %q\nwant %q", got, want)
	}
}

// overLimits returns what exceeds a limit, by its name, and how.
func (tree sourceTree) overLimits() map[string]string {
	over := map[string]string{}
	check := func(n, most int, of, format string, args ...any) {
		if n > most {
			over[fmt.Sprintf(format, args...)] = fmt.Sprintf("%d %s, at most %d", n, of, most)
		}
	}
	for dir, p := range tree {
		code := 0
		for _, file := range p.files {
			name, text := p.source(dir, file)
			code += codeLines(text)
			check(bytes.Count(text, []byte("\n")), fileLines, "lines", "%s", name)
			for line, n := range p.wide(file, text) {
				check(n, codeColumns, "columns", "%s:%d", name, line)
			}
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok {
					n := p.set.Position(f.End()).Line - p.set.Position(f.Pos()).Line + 1
					check(n, funcLines, "lines", "%s: %s", name, f.Name.Name)
				}
			}
		}
		for _, file := range p.tests {
			name, text := p.source(dir, file)
			check(bytes.Count(text, []byte("\n")), testLines, "lines", "%s", name)
		}
		check(code, packageLines, "lines of code", "%s: lines", dir)
		if !slices.Contains(forTests, dir) {
			check(len(p.files), mostFiles(dir), "files", "%s: files", dir)
		}
	}
	return over
}

// wide returns the columns of each line that has more than codeColumns, by its number. The tag of a
// field, which cannot be wrapped, does not count.
func (p *sourcePackage) wide(file *ast.File, text []byte) map[int]int {
	over, number := map[int]int{}, 0
	for line := range bytes.Lines(text) {
		number++
		if n := utf8.RuneCount(bytes.TrimRight(line, "\n")) + 3*bytes.Count(line, []byte("\t")); n > codeColumns {
			over[number] = n
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if f, ok := n.(*ast.Field); ok && f.Tag != nil {
			delete(over, p.set.Position(f.Tag.Pos()).Line)
		}
		return true
	})
	return over
}

// source returns the name of a file in the tree, and its text.
func (p *sourcePackage) source(dir string, file *ast.File) (name string, text []byte) {
	base := path.Base(p.set.Position(file.Package).Filename)
	return path.Join(dir, base), p.texts[file]
}

// codeLines counts the lines on which there is more than white space and comments.
func codeLines(text []byte) int {
	file := token.NewFileSet().AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0) // without comments
	lines := map[int]bool{}
	for {
		pos, kind, literal := s.Scan()
		switch {
		case kind == token.EOF:
			return len(lines)
		case kind == token.SEMICOLON && literal == "\n": // which the scanner has added
			continue
		}
		for i := range 1 + strings.Count(literal, "\n") { // a raw string may have several lines
			lines[file.Line(pos)+i] = true
		}
	}
}
