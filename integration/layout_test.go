// Package integration tests the program from outside: real processes, real connections, clients and
// servers that others wrote. It also holds the tests of what no single package can see, such as
// which of them imports which.
package integration

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// arrows are the imports that a package may make of others in this module; a package that is not
// here may make none. An arrow more is a line here and a sentence of reason in the commit.
var arrows = map[string][]string{
	"cmd/junction/base/revision": {"upstream/files"},
	"cmd/junction/desk/call": {"auth", "cmd/junction/base/cli", "cmd/junction/base/config",
		"cmd/junction/base/runfile", "cmd/junction/desk/clients", "cmd/junction/ops/admin",
		"cmd/junction/ops/diagnose", "cmd/junction/ops/signon", "proxy/search", "upstream", "upstream/client", "upstream/definition", "upstream/jsonrpc", "upstream/loopback",
		"upstream/prose", "upstream/raw", "upstream/shell", "upstream/transport"},
	"cmd/junction/ops/admin": {"cmd/junction/base/revision",
		"auth", "auth/credentials", "auth/fetch", "cmd/junction/base/cli",
		"cmd/junction/base/config", "cmd/junction/base/runfile", "cmd/junction/base/secrets",
		"cmd/junction/ops/console", "cmd/junction/ops/signon", // it opens the page in a browser
		"cmd/junction/ops/diagnose", "policy", "proxy/pins", "proxy/search", "upstream", "upstream/prose", "upstream/shell"},
	// a session is that of a browser of this machine, which no proxy shows to others
	"cmd/junction/ops/console": {"cmd/junction/ops/pages", "cmd/junction/ops/pages/frame", "proxy/origin", "upstream/loopback"},
	// programs of the configuration print secrets
	"cmd/junction/base/secrets": {"cmd/junction/base/config", "upstream", "upstream/pace", "upstream/prose", "upstream/stdio"},
	"cmd/junction/serve":        {"*"},
	"cmd/junction":              {"*"},
	"upstream/prose":            {},
	"upstream/bounded":          {},
	"upstream/files":            {},
	"upstream/folder":           {"upstream/files"}, // the list of a person is replaced in one step
	"upstream/loopback":         {},
	"upstream/shell":            {},
	"cmd/junction/base/runfile": {"cmd/junction/base/config", "upstream/files", "upstream/prose"},
	"cmd/junction/base/record": {"cmd/junction/base/config", "upstream/files", "auth", "proxy", "upstream/bounded", "upstream/pace",
		"upstream/raw", "upstream"}, // the states of upstreams are lines of the log
	// it names the junction that has an address, and counts connections by the networks of the limits
	"cmd/junction/base/listeners": {"cmd/junction/base/revision",
		"auth", "cmd/junction/base/runfile", "proxy/budget", "upstream/loopback",
		"upstream/prose"},
	"cmd/junction/ops/diagnose": {"auth/credentials", "auth/fetch", "auth/oauth", "cmd/junction/base/certificate", "cmd/junction/base/config", "cmd/junction/base/health", "cmd/junction/base/runfile", "upstream/prose", "cmd/junction/base/replicas", "auth",
		"auth/authserver", "policy", "proxy", "proxy/view", "upstream", "upstream/client", "upstream/command",
		"upstream/shell", "upstream/loopback", "upstream/yamlread", "proxy/budget", "proxy/origin", // both addresses recognize a proxy
		"proxy/scope"}, // why asks for the last known groups of a user
	"cmd/junction/desk/bridge": {"cmd/junction/desk/call",
		"cmd/junction/base/cli", "cmd/junction/desk/clients", "upstream/prose", "upstream/definition", "upstream/http1",
		"upstream/jsonrpc", "upstream/raw", "upstream/stdio", "upstream/transport"}, // a client of the endpoint, as the proxy is one of its servers
	// it connects the processes over one database for proxy, and forwards requests among them
	"cmd/junction/base/replicas": {"auth", "auth/seal", "auth/store", "policy", "proxy/budget", "proxy/members",
		"upstream/bounded", "upstream/http1", "upstream/pace"},
	"cmd/junction/desk/clients": {"cmd/junction/base/revision",
		"cmd/junction/desk/clients/format", "upstream/prose", "upstream/files", "upstream/shell",
		"upstream/folder",    // the folder of a window is a URI
		"upstream/loopback"}, // a person looks at entries
	"cmd/junction/desk/clients/format": {"cmd/junction/base/yamledit"}, // one editor of YAML
	"cmd/junction/demo":                {},
	"cmd/junction/base/health":         {"upstream/pace"},
	// no key goes to the browser's environment; one decision about mix-up attacks
	"cmd/junction/ops/signon": {"upstream/files", "auth/oauth", "upstream/sandbox", "auth/fetch", "cmd/junction/ops/pages/frame",
		"upstream/prose"},
	"cmd/junction/desk/packs": {"cmd/pack", "cmd/pack/tree", "cmd/junction/base/cli", "cmd/junction/desk/clients",
		"cmd/junction/base/config", "cmd/junction/desk/entries", "cmd/junction/desk/packs/fetch", "cmd/pack/lock", "cmd/pack/plan",
		"upstream/prose",
		"cmd/junction/base/runfile", "upstream/files"},
	"cmd/junction/desk/packs/fetch": {"cmd/pack/tree", "upstream/prose", "upstream/pace"},
	"cmd/pack/lock":                 {"cmd/pack/tree", "upstream/files", "upstream/shell"},
	// a plan is made by the loader that serves the pack
	"cmd/pack/plan": {"cmd/pack/manifest", "cmd/pack", "cmd/pack/web", "upstream/prose", "upstream/shell",
		"upstream/command"},
	// a service keeps the environment of the shell without keys; its status asks the running proxy
	"cmd/junction/desk/service": {"cmd/junction/base/revision", "upstream/yamlread",
		"upstream/stdio", // the settings that a command inherits
		"cmd/junction/ops/admin",
		"cmd/junction/base/cli", "cmd/junction/desk/clients", "cmd/junction/base/config", "cmd/junction/base/runfile",
		"upstream/files", "upstream/pace", "upstream/prose", "upstream/sandbox",
		"upstream/shell"}, // a line for cron
	"cmd/junction/desk/screen": {"cmd/junction/ops/admin",
		"cmd/junction/base/cli", "cmd/junction/ops/diagnose", "upstream/prose",
		"upstream", "upstream/pace", "upstream/shell"}, // the words of states
	// it measures what they do, so that they need no library for it
	"cmd/junction/base/telemetry": {"cmd/junction/base/telemetry/otlp", "proxy", "proxy/budget", "upstream", "upstream/client", "upstream/raw",
		"proxy/front"},
	"cmd/junction/base/telemetry/otlp": {"upstream/pace"},
	"cmd/junction/ops/pages": {"cmd/junction/ops/diagnose", "upstream/prose", "proxy", "upstream",
		"cmd/junction/ops/pages/frame", "proxy/front"}, // the words of states
	// junction tools and junction call are calls over a connection, with raw results
	// a probe of the credentials of an upstream
	"cmd/junction/base/cli":      {"cmd/junction/base/config", "upstream/prose", "auth", "upstream/shell"},
	"cmd/junction/desk/folders":  {"cmd/junction/base/cli", "cmd/junction/base/config", "upstream/folder", "upstream/prose"},
	"cmd/junction/desk/registry": {"cmd/junction/desk/clients", "upstream/prose", "upstream/loopback"},
	"cmd/junction/desk/entries": {"cmd/junction/base/revision", "cmd/junction/ops/admin",
		"cmd/junction/base/cli", "cmd/junction/desk/clients", "cmd/junction/base/config", "upstream/prose",
		"cmd/pack/lock", "cmd/pack/plan", "cmd/junction/desk/registry", "cmd/junction/base/runfile", "cmd/junction/base/yamledit", "upstream/shell",
		"upstream/loopback", // http is the scheme of this machine
		"upstream/folder",   // which folders are permitted already
		// a new URL is asked as the proxy asks it, and login
		"auth/fetch", "auth/oauth", "upstream", "upstream/client", "upstream/transport"},
	"cmd/junction/ops/audit": {"cmd/junction/base/cli", "cmd/junction/base/config", "upstream/files", "upstream/prose",
		"cmd/junction/ops/diagnose", // the path of an endpoint
		"cmd/junction/base/record", "proxy", "upstream/shell", "upstream/pace"},
	// the commands start clients' own commands without keys in the environment, and compare states of upstreams
	"cmd/junction/desk/setup": {"cmd/junction/base/listeners", // whether the addresses are free
		"cmd/junction/desk/call", "cmd/junction/base/revision", "cmd/junction/ops/admin",
		"cmd/junction/base/cli", "cmd/junction/desk/clients", "cmd/junction/base/config", "cmd/junction/desk/entries",
		"cmd/junction/base/runfile", "cmd/junction/desk/service", "cmd/junction/base/yamledit", "upstream", "upstream/files", "upstream/prose",
		"upstream/sandbox"},
	"cmd/junction/ops/signins": {"cmd/junction/base/revision", "cmd/junction/ops/admin",
		"cmd/junction/base/cli", "cmd/junction/base/config", "cmd/junction/base/yamledit",
		"upstream/prose", "upstream/files", "auth", "auth/authserver", "auth/credentials", "auth/seal", "auth/store",
		"upstream/shell", "upstream/loopback"},
	"upstream/yamlread": {"upstream/prose"},
	// junction check reads packs as their loader does, and certificates
	"cmd/junction/base/certificate": {"upstream/files", "upstream/pace", "upstream/prose"},
	"cmd/junction/base/config": {"cmd/junction/base/certificate", "auth/authserver/provider", "cmd/pack", "cmd/pack/manifest", "upstream/files", "cmd/pack/lock",
		"upstream/prose", "upstream/yamlread", "auth",
		"auth/authserver", "auth/fetch", "auth/keyfile", "auth/store", "policy", "proxy", "proxy/search", "proxy/view",
		"upstream", "upstream/command", "upstream/folder", "upstream/sandbox", "upstream/shell", "upstream/loopback",
		"proxy/front", "proxy/scope"}, // names of Junction's own tools
	// the core: it answers one caller, and knows no HTTP (see noHTTP)
	"proxy": {"proxy/answers", "proxy/approval", "proxy/budget",
		"proxy/redact", "proxy/schema", "proxy/sealed", "proxy/search", "proxy/view", "upstream",
		"upstream/client", "policy", "auth", "auth/seal", "upstream/bounded", "upstream/jsonrpc",
		"upstream/folder", // the folder of a caller
		"upstream/raw", "upstream/pace", "proxy/scope", "proxy/streams",
		"upstream/definition"}, // the form of a skill
	// what streams get: it knows no request
	"proxy/streams": {"proxy/budget", "proxy/scope", "proxy/view", "upstream", "upstream/jsonrpc", "upstream/pace",
		"upstream/raw"},
	"proxy/origin":   {"upstream/loopback"},
	"proxy/members":  {"policy", "proxy/budget"},
	"proxy/stateful": {"policy", "upstream", "upstream/client", "upstream/jsonrpc", "upstream/pace", "upstream/raw"},
	"proxy/redact":   {"auth/seal", "policy", "upstream/jsonrpc", "upstream/raw"}, // its rules are those of policies
	"proxy/budget":   {"auth", "policy"},                                          // names of accounts are redacted; policies limit rates
	"proxy/canon":    {"upstream/raw", "upstream/shell"},                          // differences are shown to a person
	"proxy/pins":     {"upstream/files", "upstream/shell", "proxy/canon"},
	"proxy/schema":   {"upstream/bounded", "upstream/raw", "upstream/shell"},
	"proxy/answers":  {"proxy/canon", "upstream/bounded", "upstream/raw"},
	"proxy/sealed":   {"auth/seal", "proxy/canon", "upstream/raw"}, // a state is for equal requests
	"proxy/search":   {"upstream/raw"},
	"proxy/approval": {"policy", "proxy/canon", "upstream/bounded", "upstream/raw", "upstream/shell"},
	"proxy/view": {"proxy/pins", "proxy/search", "upstream", "upstream/client", "policy", "upstream/jsonrpc",
		"upstream/raw", "upstream/definition"}, // the files of a skill
	// one connection; it knows no pool, no link and no configuration file
	"upstream/client": {"upstream/bounded", "upstream/definition", "upstream/http1", "upstream/jsonrpc", "upstream/pace",
		"upstream/prose", "upstream/raw", "upstream/stdio", "upstream/transport"},
	"upstream": {"upstream/files", "upstream/prose", "upstream/bounded", "upstream/client", "upstream/command", "upstream/definition", "upstream/folder", "upstream/http1",
		"upstream/jsonrpc", "upstream/pace", "upstream/raw", "upstream/remedy", "upstream/sandbox",
		"upstream/stdio", "upstream/transport", "upstream/shell", "upstream/loopback", "upstream/yamlread"},
	"proxy/front": {"upstream/client", "proxy", "proxy/budget", "proxy/members", "proxy/origin", "proxy/scope", "proxy/stateful", "proxy/streams", "upstream", "policy",
		"auth", "auth/seal", "upstream/bounded", "upstream/jsonrpc", "upstream/raw", "upstream/pace"},
	"proxy/scope": {"upstream/folder", "upstream/client", "auth", "policy", "proxy/pins", "proxy/redact", "proxy/view", "upstream", "upstream/bounded",
		"upstream/raw"},
	"upstream/command":    {"upstream/folder", "upstream/sandbox", "upstream/stdio"}, // they start what a section describes
	"upstream/definition": {"upstream/http1", "upstream/raw", "upstream/transport"},  // names of headers; text in one line
	"upstream/http1":      {"upstream/prose"},
	"upstream/transport":  {"upstream/http1", "upstream/jsonrpc", "upstream/prose", "upstream/raw"},
	// it implements Transport; sandbox confines the process at the other end
	"upstream/stdio":   {"upstream/files", "upstream/jsonrpc", "upstream/raw", "upstream/sandbox", "upstream/transport"},
	"upstream/sandbox": {"upstream/files"}, // the reason of an error about a file
	// what a rule reads of the arguments must be what everybody else reads: the same names in the
	// same case, none of them twice
	"policy": {"upstream/folder", // one comparison of folders
		"upstream/raw", "upstream/yamlread", "upstream/prose"},
	// the source of each mode of the table in upstream; a caller's kind may have some of them
	"auth/credentials": {"auth", "auth/oauth", "auth/store", "upstream", "upstream/bounded", "upstream/prose", "upstream/shell",
		"upstream/transport"},
	"auth/identity": {"auth/seal", "upstream"},
	// it asks an upstream as the proxy does
	"auth/oauth":               {"auth/fetch", "auth/keyfile", "auth/store", "upstream/client", "upstream/pace", "upstream/prose"},
	"auth/keyfile":             {"upstream/files", "upstream/shell"},
	"upstream/remedy":          {"upstream/shell"},                                                   // it names commands with names of servers
	"cmd/junction/base/stored": {"auth/seal", "upstream/bounded", "upstream/files", "upstream/pace"}, // what is on the disk is sealed like session ids
	"auth/authserver": {"auth", "auth/authserver/provider", "auth/store", "auth/seal", "auth/fetch", "upstream/bounded",
		"upstream/prose", "upstream/yamlread"},
	"auth/authserver/provider": {"auth/fetch", "upstream/prose"}, // it asks; authserver decides and stores
	"auth/store":               {"auth/seal"},
	"auth":                     {"upstream/bounded", "upstream/loopback", "upstream/yamlread"},
	"upstream/jsonrpc":         {"upstream/raw"},

	// A pack runs commands as upstream does, and checks arguments as proxy does.
	"cmd/junction-pack": {"cmd/junction-pack/cli", "cmd/build", "upstream/sandbox"},
	"cmd/pack/skill":    {"cmd/pack/manifest", "cmd/pack/tree", "upstream/definition", "upstream/files", "upstream/raw"},
	"cmd/junction-pack/cli": {"cmd/pack/skill", "cmd/pack/tree", "cmd/pack/lock", "cmd/pack/manifest", "cmd/pack/openapi", "cmd/pack/plan",
		"cmd/pack", "upstream/prose", "upstream/sandbox", "upstream/shell", "cmd/junction-pack/serve"},
	"cmd/pack": {"cmd/pack/command", "cmd/pack/manifest", "cmd/pack/openapi", "cmd/pack/skill",
		"cmd/pack/web", "proxy/schema", "upstream/definition", "upstream/raw"}, // Junction reads capabilities there
	"cmd/pack/openapi": {"cmd/pack/manifest", "cmd/pack/template", "cmd/pack/web", "upstream/prose",
		"upstream/files"},
	// a fetched document may not lead to a private network, as the documents of strangers may not
	"cmd/pack/web":     {"cmd/pack/manifest", "cmd/pack/template", "auth/fetch", "upstream/loopback", "upstream/pace"},
	"cmd/pack/command": {"cmd/pack/manifest", "cmd/pack/template", "upstream/sandbox", "upstream/stdio"},
	"cmd/pack/manifest": {"cmd/pack/template", "upstream/files", "upstream/prose", "upstream/yamlread", "proxy/schema",
		"upstream/command", "upstream/raw", "upstream/sandbox", "upstream/shell", "upstream/loopback"},
	"cmd/watch": {"upstream/pace"},
	"cmd/junction-pack/serve": {"cmd/pack", "cmd/pack/manifest", "cmd/pack/skill", "cmd/watch", "proxy/origin",
		"upstream/definition", "upstream/files", "upstream/raw"},
}

