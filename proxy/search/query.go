package search

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode"
)

// Part is an index with the tools that the caller sees.
type Part struct {
	Index *Index
	// Seen has a bit for each place that the caller sees: place i is 1<<(i%8) of Seen[i/8]. It has
	// no bit for a place without a tool.
	Seen []byte
	// Names returns the name of a tool for clients and its own name.
	Names func(place int) (exposed, own string)
}

func (p *Part) sees(place int) bool { return p.Seen[place/8]&(1<<(place%8)) != 0 }

// Hit is a tool that was found.
type Hit struct {
	Part, Place int
	rank        rank
	score       float32
}

// rank is the kind of a match. Hits are sorted by rank first, and by score within a rank.
type rank uint8

const (
	byWords rank = iota
	namePrefix
	nameExact
)

// Parameters of BM25.
const (
	saturation = 1.2  // k1
	byLength   = 0.75 // b
)

// Weights of terms that the query does not contain itself.
const (
	synonymFactor = 0.8
	prefixFactor  = 0.5
)

// maxQuery bounds the terms of a query, and its words that may be names; further ones are ignored.
const maxQuery = 20

// Search returns the best matches in order, at most limit, and the number of all matches. A tool
// matches if its name or a word of its definition matches. Tools whose name is the query, or a word
// of the query, come first; then tools whose name begins with the query.
func Search(parts []Part, query string, limit int) (best []Hit, total int) {
	q := newRun(parts)
	q.named(query)
	n := 0
	for term := range Words(query) {
		if n++; n > maxQuery {
			break
		}
		q.count(term)
	}
	for i := range parts {
		for place := range parts[i].Index.lengths {
			doc := q.base[i] + place
			if q.scores[doc] == 0 && q.ranks[doc] == byWords {
				continue
			}
			total++
			best = keep(best, Hit{i, place, q.ranks[doc], q.scores[doc]}, limit)
		}
	}
	return best, total
}

// keep inserts a hit into the ordered list of the best ones.
func keep(best []Hit, h Hit, limit int) []Hit {
	if len(best) == limit && !h.before(best[limit-1]) {
		return best
	}
	at, _ := slices.BinarySearchFunc(best, h, func(e, h Hit) int {
		if h.before(e) {
			return 1
		}
		return -1
	})
	if len(best) == limit {
		best = best[:limit-1]
	}
	return slices.Insert(best, at, h)
}

// before reports whether h comes before o. Equal hits keep their order.
func (h Hit) before(o Hit) bool {
	return cmp.Or(cmp.Compare(h.rank, o.rank), cmp.Compare(h.score, o.score)) > 0
}

// run is one search.
type run struct {
	parts   []Part
	base    []int // the number of the first place of each part
	tools   int   // that the caller sees
	average float32
	scores  []float32
	ranks   []rank
	weights []float32 // of one term
	touched []touch   // the tools with that term
}

// touch is a place of a part.
type touch struct{ part, place int }

func newRun(parts []Part) *run {
	q := &run{parts: parts, base: make([]int, len(parts)+1)}
	length := 0
	for i := range parts {
		p := &parts[i]
		q.base[i+1] = q.base[i] + len(p.Index.lengths)
		for place, n := range p.Index.lengths {
			if p.sees(place) {
				q.tools, length = q.tools+1, length+int(n)
			}
		}
	}
	all := q.base[len(parts)]
	q.average = float32(length) / float32(max(q.tools, 1))
	q.scores, q.weights, q.ranks = make([]float32, all), make([]float32, all), make([]rank, all)
	return q
}

