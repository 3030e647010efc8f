package integration

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"junction/integration/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }

// TestDocuments checks what the documents name: files, folders and headings, declarations with their
// file, commands and flags, configuration keys and files, tests. It also checks how wide they are.
func TestDocuments(t *testing.T) {
	harness.WithoutShort(t) // it starts the program for each command and configuration
	for _, problem := range documentProblems(t, os.DirFS("..")) {
		t.Error(problem)
	}
}

func mustReadFile(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A documentCheck is the documents of a tree, and what they may name.
type documentCheck struct {
	t        *testing.T
	root     fs.FS
	headings map[string][]string // by document: the anchors
	keys     map[string]bool     // configuration keys: each path, and each end of one
	help     map[string]string   // by command: its help
	problems []string
}

// A passage is a code span or a fenced block of a document.
type passage struct {
	document string
	line     int
	language string // of a block
	block    bool
	text     string
}

const (
	maxColumns = 100
	maxCell    = 100 // of a table
)

// documentProblems returns what is wrong with the documents, one line each.
func documentProblems(t *testing.T, root fs.FS) []string {
	t.Helper()
	d := &documentCheck{
		t: t, root: root, headings: map[string][]string{}, keys: map[string]bool{}, help: map[string]string{},
	}
	d.readKeys()
	documents := d.pages()
	for _, document := range documents {
		d.headings[document] = anchors(d.read(document))
	}
	for _, document := range documents {
		d.checkDocument(document)
		d.checkNames(document)
	}
	return d.problems
}

// pages returns the documents of the tree, but those of test data.
func (d *documentCheck) pages() []string {
	d.t.Helper()
	var documents []string
	err := fs.WalkDir(d.root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch base := path.Base(name); {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && (base == "testdata" || base == "node_modules" || base[0] == '.'):
			return fs.SkipDir
		case path.Ext(base) == ".md":
			documents = append(documents, name)
		}
		return nil
	})
	if err != nil || len(documents) == 0 {
		d.t.Fatalf("documents: %q, %v", documents, err)
	}
	return documents
}

func (d *documentCheck) read(name string) string {
	d.t.Helper()
	text, err := fs.ReadFile(d.root, name)
	if err != nil {
		d.t.Fatal(err)
	}
	return string(text)
}

func (d *documentCheck) bad(document string, line int, format string, args ...any) {
	d.problems = append(d.problems, fmt.Sprintf("%s:%d: %s", document, line, fmt.Sprintf(format, args...)))
}

var (
	linkPattern = regexp.MustCompile(`\]\(([^)#\s]*)(#[^)]*)?\)`)
	spanPattern = regexp.MustCompile("`([^`]+)`")
)

// checkDocument checks one document, line by line.
func (d *documentCheck) checkDocument(document string) {
	lines := strings.Split(strings.TrimSuffix(d.read(document), "\n"), "\n")
	var block *passage
	for i, text := range lines {
		language, fence := strings.CutPrefix(strings.TrimSpace(text), "```")
		switch {
		case fence && block == nil:
			block = &passage{document, i + 1, language, true, ""}
			continue
		case fence:
			d.checkPassage(*block)
			block = nil
			continue
		case block != nil:
			block.text += text + "\n"
			continue
		}
		if n := len([]rune(text)); n > maxColumns && !strings.HasPrefix(text, "|") {
			d.bad(document, i+1, "%d columns, want at most %d", n, maxColumns)
		}
		if row, ok := strings.CutPrefix(text, "|"); ok {
			for cell := range strings.SplitSeq(row, "|") {
				if n := len([]rune(strings.TrimSpace(cell))); n > maxCell {
					d.bad(document, i+1, "a cell of %d characters, want at most %d; write a section", n, maxCell)
				}
			}
		}
		if strings.Count(text, "`")%2 != 0 {
			d.bad(document, i+1, "a code span goes on in the next line")
		}
		for _, m := range linkPattern.FindAllStringSubmatch(spanPattern.ReplaceAllString(text, "x"), -1) {
			d.checkLink(document, i+1, m[1], strings.TrimPrefix(m[2], "#"))
		}
		for _, m := range spanPattern.FindAllStringSubmatch(text, -1) {
			d.checkPassage(passage{document, i + 1, "", false, m[1]})
		}
	}
}