// forTests are packages of test support: they import what they like, and only tests import them.
var forTests = []string{"upstream/upstreamtest", "auth/authtest", "proxy/members/memberstest", "proxy/proxytest",
	"cmd/junction/desk/registry/registrytest", "integration", "integration/harness", "integration/harness/needs",
	"integration/harness/npm", "integration/harness/process", "integration/harness/settings", "integration/load",
	"integration/needs"}

// noHTTP are packages that answer requests of any transport.
var noHTTP = []string{"proxy", "proxy/scope", "proxy/streams", "proxy/view"}

const (
	modulePrefix = "junction/"
	mcpGo        = "github.com/mark3labs/mcp-go/"
	goSDK        = "github.com/modelcontextprotocol/go-sdk"
)

// TestLayout holds the tree to what its readers rely on: the direction of imports, one package
// comment per package, no hidden initialisation, no variable that changes behind a package's back,
// and words for everything that another package can name.
func TestLayout(t *testing.T) {
	tree := mustParseTree(t)
	for _, dir := range []string{"cmd/junction", "proxy", "upstream", "upstream/client", "upstream/jsonrpc", "upstream/raw", "policy",
		"auth/seal", "integration"} {
		if tree[dir] == nil {
			t.Errorf("there is no package %s: the tree was not read, or the tables of this test are out of date", dir)
		}
	}
	for _, problem := range tree.problems() {
		t.Error(problem)
	}
	for dir := range tree {
		if top, _, _ := strings.Cut(dir, "/"); !slices.Contains(topLevel, top) {
			t.Errorf("%s is outside of the folders %q", dir, topLevel)
		}
	}
}

