package integration

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"junction/cmd/pack"
)

// otherAddresses are the files that compare a URL or a Command which does not decide about the kind of an
// upstream, or that decide about it.
var otherAddresses = map[string]string{
	"upstream/kind.go":                     "the rows of the kinds",
	"upstream/stdio/process.go":            "a process without a program",
	"upstream/remedy/remedy.go":            "the program of a process",
	"upstream/missing.go":                  "whether a command has arguments",
	"cmd/junction/desk/clients/entry.go":   "Entry.Runs, for the files of clients",
	"cmd/junction/desk/clients/given.go":   "the rows of the addresses that a person types",
	"cmd/junction/desk/clients/look.go":    "the program of an entry that is off",
	"cmd/junction/desk/clients/merge.go":   "a function, and the arguments of a bridge",
	"cmd/junction/desk/entries/search.go":  "the repository of a server",
	"cmd/junction/base/runfile/runfile.go": "the address of Junction",
	"cmd/junction/desk/setup/all.go":       "the address of an endpoint",
	"cmd/junction/desk/clients/snippet.go": "the command line of a client",
	"proxy/signin.go":                      "the address of a page",
}

// TestKindOfAnUpstreamIsOneRow: no code finds out the kind of an upstream by itself. It asks
// client.ServerKind.
func TestKindOfAnUpstreamIsOneRow(t *testing.T) {
	used := map[string]bool{}
	tree := mustParseTree(t)
	for dir, p := range tree {
		files := p.files
		// servers of tests, a server that knows nothing of Junction, and tools of packs, which have kinds of
		// their own
		if dir == "upstream/upstreamtest" || dir == "cmd/junction/demo" || strings.HasPrefix(dir, "cmd/pack") {
			continue
		}
		for _, file := range files {
			name := path.Join(dir, path.Base(p.set.Position(file.Pos()).Filename))
			ast.Inspect(file, func(n ast.Node) bool {
				compared, ok := n.(*ast.BinaryExpr)
				if !ok || !comparesAddress(compared) {
					return true
				}
				if used[name] = true; otherAddresses[name] == "" {
					t.Error(p.at(n, "compares URL or Command: ask Kind of the entry, or say in otherAddresses what it is"))
				}
				return true
			})
		}
	}
	for name := range otherAddresses {
		if !used[name] {
			t.Errorf("%s compares no URL and no Command any more", name)
		}
	}
}

// comparesAddress reports whether an expression asks if a URL or a Command is there.
func comparesAddress(e *ast.BinaryExpr) bool {
	if !slices.Contains([]token.Token{token.EQL, token.NEQ, token.GTR, token.LSS, token.GEQ, token.LEQ}, e.Op) {
		return false
	}
	for _, side := range []ast.Expr{e.X, e.Y} {
		if call, ok := side.(*ast.CallExpr); ok && fmt.Sprint(call.Fun) == "len" && len(call.Args) == 1 {
			side = call.Args[0]
		}
		selector, ok := side.(*ast.SelectorExpr)
		if !ok || selector.Sel.Name != "URL" && selector.Sel.Name != "Command" {
			continue
		}
		other := e.Y
		if e.Y == side {
			other = e.X
		}
		switch o := other.(type) {
		case *ast.BasicLit:
			return o.Value == `""` || o.Kind == token.INT
		case *ast.Ident:
			return strings.EqualFold(o.Name, "nil")
		}
	}
	return false
}

// TestEachKindOfPackToolIsOneFile: the row of a kind with the key http lies in kind_http.go of cmd/pack, and
// what a manifest says of it in http.go of cmd/pack/manifest.
func TestEachKindOfPackToolIsOneFile(t *testing.T) {
	tree := mustParseTree(t)
	rows, kinds := tree["cmd/pack"].variables(), tree["cmd/pack/manifest"].variables()
	table := map[string]bool{} // the rows that the table names
	ast.Inspect(rows["kinds"].value, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && rows[id.Name].value != nil {
			table[id.Name] = true
		}
		return true
	})
	if len(table) != len(pack.ManifestKinds()) {
		t.Errorf("kinds of cmd/pack names the rows %v for %d kinds", table, len(pack.ManifestKinds()))
	}
	for name := range table {
		row := rows[name]
		kind, found := variable{}, 0
		ast.Inspect(row.value, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && fmt.Sprint(s.X) == "manifest" && kinds[s.Sel.Name].value != nil {
				kind, found = kinds[s.Sel.Name], found+1
			}
			return true
		})
		key := kind.field("Key")
		if found != 1 || key == "" {
			t.Errorf("%s of cmd/pack does not name the one kind of cmd/pack/manifest", name)
			continue
		}
		if want := "kind_" + key + ".go"; row.file != want {
			t.Errorf("the row of the kind %s is in cmd/pack/%s, want %s", key, row.file, want)
		}
		if want := key + ".go"; kind.file != want {
			t.Errorf("the kind %s is in cmd/pack/manifest/%s, want %s", key, kind.file, want)
		}
	}
}

