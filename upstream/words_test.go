package upstream

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"junction/upstream/client"
)

// TestEveryWordIsExplained: the comment of a key, which is the reference of the file, has each word of
// the key.
func TestEveryWordIsExplained(t *testing.T) {
	words := map[string][]string{}
	for _, row := range isolations {
		words["Isolation"] = append(words["Isolation"], string(row.word))
	}
	for _, row := range questionRows {
		words["Questions"] = append(words["Questions"], row.given)
	}
	for _, row := range exposeRows {
		words["Expose"] = append(words["Expose"], row.given)
	}
	words["Era"] = client.EraWords()
	file, err := parser.ParseFile(token.NewFileSet(), "config.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	explained := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		section, ok := spec.Type.(*ast.StructType)
		if !ok || spec.Name.Name != "Config" {
			return false
		}
		for _, field := range section.Fields.List {
			for _, word := range words[field.Names[0].Name] {
				explained++
				if !strings.Contains(" "+strings.Join(strings.Fields(field.Doc.Text()), " "), " "+word) {
					t.Errorf("the comment of %s does not explain the word %s", field.Names[0].Name, word)
				}
			}
		}
		return false
	})
	if want := len(words["Isolation"]) + len(words["Questions"]) + len(words["Expose"]) + len(words["Era"]); explained != want {
		t.Errorf("%d of %d words were looked for", explained, want)
	}
}
