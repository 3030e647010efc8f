package upstream

import (
	"fmt"
	"junction/upstream/client"
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
	IsolationFolder    Isolation = "folder"

	QuestionsOn    Questions = ""
	QuestionsOff   Questions = "false"
	QuestionsExact Questions = "exact"

	ExposeAll    Expose = ""
	ExposeListed Expose = "listed"
)

// isolations has a row for each word of isolation, in the order in which texts name them. Without a word,
// pool.isolation chooses one.
var isolations = []isolationRow{
	{word: IsolationShared},
	{word: IsolationSession, session: true, callers: true},
	{word: IsolationPrincipal, callers: true},
	{word: IsolationFolder, callers: true},
}

// An isolationRow has the facts of a word: whether each session has connections of its own, and whether
// each principal has, for its calls without a session as well.
type isolationRow struct {
	word             Isolation
	session, callers bool
}

func (i Isolation) row() isolationRow {
	for _, row := range isolations {
		if row.word == i {
			return row
		}
	}
	return isolationRow{}
}

// OfSession reports whether each session has connections of its own.
func (i Isolation) OfSession() bool { return i.row().session }

// OfCallers reports whether callers have connections of their own: each principal, or each session.
func (i Isolation) OfCallers() bool { return i.row().callers }

// UnmarshalYAML reads the word.
func (i *Isolation) UnmarshalYAML(n *yaml.Node) error {
	return oneOf(n, i, append([]string{""}, i.Words()...)...)
}

// Words returns the words of the file.
func (Isolation) Words() (words []string) {
	for _, row := range isolations {
		words = append(words, string(row.word))
	}
	return words
}

// questionRows has a row for each word of questions; the first one is the default.
var questionRows = []questionRow{
	{word: QuestionsOn, given: "true", asks: true, declares: routed},
	{word: QuestionsOff, given: "false", declares: func() client.Profile { return client.Profile{} }},
	{word: QuestionsExact, given: "exact", asks: true, clients: true,
		declares: func() client.Profile { return withoutTasks(client.Everything()) }},
}

// A questionRow has the facts of a word.
type questionRow struct {
	word  Questions
	given string // in the file
	// asks means that server requests reach clients. clients means that each set of client capabilities
	// has a connection of its own, with a catalog.
	asks, clients bool
	// declares returns the capabilities of the connection that reads the shared catalog.
	declares func() client.Profile
}

func (q Questions) row() questionRow {
	return questionRows[max(0, slices.IndexFunc(questionRows, func(r questionRow) bool { return r.word == q }))]
}

// Asks reports whether server requests reach the client of a call.
func (q Questions) Asks() bool { return q.row().asks }

// OfClients reports whether each set of client capabilities has a connection and a catalog of its own.
func (q Questions) OfClients() bool { return q.row().clients }

// UnmarshalYAML reads the word.
func (q *Questions) UnmarshalYAML(n *yaml.Node) error { return oneOf(n, q, q.Words()...) }

// Words returns the words of the file.
func (Questions) Words() (words []string) {
	for _, row := range questionRows {
		words = append(words, row.given)
	}
	return words
}

// exposeRows has a row for each word of expose; the first one is the default.
var exposeRows = []exposeRow{
	{word: ExposeAll, given: "all"},
	{word: ExposeListed, given: "listed", named: true},
}

// An exposeRow has the facts of a word: whether only tools are offered that a rule names.
type exposeRow struct {
	word  Expose
	given string // in the file
	named bool
}

// OnlyNamed reports whether only tools are offered that a rule names.
func (e Expose) OnlyNamed() bool {
	for _, row := range exposeRows {
		if row.word == e {
			return row.named
		}
	}
	return true
}

// UnmarshalYAML reads the word.
func (e *Expose) UnmarshalYAML(n *yaml.Node) error { return oneOf(n, e, e.Words()...) }

// Words returns the words of the file.
func (Expose) Words() (words []string) {
	for _, row := range exposeRows {
		words = append(words, row.given)
	}
	return words
}

// AssertionAudience is to whom Junction signs a request for a token, as a word of the file; the zero value
// is the issuer.
type AssertionAudience string

const (
	audienceIssuer   = "issuer"
	audienceEndpoint = "token_endpoint"
)

// ToEndpoint reports whether the token endpoint is the audience.
func (a AssertionAudience) ToEndpoint() bool { return a == audienceEndpoint }

// UnmarshalYAML reads the word.
func (a *AssertionAudience) UnmarshalYAML(n *yaml.Node) error { return oneOf(n, a, a.Words()...) }

// Words returns the words of the file.
func (AssertionAudience) Words() []string { return []string{audienceIssuer, audienceEndpoint} }

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
