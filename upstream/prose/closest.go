package prose

import (
	"cmp"
	"slices"
	"strings"
)

// Closest returns at most three of names that are similar to want, best first. Similar are: the name
// without its prefix, a name that contains want, a name with few typing errors: one in a word of at most
// four letters, otherwise two or a quarter of the letters.
func Closest(names []string, want string) []string {
	type candidate struct {
		name string
		far  int
	}
	var near []candidate
	w := strings.ToLower(want)
	limit := max(3, 1+len(w)/4)
	if len(w) <= 4 {
		limit = 2
	}
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

// DidYouMean returns a question with the names that are similar to want, or otherwise if there are
// none.
func DidYouMean(names []string, want, otherwise string) string {
	if near := Closest(names, want); len(near) > 0 {
		return "did you mean " + strings.Join(near, " or ") + "?"
	}
	return otherwise
}

// Nearest returns the word of known that key is most likely a misspelling of, or "".
func Nearest(key string, known []string) string {
	fold := strings.NewReplacer("_", "", "-", "", " ", "")
	k := strings.ToLower(fold.Replace(key))
	best, least := "", 3
	if len(k) <= 4 {
		least = 2
	}
	var begins []string
	for _, w := range known {
		word := fold.Replace(w)
		if n := distance(k, word, least); n < least {
			best, least = w, n
		}
		if len(k) >= 3 && (strings.HasPrefix(word, k) || strings.HasPrefix(k, word)) {
			begins = append(begins, w)
		}
	}
	if best == "" && len(begins) == 1 {
		return begins[0]
	}
	return best
}

// distance returns the number of letters to insert, remove, replace or swap with their neighbour to
// turn a into b. It returns limit if the number is not less.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
		for j := 1; j <= len(b); j++ {
			if i == 0 {
				rows[i][j] = j
				continue
			}
			n := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				n = min(n, rows[i-1][j], rows[i][j-1]) + 1
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				n = min(n, rows[i-2][j-2]+1)
			}
			rows[i][j] = n
		}
	}
	return rows[len(a)][len(b)]
}