const packScripts = "script/testdata/script"

// TestEachKindOfPackToolHasAStory: a script serves a pack with a tool of each kind, and calls that tool.
func TestEachKindOfPackToolHasAStory(t *testing.T) {
	called := mustFindPackCalls(t)
	for _, kind := range pack.ManifestKinds() {
		if called[kind.Key] == nil {
			t.Errorf("no script of %s calls a tool of the kind %s", packScripts, kind.Key)
		}
	}
}

// mustFindPackCalls returns the names of the scripts that call a tool of a pack, by a key of the tool.
func mustFindPackCalls(t *testing.T) map[string][]string {
	t.Helper()
	scripts, err := os.ReadDir(packScripts)
	if err != nil {
		t.Fatal(err)
	}
	called := map[string][]string{}
	for _, script := range scripts {
		parts := strings.Split(string(mustReadFile(t, path.Join(packScripts, script.Name()))), "\n-- ")
		for _, file := range parts[1:] {
			name, text, _ := strings.Cut(file, " --\n")
			var manifest struct{ Tools map[string]map[string]any }
			if !strings.HasSuffix(name, "pack.yaml") || yaml.Unmarshal([]byte(text), &manifest) != nil {
				continue
			}
			for tool, keys := range manifest.Tools {
				call := regexp.MustCompile(`(?m)^[^#\n]*__` + regexp.QuoteMeta(tool) + `\b`)
				for key := range keys {
					if call.MatchString(parts[0]) {
						called[key] = append(called[key], strings.TrimSuffix(script.Name(), ".txtar"))
					}
				}
			}
		}
	}
	return called
}

// TestStoriesOfPacksAreListed: the list in script/pack_test.go names each story of packs, names no other one, and
// has a row for the tools of each kind, with a story that calls one.
func TestStoriesOfPacksAreListed(t *testing.T) {
	const list = "script/pack_test.go"
	_, text, _ := strings.Cut(string(mustReadFile(t, list)), "// The stories of packs,")
	text, _, _ = strings.Cut(text, "\n\n")
	rows, stories := map[string][]string{}, map[string]bool{}
	for _, line := range regexp.MustCompile(`(?m)^//\t(.*?)  +(.*)$`).FindAllStringSubmatch(text, -1) {
		for _, name := range strings.Split(line[2], ", ") {
			rows[line[1]] = append(rows[line[1]], name)
			stories[name] = true
		}
	}
	clients := string(mustReadFile(t, "bridge/pack_test.go"))
	for name := range stories {
		_, err := os.Stat(path.Join(packScripts, name+".txtar"))
		if err != nil && !strings.Contains(clients, "\nfunc "+name+"(") {
			t.Errorf("%s names %s, which is no script, and no test of integration/bridge", list, name)
		}
	}
	scripts, err := filepath.Glob(packScripts + "/pack*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatal(scripts, err)
	}
	for _, script := range scripts {
		if name := strings.TrimSuffix(filepath.Base(script), ".txtar"); !stories[name] {
			t.Errorf("%s does not say what %s shows", list, name)
		}
	}
	called := mustFindPackCalls(t)
	for _, kind := range pack.ManifestKinds() {
		listed := false
		for row, names := range rows {
			listed = listed || regexp.MustCompile(`^tools of .*\b`+kind.Tools+`\b`).MatchString(row) &&
				slices.ContainsFunc(names, func(name string) bool { return slices.Contains(called[kind.Key], name) })
		}
		if !listed {
			t.Errorf("%s has no row about tools of %s with one of the stories that call one: %q", list, kind.Tools, called[kind.Key])
		}
	}
}

// A variable is one of a package, with its value.
type variable struct {
	file  string
	value ast.Expr
}

// variables returns the variables of a package that have a value.
func (p *sourcePackage) variables() map[string]variable {
	all := map[string]variable{}
	for _, file := range p.files {
		for _, decl := range file.Decls {
			general, ok := decl.(*ast.GenDecl)
			if !ok || general.Tok != token.VAR {
				continue
			}
			for _, spec := range general.Specs {
				if s := spec.(*ast.ValueSpec); len(s.Values) == 1 {
					all[s.Names[0].Name] = variable{path.Base(p.set.Position(s.Pos()).Filename), s.Values[0]}
				}
			}
		}
	}
	return all
}

// field returns the text of a field of the literal that the variable points to; "" if it has none.
func (v variable) field(name string) (text string) {
	if v.value == nil {
		return ""
	}
	ast.Inspect(v.value, func(n ast.Node) bool {
		if pair, ok := n.(*ast.KeyValueExpr); ok && fmt.Sprint(pair.Key) == name {
			if literal, ok := pair.Value.(*ast.BasicLit); ok {
				text, _ = strconv.Unquote(literal.Value) // the parser has done so before
			}
		}
		return text == ""
	})
	return text
}
