package pack

import (
	"context"
	"errors"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/cmd/pack/manifest"
)

// A Kind is one row for a kind of tool: how it is read and checked, what a person sees of it before it is
// used, and how it is called. A new kind is a manifest.Kind with its Action, a file with its row, and
// a line in kinds.
type Kind struct {
	*manifest.Kind
	// Plan lists what the tools of the kind do: each program, host, variable and file, because a person
	// decides by this list whether to install a pack.
	Plan func(t *manifest.Tool, l Listing)
	// Describe prints what a call of the tool does, one line for each key.
	Describe func(t *manifest.Tool, line Line)
	// hints returns the annotations of a tool whose manifest has none (unknownEffect).
	hints func(t *manifest.Tool) manifest.Annotations
	// run returns what a call does (Tool.run). Its errors are for the model: they have no variables and
	// no references. It keeps the limits of the tool. r has no runners in a preview.
	run func(t *Tool, results *results, r Runners) func(context.Context, call) (*mcp.CallToolResult, error)
}

// Line prints one line of a description.
type Line func(key, format string, args ...any)

// A Listing collects what a tool does, for a person. Texts stay as they are in the manifest.
type Listing interface {
	// Fact adds one thing that the tool does or needs, such as runs.
	Fact(kind, detail string)
	// Texts adds a fact for each of the texts.
	Texts(kind string, texts manifest.Variables)
	// URL adds the host of a URL, and Host a host or words about hosts.
	URL(text string)
	Host(text string)
	// Program adds a program, and Variable a variable of the environment that the tool reads.
	Program(path string)
	Variable(name string)
	// Sandbox describes the sandbox of a command.
	Sandbox(t *manifest.Tool)
	// In adds the fact about the working directory of a command, if the manifest names one: dir is the value
	// of the manifest, and full its absolute path.
	In(dir manifest.Ref, full string)
	// Here returns a path with the folder of the manifest as ${PACK_DIR}.
	Here(path string) string
}

// kinds has a row for each kind of tool, in the order in which texts name them.
var kinds = []*Kind{commandKind, httpKind, promptKind}

// Load reads manifests, whose tools are of all kinds (manifest.Load).
func Load(path string, o manifest.Options) (*manifest.Pack, error) {
	return manifest.Load(path, ManifestKinds(), o)
}

// Mistake returns the first mistake in manifests, whose tools are of all kinds (manifest.Mistake).
func Mistake(path string) string { return manifest.Mistake(path, ManifestKinds()) }

// ManifestKinds returns what Load reads of the kinds.
func ManifestKinds() (all manifest.Kinds) {
	for _, k := range kinds {
		all = append(all, k.Kind)
	}
	return all
}

// unknownEffect are the hints of a kind whose tools may do anything: the defaults of MCP.
func unknownEffect(*manifest.Tool) (none manifest.Annotations) { return none }

// KindOf returns the row of a tool, or nil if its kind is not known.
func KindOf(t *manifest.Tool) *Kind {
	for _, k := range kinds {
		if t.Kind != nil && k.Kind == t.Kind {
			return k
		}
	}
	return nil
}

// errKind is the error of a call of a tool that has no kind that this program knows.
var errKind = errors.New("the tool has neither " + ManifestKinds().Words("nor") + "; write one of them in its manifest")

// KnownKinds returns the words about a tool that has no kind that this program knows.
func KnownKinds() string { return "it has neither " + ManifestKinds().Words("nor") }
