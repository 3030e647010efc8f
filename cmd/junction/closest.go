package main

import (
	"cmp"
	"slices"
	"strings"
)

// closest returns at most three of names that someone who typed want may have meant, best first: the bare name of a prefixed tool, a part of a name,
// a slip of the fingers.
func closest(names []string, want string) []string {
	type candidate struct {
		name string
		far  int
	}
	var near []candidate
	w := strings.ToLower(want)
	limit := max(3, 1+len(w)/4)
	for _, name := range names {
		n := strings.ToLower(name)
		far := distance(n, w, limit)
		switch {
		case w != "" && (n == w || strings.HasSuffix(n, "_"+w)):
			far = 0
		case len(w) >= 3 && strings.Contains(n, w):
			far = 1
		case far >= limit:
			continue
		}
		near = append(near, candidate{name, far})
	}
	slices.SortStableFunc(near, func(a, b candidate) int { return cmp.Compare(a.far, b.far) })
	var best []string
	for _, c := range near[:min(3, len(near))] {
		best = append(best, c.name)
	}
	return best
}
