package integration

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// joined are the places where a text of the code goes on in the next line.
var joined = regexp.MustCompile("[\"`]\\s*\\+\\s*[\"`]")

// italics are the texts of Junction in the table of faults; varying is what differs from time to time.
var (
	italics = regexp.MustCompile(`\*([^*|]+)\*`)
	varying = regexp.MustCompile(`…|; |\b(NAME|[NM])\b`)
)

// TestDocumentsFaults looks for each text of the section "What a fault shows" in the code.
func TestDocumentsFaults(t *testing.T) {
	text, err := os.ReadFile("../cmd/junction/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## What a fault shows\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, table, _ := strings.Cut(section, "\n| ")
	var code strings.Builder
	for _, dir := range []string{"../auth", "../cmd", "../proxy", "../upstream"} {
		err := filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			text, err := os.ReadFile(name)
			code.WriteString(joined.ReplaceAllString(string(text), ""))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	all, found := code.String(), italics.FindAllStringSubmatch(table, -1)
	if len(found) < 20 {
		t.Errorf("the table has %d texts", len(found))
	}
	for _, one := range found {
		for _, part := range varying.Split(one[1], -1) {
			if part = strings.Trim(part, " .,:;"); !strings.Contains(all, part) {
				t.Errorf("the code has no text %q (of %q)", part, one[1])
			}
		}
	}
}
