package integration

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
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
	for _, p := range mustParseTree(t) {
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

// TestClientsAreRows: no code compares the id of an MCP client. What only some clients do is a fact of their
// rows.
func TestClientsAreRows(t *testing.T) {
	const rows = "cmd/junction/desk/clients"
	tree, ids := mustParseTree(t), map[string]bool{}
	for _, file := range tree[rows].files {
		ast.Inspect(file, func(n ast.Node) bool {
			if pair, ok := n.(*ast.KeyValueExpr); ok {
				if key, ok := pair.Key.(*ast.Ident); ok && key.Name == "ID" && textOf(pair.Value) != "" {
					ids[textOf(pair.Value)] = true
				}
			}
			return true
		})
	}
	if len(ids) < 11 {
		t.Errorf("%s has the clients %v: the test reads something else", rows, ids)
	}
	isID := func(e ast.Expr) bool { return ids[textOf(e)] }
	for dir, p := range tree {
		if !strings.HasPrefix(dir, "cmd/junction/") {
			continue
		}
		for _, file := range p.files {
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.BinaryExpr:
					if isComparison(n.Op) && (isID(n.X) || isID(n.Y)) {
						t.Error(p.at(n, "compares the id of a client: ask its row (%s/table.go)", rows))
					}
				case *ast.CaseClause:
					if slices.ContainsFunc(n.List, isID) {
						t.Error(p.at(n, "compares the id of a client: ask its row (%s/table.go)", rows))
					}
				}
				return true
			})
		}
	}
}

// textOf returns the value of a text in quotes; "" for other expressions.
func textOf(e ast.Expr) string {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return ""
	}
	text, err := strconv.Unquote(literal.Value)
	if err != nil {
		return ""
	}
	return text
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
