package integration

import (
	"go/ast"
	"go/token"
	"os"
	"regexp"
	"slices"
	"testing"
)

// A wordTable is a file that owns the facts of some words.
type wordTable struct {
	file  string
	words *regexp.Regexp // the constants
	least int            // rows that name a word
}

// wordTables are the tables of words. The kinds of upstreams and the modes of credentials have tests of their
// own.
var wordTables = []wordTable{
	{"upstream/words.go",
		regexp.MustCompile(`^(Isolation|Questions|Expose)(Shared|Session|Principal|On|Off|Exact|All|Listed)$`), 8},
	{"policy/verdict.go", regexp.MustCompile(`^(Deny|Ask|Allow)$`), 3},
	{"upstream/client/transports.go", regexp.MustCompile(`^Transport(Auto|HTTP|SSE)$`), 3},
}

// TestWordsAreRows: no code compares a word that has a row. It asks the row, so that a new word is a row. The
// rows themselves name each word.
func TestWordsAreRows(t *testing.T) {
	rows := map[string]int{}
	for _, p := range mustParseTree(t, os.DirFS("..")) {
		for _, file := range p.files {
			ast.Inspect(file, func(n ast.Node) bool {
				for _, table := range wordTables {
					switch n := n.(type) {
					case *ast.BinaryExpr:
						if isComparison(n.Op) && (table.names(n.X) || table.names(n.Y)) {
							t.Error(p.at(n, "compares a word: ask its row (%s)", table.file))
						}
					case *ast.CaseClause:
						if slices.ContainsFunc(n.List, table.names) {
							t.Error(p.at(n, "compares a word: ask its row (%s)", table.file))
						}
					case *ast.KeyValueExpr:
						if table.names(n.Value) || table.names(n.Key) {
							rows[table.file]++
						}
					}
				}
				return true
			})
		}
	}
	for _, table := range wordTables {
		if rows[table.file] < table.least {
			t.Errorf("the tree has %d rows of the words of %s: the test reads something else", rows[table.file], table.file)
		}
	}
}

func isComparison(op token.Token) bool {
	return slices.Contains([]token.Token{token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ}, op)
}

// names reports whether an expression is one of the words, or its text.
func (w wordTable) names(e ast.Expr) bool {
	if call, ok := e.(*ast.CallExpr); ok && len(call.Args) == 0 { // policy.Deny.String()
		if method, ok := call.Fun.(*ast.SelectorExpr); ok && method.Sel.Name == "String" {
			e = method.X
		}
	}
	if selector, ok := e.(*ast.SelectorExpr); ok {
		if of, ok := selector.X.(*ast.Ident); !ok || !slices.Contains([]string{"upstream", "policy", "client"}, of.Name) {
			return false // a field of that name
		}
		e = selector.Sel
	}
	name, ok := e.(*ast.Ident)
	return ok && w.words.MatchString(name.Name)
}
