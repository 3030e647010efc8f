package upstream

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Isolation, Questions and Expose are words of the file; the zero value is the default of each.
type (
	Isolation string
	Questions string
	Expose    string
)

const (
	IsolationUnset     Isolation = "" // see Config.Isolation
	IsolationShared    Isolation = "shared"
	IsolationSession   Isolation = "session"
	IsolationPrincipal Isolation = "principal"

	QuestionsOn    Questions = ""
	QuestionsOff   Questions = "false"
	QuestionsExact Questions = "exact"

	ExposeAll    Expose = ""
	ExposeListed Expose = "listed"
)

func (i *Isolation) UnmarshalYAML(n *yaml.Node) error {
	return oneOf(n, i, "", "shared", "session", "principal")
}
func (q *Questions) UnmarshalYAML(n *yaml.Node) error { return oneOf(n, q, "true", "false", "exact") }
func (e *Expose) UnmarshalYAML(n *yaml.Node) error    { return oneOf(n, e, "all", "listed") }

// oneOf reads a word of the file. The first of words is the default and becomes the zero value; it
// is "" where no word is the default.
func oneOf[T ~string](n *yaml.Node, dst *T, words ...string) error {
	if !slices.Contains(words, n.Value) || n.Value == "" || n.Kind != yaml.ScalarNode {
		return fmt.Errorf("line %d: %q is none of %s", n.Line, n.Value,
			strings.TrimPrefix(strings.Join(words, ", "), ", "))
	}
	*dst = T(n.Value)
	if n.Value == words[0] {
		*dst = ""
	}
	return nil
}
