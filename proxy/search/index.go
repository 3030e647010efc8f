// Package search finds tools by words, for clients that list only some of a caller's tools
// (catalog: search).
//
// An Index (index.go) holds the words of one catalog. words.go splits texts into words, and
// synonyms.go adds other words with the same meaning. Search (query.go) ranks the tools of several
// indexes with BM25. It counts only tools that the caller sees, also for the frequencies of words
// and the average length. So neither ranks nor totals depend on hidden tools. tools.go has
// Junction's own tools: search_tools, and a call tool for each class of tools.
//
// An Index belongs to a catalog and not to a caller. It takes about 140 bytes per tool.
package search

import (
	"encoding/binary"
	"slices"
	"sort"
	"strings"

	"junction/upstream/raw"
)

// Tool is a tool for an index.
type Tool struct {
	Name       string // as clients see it, which may be cut off
	Own        string // the whole name at its server; "" if Name contains it
	Definition raw.Object
}

// Index holds the words of the tools of one catalog. Each tool has a number, its place. An Index is
// immutable.
type Index struct {
	lengths []uint16 // weighted number of words of each place; 0 for a place without a tool
	terms   string   // all terms in order, without separators
	begin   []uint32 // where each term begins in terms; then the end
	at      []uint32 // where the postings of each term begin; then the end
	// postings of each term: for each place, its distance to the place before (varint), and the
	// weight of the term there (a byte)
	postings []byte
}

// Weights of a word by its origin in the definition. Together they are the frequency of the word.
const (
	inName        = 12
	inTitle       = 8
	inDescription = 2
	inParameter   = 2 // the name of a parameter
	inDetail      = 1 // title or description of a parameter
)

// Bounds of what one tool adds to an index, so that a hostile definition stays small. Names and
// titles are read before descriptions.
const (
	maxTerms  = 160     // different terms of one tool
	maxText   = 8 << 10 // bytes of one description
	maxWeight = 255
)

// Build makes an index of places tools. tool returns the tool of a place, or false if the place has
// none. Ambiguous parts of a definition are not indexed.
func Build(places int, tool func(place int) (Tool, bool)) *Index {
	b := builder{lists: map[string]*list{}, weights: map[string]int{}}
	x := &Index{lengths: make([]uint16, places)}
	for place := range places {
		if t, ok := tool(place); ok {
			x.lengths[place] = b.add(place, t)
		}
	}
	x.fill(b.lists)
	return x
}

// builder collects the postings of an index.
type builder struct {
	lists   map[string]*list
	weights map[string]int // of the terms of one tool
	order   []string       // keys of weights
}

// list holds the postings of a term.
type list struct {
	last     int
	postings []byte
}

// add adds a tool and returns its length.
func (b *builder) add(place int, t Tool) uint16 {
	clear(b.weights)
	b.order = b.order[:0]
	b.read(t)
	length := 0
	for _, term := range b.order {
		l := b.lists[term]
		if l == nil {
			l = &list{last: -1}
			b.lists[strings.Clone(term)] = l // it may be a part of a long text
		}
		weight := min(b.weights[term], maxWeight)
		length += weight
		l.postings = binary.AppendUvarint(l.postings, uint64(place-l.last))
		l.postings, l.last = append(l.postings, byte(weight)), place
	}
	return uint16(min(max(length, 1), 1<<16-1))
}

// read collects the words of a tool.
func (b *builder) read(t Tool) {
	b.words(t.Name, inName)
	b.others(t.Own, inName)
	title, _ := t.Definition.String("title")
	annotations, _ := t.Definition.Object("annotations")
	if other, _ := annotations.String("title"); title == "" {
		title = other
	}
	b.words(title, inTitle)
	schema, _ := t.Definition.Object("inputSchema")
	properties, _ := schema.Object("properties")
	for p := range properties.All() {
		if name, err := p.Name(); err == nil {
			b.words(name, inParameter)
		}
	}
	description, _ := t.Definition.String("description")
	b.words(description, inDescription)
	for p := range properties.All() {
		detail, err := raw.Parse(p.Value)
		if err != nil || len(b.order) >= maxTerms {
			continue
		}
		for _, member := range []string{"title", "description"} {
			text, _ := detail.String(member)
			b.words(text, inDetail)
		}
	}
}

// words adds the words of a text.
func (b *builder) words(text string, weight int) {
	for term := range Words(text[:min(len(text), maxText)]) {
		old, known := b.weights[term]
		if !known {
			if len(b.order) >= maxTerms {
				continue
			}
			b.order = append(b.order, term)
		}
		b.weights[term] = old + weight
	}
}

// others adds the words of a text that the tool does not have yet, each of them once.
func (b *builder) others(text string, weight int) {
	for term := range Words(text[:min(len(text), maxText)]) {
		if _, known := b.weights[term]; !known && len(b.order) < maxTerms {
			b.order = append(b.order, term)
			b.weights[term] = weight
		}
	}
}

// fill sets the terms and postings.
func (x *Index) fill(lists map[string]*list) {
	order := make([]string, 0, len(lists))
	letters, bytes := 0, 0
	for term, l := range lists {
		order, letters, bytes = append(order, term), letters+len(term), bytes+len(l.postings)
	}
	slices.Sort(order)
	var terms strings.Builder
	terms.Grow(letters)
	x.begin, x.at = make([]uint32, 0, len(order)+1), make([]uint32, 0, len(order)+1)
	x.postings = make([]byte, 0, bytes)
	for _, term := range order {
		x.begin, x.at = append(x.begin, uint32(terms.Len())), append(x.at, uint32(len(x.postings)))
		terms.WriteString(term)
		x.postings = append(x.postings, lists[term].postings...)
	}
	x.begin, x.at = append(x.begin, uint32(letters)), append(x.at, uint32(len(x.postings)))
	x.terms = terms.String()
}

// term returns the term with this number.
func (x *Index) term(i int) string { return x.terms[x.begin[i]:x.begin[i+1]] }

// from returns the number of the first term that is not less than the word.
func (x *Index) from(word string) int {
	return sort.Search(len(x.begin)-1, func(i int) bool { return x.term(i) >= word })
}

// each calls yield with the places and weights of a term.
func (x *Index) each(term int, yield func(place, weight int)) {
	place := -1
	for list := x.postings[x.at[term]:x.at[term+1]]; len(list) > 0; {
		distance, n := binary.Uvarint(list)
		place += int(distance)
		yield(place, int(list[n]))
		list = list[n+1:]
	}
}
