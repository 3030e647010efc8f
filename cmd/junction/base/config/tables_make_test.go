package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"junction/cmd/pack/manifest"
)

// This file writes the comments of fields into tables of READMEs, between markers: the first sentence of each.
// Links and code spans of a row stay.

// keyTable is a table of keys in a README, between its markers. The first marker names a section of the
// configuration, whose keys all have a row, or a type of the manifest of a pack. Of such a type, the rows say
// which keys they are for, and a row for several keys is prose.
var keyTable = regexp.MustCompile(`(?s)(<!-- keys of (\S+) -->\n)(.*?)(<!-- end of keys -->)`)

// keyRow is a row of such a table. The first word in its first cell is a key.
var keyRow = regexp.MustCompile("(?m)^\\| (`([a-z_]+)[^|]*) \\| (.*) \\|$")

// manifestTypes are the types of a manifest that tables name.
var manifestTypes = map[string]reflect.Type{
	"manifest.Manifest": reflect.TypeFor[manifest.Manifest](),
	"manifest.Tool":     reflect.TypeFor[manifest.Tool](),
	"manifest.API":      reflect.TypeFor[manifest.API](),
}

// tabled returns a README with the tables of keys that its markers name.
func (d *document) tabled(text string, packs comments) (made string, err error) {
	made = keyTable.ReplaceAllStringFunc(text, func(table string) string {
		m := keyTable.FindStringSubmatch(table)
		had := keyRow.FindAllStringSubmatch(m[3], -1)
		rows := "\n| key | meaning |\n| --- | --- |\n"
		if of := manifestTypes[m[2]]; of != nil {
			for _, row := range had {
				cell := row[3]
				if !strings.Contains(row[1], "`, `") {
					comment := packs.ofKey(of, row[2])
					if comment == "" {
						err = fmt.Errorf("%s has no comment of a key %s", m[2], row[2])
					}
					cell = decorated(firstSentence(comment), row[3])
				}
				rows += fmt.Sprintf("| %s | %s |\n", row[1], cell)
			}
			return m[1] + rows + "\n" + m[4]
		}
		f := d.at(sectionPath(m[2]))
		if f == nil {
			err = fmt.Errorf("the file has no section %s", m[2])
			return table
		}
		for _, key := range d.keys(f) {
			old := ""
			if i := slices.IndexFunc(had, func(row []string) bool { return row[2] == key }); i >= 0 {
				old = had[i][3]
			}
			rows += fmt.Sprintf("| `%s` | %s |\n", key, decorated(firstSentence(d.inside(f, key).short()), old))
		}
		return m[1] + rows + "\n" + m[4]
	})
	return made, err
}

// sectionPath returns the path of a section as markers write it, such as policies[].match.
func sectionPath(name string) []string {
	if name == filepath.Base(exampleFile) {
		return nil
	}
	return strings.Split(strings.ReplaceAll(name, "[]", ".[]"), ".")
}

// ofKey returns the comment of the field with a key; "" if there is none.
func (c comments) ofKey(of reflect.Type, key string) string {
	for _, f := range reflect.VisibleFields(of) {
		yaml, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if yaml != key && (yaml != "-" || !strings.EqualFold(f.Name, key)) { // a decoder of its own reads the latter
			continue
		}
		owner := of
		if len(f.Index) > 1 {
			owner = of.FieldByIndex(f.Index[:len(f.Index)-1]).Type
		}
		text, _, _ := strings.Cut(c[nameOf(owner)+"."+f.Name], "\n\n")
		return text
	}
	return ""
}

// firstSentence returns what a table has of a comment.
func firstSentence(comment string) string {
	sentence, _, more := strings.Cut(comment, ". ")
	if more {
		sentence += "."
	}
	return strings.ReplaceAll(behind(sentence), "|", `\|`)
}

// decoration is a link or a code span.
var decoration = regexp.MustCompile("\\[([^]]+)\\]\\([^)]+\\)|`([^`]+)`")

// decorated returns a text with the links and code spans that its row had, in their order.
func decorated(text, old string) string {
	at := 0
	for _, m := range decoration.FindAllStringSubmatch(old, -1) {
		plain := m[1] + m[2]
		word := regexp.MustCompile(`(^|[^\w/])` + regexp.QuoteMeta(plain) + `($|[^\w/])`)
		found := word.FindStringSubmatchIndex(text[at:])
		if found == nil {
			continue
		}
		begin := at + found[3]
		text = text[:begin] + m[0] + text[begin+len(plain):]
		at = begin + len(m[0])
	}
	return text
}

// TestKeysHaveTheCommentsOfTheirFields: the example explains each key of the file by the comment of its field,
// and so do the tables of READMEs. Who changes a comment runs go generate.
func TestKeysHaveTheCommentsOfTheirFields(t *testing.T) {
	d, tables := mustParseSchema(t), 0
	manifest := comments{}
	mustReadPackage(t, "junction/cmd/pack/manifest", manifest)
	compare := func(name, have, made string) {
		t.Helper()
		if *update && have != made {
			mustWrite(t, name, made)
		} else if have != made {
			t.Errorf("%s has other comments of keys than the fields; change the comment of the field, of which a table has the "+
				"first sentence, and run go generate ./cmd/junction/base/config", name)
		}
	}
	text, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	made, missing := d.commented(string(text))
	if compare(exampleFile, string(text), made); len(missing) > 0 {
		t.Errorf("config.example.yaml has keys without a comment; write # and anything above them:\n%s",
			strings.Join(missing, "\n"))
	}
	for _, pattern := range []string{"*.md", "*/*.md", "*/*/*.md", "*/*/*/*.md", "*/*/*/*/*.md"} {
		names, err := filepath.Glob("../../../../" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			made, err := d.tabled(string(text), manifest)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			tables += len(keyTable.FindAllString(made, -1))
			compare(name, string(text), made)
		}
	}
	if tables < 6 {
		t.Errorf("READMEs have %d tables of keys; their markers were not found", tables)
	}
}
