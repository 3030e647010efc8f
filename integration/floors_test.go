package integration

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// floors are the folders with the code of the program, from the ground. A folder imports only those
// before it.
var floors = []string{"upstream", "policy", "auth", "proxy", "cmd"}

// TestFloors fails on a circle of folders, and on an import of a higher floor.
func TestFloors(t *testing.T) {
	tree := mustParseTree(t)
	for _, problem := range append(tree.circles(), tree.upwards()...) {
		t.Error(problem)
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