// TestArrowsAreUsed holds that the table has no arrow that nothing needs any more.
func TestArrowsAreUsed(t *testing.T) {
	tree := mustParseTree(t)
	for _, unused := range tree.unused(arrows) {
		t.Error(unused)
	}
}

// unused returns the arrows without an import.
func (tree sourceTree) unused(table map[string][]string) (problems []string) {
	for _, dir := range slices.Sorted(maps.Keys(table)) {
		p := tree[dir]
		if p == nil {
			problems = append(problems, dir+": there is no such package")
			continue
		}
		imported := map[string]bool{"*": true}
		for _, file := range p.files {
			for _, spec := range file.Imports {
				to, _ := strconv.Unquote(spec.Path.Value) // the parser has done so before
				imported[strings.TrimPrefix(to, modulePrefix)] = true
			}
		}
		for _, to := range table[dir] {
			if !imported[to] {
				problems = append(problems, dir+": no file imports "+to)
			}
		}
	}
	return problems
}

// topLevel are the folders with packages. There are no others.
var topLevel = []string{"auth", "cmd", "integration", "policy", "proxy", "upstream"}

// sourceTree is the Go files of the module by package folder.
type sourceTree map[string]*sourcePackage

type sourcePackage struct {
	set          *token.FileSet
	files, tests []*ast.File // in the order of their names
	texts        map[*ast.File][]byte
}

