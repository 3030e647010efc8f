package integration

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
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
	tree := mustParseTree(t, os.DirFS(".."))
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
