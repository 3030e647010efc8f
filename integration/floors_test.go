package integration

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// floors are the folders with the code of the program, from the ground. A folder imports only those
// before it.
var floors = []string{"upstream", "policy", "auth", "proxy", "cmd"}

// small are the packages with fewer than smallPackage lines that are ideas of their own, each with
// the reason.
var small = map[string]string{
	"cmd/build":                "both programs say in the same words which source they are from",
	"cmd/junction-pack":        "a program; its commands are in package cli",
	"cmd/junction/pages/frame": "layout, style and headers of the pages that the proxy and the commands show",
	"cmd/pack/lock":            "the lock file, which junction writes and both programs read",
	"cmd/watch":                "when files have changed: the configuration and packs",
	"cmd/pack/tree":            "the checksum of the folder of a pack",
	"integration/agents":       "only tests",
	"proxy/members":            "what a member of several processes can do, without a database",
	"proxy/origin":             "which web pages may send requests; packs ask it, too",
	"upstream/loopback":        "whether a host is this machine: many trust plain http there",
	"upstream/shell":           "words of a command, quoted for a shell",
}

// smallPackage is how many lines a package has that needs no reason.
const smallPackage = 150

// TestFloors fails on a circle of folders, on an import of a higher floor, and on a small package
// without a reason.
func TestFloors(t *testing.T) {
	tree := mustParseTree(t, os.DirFS(".."))
	problems := append(tree.circles(), tree.upwards()...)
	for _, problem := range append(problems, tree.smallOnes(small)...) {
		t.Error(problem)
	}
}

// TestFloorsAreFound breaks each rule once.
func TestFloorsAreFound(t *testing.T) {
	code := func(imports ...string) string {
		text := "package p\n"
		for _, name := range imports {
			text += "import _ \"" + modulePrefix + name + "\"\n"
		}
		return text + strings.Repeat("\n", smallPackage-1-len(imports))
	}
	for _, test := range []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{"nothing wrong", map[string]string{
			"upstream/a.go":              code("upstream/raw"),
			"upstream/raw/a.go":          code(),
			"auth/a.go":                  code("auth/seal"),
			"auth/seal/a.go":             code("upstream/raw"),
			"auth/store/a.go":            code("auth", "auth/seal"),
			"cmd/a/a.go":                 code("cmd/b/c", "proxy", "fmt"),
			"cmd/b/c/a.go":               code(),
			"proxy/a.go":                 code("upstream", "policy", "auth"),
			"proxy/a_test.go":            code("cmd/a"), // a test may import anything
			"upstream/upstreamtest/a.go": code("proxy"), // test support, too
			"integration/harness/a.go":   code("cmd/a"),
		}, nil},
		{"packages in a circle", map[string]string{
			"cmd/a/a.go": code("cmd/b"), "cmd/b/a.go": code("cmd/c"), "cmd/c/a.go": code("cmd/a"), "cmd/d/a.go": code("cmd/a"),
		}, []string{"the folders of cmd form a circle: a, b, c (cmd/a/a.go:2 imports cmd/b, cmd/b/a.go:2 imports cmd/c, " +
			"cmd/c/a.go:2 imports cmd/a)"}},
		{"folders in a circle, and no packages", map[string]string{
			"cmd/a/x/a.go": code("cmd/b/x"), "cmd/b/x/a.go": code(), "cmd/b/y/a.go": code("cmd/a/y"), "cmd/a/y/a.go": code(),
		}, []string{"the folders of cmd form a circle: a, b (cmd/a/x/a.go:2 imports cmd/b/x, cmd/b/y/a.go:2 imports cmd/a/y)"}},
		{"own files in a circle with a folder", map[string]string{
			"auth/a.go": code("auth/store/x"), "auth/store/x/a.go": code(), "auth/store/y/a.go": code("auth"),
		}, []string{"the folders of auth form a circle: its own files, store (auth/a.go:2 imports auth/store/x, " +
			"auth/store/y/a.go:2 imports auth)"}},
		{"top level in a circle", map[string]string{
			"auth/a.go": code("upstream/bounded"), "upstream/bounded/a.go": code(), "upstream/people/a.go": code("auth/store"),
			"auth/store/a.go": code(),
		}, []string{"the folders of the module form a circle: auth, upstream (auth/a.go:2 imports upstream/bounded, " +
			"upstream/people/a.go:2 imports auth/store)",
			"upstream/people/a.go:2: upstream imports auth, a higher floor"}},
		{"higher floor", map[string]string{
			"policy/a.go": code("proxy/view"), "proxy/view/a.go": code(),
		}, []string{"policy/a.go:2: policy imports proxy, a higher floor"}},
		{"small", map[string]string{"cmd/a/a.go": code(), "cmd/b/a.go": code()[:len(code())-1], "cmd/c/a.go": "package p\n",
			"cmd/d/a.go": code()},
			[]string{"cmd/b: 149 lines; move its files where their meaning is, or say in small why it is an idea of its own",
				"cmd/d: 150 lines need no reason in small", "cmd/e: is in small and does not exist"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			files := fstest.MapFS{}
			for name, text := range test.files {
				files[name] = &fstest.MapFile{Data: []byte(text)}
			}
			reasons := map[string]string{}
			if test.name == "small" {
				reasons = map[string]string{"cmd/c": "", "cmd/d": "", "cmd/e": ""}
			}
			tree := mustParseTree(t, files)
			got := slices.Concat(tree.circles(), tree.upwards(), tree.smallOnes(reasons))
			if !slices.Equal(got, test.want) {
				t.Errorf("problems:\n\t%s\nwant:\n\t%s", strings.Join(got, "\n\t"), strings.Join(test.want, "\n\t"))
			}
		})
	}
}