// named ranks the tools whose names are in the query.
func (q *run) named(query string) {
	whole := plain(query)
	if whole == "" {
		return
	}
	var words []string
	for word := range strings.FieldsSeq(query) {
		if len(words) == maxQuery {
			break
		}
		word = strings.Trim(word, "\"'`.,:;!?()[]")
		if strings.ContainsAny(word, "_-./") || strings.IndexFunc(word, unicode.IsUpper) > 0 {
			if word = plain(word); word != "" {
				words = append(words, word)
			}
		}
	}
	for i := range q.parts {
		p := &q.parts[i]
		for place := range p.Index.lengths {
			if !p.sees(place) {
				continue
			}
			exposed, own := p.Names(place)
			r := max(compare(exposed, whole), compare(own, whole))
			for _, word := range words {
				if compare(exposed, word) == nameExact || compare(own, word) == nameExact {
					r = nameExact
				}
			}
			q.ranks[q.base[i]+place] = r
		}
	}
}

// plain returns the ASCII letters and digits of a text, in lower case, and all its other letters.
func plain(text string) string {
	b := make([]byte, 0, len(text))
	for i := range len(text) {
		if c := fold(text[i]); c != 0 {
			b = append(b, c)
		}
	}
	return string(b)
}

// fold returns a byte of a text in lower case; 0 for ASCII characters that only separate words.
func fold(c byte) byte {
	switch {
	case 'A' <= c && c <= 'Z':
		return c + 'a' - 'A'
	case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c >= 0x80:
		return c
	}
	return 0
}

// compare compares a name with a plain text.
func compare(name, text string) rank {
	n := 0
	for i := range len(name) {
		c := fold(name[i])
		switch {
		case c == 0:
			continue
		case n == len(text):
			return namePrefix
		case c != text[n]:
			return byWords
		}
		n++
	}
	if n == len(text) {
		return nameExact
	}
	return byWords
}

// count adds the scores of a term of the query.
func (q *run) count(term string) {
	q.touched = q.touched[:0]
	for i := range q.parts {
		q.match(i, term)
		for _, other := range synonyms(term) {
			if other != term {
				q.matchTerm(i, other, synonymFactor)
			}
		}
	}
	has := float64(len(q.touched))
	idf := float32(math.Log(1 + (float64(q.tools)-has+0.5)/(has+0.5)))
	for _, t := range q.touched {
		doc := q.base[t.part] + t.place
		w := q.weights[doc]
		q.weights[doc] = 0
		length := float32(q.parts[t.part].Index.lengths[t.place]) / q.average
		q.scores[doc] += idf * w * (saturation + 1) / (w + saturation*(1-byLength+byLength*length))
	}
}

// Expansion of a term to longer terms, such as repo to repository.
const (
	minPrefix     = 3
	maxExpansions = 24 // of visible tools in one index
)

// match finds the visible tools of a part with a term, or with a term that begins with it. Terms that
// only other tools have do not count as expansions, so that they take no place of a visible one.
func (q *run) match(part int, term string) {
	x := q.parts[part].Index
	for i, n := x.from(term), 0; i < len(x.begin)-1 && n < maxExpansions; i++ {
		longer := x.term(i)
		factor := float32(1)
		if longer != term {
			if len(term) < minPrefix || !strings.HasPrefix(longer, term) {
				break
			}
			factor = prefixFactor * float32(len(term)) / float32(len(longer))
		}
		if q.matchAt(part, i, factor) {
			n++
		}
	}
}

// matchTerm finds the visible tools of a part with exactly this term.
func (q *run) matchTerm(part int, term string, factor float32) {
	x := q.parts[part].Index
	if i := x.from(term); i < len(x.begin)-1 && x.term(i) == term {
		q.matchAt(part, i, factor)
	}
}

// matchAt finds the visible tools of a part with the term of this number, and reports whether there
// are any.
func (q *run) matchAt(part, term int, factor float32) (found bool) {
	q.parts[part].Index.each(term, func(place, weight int) {
		if q.parts[part].sees(place) {
			q.touch(part, place, factor*float32(weight)/inDescription)
			found = true
		}
	})
	return found
}

// touch stores the weight of the term in a visible tool.
func (q *run) touch(part, place int, weight float32) {
	w := &q.weights[q.base[part]+place]
	if *w == 0 {
		q.touched = append(q.touched, touch{part, place})
	}
	*w = max(*w, weight)
}
