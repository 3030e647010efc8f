package integration

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"junction/upstream"
)

// modeTable is the file with the rows of the modes of credentials, and modeSources the package with their
// sources.
const modeTable, modeSources = "upstream/modes.go", "auth/credentials"

// otherWords are strings that are equal to the word of a mode and mean something else, by file.
var otherWords = map[string][]string{
	"auth/oauth/own.go":                    {"client_credentials"}, // the grant type of RFC 6749
	"cmd/junction/base/config/validate.go": {"oauth"},              // a section of auth, and a path of the sign-in
}

// TestModesAreNamedInOnePlace: outside of the table and of the sources, no code names a mode of
// credentials: neither its constant nor its word. So a new mode compiles only with its row and its file,
// and no place decides about it in silence.
func TestModesAreNamedInOnePlace(t *testing.T) {
	tree := mustParseTree(t)
	constants := tree.modeConstants()
	if len(constants) != len(upstream.Modes()) {
		t.Errorf("%s has the constants %q for %d modes", modeTable, constants, len(upstream.Modes()))
	}
	for _, dir := range slices.Sorted(maps.Keys(tree)) {
		if slices.Contains(forTests, dir) || strings.HasPrefix(dir, "integration") {
			continue
		}
		for _, file := range tree[dir].files {
			name := tree[dir].set.Position(file.Pos()).Filename
			switch {
			case name == modeTable:
				continue
			case dir == modeSources: // a source names its mode, and compares none
				for _, problem := range tree[dir].comparesMode(file, constants) {
					t.Error(problem)
				}
				continue
			}
			for _, problem := range tree[dir].namesMode(file, constants, otherWords[name]) {
				t.Error(problem)
			}
		}
	}
}

// TestEachSourceOfAModeIsOneFile: in the package of the sources, the constant of a mode is in the table, and
// otherwise only in the file with the word as its name.
func TestEachSourceOfAModeIsOneFile(t *testing.T) {
	tree := mustParseTree(t)
	constants := tree.modeConstants()
	places := map[string][]string{} // of a constant: files
	names := map[string]bool{}
	for _, file := range tree[modeSources].files {
		name := path.Base(tree[modeSources].set.Position(file.Pos()).Filename)
		names[name] = true
		ast.Inspect(file, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && slices.Contains(constants, id.Name) {
				places[id.Name] = append(places[id.Name], name)
			}
			return true
		})
	}
	for _, constant := range constants {
		files := slices.Compact(slices.Sorted(slices.Values(places[constant])))
		word := tree.modeWord(constant)
		if word == "" { // no credential, and so no source
			if files != nil {
				t.Errorf("%s is in %q", constant, files)
			}
			continue
		}
		if !names[word+".go"] {
			t.Errorf("the source of %s has no file %s/%s.go", constant, modeSources, word)
		}
		if want := []string{"credentials.go", word + ".go"}; !slices.Contains(files, want[0]) ||
			slices.ContainsFunc(files, func(name string) bool { return !slices.Contains(want, name) }) {
			t.Errorf("%s is in %q, want only %q", constant, files, want)
		}
	}
}

// modeConstants returns the names of the constants of the modes.
func (tree sourceTree) modeConstants() []string { return slices.Sorted(maps.Keys(tree.modeWords())) }

// modeWord returns the value of the constant of a mode.
func (tree sourceTree) modeWord(constant string) string { return tree.modeWords()[constant] }

// modeWords returns the words of the constants with the type AuthMode.
func (tree sourceTree) modeWords() map[string]string {
	words := map[string]string{}
	for _, file := range tree["upstream"].files {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "AuthMode" {
				literal, _ := spec.Values[0].(*ast.BasicLit)
				words[spec.Names[0].Name], _ = strconv.Unquote(literal.Value) // the parser has done so before
			}
			return true
		})
	}
	return words
}

// namesMode returns the places of a file that name a mode.
func (p *sourcePackage) namesMode(file *ast.File, constants, other []string) (problems []string) {
	bad := func(n ast.Node, what string) {
		problems = append(problems, p.at(n, "%s names a mode of credentials; ask its row (upstream.AuthMode.Row)", what))
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			if slices.Contains(constants, n.Name) {
				bad(n, n.Name)
			}
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && namesModeIn(text, other) {
				bad(n, fmt.Sprintf("%.60q", text))
			}
		}
		return true
	})
	return append(problems, p.comparesMode(file, constants)...)
}

// comparesMode returns the places of a file that compare a mode.
func (p *sourcePackage) comparesMode(file *ast.File, constants []string) (problems []string) {
	bad := func(n ast.Node, what string) {
		problems = append(problems, p.at(n, "%s decides by a mode of credentials; ask its row (upstream.AuthMode.Row)", what))
	}
	is := func(e ast.Expr) bool {
		of, ok := e.(*ast.SelectorExpr)
		return isMode(e) || ok && slices.Contains(constants, of.Sel.Name)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if (n.Op == token.EQL || n.Op == token.NEQ) && (is(n.X) || is(n.Y)) {
				bad(n, "a comparison")
			}
		case *ast.SwitchStmt:
			if n.Tag != nil && is(n.Tag) {
				bad(n, "a switch")
			}
		}
		return true
	})
	return problems
}

