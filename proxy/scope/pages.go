package scope

import (
	"hash/maphash"
	"sync/atomic"
	"unique"

	"junction/proxy/redact"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/bounded"
	"junction/upstream/raw"
)

// pages caches the prepared pages of one endpoint.
type pages struct {
	cache   bounded.Cache[pageKey, prepared]
	wanted  *wanted
	refused atomic.Uint32
}

// pageKey identifies a page of a list for all subjects with the same sight.
type pageKey struct {
	view   *view.View
	seen   unique.Handle[string]
	part   upstream.Part
	kind   view.ListKind
	offset int
	count  int
	redact *redact.Redactor
}

// prepared is the text of a page, and the offset of the next page; 0 if there is none.
type prepared struct {
	text []byte
	next int
}

// wanted holds the hashes of the latest requested pages. Each hash has one place.
type wanted [1 << 12]atomic.Uint64

// again reports whether a page was requested before, and stores the request. It may be wrong.
func (a *wanted) again(key pageKey) bool {
	hash := maphash.Comparable(claimSeed, key)
	return a[hash%uint64(len(a))].Swap(hash) == hash
}

// Page returns a page of a list, and the offset of the next page; 0 if there is none. The page is
// made of definitions that all subjects share: text has them joined, or items has them. A page that
// is requested again is prepared: its definitions are joined once for all subjects with the same
// sight. While the room for pages is full, most pages are not prepared, because a page that is
// evicted before its next use costs more than it saves. clean redacts the items. left is the number
// of items that it has left out, because no client could name them; 0 for a prepared page.
func (e *Endpoint) Page(seen *view.Sight, p upstream.Part, k view.ListKind, offset, n int, clean *redact.Redactor) (
	text []byte, items view.Definitions, next, left int) {
	key := pageKey{seen.View, seen.Seen, p, k, offset, n, clean}
	shared := clean.Shared()
	if known, ok := e.pages.cache.Get(key); shared && ok {
		return known.text, items, known.next, 0
	}
	list, next := seen.Page(p, k, offset, n)
	if clean != nil {
		left = len(list.List)
		list = list.Each(func(text []byte) ([]byte, bool) {
			if p == upstream.PartSkills { // its frontmatter and its files must stay what they are
				entry, err := raw.Parse(text)
				return text, err == nil && clean.Leaves(entry)
			}
			return clean.Item(text, p.Key())
		})
		left -= len(list.List)
	}
	bytes := 200 + len(seen.Seen.Value()) + list.Size
	if !shared || list.Size == 0 || list.Size > maxPages/4 || !e.pages.wanted.again(key) ||
		!e.pages.cache.Fits(bytes) && e.pages.refused.Add(1)%pagesRefused != 0 {
		return nil, list, next, left
	}
	text = list.AppendTo(make([]byte, 0, list.Size))
	e.pages.cache.Put(key, prepared{text, next}, bytes)
	return text, items, next, left
}

// pagesRefused: one in so many pages may evict others while the room is full.
const pagesRefused = 16
