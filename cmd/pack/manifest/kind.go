package manifest

import (
	"reflect"
	"slices"
	"strings"

	"junction/upstream/prose"
	"junction/upstream/yamlread"

	"gopkg.in/yaml.v3"
)

// A Kind is one thing that tools can do. Its Key in the file says it, and a tool has exactly one Key. Load
// gets the kinds; the rows of package pack have the rest of what a kind decides.
type Kind struct {
	// Key is the key of the tool, such as http. Example is the key with a value, for a tool without one.
	Key, Example string
	// Tools is a name for the tools of the kind, such as commands. Shows is what the plan of a pack shows of them,
	// as the sentences of the documents say it, such as programs.
	Tools, Shows string
	// Keys are the other keys that only tools of this kind have.
	Keys []string
	// Limits are the keys of Limits that tools of this kind may have, beside those of every tool
	// (commonLimits). Another one is a mistake in a tool, and nobody sees its default.
	Limits []string
	// Runs means that the tool runs a program on this machine, that of Tool.Command, which the Action sets. It
	// takes paths (within), and may write its output to a file (OutputFile).
	Runs bool
	// New returns the empty value of the key for a tool: a pointer that the file is read into.
	New func(t *Tool) Action
}

// commonLimits are the limits that the tools of every kind have. Package pack keeps concurrency; run of the kind
// keeps timeout.
var commonLimits = []string{"timeout", "concurrency"}

// acceptedLimits are the other limits. Commands and prompts accept also those that they do not need.
var acceptedLimits = []string{"max_output", "cut", "retries"}

// HasLimit reports whether tools of the kind may have a key of Limits.
func (k *Kind) HasLimit(key string) bool {
	return slices.Contains(commonLimits, key) || slices.Contains(k.Limits, key)
}

// limits reports the limits of a tool that its kind does not have.
func (d *decoder) limits(path string, k *Kind) {
	for key := range yamlread.Keys(reflect.TypeFor[Limits]()) {
		if at := path + "." + key; d.Lines[at] > 0 && !k.HasLimit(key) {
			d.bad(at, "is not for %s; remove it", k.Tools)
		}
	}
}

// Kinds are the kinds of the tools of a program, in the order in which texts name them.
type Kinds []*Kind

// An Action is the value of the Key of a tool.
type Action interface {
	// Check reports the mistakes in the value, and completes it. It is called for a tool with one Key.
	Check(c *Checker)
	// Uses calls note for each text of the value that arguments are put into: with the place of the text
	// below the tool, such as .http, the names of the arguments, and whether a call is possible without
	// them. A tool without such a text takes no arguments.
	Uses(note func(at string, names []string, optional bool))
}

// A Checker tells an Action about its tool.
type Checker struct {
	Tool *Tool
	path string // of the tool
	d    *decoder
}

// Bad reports a mistake at a key of the tool, such as http.url, and what to do.
func (c *Checker) Bad(key, format string, args ...any) {
	c.d.bad(yamlread.Join(c.path, key), format, args...)
}

// TextOrJSON reports another output of the tool than these two, with a reason.
func (c *Checker) TextOrJSON(reason string) {
	if o := c.Tool.Output; o != "" && o != OutputJSON && o != OutputText {
		c.Bad("output", "must be text or json%s", reason)
	}
}

// running returns the names of the tools that run programs.
func (ks Kinds) running() string {
	var names []string
	for _, k := range ks {
		if k.Runs {
			names = append(names, k.Tools)
		}
	}
	return enumerate(names, "and")
}

// keys returns the keys of the kinds.
func (ks Kinds) keys() (keys []string) {
	for _, k := range ks {
		keys = append(keys, k.Key)
	}
	return keys
}

// Words returns the keys of the kinds for a sentence, with a word such as and before the last one.
func (ks Kinds) Words(word string) string { return enumerate(ks.keys(), word) }

// enumerate joins words for a sentence.
func enumerate(words []string, last string) string {
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " " + last + " " + words[n-1]
	}
	return strings.Join(words, "")
}

// decode reads a tool. It may have the keys of the type and of the kinds.
func (t *Tool) decode(d *decoder, path string, n *yaml.Node) {
	d.reading = t
	d.Walk(path, n, reflect.ValueOf(t).Elem())
}

// action reads the value of a key of a tool if it is the Key of a kind.
func (d *decoder) action(path string, p yamlread.Pair) bool {
	for _, k := range d.refs.kinds {
		if k.Key == p.Key {
			action := k.New(d.reading)
			d.reading.Kind, d.reading.Action = k, action
			d.reading.actions = append(d.reading.actions, action)
			d.value(yamlread.Join(path, p.Key), p.Value, reflect.ValueOf(action).Elem())
			return true
		}
	}
	return false
}

// kinds checks that the tool has exactly one Key of a kind, and no keys of another kind.
func (d *decoder) kinds(path string, t *Tool) {
	given := 0
	for _, k := range d.refs.kinds {
		if d.Lines[path+"."+k.Key] > 0 {
			given++
		}
	}
	if given == 1 {
		d.limits(path, t.Kind)
		for _, k := range d.refs.kinds {
			for _, key := range k.Keys {
				if k != t.Kind && !slices.Contains(t.Kind.Keys, key) && d.Lines[path+"."+key] > 0 {
					d.bad(path+"."+key, "is for %s only; remove it", k.Tools)
				}
			}
		}
	}
	switch {
	case given > 1:
		d.bad(path, "has more than one of %s; make a tool of each", d.refs.kinds.Words("and"))
	case t.Action != nil:
		t.Action.Check(&Checker{t, path, d})
	case slices.ContainsFunc(d.Problems, func(p Problem) bool {
		key, below := strings.CutPrefix(p.Path, path+".")
		return below && prose.Nearest(key, d.refs.kinds.keys()) != ""
	}):
		// The key is misspelled; the unknown key was reported.
	default:
		var examples []string
		for _, k := range d.refs.kinds {
			examples = append(examples, k.Example)
		}
		d.bad(path, "does nothing; add %s", enumerate(examples, "or"))
	}
}
