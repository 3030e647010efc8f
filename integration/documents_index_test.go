package integration

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentsIndex: the index of README.md leads to each page, and each page begins with a task of its own.
// TestDocuments follows the links.
func TestDocumentsIndex(t *testing.T) {
	d := &documentCheck{t: t, root: os.DirFS("..")}
	readme := d.read("README.md")
	_, index, _ := strings.Cut(readme, "\n## I want to\n")
	index, _, _ = strings.Cut(index, "\n## ")
	found := map[string]bool{"README.md": true}
	for _, m := range linkPattern.FindAllStringSubmatch(index, -1) {
		found[path.Clean(m[1])] = true
	}
	begins := map[string]string{}
	for _, page := range d.pages() {
		if !found[page] {
			t.Errorf("the index of README.md has no row for %s", page)
		}
		_, text, _ := strings.Cut(d.read(page), "\n\n")
		words := strings.Fields(text)
		begin := strings.Join(words[:min(len(words), 4)], " ")
		if other, is := begins[begin]; is {
			t.Errorf("%s and %s both begin with %q; begin with the task that the page is for", other, page, begin)
		}
		begins[begin] = page
	}
	_, top, _ := strings.Cut(readme, "```\n")
	top, _, _ = strings.Cut(top, "```")
	if lines := strings.Split(strings.TrimSpace(top), "\n"); len(lines) != 2 || !strings.HasSuffix(lines[0], "setup") ||
		!strings.HasPrefix(lines[1], "$ go test ") {
		t.Errorf("README.md begins with %q, want a command that sets up, and one that runs the tests", lines)
	}
}

// TestListsOfContentsAreWhole: a page that begins with a list of its sections has each of them in the list.
func TestListsOfContentsAreWhole(t *testing.T) {
	d := &documentCheck{t: t, root: os.DirFS("..")}
	lists := 0
	for _, page := range d.pages() {
		text := regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(d.read(page), "")
		top, rest, _ := strings.Cut(text, "\n## ")
		if !regexp.MustCompile(`(?m)^- \[[^\]]*\]\(#`).MatchString(top) {
			continue
		}
		lists++
		for _, heading := range regexp.MustCompile(`(?m)^## .*$`).FindAllString("## "+rest, -1) {
			anchor := anchors(heading)[0]
			if !strings.Contains(top, "](#"+anchor+")") {
				t.Errorf("the list at the top of %s does not have the section %q (#%s)", page, heading, anchor)
			}
		}
	}
	if lists == 0 {
		t.Error("no page has a list of its sections")
	}
}
