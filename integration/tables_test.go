package integration

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocumentsTables checks that the methods and functions exist which the tables of package documentation list,
// in the file or the package that the table names.
func TestDocumentsTables(t *testing.T) {
	found := 0
	for _, doc := range tableDocuments {
		rows, problems := checkTables(t, os.DirFS(".."), doc)
		for _, problem := range problems {
			t.Error(problem)
		}
		found += rows
	}
	if found < 40 {
		t.Errorf("the tables have %d methods, want at least 40", found)
	}
}

// tableRow matches a row that begins with a method and its place: (*base).owner  conn.go, or  client/conn.go
var tableRow = regexp.MustCompile(`(?m)^//\t\(?\*?(\w+)\)?\.(\w+)(?:, \w+)? +((?:\.\./)?[\w/]+(?:\.go)?) `)

// functionRow matches a row that begins with a function and its file.
var functionRow = regexp.MustCompile(`(?m)^//\t(\w+) +((?:\.\./)?[\w/]+\.go) `)

// checkTables returns the number of methods and functions in the tables of a file, and those that do not exist.
func checkTables(t *testing.T, root fs.FS, doc string) (rows int, problems []string) {
	t.Helper()
	text, err := fs.ReadFile(root, doc)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range tableRow.FindAllStringSubmatch(string(text), -1) {
		receiver, method, place := row[1], row[2], path.Join(path.Dir(doc), row[3])
		if method == "go" || receiver == "Peer" {
			continue // a file, and an interface
		}
		rows++
		files := []string{place}
		if path.Ext(place) == "" {
			beside := path.Join(path.Dir(doc), "..", row[3]) // transport is beside client
			for _, dir := range []string{place, beside} {
				more, err := fs.Glob(root, dir+"/*.go")
				if err != nil {
					t.Fatal(err)
				}
				files = append(files, more...)
			}
		}
		declared := regexp.MustCompile(`(?m)^func \(\w+ \*?` + receiver + `\) ` + method + `\(`)
		if !slices.ContainsFunc(files, func(name string) bool {
			source, _ := fs.ReadFile(root, name) // a missing file has no method
			return declared.Match(source)
		}) {
			problems = append(problems, fmt.Sprintf("%s: %s is not in %s", doc, strings.Join(row[1:3], "."), place))
		}
	}
	for _, row := range functionRow.FindAllStringSubmatch(string(text), -1) {
		rows++
		place := path.Join(path.Dir(doc), row[2])
		source, _ := fs.ReadFile(root, place) // a missing file has no function
		if !regexp.MustCompile(`(?m)^func ` + row[1] + `\(`).Match(source) {
			problems = append(problems, fmt.Sprintf("%s: %s is not in %s", doc, row[1], place))
		}
	}
	return rows, problems
}