// mustParseTree returns what the go command would take for part of the module, for whatever system a file is. All
// tests have the same tree, and only read it.
func mustParseTree(t *testing.T) sourceTree {
	t.Helper()
	tree, err := parsedTree()
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

var parsedTree = sync.OnceValues(func() (sourceTree, error) {
	root, tree, set := os.DirFS(".."), sourceTree{}, token.NewFileSet()
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if entry.IsDir() {
			_, nested := fs.Stat(root, path.Join(name, "go.mod"))
			if name != "." && (base == "testdata" || base == "node_modules" || strings.ContainsAny(base[:1], "._") ||
				nested == nil) {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(base) != ".go" || strings.ContainsAny(base[:1], "._") {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		p := tree[path.Dir(name)]
		if p == nil {
			p = &sourcePackage{set: set, texts: map[*ast.File][]byte{}}
			tree[path.Dir(name)] = p
		}
		p.texts[file] = text
		if strings.HasSuffix(base, "_test.go") {
			p.tests = append(p.tests, file)
		} else {
			p.files = append(p.files, file)
		}
		return nil
	})
	return tree, err
})

// problems returns what breaks a rule, one line each.
func (tree sourceTree) problems() []string {
	var all []string
	for _, dir := range slices.Sorted(maps.Keys(tree)) {
		p := tree[dir]
		all = append(all, p.comments(dir)...)
		for _, file := range p.files {
			all = append(all, p.imports(dir, file)...)
			all = append(all, p.inits(file)...)
			all = append(all, p.state(file)...)
			all = append(all, p.misnamed(file)...)
			all = append(all, p.wide(file)...)
			if dir == "proxy" || dir == "upstream" || dir == "upstream/client" {
				all = append(all, p.undocumented(file)...)
			}
		}
		all = append(all, p.writes(dir)...)
	}
	return all
}

func (p *sourcePackage) at(n ast.Node, format string, args ...any) string {
	pos := p.set.Position(n.Pos())
	return fmt.Sprintf("%s:%d: %s", pos.Filename, pos.Line, fmt.Sprintf(format, args...))
}

// comments wants one package comment; a package of nothing but tests has it in one of them.
func (p *sourcePackage) comments(dir string) (problems []string) {
	files, n := p.files, 0
	if len(files) == 0 {
		files = p.tests
	}
	for _, file := range files {
		if file.Doc == nil {
			continue
		}
		n++
		begin := "Package " + file.Name.Name + " "
		if file.Name.Name == "main" {
			begin = "Command " + path.Base(dir) + " "
		}
		if !strings.HasPrefix(file.Doc.Text(), begin) {
			problems = append(problems, p.at(file.Doc, "the package comment does not begin with %q", begin))
		}
		for _, name := range fileName.FindAllString(file.Doc.Text(), -1) {
			if !strings.Contains(name, "/") && !p.has(name) {
				problems = append(problems, p.at(file.Doc, "the package comment names %s, which does not exist", name))
			}
		}
	}
	if n != 1 {
		problems = append(problems, fmt.Sprintf("%s: %d package comments, want 1", dir, n))
	}
	return problems
}

// fileName matches names of Go files, with their path if there is one.
var fileName = regexp.MustCompile(`[\w./-]+\.go\b`)

// has reports whether the package has a file of that name.
func (p *sourcePackage) has(name string) bool {
	return slices.ContainsFunc(slices.Concat(p.files, p.tests), func(file *ast.File) bool {
		return path.Base(p.set.Position(file.Pos()).Filename) == name
	})
}

// misnamed finds comments of functions and types that begin with another name, such as an old one.
func (p *sourcePackage) misnamed(file *ast.File) (problems []string) {
	check := func(n ast.Node, doc *ast.CommentGroup, name string) {
		words := strings.Fields(doc.Text())
		if len(words) == 0 {
			return
		}
		words = words[:min(2, len(words))] // the first may be an article
		if !slices.ContainsFunc(words, func(w string) bool { return strings.TrimRight(w, ",:;.") == name }) {
			problems = append(problems, p.at(n, "the comment of %s begins with %q", name, words[0]))
		}
	}
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			check(d, d.Doc, d.Name.Name)
		case *ast.GenDecl:
			if d.Tok == token.TYPE && !d.Lparen.IsValid() {
				check(d, d.Doc, d.Specs[0].(*ast.TypeSpec).Name.Name)
			}
		}
	}
	return problems
}

