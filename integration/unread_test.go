package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"junction/proxy"
	"junction/upstream"
)

// configTypes are the types of the entry of an upstream.
var configTypes = []string{"Config", "Auth", "Rule", "Defaults"}

// notHeeding are the functions and files of package upstream that read a field of an entry, and do nothing
// by it: defaults, validation, and texts about the entry. The defaults of the file have no other effect
// than in withDefaults.
var notHeeding = []string{withDefaults, "LimitsOf", "ExplainLimits", "validate.go"}

const withDefaults = "withDefaults"

// readsFile is the package that reads, validates and joins files.
const readsFile = "junction/cmd/junction/base/config"

// TestEachKeyOfAnUpstreamIsHeeded: each field of the entry of an upstream is read by code that does something
// by it, so that no key is accepted and without effect.
func TestEachKeyOfAnUpstreamIsHeeded(t *testing.T) {
	program := mustListPackages(t, "junction/cmd/junction")
	heeded, all := map[string]bool{}, map[string]bool{}
	set := token.NewFileSet()
	imported := exportsOf(program, set)
	for _, name := range slices.Sorted(maps.Keys(program)) {
		p := program[name]
		if name == readsFile || name != upstreamPath && !slices.Contains(p.Imports, upstreamPath) {
			continue
		}
		source := mustCheck(t, set, p, imported)
		declared := source.types
		if name != upstreamPath {
			if declared, _ = imported.Import(upstreamPath); declared == nil {
				t.Fatal("no types of " + upstreamPath)
			}
		}
		fields := entryFields(declared)
		for _, field := range fields {
			all[field] = true
		}
		source.reads(fields, heeded)
	}
	if len(all) < 40 {
		t.Errorf("an entry has only the fields %q", slices.Sorted(maps.Keys(all)))
	}
	for _, field := range slices.Sorted(maps.Keys(all)) {
		if !heeded[field] {
			t.Errorf("no code heeds upstream.%s outside of defaults, validation and texts: a key without effect", field)
		}
	}
}

// TestEachLimitOfAnUpstreamIsTested: a test sets each field of an entry that is a limit (tag limit). The tests of
// texts and defaults, which set all of them, do not count.
func TestEachLimitOfAnUpstreamIsTested(t *testing.T) {
	set := map[string]bool{}
	for dir, p := range mustParseTree(t) {
		if dir != "upstream" && !strings.HasPrefix(dir, "integration") {
			continue
		}
		for _, file := range p.tests {
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.KeyValueExpr:
					if key, ok := n.Key.(*ast.Ident); ok {
						set[key.Name] = true
					}
				case *ast.AssignStmt:
					for _, left := range n.Lhs {
						if field, ok := left.(*ast.SelectorExpr); ok {
							set[field.Sel.Name] = true
						}
					}
				}
				return true
			})
		}
	}
	entry := reflect.TypeFor[upstream.Config]()
	for i := range entry.NumField() {
		if field := entry.Field(i); field.Tag.Get("limit") != "" && !set[field.Name] {
			t.Errorf("no test of upstream or integration sets upstream.Config.%s: test a call on both sides of the "+
				"limit, and that no other caller is affected", field.Name)
		}
	}
}

// quietLimits are the limits that end no call with an error, and what a story expects of them instead.
var quietLimits = map[string]string{"idle_stop": `\bidle +idle\b`, "cache": `, from the cache\b`}

// TestEachLimitOfAnUpstreamHasAStory: a test of a folder here, or a script, sets each limit in the entry of an upstream,
// and the same story expects the words of its error and, within the next lines, the outcome of the call, which the kind of
// the error decides; or those of quietLimits.
func TestEachLimitOfAnUpstreamHasAStory(t *testing.T) {
	stories := mustReadStories(t)
	for _, row := range upstream.Limits() {
		key := row.Key
		given := regexp.MustCompile(`(?m)(\{|,|^   ) *` + key + `: \S`)
		words := quietLimits[key]
		if row.Ends != "" { // a script escapes the parentheses
			words = `\((half )?(of )?` + key + `(: \d+)?\\?\)(.*\n){1,5}?.*outcome=` + string(proxy.OutcomeOf(row.Ends)) + `\b`
		}
		if words == "" {
			t.Errorf("quietLimits does not say what a story of %s, which ends no call, expects", key)
			continue
		}
		if shown := regexp.MustCompile(words); !slices.ContainsFunc(stories, func(story string) bool {
			return given.MatchString(story) && shown.MatchString(story)
		}) {
			t.Errorf("no story of integration has an upstream with %s and expects %s: show the limit in a script, such as "+
				"script/testdata/script/limits.txtar", key, words)
		}
	}
}

// TestLimitsThatACallEnforcesAreOfACall: the method Call of an upstream, and the functions that it calls, read each
// limit with the tag limit:"call" from the entry, and no other limit. Methods of a pool and of a link, and the configuration of a pool (connConfig), have the limits of the server.
func TestLimitsThatACallEnforcesAreOfACall(t *testing.T) {
	program := mustListPackages(t, upstreamPath)
	set := token.NewFileSet()
	source := mustCheck(t, set, program[upstreamPath], exportsOf(program, set))
	read := source.readsInCall()
	if len(read) == 0 {
		t.Error("the method Call reads no field of an entry: the test reads something else")
	}
	entry := reflect.TypeFor[upstream.Config]()
	for i := range entry.NumField() {
		field := entry.Field(i)
		limit := field.Tag.Get("limit")
		switch ofCall := strings.HasPrefix(limit, "call"); {
		case limit == "":
		case read["Config."+field.Name] && !ofCall:
			t.Errorf("(*Upstream).Call enforces upstream.Config.%s: tag it limit:\"call\" instead of %q, because it "+
				"bounds calls", field.Name, limit)
		case !read["Config."+field.Name] && ofCall:
			t.Errorf("(*Upstream).Call does not read upstream.Config.%s, which has the tag limit:%q", field.Name, limit)
		}
	}
}

