package integration

import (
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"

	"junction/integration/harness"
)

// This file checks the files, the folders and the declarations that documents name (TestDocuments).

var (
	filePattern   = regexp.MustCompile(`^\.?[a-z_]+(/[A-Za-z0-9_.-]+)+\.(go|md|yaml|json)$`)
	folderPattern = regexp.MustCompile(`^(` + strings.Join(append(floors, "integration"), "|") + `)(/[A-Za-z0-9_-]+)+/?$`)
	// namePattern matches a declaration and its file: `f` in `p/a.go`, `T.m` of `p/a.go`, `f` (`p/a.go`).
	namePattern  = regexp.MustCompile("`(?:(\\w+)\\.)?(\\w+)`\\s+(?:in\\s+|of\\s+|\\()`([\\w./-]+\\.go)`")
	fencePattern = regexp.MustCompile("(?ms)^```.*?^```$")
)

// find returns the path of a file or a folder that a document names, from its own folder or from the
// root; "" if there is none.
func (d *documentCheck) find(document, name string) string {
	for _, dir := range []string{".", path.Dir(document)} {
		if _, err := fs.Stat(d.root, path.Join(dir, name)); err == nil {
			return path.Join(dir, name)
		}
	}
	return ""
}

// checkPath checks a span with the path of a file or a folder.
func (d *documentCheck) checkPath(p passage) {
	kind := "folder"
	if filePattern.MatchString(p.text) {
		kind = "file"
	}
	if d.find(p.document, p.text) == "" {
		d.bad(p.document, p.line, "there is no %s %s", kind, p.text)
	}
}

// checkNames checks that the declarations exist that a document names with their file.
func (d *documentCheck) checkNames(document string) {
	text := fencePattern.ReplaceAllStringFunc(d.read(document), func(block string) string {
		return strings.Repeat("\n", strings.Count(block, "\n"))
	})
	for _, at := range namePattern.FindAllStringSubmatchIndex(text, -1) {
		m := namePattern.FindStringSubmatch(text[at[0]:at[1]])
		file := d.find(document, m[3])
		if file == "" { // checkPath reports it
			continue
		}
		if !declares(d.read(file), m[1], m[2]) {
			d.bad(document, strings.Count(text[:at[0]], "\n")+1, "there is no %s in %s",
				strings.TrimPrefix(m[1]+"."+m[2], "."), file)
		}
	}
}

// declares reports whether a file declares a function, a method, a type, a field, a constant, a
// variable or a key. of is the type of a method or a field; "" for any.
func declares(source, of, name string) bool {
	receiver, field := `(\(\w+ \*?\w+(\[\w+\])?\) )?`, `|^\t`+name+`\b|yaml:"`+name+`"`
	if of != "" {
		receiver = `\(\w+ \*?` + of + `\) `
		if !regexp.MustCompile(`(?m)^(type |\t)` + of + ` `).MatchString(source) {
			field = ""
		}
	}
	top := ""
	if of == "" {
		top = `|^(type|var|const) ` + name + `\b`
	}
	return regexp.MustCompile(`(?m)^func ` + receiver + name + `[\[(]` + top + field).MatchString(source)
}

// TestDocumentsCommands compares the tables of cmd/README.md with the groups of junction --help.
func TestDocumentsCommands(t *testing.T) {
	text := string(mustReadFile(t, "../cmd/README.md"))
	help, _, err := harness.RunJunction(t, nil, "help")
	if err != nil {
		t.Fatal(err)
	}
	_, help, _ = strings.Cut(help, "\nSet up:")
	help, _, _ = strings.Cut("\n\nSet up:"+help, "\nFlags:")
	groups := strings.Split(strings.TrimSpace(help), "\n\n")
	if len(groups) != 4 {
		t.Fatalf("the help has %d groups:\n%s", len(groups), help)
	}
	for _, group := range groups {
		title, list, _ := strings.Cut(group, ":\n")
		_, section, _ := strings.Cut(text, "\n## "+title+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		for line := range strings.Lines(list) {
			name := strings.Fields(line)[0]
			row := regexp.MustCompile("(?m)^\\| [^|]*`(junction )?" + name + "\\b[^|`]*`")
			if name != "help" && !row.MatchString(section) {
				t.Errorf("the section %q of cmd/README.md has no row for junction %s", title, name)
			}
		}
	}
}

// TestExampleColumns: the files that users copy are as narrow as the documents.
func TestExampleColumns(t *testing.T) {
	for _, name := range []string{"config.example.yaml", packFolder + "pack.example.yaml",
		packFolder + "petstore.example.yaml", packFolder + "cli/example.yaml"} {
		line := 0
		for text := range strings.Lines(string(mustReadFile(t, "../"+name))) {
			line++
			if n := len([]rune(strings.TrimSuffix(text, "\n"))); n > maxColumns {
				t.Errorf("%s:%d: %d columns, want at most %d", name, line, n, maxColumns)
			}
		}
	}
}
