package clients

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// This file reads rules about tools, which some clients have beside their servers.

// A rule says what a client does with the tools whose names match a glob.
type rule struct {
	glob   string // of the names that tools have in the client
	action string // as opencode writes it: deny, ask or allow
}

// patterns is the action of a rule that Junction cannot have.
const patterns = "patterns"

// apply applies rules about tools, whose names are those of the client's habits. In doubt, a tool is hidden: a rule for
// all tools lifts no deny of single ones, and a shorter glob no deny of the server.
func (s *Server) apply(rules []rule) {
	begin, all := s.Client.habits.orNone().names(ruleName(s.Name))
	var closed string                // the glob that denies all tools
	var only, without, asks []string // names and globs of tools
	for _, r := range rules {
		if all != "" && r.glob == all {
			r.glob = begin + "*"
		}
		rest := remainders(r.glob, begin)
		whole := slices.ContainsFunc(rest, every)
		named := func(tool string) bool { return slices.Contains(rest, tool) }
		switch permits := r.action == "allow" || r.action == "ask"; {
		case len(rest) == 0:
			continue
		case r.action == patterns:
			s.Entry.Notes = append(s.Entry.Notes, "not imported: the patterns in permission of "+short(r.glob))
		case r.action == "deny" && whole:
			closed, only = r.glob, nil
		case r.action == "deny":
			without, only = append(without, rest...), slices.DeleteFunc(only, named)
		case permits && whole:
			asks = nil
			if len(r.glob) >= len(closed) {
				closed = ""
			}
		case permits:
			without, asks = slices.DeleteFunc(without, named), slices.DeleteFunc(asks, named)
			if closed != "" && !strings.ContainsAny(r.glob, "*?") {
				only = append(only, rest...)
			}
		}
		if r.action == "ask" {
			asks = append(asks, rest...)
		}
	}
	hidden := strings.Join(quoted(without), ", ")
	switch {
	case closed != "" && len(only) == 0:
		s.Entry.Off, hidden, asks = true, "all tools", nil
	case closed != "":
		s.Entry.narrow(&Entry{Only: only, Without: without})
		hidden = "all tools but " + strings.Join(quoted(only), ", ")
	default:
		s.Entry.narrow(&Entry{Without: without})
	}
	if hidden != "" {
		s.Entry.Notes = append(s.Entry.Notes, fmt.Sprintf("the settings of %s hide %s", s.Client.Name, hidden))
	}
	if len(asks) > 0 {
		before := strings.Join(quoted(asks), ", ")
		if slices.ContainsFunc(asks, every) {
			before = "its tools"
		}
		s.Entry.Notes = append(s.Entry.Notes, fmt.Sprintf("%s asks before it calls %s; Junction asks only if a policy "+
			"has ask", s.Client.Name, before))
	}
}

// every reports whether a glob matches every text.
func every(glob string) bool { return strings.Trim(glob, "*") == "" }

// longestGlob is the length in bytes of a glob that is read. It bounds the work for a file of others; names
// of tools are shorter.
const longestGlob = 256

// remainders returns the globs of the texts that can follow prefix in a text that matches glob.
func remainders(glob, prefix string) []string {
	if len(glob) > longestGlob {
		return nil
	}
	left := []string{glob}
	for i := range len(prefix) {
		var next []string
		for _, g := range left {
			rest := strings.TrimLeft(g, "*")
			if len(rest) < len(g) {
				next = append(next, "*"+rest)
			}
			if rest != "" && (rest[0] == '?' || rest[0] == prefix[i]) {
				next = append(next, rest[1:])
			}
		}
		left = slices.Compact(slices.Sorted(slices.Values(next)))
	}
	return slices.DeleteFunc(left, func(g string) bool { return g == "" })
}

// notInRule is what both clients replace in the name of a server.
var notInRule = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// ruleName returns the name of a server as it is in rules.
func ruleName(name string) string { return notInRule.ReplaceAllString(name, "_") }

// listed reports whether a name is in one of some lists, and whether there is a list.
func listed(name string, lists ...any) (is, has bool) {
	for _, l := range lists {
		list, ok := l.([]any)
		has = has || ok
		is = is || slices.ContainsFunc(list, func(v any) bool { s, _ := v.(string); return s == name })
	}
	return is, has
}
