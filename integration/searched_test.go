package integration

import (
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"junction/auth/authtest"
)

// unsearched are the files of tests that make logs of their own: those that are about a log, and
// look for secrets in it themselves.
var unsearched = []string{"cmd/junction/record/log_test.go", "auth/authtest/secrets_test.go"}

// TestSearchedLogs: whatever a test makes that has something to say says it to a log
// of authtest, which fails the test if it shows a secret, and whatever the program writes is
// searched, too.
func TestSearchedLogs(t *testing.T) {
	tree := mustParseTree(t, os.DirFS(".."))
	if talkers := tree.talkers(); !talkers["proxy/front.Options"] || !talkers["upstream.Options"] ||
		!talkers["auth/store.Config"] || tree.listeners()["NewServer"] != 1 {
		t.Errorf("what has a log is %v and %v: the tree was not read, or this test is out of date", talkers, tree.listeners())
	}
	for _, problem := range tree.unsearched() {
		t.Error(problem)
	}
	scripts, err := os.ReadDir("script/testdata/script")
	if err != nil {
		t.Fatal(err)
	}
	for _, script := range scripts {
		text, err := os.ReadFile(path.Join("script/testdata/script", script.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "exec junction") {
			t.Errorf("%s has exec junction, of which nothing is searched: the command is junction", script.Name())
		}
	}
}

// TestSearchedRules breaks each rule once.
func TestSearchedRules(t *testing.T) {
	const product = "// Package a is here.\npackage a\nimport \"log/slog\"\ntype Options struct { N int; Log " +
		"*slog.Logger }\ntype Other struct { N int }\nfunc New(n int, log *slog.Logger) {}\n"
	for _, test := range []struct{ name, text, want string }{
		{"searched", "import \"log/slog\"\nfunc f(l *slog.Logger) { New(1, l); _ = Options{Log: l}; _ = []Other{{N: 1}} }\n",
			""},
		{"a log of its own", "import \"log/slog\"\nvar l = slog.New(nil)\n",
			"a/a_test.go:3: slog.New makes a log that nobody searches: authtest.Log makes one"},
		{"a handler", "import \"log/slog\"\nvar l = slog.NewJSONHandler(nil, nil)\n",
			"a/a_test.go:3: slog.NewJSONHandler makes a log that nobody searches: authtest.Log makes one"},
		{"none", "import \"log/slog\"\nvar l = slog.DiscardHandler\n",
			"a/a_test.go:3: slog.DiscardHandler makes a log that nobody searches: authtest.Log makes one"},
		{"left out", "func f() { _ = Options{N: 1} }\n",
			"a/a_test.go:2: a.Options without Log has nobody search what it says"},
		{"left out, empty", "func f() { g(t, &Options{}) }\n",
			"a/a_test.go:2: a.Options without Log has nobody search what it says"},
		{"left out, in a list", "func f() { _ = []Options{{N: 1}} }\n",
			"a/a_test.go:2: a.Options without Log has nobody search what it says"},
		{"not given", "func f() { New(1, nil) }\n", "a/a_test.go:2: New with nil for a log has nobody search what is said"},
		{"written nowhere", "import \"io\"\nvar o = options{stderr: io.Discard}\n",
			"a/a_test.go:3: io.Discard as standard error has nobody search it"},
		{"a secret", "var c = Other{ClientSecret: \"s3cret\"}\n",
			"a/a_test.go:2: no log is searched for a secret that is a constant, unless it begins with canary-"},
		{"a secret header", "var c = map[string]string{\"X-Api-Key\": \"k\"}\n",
			"a/a_test.go:2: no log is searched for a secret that is a constant, unless it begins with canary-"},
		{"a secret in a file", "var c = \"client_" + "secret: s3cret\"\n",
			"a/a_test.go:2: no log is searched for a secret that is a constant, unless it begins with canary-"},
		{"secrets that are found",
			"var c = \"auth: { client_secret: canary-s3cret }, client_secret: %s\"\nvar d = " +
				"map[string]string{\"Authorization\": \"Bearer canary-k\", \"Cookie\": \"\"}\n", ""},
		{"the program", "func f() { exec.Command(junctionBinary(t), 1) }\n",
			"a/a_test.go:2: what this process writes is not searched: runJunction and program.mustServe do"},
	} {
		t.Run(test.name, func(t *testing.T) {
			tree := mustParseTree(t,
				fstest.MapFS{"a/a.go": {Data: []byte(product)}, "a/a_test.go": {Data: []byte("package a\n" + test.text)}})
			if got := strings.Join(tree.unsearched(), "\n"); got != test.want {
				t.Errorf("problems:\n\t%s\nwant:\n\t%s", got, test.want)
			}
		})
	}
}

// talkers returns the structs, by folder and name, of which another package chooses the log.
func (tree sourceTree) talkers() map[string]bool {
	all := map[string]bool{}
	for dir, p := range tree {
		for _, file := range p.files {
			ast.Inspect(file, func(n ast.Node) bool {
				s, ok := n.(*ast.TypeSpec)
				if !ok || !s.Name.IsExported() {
					return true
				}
				if fields, ok := s.Type.(*ast.StructType); ok {
					for _, f := range fields.Fields.List {
						if len(f.Names) == 1 && f.Names[0].Name == "Log" && isLogger(f.Type) {
							all[dir+"."+s.Name.Name] = true
						}
					}
				}
				return true
			})
		}
	}
	return all
}

// listeners returns the functions that are given a log, with its place among what they are given.
func (tree sourceTree) listeners() map[string]int {
	all := map[string]int{}
	for _, p := range tree {
		for _, file := range p.files {
			for _, d := range file.Decls {
				f, ok := d.(*ast.FuncDecl)
				if !ok {
					continue
				}
				place := 0
				for _, param := range f.Type.Params.List {
					if isLogger(param.Type) {
						all[f.Name.Name] = place
					}
					place += max(1, len(param.Names))
				}
			}
		}
	}
	return all
}

func isLogger(x ast.Expr) bool {
	star, ok := x.(*ast.StarExpr)
	return ok && isOf(star.X, "slog", "Logger")
}

// isOf reports whether x is one of these names of a package.
func isOf(x ast.Expr, pkg string, names ...string) bool {
	s, ok := x.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	id, ok := s.X.(*ast.Ident)
	return ok && id.Name == pkg && slices.Contains(names, s.Sel.Name)
}

// unsearched returns what of the tests has something to say that is not searched, one line each.
func (tree sourceTree) unsearched() (problems []string) {
	talkers, listeners := tree.talkers(), tree.listeners()
	for _, dir := range slices.Sorted(maps.Keys(tree)) {
		p := tree[dir]
		for _, file := range p.tests {
			if slices.Contains(unsearched, p.set.Position(file.Pos()).Filename) {
				continue
			}
			for _, d := range file.Decls {
				name := ""
				if f, ok := d.(*ast.FuncDecl); ok {
					name = f.Name.Name
				}
				problems = append(problems, p.unsearchedIn(dir, name, file, d, talkers, listeners)...)
			}
		}
	}
	return problems
}

func (p *sourcePackage) unsearchedIn(dir, function string, file *ast.File, d ast.Decl, talkers map[string]bool,
	listeners map[string]int) (problems []string) {
	bad := func(n ast.Node, format string, args ...any) { problems = append(problems, p.at(n, format, args...)) }
	literal := func(lit *ast.CompositeLit, typ ast.Expr) {
		name := p.typeOf(dir, file, typ)
		hasLog := slices.ContainsFunc(lit.Elts, func(x ast.Expr) bool {
			kv, ok := x.(*ast.KeyValueExpr)
			if !ok {
				return false
			}
			key, ok := kv.Key.(*ast.Ident)
			return ok && key.Name == "Log"
		})
		switch {
		case !talkers[name], hasLog:
		// an empty one lets everybody in, which needs no word; there, who asks one gives it a log
		case name == "auth.Guard" && (len(lit.Elts) == 0 || dir == "auth"):
		// the helpers of these tests, such as mustHTTP, set the log of the options that they are given
		case (dir == "upstream/transport" || dir == "upstream/stdio") && strings.HasPrefix(name, dir+"."):
		default:
			bad(lit, "%s without Log has nobody search what it says", name)
		}
	}
	ast.Inspect(d, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if isOf(n, "slog", "New", "NewTextHandler", "NewJSONHandler", "DiscardHandler", "NewLogLogger") {
				bad(n, "slog.%s makes a log that nobody searches: authtest.Log makes one", n.Sel.Name)
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && strings.EqualFold(key.Name, "stderr") && isOf(n.Value, "io", "Discard") {
				bad(n, "io.Discard as standard error has nobody search it")
			}
			if value, ok := n.Value.(*ast.BasicLit); ok && isSecret(n.Key) && strings.ContainsAny(value.Value, letters) &&
				!strings.Contains(value.Value, authtest.Canary) {
				bad(n, "no log is searched for a secret that is a constant, unless it begins with %s", authtest.Canary)
			}
		case *ast.BasicLit:
			if found := configured.FindStringSubmatch(n.Value); found != nil && strings.ContainsAny(found[1], letters) &&
				!strings.Contains(found[1], authtest.Canary) {
				bad(n, "no log is searched for a secret that is a constant, unless it begins with %s", authtest.Canary)
			}
		case *ast.CompositeLit:
			switch typ := n.Type.(type) {
			case *ast.ArrayType:
				for _, x := range n.Elts {
					if lit, ok := x.(*ast.CompositeLit); ok && lit.Type == nil {
						literal(lit, typ.Elt)
					}
				}
			default:
				literal(n, typ)
			}
		case *ast.CallExpr:
			if isOf(n.Fun, "exec", "Command", "CommandContext") && function != "runJunction" && function != "mustServe" {
				for _, x := range n.Args {
					if call, ok := x.(*ast.CallExpr); ok && isIdent(call.Fun, "junctionBinary") {
						bad(n, "what this process writes is not searched: runJunction and program.mustServe do")
					}
				}
			}
			called := ""
			switch f := n.Fun.(type) {
			case *ast.Ident:
				called = f.Name
			case *ast.SelectorExpr:
				called = f.Sel.Name
			}
			if place, ok := listeners[called]; ok && place < len(n.Args) && isIdent(n.Args[place], "nil") {
				bad(n, "%s with nil for a log has nobody search what is said", called)
			}
		}
		return true
	})
	return problems
}