// namesModeIn reports whether a text is the word of a mode with a credential, or names one as the file
// does. other are words that mean something else.
func namesModeIn(text string, other []string) bool {
	for _, row := range upstream.Modes() {
		word := row.Word.String()
		if row.Owner == upstream.OwnerNobody || slices.Contains(other, text) {
			continue
		}
		if text == word || regexp.MustCompile(`\bmode:? +`+word+`\b`).MatchString(text) {
			return true
		}
	}
	return false
}

// isMode reports whether an expression is the Auth.Mode of something.
func isMode(e ast.Expr) bool {
	mode, ok := e.(*ast.SelectorExpr)
	if !ok || mode.Sel.Name != "Mode" {
		return false
	}
	section, ok := mode.X.(*ast.SelectorExpr)
	return ok && section.Sel.Name == "Auth"
}

// TestDocumentsHaveEachMode: the table of modes in auth/README.md has the row of each mode, and a list its keys. The
// sections below them, the comment of the key, the example of a configuration, CHANGELOG.md and the security model name
// each word. What users with credentials of their own mean for metrics and for strangers names each such mode.
func TestDocumentsHaveEachMode(t *testing.T) {
	readme := string(mustReadFile(t, "../auth/README.md"))
	_, table, found := strings.Cut(readme, "| `auth.mode` |")
	if !found {
		t.Fatal("auth/README.md has no table of modes")
	}
	table, list, _ := strings.Cut(table, "\n\n")
	list, sections, _ := strings.Cut(list, "\n## ")
	changes, promises := string(mustReadFile(t, "../CHANGELOG.md")), string(mustReadFile(t, "safety/README.md"))
	_, strangers, _ := strings.Cut(promises, "\n## What a stranger gets\n")
	metrics := string(mustReadFile(t, "../cmd/junction/base/telemetry/README.md"))
	for _, row := range upstream.Modes() {
		keys := fmt.Sprintf("- `mode: %s`: `%s`.", row.Word, strings.Join(row.AuthKeys, "`, `"))
		if len(row.AuthKeys) > 0 && !strings.Contains(strings.Join(strings.Fields(list), " "), keys) {
			t.Errorf("the list of the keys of modes in auth/README.md has no %s", keys)
		}
		if want := fmt.Sprintf("| `mode: %s` | %s |\n", row.Word, row.Cell); !strings.Contains(table+"\n", want) {
			t.Errorf("the table of modes in auth/README.md has no %s", want)
		}
		if row.Owner == upstream.OwnerNobody {
			continue
		}
		places := map[string]string{"auth/README.md has no section with": sections, "CHANGELOG.md has no line with": changes,
			"the security model has no promise with": promises}
		if row.Owner == upstream.OwnerSubject {
			places["the telemetry has no upstreams of each user with"] = metrics
			places["the security model does not say what a stranger finds out of"] = strangers
		}
		for place, text := range places {
			if named := regexp.MustCompile(`\bmode: ` + row.Word.String() + `\b`); !named.MatchString(text) {
				t.Errorf("%s %s", place, named)
			}
		}
	}
	if n := strings.Count(strings.TrimSpace(table), "\n"); n != len(upstream.Modes())+1 {
		t.Errorf("the table of modes in auth/README.md has %d lines below its head, want %d", n, len(upstream.Modes())+1)
	}
	_, comment, _ := strings.Cut(string(mustReadFile(t, "../upstream/config.go")), "type Auth struct {")
	comment, _, _ = strings.Cut(comment, "\tMode AuthMode")
	example := string(mustReadFile(t, "../config.example.yaml"))
	_, example, _ = strings.Cut(example, "#auth:\n")
	example, _, _ = strings.Cut(example, "#mode:")
	for _, row := range upstream.Modes() {
		word := regexp.MustCompile(`\b` + row.Word.String() + `\b`)
		for place, text := range map[string]string{"the comment of Auth.Mode (upstream/config.go)": comment, "the lines above auth.mode in config.example.yaml": example} {
			if !word.MatchString(text) {
				t.Errorf("%s: nothing about %s", place, row.Word)
			}
		}
	}
}

// TestEachModeHasAStory: a test of a folder here, or a script, configures an upstream of each mode.
func TestEachModeHasAStory(t *testing.T) {
	stories := strings.Join(mustReadStories(t), "\n")
	for _, row := range upstream.Modes() {
		if row.Owner != upstream.OwnerNobody && !regexp.MustCompile(`\bmode: `+row.Word.String()+`\b`).MatchString(stories) {
			t.Errorf("no story of integration has an upstream with mode: %s", row.Word)
		}
	}
}

// mustReadStories returns the texts of the tests in the folders here, and of the scripts.
func mustReadStories(t *testing.T) (stories []string) {
	t.Helper()
	for _, pattern := range []string{"*/*_test.go", "script/testdata/script/*.txtar"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatal(names, err)
		}
		for _, name := range names {
			stories = append(stories, string(mustReadFile(t, name)))
		}
	}
	return stories
}