// checkLink follows a link to a file or a heading of this tree.
func (d *documentCheck) checkLink(document string, line int, target, anchor string) {
	if strings.Contains(target, "://") {
		return
	}
	file := document
	if target != "" {
		file = path.Join(path.Dir(document), target)
	}
	if _, err := fs.Stat(d.root, file); err != nil {
		d.bad(document, line, "there is no file %s", file)
		return
	}
	if anchor != "" && !slices.Contains(d.headings[file], anchor) {
		d.bad(document, line, "there is no heading #%s in %s", anchor, file)
	}
}

// anchors returns the anchors of the headings of a document, made in the manner of GitHub.
func anchors(text string) (all []string) {
	block := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			block = !block
		}
		title, is := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		if block || !is || !strings.HasPrefix(line, "#") {
			continue
		}
		all = append(all, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', '0' <= r && r <= '9', 'a' <= r && r <= 'z', r > 127:
				return r
			}
			return -1
		}, strings.ToLower(strings.TrimSpace(title))))
	}
	return all
}

var (
	dottedPattern = regexp.MustCompile(`^[a-z_]+(\.[a-z_]+)+$`)
	snakePattern  = regexp.MustCompile(`^[a-z]+(_[a-z]+)+$`)
	pairPattern   = regexp.MustCompile(`^[a-z_]+: `)
	flagPattern   = regexp.MustCompile(`^--[a-z-]+`)
)

// foreign are code spans that look like names of ours, and are names of others: of the protocol, of
// OAuth, of Docker, of clients.
var foreign = []string{
	"call_destructive_tool", "call_read_tool", "call_write_tool", "context.arguments", "data.junction", "input_required",
	"jwks_uri", "not_searched", "mtls_endpoint_aliases", "private_key_jwt", "request_id", "search_tools", "tool_error", "params: null",
	"self_signed_tls_client_auth", "tls_client_auth", "upstream_needs_reconnect", "upstream_not_connected", "state_lost",
	"junction.db", "master.key", "pyvenv.cfg", "npm_config_cache", "integration/npm/node_modules",
	"required_claims: { hd: example.com }", "package: what it does",
	"--init", "--network host", "--network container:NAME", ".cursor/mcp.json", "env_keys", "env_http_headers",
}

// aboutOthers reports whether a document is about programs from npm, which have keys and flags of
// their own.
func (d *documentCheck) aboutOthers(document string) bool {
	_, err := fs.Stat(d.root, path.Join(path.Dir(document), "package.json"))
	return err == nil
}

// checkPassage checks what a code span or a block names.
func (d *documentCheck) checkPassage(p passage) {
	first, _, _ := strings.Cut(p.text, " ")
	switch {
	case strings.HasPrefix(p.document, packFolder):
		d.checkPack(p)
	case p.block && p.language == "yaml":
		d.checkConfig(p)
	case p.block && (p.language == "" || p.language == "sh"):
		for i, line := range strings.Split(strings.ReplaceAll(p.text, "\\\n", " "), "\n") {
			d.checkCommand(p.document, p.line+1+i, strings.TrimPrefix(line, "$ "))
		}
	case p.block, slices.Contains(foreign, p.text), d.aboutOthers(p.document):
	case strings.HasPrefix(p.text, "junction ") || strings.Contains(p.text, "go test "):
		d.checkCommand(p.document, p.line, p.text)
	case flagPattern.MatchString(first):
		d.checkFlag(p, flagPattern.FindString(first))
	case filePattern.MatchString(p.text), folderPattern.MatchString(p.text):
		d.checkPath(p)
	case snakePattern.MatchString(p.text), dottedPattern.MatchString(p.text) &&
		!slices.Contains([]string{".go", ".md", ".yaml", ".json", ".mod"}, path.Ext(p.text)):
		d.checkKey(p, p.text)
	case pairPattern.MatchString(p.text):
		d.checkPair(p)
	}
}

// metricPattern matches the names of metrics and attributes of OpenTelemetry and of their forms for
// Prometheus. The tests of cmd/junction/base/telemetry compare them with the documents.
var metricPattern = regexp.MustCompile(`^(mcp|gen_ai|junction|network|rpc|error|go|process|jsonrpc|server|service|client)[._]`)

func (d *documentCheck) checkKey(p passage, key string) {
	if !d.keys[key] && !metricPattern.MatchString(key) {
		d.bad(p.document, p.line, "there is no configuration key %s", key)
	}
}

