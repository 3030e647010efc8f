package integration

import (
	"fmt"
	"go/ast"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// tableDocuments are the files of package documentation whose tables and prose are checked.
var tableDocuments = []string{"proxy/doc.go", "upstream/doc.go", "upstream/client/doc.go"}

// TestDocumentsProse checks that the names exist that the prose of package documentation has: methods and
// fields with their type, declarations with their package, and words such as readCatalog.
func TestDocumentsProse(t *testing.T) {
	root := os.DirFS("..")
	known := namesOf(mustParseTree(t))
	found := 0
	for _, doc := range tableDocuments {
		text, err := fs.ReadFile(root, doc)
		if err != nil {
			t.Fatal(err)
		}
		names, problems := known.check(doc, string(text))
		for _, problem := range problems {
			t.Error(problem)
		}
		found += names
	}
	if found < 200 {
		t.Errorf("the prose has %d names, want at least 200", found)
	}
}

// TestDocumentsProseFindsMistakes: each form of a name that does not exist is found, in prose and in the text
// of a row.
func TestDocumentsProseFindsMistakes(t *testing.T) {
	known := namesOf(mustParseTree(t))
	for text, want := range map[string]string{
		"// itself if it is the first (claimSession of package replicas).": "claimSession",
		"// calls (*Dialer).Dial and openTransport of package client.":     "openTransport",
		"//\tCore.call  call.go  finds the tool with findATool":            "findATool",
		"// see (*Dialer).Call and `nosuchthing`, also Dialer.DialModern.": "Dialer.Call, nosuchthing, Dialer.DialModern",
		"// policy.NoSuchName decides; limits.parked and (*link).dial are true, as policy.Limits, requestState\n" +
			"// and `isolation`.": "policy.NoSuchName",
	} {
		_, problems := known.check("doc.go", text)
		var got []string
		for _, problem := range problems {
			got = append(got, regexp.MustCompile(`^doc\.go:\d+: (\S+) `).FindStringSubmatch(problem)[1])
		}
		if joined := strings.Join(got, ", "); joined != want {
			t.Errorf("%s: found %q, want %q", text, joined, want)
		}
	}
}

// treeNames are the names of the source; of tests only the benchmarks.
type treeNames struct {
	declared map[string]bool            // declarations, fields and methods; and the words of string literals
	packages map[string]map[string]bool // declarations of the packages with this last part of the path
	members  map[string]map[string]bool // methods and fields of the types with this name
	embedded map[string][]string        // types whose members such a type has, too
	keys     map[string]bool            // of the configuration file
}

func namesOf(tree sourceTree) *treeNames {
	n := &treeNames{map[string]bool{}, map[string]map[string]bool{}, map[string]map[string]bool{},
		map[string][]string{}, map[string]bool{}}
	for dir, p := range tree {
		own := n.packages[path.Base(dir)]
		if own == nil {
			own = map[string]bool{}
			n.packages[path.Base(dir)] = own
		}
		for _, file := range p.files {
			for name, member := range declarations(file) {
				n.declared[name] = true
				if !member {
					own[name] = true
				}
			}
			ast.Inspect(file, func(node ast.Node) bool { n.add(node); return true })
		}
		for _, file := range p.tests {
			for name := range declarations(file) {
				if strings.HasPrefix(name, "Benchmark") {
					n.declared[name] = true
				}
			}
		}
	}
	return n
}

// declarations returns the names that a file declares at its top. Methods have true.
func declarations(file *ast.File) map[string]bool {
	names := map[string]bool{}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			names[d.Name.Name] = d.Recv != nil
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names[spec.Name.Name] = false
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						names[name.Name] = false
					}
				}
			}
		}
	}
	return names
}

var (
	keyPattern  = regexp.MustCompile(`yaml:"(\w+)`)
	wordPattern = regexp.MustCompile(`\w+`)
)

// add adds the names of a method, of a type and of a literal.
func (n *treeNames) add(node ast.Node) {
	switch node := node.(type) {
	case *ast.FuncDecl:
		if node.Recv != nil {
			n.addMember(baseName(node.Recv.List[0].Type), node.Name.Name)
		}
	case *ast.TypeSpec:
		fields := []*ast.Field{}
		switch t := node.Type.(type) {
		case *ast.StructType:
			fields = t.Fields.List
		case *ast.InterfaceType:
			fields = t.Methods.List
		default:
			n.embedded[node.Name.Name] = append(n.embedded[node.Name.Name], baseName(t))
		}
		for _, f := range fields {
			for _, name := range f.Names {
				n.addMember(node.Name.Name, name.Name)
				n.declared[name.Name] = true
			}
			if f.Names == nil {
				n.addMember(node.Name.Name, baseName(f.Type))
				n.embedded[node.Name.Name] = append(n.embedded[node.Name.Name], baseName(f.Type))
			}
		}
	case *ast.BasicLit:
		for _, key := range keyPattern.FindAllStringSubmatch(node.Value, -1) {
			n.keys[key[1]] = true
		}
		for _, word := range wordPattern.FindAllString(node.Value, -1) {
			n.declared[word] = true
		}
	}
}

func (n *treeNames) addMember(of, name string) {
	if n.members[of] == nil {
		n.members[of] = map[string]bool{}
	}
	n.members[of][name] = true
}

// baseName returns the name of a type without its package, its pointer and its parameters.
func baseName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.StarExpr:
		return baseName(e.X)
	case *ast.IndexExpr:
		return baseName(e.X)
	case *ast.IndexListExpr:
		return baseName(e.X)
	}
	return ""
}

// has reports whether a type has a method or a field, also by a type that it embeds.
func (n *treeNames) has(of, name string, depth int) bool {
	return n.members[of][name] || depth > 0 && slices.ContainsFunc(n.embedded[of],
		func(inside string) bool { return n.has(inside, name, depth-1) })
}

// prosePattern matches (*T).m, T.m, a word such as readCatalog, and a word in backquotes.
var prosePattern = regexp.MustCompile("\\(\\*?(\\w+)\\)\\.(\\w+)|\\b(\\w+)\\.(\\w+)\\b|\\b(\\w*[a-z][A-Z]\\w*)\\b|`(\\w+)`")

// check returns the number of names in the text of a document, and those that do not exist.
func (n *treeNames) check(doc, text string) (found int, problems []string) {
	line := 0
	for row := range strings.Lines(text) {
		line++
		comment, ok := strings.CutPrefix(row, "//")
		if !ok {
			continue
		}
		for _, m := range prosePattern.FindAllStringSubmatch(comment, -1) {
			of, name, word := m[1]+m[3], m[2]+m[4], m[5]+m[6]
			if slices.Contains([]string{"go", "md", "yaml", "json"}, name) {
				continue // a file, which TestDocumentsTables checks in a table
			}
			found++
			if word != "" && !n.declared[word] || word == "" && !n.exists(of, name, m[1] != "") {
				problems = append(problems, fmt.Sprintf("%s:%d: %s does not exist", doc, line,
					strings.TrimPrefix(of+"."+name, ".")+word))
			}
		}
	}
	return found, problems
}

// exists reports whether a name exists: the member of a type, the declaration of a package, or a key of a
// section of the file. method means that it is the form (*T).m.
func (n *treeNames) exists(of, name string, method bool) bool {
	switch {
	case n.has(of, name, 3):
		return true
	case method:
		return false
	case n.keys[of] && n.keys[name], n.packages[of][name]:
		return true
	}
	return n.members[of] == nil && n.packages[of] == nil // neither a type nor a package
}