// readsInCall returns the fields of an entry that (*Upstream).Call reads, or a function of the package that it
// calls, also over others. It follows no method of a pool or a link. Such functions may read fields from connConfig;
// Call itself may not.
func (c *checkedPackage) readsInCall() map[string]bool {
	functions := map[types.Object]*ast.FuncDecl{}
	var start types.Object
	for _, file := range c.files {
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			of := c.info.Defs[f.Name]
			functions[of] = f
			if receiver := of.Type().(*types.Signature).Recv(); f.Name.Name == "Call" && receiver != nil &&
				strings.HasSuffix(receiver.Type().String(), ".Upstream") {
				start = of
			}
		}
	}
	fields, read, seen := entryFields(c.types), map[string]bool{}, map[types.Object]bool{}
	var walk func(of types.Object)
	walk = func(of types.Object) {
		if functions[of] == nil || seen[of] {
			return
		}
		if receiver := of.Type().(*types.Signature).Recv(); receiver != nil {
			if kind := receiver.Type().String(); strings.HasSuffix(kind, ".pool") || strings.HasSuffix(kind, ".link") {
				return
			}
		}
		seen[of] = true
		ast.Inspect(functions[of], func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				from, ok := n.X.(*ast.SelectorExpr)
				if field := c.field(n, fields); field != "" && (of == start || !ok || from.Sel.Name != "connConfig") {
					read[field] = true
				}
			case *ast.Ident:
				walk(c.info.Uses[n])
			}
			return true
		})
	}
	walk(start)
	return read
}

// exportsOf returns an importer of compiled packages.
func exportsOf(program map[string]listedPackage, set *token.FileSet) types.Importer {
	return importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) {
		if p := program[path]; p.Export != "" {
			return os.Open(p.Export)
		}
		return nil, errors.New("no export data of " + path)
	})
}

const upstreamPath = "junction/upstream"

// A listedPackage is what the go command says of a package.
type listedPackage struct {
	Dir, ImportPath, Export string
	GoFiles, Imports        []string
}

// mustListPackages returns a package and what it imports, compiled, by path.
func mustListPackages(t *testing.T, name string) map[string]listedPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps",
		"-json=Dir,ImportPath,Export,GoFiles,Imports", name)
	var faults bytes.Buffer
	cmd.Dir, cmd.Stderr = "..", &faults
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, &faults)
	}
	all := map[string]listedPackage{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		if err := d.Decode(&p); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
}

// A checkedPackage is the source of a package with the types of its expressions.
type checkedPackage struct {
	path  string
	set   *token.FileSet
	files []*ast.File
	types *types.Package
	info  types.Info
}

func mustCheck(t *testing.T, set *token.FileSet, p listedPackage, imported types.Importer) *checkedPackage {
	t.Helper()
	c := &checkedPackage{path: p.ImportPath, set: set, info: types.Info{
		Selections: map[*ast.SelectorExpr]*types.Selection{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}}
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		c.files = append(c.files, file)
	}
	var err error
	if c.types, err = (&types.Config{Importer: imported}).Check(p.ImportPath, set, c.files, &c.info); err != nil {
		t.Fatalf("%s: %v", p.ImportPath, err)
	}
	return c
}

// entryFields returns the names of the fields of configTypes, such as Config.URL.
func entryFields(p *types.Package) map[types.Object]string {
	fields := map[types.Object]string{}
	for _, name := range configTypes {
		structure := p.Scope().Lookup(name).Type().Underlying().(*types.Struct)
		for i := range structure.NumFields() {
			if key := structure.Tag(i); strings.Contains(key, `yaml:`) {
				fields[structure.Field(i)] = name + "." + structure.Field(i).Name()
			}
		}
	}
	return fields
}

// reads notes the fields that the package reads, and not only compares with the same field of another
// entry or takes as a default.
func (c *checkedPackage) reads(fields map[types.Object]string, heeded map[string]bool) {
	for _, file := range c.files {
		if c.skips(path.Base(filepath.ToSlash(c.set.Position(file.Pos()).Filename))) {
			continue
		}
		for _, decl := range file.Decls {
			only := ""
			if f, ok := decl.(*ast.FuncDecl); ok && c.skips(f.Name.Name) {
				if f.Name.Name != withDefaults {
					continue
				}
				only = "Defaults."
			}
			written := map[ast.Node]bool{}
			ast.Inspect(decl, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.AssignStmt:
					for _, left := range n.Lhs {
						written[left] = true
					}
				case *ast.BinaryExpr:
					if left, right := c.field(n.X, fields), c.field(n.Y, fields); left != "" && left == right {
						written[n.X], written[n.Y] = true, true
					}
				case *ast.SelectorExpr:
					if field := c.field(n, fields); field != "" && strings.HasPrefix(field, only) && !written[n] {
						heeded[field] = true
					}
				}
				return true
			})
		}
	}
}

// skips reports whether a function or a file of the package heeds nothing.
func (c *checkedPackage) skips(name string) bool {
	return c.path == upstreamPath && slices.Contains(notHeeding, name)
}

// field returns the name of the field that an expression selects; "" if it is no field of an entry.
func (c *checkedPackage) field(e ast.Expr, fields map[types.Object]string) string {
	if s, ok := e.(*ast.SelectorExpr); ok && c.info.Selections[s] != nil {
		return fields[c.info.Selections[s].Obj()]
	}
	return ""
}
