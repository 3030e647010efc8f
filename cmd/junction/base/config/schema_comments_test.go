package config

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// This file reads the comments of the fields of the file. They are texts for operators, word for word.

// mustReadComments reads the comments of the packages that the file's types are in.
func mustReadComments(t *testing.T) comments {
	t.Helper()
	packages, all := map[string]bool{}, comments{}
	packagesOf(reflect.TypeFor[Config](), packages, map[reflect.Type]bool{})
	for name := range packages {
		mustReadPackage(t, name, all)
	}
	return all
}

// mustReadPackage reads the comments of a package of this module.
func mustReadPackage(t *testing.T, name string, into comments) {
	t.Helper()
	dir := filepath.Join("../../../..", filepath.FromSlash(strings.TrimPrefix(name, "junction/")))
	files, err := fs.Glob(os.DirFS(dir), "*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files of %s in %s: %v", name, dir, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, file), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		into.add(path.Base(name), parsed)
	}
}

// packagesOf collects the packages of this module that a type is made of.
func packagesOf(t reflect.Type, packages map[string]bool, seen map[reflect.Type]bool) {
	if seen[t] {
		return
	}
	seen[t] = true
	if strings.HasPrefix(t.PkgPath(), "junction/") {
		packages[t.PkgPath()] = true
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		packagesOf(t.Elem(), packages, seen)
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(t) {
			packagesOf(f.Type, packages, seen)
		}
	}
}

// add keeps the comments above the fields of a file: one line for each paragraph.
func (c comments) add(pkg string, file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		structure, ok := spec.Type.(*ast.StructType)
		if !ok {
			return false
		}
		for _, f := range structure.Fields.List {
			paragraphs := strings.Split(strings.TrimSpace(f.Doc.Text()), "\n\n")
			for i, p := range paragraphs {
				paragraphs[i] = strings.Join(strings.Fields(p), " ")
			}
			for _, n := range f.Names {
				c[pkg+"."+spec.Name.Name+"."+n.Name] = strings.Join(paragraphs, "\n\n")
			}
		}
		return false
	})
}