const letters = "abcdefghijklmnopqrstuvwxyz"

// configured is a secret in the text of a configuration or of an answer.
var configured = regexp.MustCompile(`\bclient_secret\\?"?: ?(?:\\?["'])?([a-z0-9-]+)`)

// isSecret reports whether what goes by a name is a secret.
func isSecret(key ast.Expr) bool {
	switch key := key.(type) {
	case *ast.Ident:
		return slices.Contains([]string{"ClientSecret", "Secret", "Password", "Access", "Refresh", "RefreshToken",
			"Verifier"}, key.Name)
	case *ast.BasicLit:
		name, _ := strconv.Unquote(key.Value) // which the parser has done before
		return slices.Contains([]string{"authorization", "cookie", "x-api-key"}, strings.ToLower(name))
	}
	return false
}

func isIdent(x ast.Expr, name string) bool {
	id, ok := x.(*ast.Ident)
	return ok && id.Name == name
}

// typeOf returns the folder and the name of a type of this module, as far as a file says it.
func (p *sourcePackage) typeOf(dir string, file *ast.File, x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return dir + "." + x.Name
	case *ast.SelectorExpr:
		if pkg, ok := x.X.(*ast.Ident); ok {
			for _, spec := range file.Imports {
				to, _ := strconv.Unquote(spec.Path.Value) // the parser has done so before
				if own, ok := strings.CutPrefix(to, modulePrefix); ok && path.Base(own) == pkg.Name {
					return own + "." + x.Sel.Name
				}
			}
		}
	}
	return fmt.Sprintf(".%T", x)
}
