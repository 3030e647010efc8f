package setup

import (
	"fmt"
	"slices"
	"strings"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/desk/clients"
	"junction/cmd/junction/desk/entries"
	"junction/upstream/prose"
)

// mergeOf returns how the servers of clients are brought into a configuration: import and connect --replace decide
// alike. names are servers that a person has named, so that they are added although the person has removed them
// before.
func mergeOf(e *entries.Editor, home *clients.Home, own, names []string) clients.Merge {
	m := clients.Merge{Existing: e.Known(), Own: own, Getenv: entries.Lookup,
		Origin:  func(s *clients.Server) string { return originIn(home, s) },
		Command: func(words ...string) string { return config.Command(e.Path(), words...) }}
	if r, err := records(); err == nil {
		m.Wrote = r.Wrote()
	}
	if w, err := entries.Withdrawals(e.Path()); err == nil {
		list := w.Load()
		m.Withdrawn = func(s *clients.Server, k *clients.Known, name string) bool {
			return !isNamed(names, s, name) && clients.Has(list, k, originIn(home, s))
		}
	}
	return m
}

// originIn returns the comment above the entry of an imported server.
func originIn(home *clients.Home, s *clients.Server) string {
	return fmt.Sprintf("from %s, %s", s.Client.Name, prose.OneLine(home.Short(s.File)))
}

// isNamed reports whether names have a server: by its name in the client's file, or in the configuration.
func isNamed(names []string, s *clients.Server, name string) bool {
	return slices.ContainsFunc(names, func(one string) bool {
		return strings.EqualFold(one, s.Name) || strings.EqualFold(one, name) ||
			strings.EqualFold(one, clients.NameOf(s.Name))
	})
}

// only keeps the outcomes of the servers that a person has named, if there are names. A name in the configuration
// is that of one server; a name in the files of clients may be that of several.
func only(names []string, outcomes []clients.Outcome) (kept []clients.Outcome, err error) {
	if len(names) == 0 {
		return outcomes, nil
	}
	for _, name := range names {
		exact := slices.ContainsFunc(outcomes, func(o clients.Outcome) bool { return o.Name == name })
		before := len(kept)
		for _, o := range outcomes {
			if exact && o.Name == name || !exact && isNamed([]string{name}, o.Server, o.Name) {
				kept = append(kept, o)
			}
		}
		if len(kept) == before {
			hint := "junction import lists them"
			if c, err := clients.Lookup(name); err == nil {
				hint = "for the servers of a client, run: junction import --from " + c.ID
			}
			return nil, fmt.Errorf("no server of the clients has the name %s; %s", prose.Quote(name), hint)
		}
	}
	return kept, nil
}