func (p *sourcePackage) imports(dir string, file *ast.File) (problems []string) {
	if slices.Contains(forTests, dir) {
		return nil
	}
	for _, spec := range file.Imports {
		to, _ := strconv.Unquote(spec.Path.Value) // the parser has done so before
		bad := func(why string) {
			problems = append(problems, p.at(spec, "%s imports %s: %s", dir, strings.TrimPrefix(to, modulePrefix), why))
		}
		own, isOwn := strings.CutPrefix(to, modulePrefix)
		switch {
		case to == "net/http" && slices.Contains(noHTTP, dir):
			bad("it is in proxy/front")
		case isOwn && slices.Contains(forTests, own), strings.HasPrefix(to, goSDK):
			bad("only tests do")
		case isOwn && !slices.Contains(arrows[dir], own) && !slices.Contains(arrows[dir], "*"):
			bad("arrows has no such arrow")
		case strings.HasPrefix(to, mcpGo) && to != mcpGo+"mcp" && !strings.HasPrefix(dir, "cmd/"):
			bad("of mcp-go only mcp, outside cmd and tests")
		case strings.HasPrefix(to, mcpGo+"client"):
			bad("upstream/client is the client of MCP; only tests use another")
		}
	}
	return problems
}

func (p *sourcePackage) inits(file *ast.File) (problems []string) {
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
			problems = append(problems, p.at(f, "there is an init function"))
		}
	}
	return problems
}

