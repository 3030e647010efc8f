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

	"junction/auth/authtest"
	"junction/cmd/junction/base/config"
)

// unsearched are the files of tests that make logs of their own: those that are about a log, and
// look for secrets in it themselves.
var unsearched = []string{"cmd/junction/base/record/log_test.go", "auth/authtest/secrets_test.go"}

// inBackground matches a command of a script that runs beside the next ones.
var inBackground = regexp.MustCompile(`(?m)^exec junction .*&\w+&$`)

// TestSearchedLogs: whatever a test makes that has something to say says it to a log
// of authtest, which fails the test if it shows a secret, and whatever the program writes is
// searched, too.
func TestSearchedLogs(t *testing.T) {
	tree := mustParseTree(t)
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
		if alone := len(inBackground.FindAll(text, -1)); strings.Count(string(text), "exec junction") > alone ||
			strings.Count(string(text), "\nsearched\n") < alone {
			t.Errorf("%s has exec junction, of which nothing is searched: the command is junction, or, in the background, "+
				"wait and searched follow", script.Name())
		}
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
	talkers, listeners, configured := tree.talkers(), tree.listeners(), secretsOfTheFile()
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
				problems = append(problems, p.unsearchedIn(dir, name, file, d, talkers, listeners, configured)...)
			}
		}
	}
	return problems
}

func (p *sourcePackage) unsearchedIn(dir, function string, file *ast.File, d ast.Decl, talkers map[string]bool,
	listeners map[string]int, configured *regexp.Regexp) (problems []string) {
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

// secretsOfTheFile matches a secret in the text of a configuration or of an answer: a key of the file that is
// called a secret, a password or a token, with its value.
func secretsOfTheFile() *regexp.Regexp {
	keys := map[string]bool{}
	for _, key := range regexp.MustCompile(`"(\w*(?:secret|password|token))": ?\{`).FindAllStringSubmatch(config.Schema(), -1) {
		keys[key[1]] = true
	}
	return regexp.MustCompile(`\b(?:` + strings.Join(slices.Sorted(maps.Keys(keys)), "|") +
		`)\\?"?: ?(?:\\?["'])?([a-z0-9-]+)`)
}

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
