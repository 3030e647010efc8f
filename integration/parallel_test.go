package integration

import (
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
)

// inARow are the packages, and the tests of others, that run one after the other without a word of package
// harness, and why.
var inARow = map[string]string{
	"integration/agents": "they run by hand",
	"integration/script": "they share the default addresses of Junction, but for those in files",

	"TestSoak": "it runs by hand", "TestClaudeCodeSignsIn": "it runs by hand", "TestCodexSignsIn": "it runs by hand",
	"TestParallelRefreshesOfClaudeCode": "it runs by hand",
	"TestRuleIsForItsTimesAndValues":    "it starts nothing", "TestMistakesOfRowsAreFound": "it starts nothing",
	"TestJudgeFindsDifferences": "it starts nothing",
}

// TestTestsRunBesideOthers: a test of integration says with which others it runs. A test that says nothing holds
// up all others of its package, and nobody notices.
func TestTestsRunBesideOthers(t *testing.T) {
	missing := map[string]string{}
	for dir, p := range mustParseTree(t) {
		if strings.HasPrefix(dir, "integration/") && !strings.HasPrefix(dir, "integration/harness") && inARow[dir] == "" {
			for _, name := range p.silentTests() {
				missing[name] = dir
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		if inARow[name] == "" {
			t.Errorf("%s: %s must begin with harness.Waits, harness.Computes or harness.Alone", missing[name], name)
		}
	}
	for name, why := range inARow {
		if strings.HasPrefix(name, "Test") && missing[name] == "" {
			t.Errorf("no test %s runs in a row (%s)", name, why)
		}
	}
}

// silentTests returns the tests in which neither the test nor a function of the package that it calls says how it
// runs. What a subtest says does not count.
func (p *sourcePackage) silentTests() (names []string) {
	functions := map[string]*ast.FuncDecl{}
	for _, file := range p.tests {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				functions[f.Name.Name] = f
			}
		}
	}
	seen := map[*ast.FuncDecl]bool{}
	var says func(f *ast.FuncDecl) bool
	says = func(f *ast.FuncDecl) (yes bool) {
		seen[f] = true
		ast.Inspect(f.Body, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if ok {
				switch to := call.Fun.(type) {
				case *ast.SelectorExpr:
					from, _ := to.X.(*ast.Ident)
					yes = yes || from != nil && from.Name == "harness" &&
						slices.Contains([]string{"Waits", "Computes", "Alone"}, to.Sel.Name)
				case *ast.Ident:
					helper := functions[to.Name]
					yes = yes || helper != nil && !seen[helper] && says(helper)
				}
			}
			_, inside := n.(*ast.FuncLit) // such as a subtest
			return !inside && !yes
		})
		return yes
	}
	for name, f := range functions {
		if clear(seen); strings.HasPrefix(name, "Test") && name != "TestMain" && !says(f) {
			names = append(names, name)
		}
	}
	return names
}
