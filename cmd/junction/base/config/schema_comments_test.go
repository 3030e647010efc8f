package config

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// This file reads the comments of the types of the file, and makes descriptions for operators of them.

// mustReadComments reads the comments of the packages that the file's types are in.
func mustReadComments(t *testing.T) comments {
	t.Helper()
	packages, all := map[string]bool{}, comments{}
	packagesOf(reflect.TypeFor[Config](), packages, map[reflect.Type]bool{})
	for name := range packages {
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
			all.add(path.Base(name), parsed)
		}
	}
	return all
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

// add keeps the comments of a file: those above a type or a field, or else those after it.
func (c comments) add(pkg string, file *ast.File) {
	for _, d := range file.Decls {
		group, ok := d.(*ast.GenDecl)
		if !ok || group.Tok != token.TYPE {
			continue
		}
		for _, s := range group.Specs {
			spec := s.(*ast.TypeSpec)
			name := pkg + "." + spec.Name.Name
			c[name] = cmp.Or(spec.Doc.Text(), spec.Comment.Text())
			if len(group.Specs) == 1 {
				c[name] = cmp.Or(c[name], group.Doc.Text())
			}
			if structure, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range structure.Fields.List {
					for _, n := range f.Names {
						c[name+"."+n.Name] = cmp.Or(f.Doc.Text(), f.Comment.Text())
					}
				}
			}
		}
	}
}

var (
	goName = regexp.MustCompile(`\b[A-Z][A-Za-z]*\b`)
	// aside is what a reader of the code looks up: a file, a package, another declaration.
	aside = regexp.MustCompile(` \((see [^()]*|[^() ]*\.go|[^()]* of package [^()]*)\)`)
	// inside is a sentence about the code.
	ofCode = regexp.MustCompile(`(^| )[^.]*\b(Load|Config\.[A-Z][a-z]+|Never nil|The reader of the file)\b[^.]*\.`)
	breaks = regexp.MustCompile(`\n\n+`)
)

// inKeys replaces names of Go by the keys of the file.
func inKeys(text string, keys map[string]string) string {
	return goName.ReplaceAllStringFunc(text, func(name string) string {
		if key := keys[name]; key != "" {
			return key
		}
		return name
	})
}

// forOperators makes the comment of a field a description: one line for each paragraph, with the keys of
// the file instead of names of Go, and without what only readers of the code need.
func forOperators(comment string, keys map[string]string) string {
	var paragraphs []string
	for _, p := range breaks.Split(strings.TrimSpace(comment), -1) {
		p = strings.Join(strings.Fields(p), " ")
		p = ofCode.ReplaceAllString(aside.ReplaceAllString(p, ""), "")
		if p = strings.TrimSpace(inKeys(p, keys)); p != "" {
			paragraphs = append(paragraphs, p)
		}
	}
	return strings.Join(paragraphs, "\n\n")
}