// state finds variables of a package that change by their methods.
func (p *sourcePackage) state(file *ast.File) (problems []string) {
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.VAR {
			continue
		}
		ast.Inspect(g, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, _ := s.X.(*ast.Ident)
			if x == nil || x.Name != "atomic" && (x.Name != "sync" || strings.HasPrefix(s.Sel.Name, "OnceV")) {
				return true
			}
			problems = append(problems, p.at(s, "%s.%s at package level is state", x.Name, s.Sel.Name))
			return true
		})
	}
	return problems
}

// writes finds assignments to variables of a package. The types are those of this package alone:
// what it imports is not needed to tell which name means which variable, and what does not make
// sense without it is passed over.
func (p *sourcePackage) writes(dir string) (problems []string) {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: noImports{}, Error: func(error) {}}
	pkg, _ := config.Check(dir, p.set, p.files, info)
	written := func(x ast.Expr, how string) {
		for {
			switch e := x.(type) {
			case *ast.ParenExpr:
				x = e.X
			case *ast.StarExpr:
				x = e.X
			case *ast.IndexExpr:
				x = e.X
			case *ast.SliceExpr:
				x = e.X
			case *ast.SelectorExpr:
				if id, ok := e.X.(*ast.Ident); ok {
					if _, ok := info.Uses[id].(*types.PkgName); ok {
						problems = append(problems, p.at(e, "%s.%s is a variable of another package, and %s", id.Name, e.Sel.Name, how))
						return
					}
				}
				x = e.X
			case *ast.Ident:
				if v, ok := info.Uses[e].(*types.Var); ok && v.Parent() == pkg.Scope() {
					problems = append(problems, p.at(e, "%s is a variable of the package, and %s", e.Name, how))
				}
				return
			default:
				return
			}
		}
	}
	const assigned = "is written"
	for _, file := range p.files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch s := n.(type) {
			case *ast.AssignStmt:
				for _, x := range s.Lhs {
					if s.Tok != token.DEFINE {
						written(x, assigned)
					}
				}
			case *ast.IncDecStmt:
				written(s.X, assigned)
			case *ast.RangeStmt:
				for _, x := range []ast.Expr{s.Key, s.Value} {
					if s.Tok == token.ASSIGN && x != nil {
						written(x, assigned)
					}
				}
			case *ast.UnaryExpr:
				if s.Op == token.AND {
					written(s.X, "its address is taken")
				}
			case *ast.CallExpr:
				if f, ok := s.Fun.(*ast.Ident); ok && slices.Contains([]string{"delete", "clear", "copy"}, f.Name) &&
					len(s.Args) > 0 {
					written(s.Args[0], assigned)
				}
			}
			return true
		})
	}
	return problems
}

