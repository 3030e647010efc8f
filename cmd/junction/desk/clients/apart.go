package clients

import (
	"maps"
	"slices"
	"strings"

	"junction/upstream/shell"
)

// TellApart returns for each of several entries with the same Summary what it has and not all of the others
// have: arguments, the query of the URL, variables and the folder. It is "" if nothing that may be shown differs.
// Secrets are left out: they become ….
func TellApart(list []*Entry) []string {
	words := make([][]string, len(list))
	has := map[string]int{}
	for i, e := range list {
		words[i] = e.words()
		for _, w := range words[i] {
			has[w]++
		}
	}
	out := make([]string, len(list))
	for i := range words {
		rare := slices.DeleteFunc(words[i], func(w string) bool { return has[w] == len(list) })
		out[i] = strings.Join(rare, " ")
	}
	return out
}

// words returns the values of an entry, each once, as a person writes them.
func (e *Entry) words() (words []string) {
	add := func(w string) {
		if w != "" && !slices.Contains(words, w) {
			words = append(words, w)
		}
	}
	for i, v := range e.Command {
		if i > 0 {
			add(shell.Quote(v.argument()))
		}
	}
	if !e.Runs() {
		if _, query, ok := strings.Cut(e.address(), "?"); ok {
			add("?" + query)
		}
	}
	for _, m := range []struct {
		values map[string]Value
		sep    string
	}{{e.Env, "="}, {e.Headers, ": "}} {
		for _, name := range slices.Sorted(maps.Keys(m.values)) {
			add(shell.Quote(name) + m.sep + e.field(name, m.values[name]))
		}
	}
	if dir := e.Dir.shown(false); dir != "" {
		add("in " + shell.Quote(dir))
	}
	return words
}

// Line returns the command as a shell reads it, without secrets, or the URL without its query.
func (e *Entry) Line() string {
	if !e.Runs() {
		return e.URL.address()
	}
	var words []string
	for _, v := range e.Command {
		words = append(words, v.argument())
	}
	return shell.Join(words...)
}

// argument returns a word of a command, with … for secrets. A script that names a secret is … as a whole, because
// its secret may be anywhere.
func (v Value) argument() string {
	text := v.shown(false)
	if strings.ContainsAny(text, " \t\n") && secretWords.MatchString(text) {
		return "…"
	}
	return text
}
