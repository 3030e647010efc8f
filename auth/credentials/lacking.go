package credentials

import (
	"slices"
	"sync"

	"junction/upstream"
)

// lacking are the scopes that calls needed and shared credentials do not have, by upstream.
type lacking struct {
	mu     sync.Mutex
	scopes map[string][]string // guarded by mu
}

// mostLacking bounds the scopes of one upstream, which its server chooses.
const mostLacking = 20

// add adds the scopes of a failed call.
func (l *lacking) add(e *upstream.LackError) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.scopes == nil {
		l.scopes = map[string][]string{}
	}
	all := append(l.scopes[e.Upstream], e.Scopes...)
	slices.Sort(all)
	all = slices.Compact(all)
	l.scopes[e.Upstream] = all[:min(len(all), mostLacking)]
}

// of returns the scopes of an upstream.
func (l *lacking) of(name string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.scopes[name])
}

// without returns the scopes that are not granted.
func without(scopes, granted []string) []string {
	return slices.DeleteFunc(scopes, func(s string) bool { return slices.Contains(granted, s) })
}