// noImports imports nothing.
type noImports struct{}

func (noImports) Import(path string) (*types.Package, error) {
	return nil, fmt.Errorf("%s is not looked at", path)
}

// spoken are methods whose meaning is that of an interface everybody knows.
var spoken = []string{"String", "Error", "Unwrap", "LogValue", "MarshalJSON", "UnmarshalJSON", "MarshalText",
	"UnmarshalText", "UnmarshalYAML"}

// undocumented finds exported names without a comment. A constant is explained by
// its type, or by the comment on its group.
func (p *sourcePackage) undocumented(file *ast.File) (problems []string) {
	bad := func(n ast.Node, name string) { problems = append(problems, p.at(n, "%s has no doc comment", name)) }
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				receiver := d.Recv.List[0].Type
				if star, ok := receiver.(*ast.StarExpr); ok {
					receiver = star.X
				}
				id, ok := receiver.(*ast.Ident)
				if !ok || !id.IsExported() || slices.Contains(spoken, name) {
					continue
				}
				name = id.Name + "." + name
			}
			if d.Doc == nil && d.Name.IsExported() {
				bad(d, name)
			}
		case *ast.GenDecl:
			if d.Doc != nil {
				continue
			}
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() && s.Doc == nil && s.Comment == nil {
						bad(s, s.Name.Name)
					}
				case *ast.ValueSpec:
					_, typed := s.Type.(*ast.Ident)
					if s.Doc != nil || s.Comment != nil || d.Tok == token.CONST && typed {
						continue
					}
					for _, name := range s.Names {
						if name.IsExported() {
							bad(name, name.Name)
						}
					}
				}
			}
		}
	}
	return problems
}

// columns is how wide a line of code may be; a tab counts as four.
const columns = 120

// wide finds lines that are too wide. The tag of a field, which cannot be wrapped, does not count.
func (p *sourcePackage) wide(file *ast.File) (problems []string) {
	name, tags := p.set.Position(file.Package).Filename, map[int]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if f, ok := n.(*ast.Field); ok && f.Tag != nil {
			tags[p.set.Position(f.Tag.Pos()).Line] = true
		}
		return true
	})
	number := 0
	for line := range bytes.Lines(p.texts[file]) {
		number++
		width := utf8.RuneCount(bytes.TrimRight(line, "\n")) + 3*bytes.Count(line, []byte("\t"))
		if width > columns && !tags[number] {
			problems = append(problems, fmt.Sprintf("%s:%d: %d columns, at most %d", name, number, width, columns))
		}
	}
	return problems
}