// checkPair checks the keys of a span such as auth: { mode: oauth_user }.
func (d *documentCheck) checkPair(p passage) {
	var n yaml.Node
	if yaml.Unmarshal([]byte(strings.ReplaceAll(p.text, "…", "x")), &n) != nil {
		return // prose with a colon
	}
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		for i, c := range n.Content {
			if n.Kind == yaml.MappingNode && i%2 == 0 {
				d.checkKey(p, c.Value)
			}
			walk(c)
		}
	}
	walk(&n)
}

// readKeys reads the configuration keys from config.example.yaml, which has them all.
func (d *documentCheck) readKeys() {
	text := regexp.MustCompile(`(?m)^( *)#(\S)`).ReplaceAllString(d.read("config.example.yaml"), "$1$2")
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(text), &n); err != nil {
		d.t.Fatalf("config.example.yaml without #: %v", err)
	}
	var walk func(n *yaml.Node, way []string)
	walk = func(n *yaml.Node, way []string) {
		for i, c := range n.Content {
			switch {
			case n.Kind != yaml.MappingNode:
				walk(c, way)
			case i%2 == 0:
				here := append(slices.Clip(way), c.Value)
				for k := range here {
					d.keys[strings.Join(here[k:], ".")] = true
				}
				walk(n.Content[i+1], here)
			}
		}
	}
	walk(&n, nil)
}

var referencePattern = regexp.MustCompile(`\$\{([A-Z_]+)\}`)

// packPattern is the folder of a pack in an entry of an upstream.
var packPattern = regexp.MustCompile(`\bpack: (\./[a-z/]+)`)

// checkConfig has the program check a configuration file. A block without upstreams gets one, and one with policies
// of keys and no keys gets those as its page says.
func (d *documentCheck) checkConfig(p passage) {
	text := p.text
	if !regexp.MustCompile(`(?m)^upstreams:`).MatchString(text) {
		text += "upstreams: { demo: { command: [junction, demo] } }\n"
	}
	dir := d.t.TempDir()
	text = strings.NewReplacer("/var/log/junction/", dir+"/", "/var/lib/junction/", dir+"/").Replace(text)
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
	for _, m := range packPattern.FindAllStringSubmatch(text, -1) { // any pack will do
		folder := filepath.Join(dir, m[1])
		err := os.MkdirAll(folder, 0o700)
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, "pack.yaml"), []byte("servers: { search: { command: [echo] } }\n"), 0o600)
		}
		if err != nil {
			d.t.Fatal(err)
		}
	}
	var env []string
	for _, m := range referencePattern.FindAllStringSubmatch(text, -1) {
		if os.Getenv(m[1]) == "" {
			env = append(env, m[1]+"=value")
		}
	}
	file := filepath.Join(dir, "config.yaml")
	if strings.Contains(text, "match: { key:") && !regexp.MustCompile(`(?m)^auth:`).MatchString(text) &&
		strings.Contains(d.read(p.document), "junction keys create ann --write") {
		if _, stderr, err := harness.RunJunction(d.t, env, "keys", "create", "ann", "--write", "--config", file); err != nil {
			d.bad(p.document, p.line, "no key can be added: %s", stderr)
		}
	}
	stdout, stderr, err := harness.RunJunction(d.t, env, "check", "--config", file)
	if err == nil {
		return
	}
	for line := range strings.Lines(strings.ReplaceAll(stdout+stderr, dir+string(filepath.Separator), "")) {
		if strings.HasPrefix(line, "config.yaml:") {
			d.bad(p.document, p.line, "%s", strings.TrimSpace(line))
		}
	}
}

