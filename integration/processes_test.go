package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// inMemory matches a test, or a call with which one needs the proxy in its own process.
var inMemory = regexp.MustCompile(`(?m)^func (Test\w+)\(|harness\.InMemory\(`)

// TestDocumentsProcesses compares the tests that do not run over several processes with the list in
// the README.
func TestDocumentsProcesses(t *testing.T) {
	files, err := filepath.Glob("*/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		test := ""
		for _, m := range inMemory.FindAllStringSubmatch(string(text), -1) {
			switch {
			case m[1] != "":
				test = m[1]
			case !slices.Contains(found, test):
				found = append(found, test)
			}
		}
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(readme), "| needs the proxy in its own process | reason |\n")
	list, _, _ = strings.Cut(list, "\n\n")
	var listed []string
	for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(list, -1) {
		listed = append(listed, m[1])
	}
	slices.Sort(found)
	slices.Sort(listed)
	if len(found) == 0 || !slices.Equal(found, listed) {
		t.Errorf("harness.InMemory is called in\n%q\nand the README lists\n%q", found, listed)
	}
}
