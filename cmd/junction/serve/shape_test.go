package serve

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Limits of a type that has methods. A type that reaches one of them is more than one part.
const (
	maxFields  = 12
	maxMethods = 25
)

// source is what a test reads in the files of this package.
type source struct {
	fields  map[string][]string          // of each struct, the names
	types   map[string]map[string]string // of each struct, the type of each field, without a star
	methods map[string][]*ast.FuncDecl   // by the type of the receiver
	set     *token.FileSet
}

func mustSource(t *testing.T) source {
	t.Helper()
	s := source{map[string][]string{}, map[string]map[string]string{}, map[string][]*ast.FuncDecl{}, token.NewFileSet()}
	names, err := fs.Glob(os.DirFS("."), "*.go")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(s.set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				if fields, ok := n.Type.(*ast.StructType); ok {
					s.add(n.Name.Name, fields)
				}
			case *ast.FuncDecl:
				if n.Recv != nil {
					of := typeName(n.Recv.List[0].Type)
					s.methods[of] = append(s.methods[of], n)
				}
			}
			return true
		})
	}
	return s
}

func (s source) add(name string, of *ast.StructType) {
	s.types[name] = map[string]string{}
	for _, f := range of.Fields.List {
		kind := typeName(f.Type)
		if len(f.Names) == 0 { // embedded
			s.fields[name], s.types[name][kind] = append(s.fields[name], kind), kind
		}
		for _, n := range f.Names {
			s.fields[name], s.types[name][n.Name] = append(s.fields[name], n.Name), kind
		}
	}
}

// typeName returns the name of a type of this package, perhaps behind a star; "" for others.
func typeName(x ast.Expr) string {
	if star, ok := x.(*ast.StarExpr); ok {
		x = star.X
	}
	if id, ok := x.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

// TestTypesStaySmall: no type grows back into one program that does everything.
func TestTypesStaySmall(t *testing.T) {
	s := mustSource(t)
	for name, methods := range s.methods {
		if n := len(s.fields[name]); n > maxFields {
			t.Errorf("%s has %d fields, at most %d: %q", name, n, maxFields, s.fields[name])
		}
		if n := len(methods); n > maxMethods {
			t.Errorf("%s has %d methods, at most %d", name, n, maxMethods)
		}
	}
}

// TestPartsWriteTheirOwnFieldsOnly: a part that changes another part does so by a method of it.
func TestPartsWriteTheirOwnFieldsOnly(t *testing.T) {
	s := mustSource(t)
	parts := map[string]bool{}
	for _, p := range newProgram(options{}).parts.list {
		parts[nameOf(p)] = true
	}
	// foreign returns the other part whose field x is; "" if it is none.
	foreign := func(receiver, of string, x ast.Expr) string {
		kinds := []string{}
		for {
			field, ok := x.(*ast.SelectorExpr)
			if !ok {
				break
			}
			kinds = append(kinds, field.Sel.Name)
			x = field.X
		}
		if id, ok := x.(*ast.Ident); !ok || id.Name != receiver || len(kinds) < 2 {
			return ""
		}
		kind := of
		for _, name := range slices.Backward(kinds[1:]) {
			if kind = s.types[kind][name]; parts[kind] {
				return kind
			}
		}
		return ""
	}
	writes := 0
	for of, methods := range s.methods {
		for _, m := range methods {
			if len(m.Recv.List[0].Names) == 0 {
				continue
			}
			receiver := m.Recv.List[0].Names[0].Name
			look := func(x ast.Expr) {
				writes++
				if other := foreign(receiver, of, x); other != "" {
					t.Errorf("%s: %s.%s writes a field of %s", s.set.Position(x.Pos()), of, m.Name.Name, other)
				}
			}
			ast.Inspect(m, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.AssignStmt:
					for _, x := range n.Lhs {
						look(x)
					}
				case *ast.IncDecStmt:
					look(n.X)
				case *ast.CallExpr:
					if f, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"Store", "Swap", "CompareAndSwap"}, f.Sel.Name) {
						look(f.X)
					}
				}
				return true
			})
		}
	}
	if writes == 0 {
		t.Error("no part writes a field")
	}
}

// TestDocumentationNamesTheParts: the table in doc.go has the parts in their order, and those that each reads.
func TestDocumentationNamesTheParts(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	s := mustSource(t)
	var got, want []string
	var reads []string
	row := regexp.MustCompile(`^//\t(\S*) +(?:(\S+\.go) +)?(\S.*?)(?:  +(\S.*))?$`)
	_, table, _ := strings.Cut(string(text), "//\tpart ")
	for line := range strings.Lines(table) {
		m := row.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			continue
		}
		if m[1] != "" {
			got = append(got, "")
			reads = nil
			got[len(got)-1] = m[1] + ":"
		}
		last := m[4]
		if last == "" && m[1] == "" {
			last = m[3]
		}
		reads = append(reads, strings.Fields(strings.TrimPrefix(last, "-"))...)
		got[len(got)-1] = strings.SplitN(got[len(got)-1], ":", 2)[0] + ": " + strings.Join(reads, " ")
	}
	names := map[string]bool{}
	list := newProgram(options{}).parts.list
	for _, p := range list {
		names[nameOf(p)] = true
	}
	for _, p := range list {
		var of []string
		for _, field := range s.fields[nameOf(p)] {
			if kind := s.types[nameOf(p)][field]; names[kind] {
				of = append(of, kind)
			}
		}
		want = append(want, fmt.Sprintf("%s: %s", nameOf(p), strings.Join(of, " ")))
	}
	sorted := func(rows []string) (list []string) {
		for _, r := range rows {
			name, of, _ := strings.Cut(r, ":")
			list = append(list, name+": "+strings.Join(slices.Sorted(maps.Keys(setOf(strings.Fields(of)))), " "))
		}
		return list
	}
	if got, want := sorted(got), sorted(want); !slices.Equal(got, want) {
		t.Errorf("doc.go has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func setOf(list []string) map[string]bool {
	set := map[string]bool{}
	for _, s := range list {
		set[s] = true
	}
	return set
}