// checkCommand checks a command line of the program or of go test; others may be anything.
func (d *documentCheck) checkCommand(document string, line int, text string) {
	if i := strings.Index(text, "go test "); i >= 0 {
		d.checkGoTest(document, line, strings.Fields(text[i:]))
		return
	}
	words := strings.Fields(text)
	for len(words) > 0 && strings.Contains(words[0], "=") {
		words = words[1:] // variables of the environment
	}
	switch {
	case len(words) > 0 && words[0] == "junction":
		words = words[1:]
	case len(words) > 2 && slices.Equal(words[:3], []string{"go", "run", "./cmd/junction"}):
		words = words[3:]
	default:
		return
	}
	if end := slices.IndexFunc(words, func(w string) bool { return strings.ContainsAny(w[:1], "|;&>#") }); end >= 0 {
		words = words[:end]
	}
	command := []string{}
	for len(words) > 0 && regexp.MustCompile(`^[a-z]+$`).MatchString(words[0]) && d.has(command) {
		if !d.known(command, words[0]) {
			d.bad(document, line, "there is no command junction %s", strings.Join(append(command, words[0]), " "))
			return
		}
		command, words = append(command, words[0]), words[1:]
	}
	for _, word := range words {
		if flag := flagPattern.FindString(word); flag != "" && !strings.Contains(d.helpOf(command), flag+" ") {
			d.bad(document, line, "%s has no flag %s", strings.Join(append([]string{"junction"}, command...), " "), flag)
		}
	}
}

// has reports whether a command has commands, and known whether it has that one.
func (d *documentCheck) has(command []string) bool {
	return d.listOf(command) != ""
}

// listOf returns the lines of the commands below a command. Those of the program are in groups.
func (d *documentCheck) listOf(command []string) string {
	if len(command) == 0 {
		_, list, _ := strings.Cut(d.helpOf(nil), "\nSet up:")
		list, _, _ = strings.Cut(list, "\nFlags:")
		return list
	}
	_, list, _ := strings.Cut(d.helpOf(command), "Available Commands:")
	list, _, _ = strings.Cut(list, "\n\n")
	return list
}

func (d *documentCheck) known(command []string, word string) bool {
	return strings.Contains(d.listOf(command), "\n  "+word+" ")
}

// checkFlag checks a flag that stands alone: some command has it.
func (d *documentCheck) checkFlag(p passage, flag string) {
	for _, command := range d.commands(nil) {
		if strings.Contains(d.helpOf(command), flag+" ") {
			return
		}
	}
	d.bad(p.document, p.line, "no command has a flag %s", flag)
}

// commands returns a command and all below it.
func (d *documentCheck) commands(command []string) (all [][]string) {
	all = append(all, command)
	for line := range strings.Lines(d.listOf(command)) {
		if !strings.HasPrefix(line, "  ") {
			continue // the name of a group
		}
		all = append(all, d.commands(append(slices.Clip(command), strings.Fields(line)[0]))...)
	}
	return all
}

func (d *documentCheck) helpOf(command []string) string {
	d.t.Helper()
	key := strings.Join(command, " ")
	if text, ok := d.help[key]; ok {
		return text
	}
	text, stderr, err := harness.RunJunction(d.t, nil, append([]string{"help"}, command...)...)
	if err != nil {
		d.t.Fatalf("junction help %s: %v\n%s", key, err, stderr)
	}
	d.help[key] = text
	return text
}

// checkGoTest checks that the packages of a go test command exist, and the tests that it names.
func (d *documentCheck) checkGoTest(document string, line int, words []string) {
	dir := ""
	for i, word := range words {
		word = strings.Trim(word, "'")
		switch {
		case strings.HasPrefix(word, "./"):
			dir = strings.TrimSuffix(strings.TrimPrefix(word, "./"), "/...")
			if info, err := fs.Stat(d.root, path.Clean(dir)); dir != "..." && (err != nil || !info.IsDir()) {
				d.bad(document, line, "there is no package ./%s", dir)
				return
			}
		case i > 0 && slices.Contains([]string{"-run", "-bench", "-fuzz"}, words[i-1]):
			for name := range strings.SplitSeq(word, "|") {
				name, _, _ = strings.Cut(strings.Trim(name, "^$."), "/")
				if name != "" && !d.hasTest(dir, name) {
					d.bad(document, line, "there is no %s in ./%s", name, dir)
				}
			}
		}
	}
}

// hasTest reports whether a test, benchmark or fuzz target of the package has the text in its name.
func (d *documentCheck) hasTest(dir, name string) bool {
	files, err := fs.Glob(d.root, path.Join(dir, "*_test.go"))
	if err != nil {
		d.t.Fatal(err)
	}
	pattern := regexp.MustCompile(`(?m)^func (Test|Benchmark|Fuzz)?\w*` + regexp.QuoteMeta(name))
	return slices.ContainsFunc(files, func(file string) bool { return pattern.MatchString(d.read(file)) })
}