// ownImport is an import of a package of this module, outside of tests and of their support.
type ownImport struct {
	from, to string // folders
	place    string // file and line
}

func (tree sourceTree) ownImports() (all []ownImport) {
	for _, dir := range slices.Sorted(maps.Keys(tree)) {
		if slices.Contains(forTests, dir) {
			continue
		}
		p := tree[dir]
		for _, file := range p.files {
			for _, spec := range file.Imports {
				name, _ := strconv.Unquote(spec.Path.Value) // the parser has done so before
				if to, own := strings.CutPrefix(name, modulePrefix); own && tree[to] != nil {
					pos := p.set.Position(spec.Pos())
					all = append(all, ownImport{dir, to, fmt.Sprintf("%s:%d", pos.Filename, pos.Line)})
				}
			}
		}
	}
	return all
}

// upwards returns the imports of a floor by a lower one.
func (tree sourceTree) upwards() (problems []string) {
	for _, i := range tree.ownImports() {
		from, _, _ := strings.Cut(i.from, "/")
		to, _, _ := strings.Cut(i.to, "/")
		if at := slices.Index(floors, from); at >= 0 && slices.Index(floors, to) > at {
			problems = append(problems, fmt.Sprintf("%s: %s imports %s, a higher floor", i.place, from, to))
		}
	}
	return problems
}

// circles returns the circles of each folder. The nodes of its graph are its folders, each with
// everything beneath, and ownFiles.
func (tree sourceTree) circles() (problems []string) {
	graphs := map[string]map[string]map[string]string{} // by folder, importing node and imported node: an example
	for _, i := range tree.ownImports() {
		above := sharedFolder(i.from, i.to)
		from, to := nodeOf(above, i.from), nodeOf(above, i.to)
		if graphs[above] == nil {
			graphs[above] = map[string]map[string]string{}
		}
		if graphs[above][from] == nil {
			graphs[above][from] = map[string]string{}
		}
		if graphs[above][from][to] == "" {
			graphs[above][from][to] = i.place + " imports " + i.to
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(graphs)) {
		name := dir
		if dir == "." {
			name = "the module"
		}
		for _, nodes := range circlesOf(graphs[dir]) {
			var examples []string
			for _, from := range nodes {
				for _, to := range nodes {
					if example := graphs[dir][from][to]; example != "" {
						examples = append(examples, example)
					}
				}
			}
			problems = append(problems, fmt.Sprintf("the folders of %s form a circle: %s (%s)", name,
				strings.Join(nodes, ", "), strings.Join(examples, ", ")))
		}
	}
	return problems
}

// ownFiles is the node of the files in a folder itself.
const ownFiles = "its own files"

// sharedFolder returns the lowest folder that contains both packages.
func sharedFolder(a, b string) string {
	for a != b && !strings.HasPrefix(b, a+"/") && a != "." {
		a = path.Dir(a)
	}
	return a
}

// nodeOf returns the node of a package in the graph of a folder above it.
func nodeOf(folder, dir string) string {
	if folder == dir {
		return ownFiles
	}
	if folder != "." {
		dir = dir[len(folder)+1:]
	}
	node, _, _ := strings.Cut(dir, "/")
	return node
}

// circlesOf returns the groups of nodes that reach each other, each sorted.
func circlesOf(graph map[string]map[string]string) (groups [][]string) {
	reached := map[string]map[string]bool{}
	var visit func(seen map[string]bool, node string)
	visit = func(seen map[string]bool, node string) {
		for next := range graph[node] {
			if !seen[next] {
				seen[next] = true
				visit(seen, next)
			}
		}
	}
	for node := range graph {
		reached[node] = map[string]bool{}
		visit(reached[node], node)
	}
	done := map[string]bool{}
	for _, node := range slices.Sorted(maps.Keys(graph)) {
		if done[node] || !reached[node][node] {
			continue
		}
		var group []string
		for _, other := range slices.Sorted(maps.Keys(reached[node])) {
			if reached[other][node] {
				group, done[other] = append(group, other), true
			}
		}
		groups = append(groups, group)
	}
	return groups
}

// smallOnes returns the small packages that have no reason, and the reasons that no package needs.
func (tree sourceTree) smallOnes(reasons map[string]string) (problems []string) {
	all := map[string]bool{}
	for dir := range reasons {
		all[dir] = true
	}
	for dir := range tree {
		all[dir] = true
	}
	for _, dir := range slices.Sorted(maps.Keys(all)) {
		p := tree[dir]
		_, excused := reasons[dir]
		if p == nil {
			problems = append(problems, dir+": is in small and does not exist")
			continue
		}
		if len(p.files) == 0 || slices.Contains(forTests, dir) {
			continue
		}
		lines := 0
		for _, file := range p.files {
			lines += bytes.Count(p.texts[file], []byte("\n"))
		}
		switch {
		case lines < smallPackage && !excused:
			problems = append(problems, fmt.Sprintf("%s: %d lines; move its files where their meaning is, "+
				"or say in small why it is an idea of its own", dir, lines))
		case lines >= smallPackage && excused:
			problems = append(problems, fmt.Sprintf("%s: %d lines need no reason in small", dir, lines))
		}
	}
	return problems
}
