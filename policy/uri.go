package policy

import (
	"slices"
	"strings"
)

// This file is about URIs that say one place and may mean another. Nobody but the upstream knows
// how it reads them, so an allow does not guess: it leaves them out. A deny is compared with
// everything that a usual reader makes of them.

// maxDecodings is how often a URI is percent-decoded in the search for what it may mean; one that
// goes on after that is odd.
const maxDecodings = 4

// odd reports whether a URI may mean another place than it says: it has a dot segment, a backslash,
// a control character, or one of these or a slash percent-encoded, be it more than once.
func odd(uri string) bool {
	for range maxDecodings {
		if strings.TrimSpace(uri) != uri ||
			strings.ContainsFunc(uri, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' }) {
			return true
		}
		for s := range strings.FieldsFuncSeq(uri, func(r rune) bool { return strings.ContainsRune("/?#:=&", r) }) {
			if s, _, _ = strings.Cut(s, ";"); s == "." || s == ".." { // some servers cut what follows a semicolon
				return true
			}
		}
		decoded := percentDecode(uri)
		if decoded == uri {
			return false
		}
		if strings.Count(decoded, "/") != strings.Count(uri, "/") || strings.Contains(strings.ToLower(uri), "%2e") {
			return true
		}
		uri = decoded
	}
	return true
}

// forms returns what a URI comes to for readers who decode it, remove dot segments and double
// slashes, take a backslash for a slash, or leave out the query, the fragment or a slash at the
// end; and for those who know that a port, a user or the lack of slashes makes no other place of it
// (see samePlace). The URIs themselves are among the forms. forms returns false for URIs of more
// forms, or longer ones, than one item may cost.
func forms(uris []string) ([]string, bool) {
	var f former
	var all []string
	for i, uri := range uris {
		if i > 0 && uri == f.known {
			continue
		}
		its := f.within(uri, maxNesting)
		f.known, f.knownForms = uri, its
		all = append(append(all, uri), its...)
	}
	return all, f.work <= maxWork
}

const (
	// maxNesting is how many URIs may stand in one another, each behind whose it is. Without a
	// bound a URI of some kilobytes takes minutes.
	maxNesting = 3
	// maxURI is up to which length a URI is compared with what a rule says of places, other than of
	// all. A longer one may mean any place.
	maxURI = 2 << 10
	// maxWork bounds the bytes that are read to find the forms of one item. An item of more may
	// mean any place.
	maxWork = 40 << 10
	// formCost and segmentCost are what a form, and each of its segments, cost beside their bytes.
	formCost, segmentCost = 32, 8
)

// former finds the forms of one item.
type former struct {
	work       int
	known      string // the URI before, which stands in the next one as a rule
	knownForms []string
}

// spend reports whether there is still work to spend on a text with so many segments, and spends
// it.
func (f *former) spend(text string, segments int) bool {
	f.work += len(text) + formCost + segmentCost*segments
	return f.work <= maxWork
}

func (f *former) inner(uri string, nesting int) []string {
	if uri == f.known {
		return f.knownForms
	}
	return f.within(uri, nesting)
}

func (f *former) within(uri string, nesting int) []string {
	var all []string
	add := func(s string) {
		if s != uri && !slices.Contains(all, s) && f.spend(s, 0) {
			all = append(all, s)
		}
	}
	s := uri
	for range maxDecodings + 1 {
		path, _, _ := strings.Cut(s, "\x00") // where in C it ends
		path, _, _ = strings.Cut(path, "#")
		bare, _, _ := strings.Cut(path, "?")
		for i, t := range [...]string{s, path, bare} {
			if i > 0 && len(t) == len(s) || i == 2 && len(t) == len(path) {
				continue // it is the one before
			}
			for _, single := range [...]bool{false, true} {
				if single && !strings.ContainsAny(t, "/\\") ||
					!f.spend(t, strings.Count(t, "/")+strings.Count(t, `\`)) {
					continue
				}
				t := resolve(t, single)
				add(t)
				add(strings.TrimRight(t, "/"))
			}
		}
		decoded := percentDecode(s)
		if decoded == s || f.work > maxWork {
			break
		}
		s = decoded
	}
	for _, one := range append([]string{uri}, all...) {
		if !f.spend(one, 0) {
			return nil
		}
		add(samePlace(one))
	}
	// A URI of an upstream's may stand in another, behind whose it is: mcp://files/file:///a.
	if scheme, rest, ok := strings.Cut(uri, "://"); ok {
		if host, inner, ok := strings.Cut(rest, "/"); ok && nesting > 0 && strings.Contains(inner, ":") {
			for _, form := range f.inner(inner, nesting-1) {
				add(scheme + "://" + host + "/" + form)
			}
		}
	}
	return all
}

// resolve removes dot segments and, with single, empty ones; scheme and host become lower case, and
// a file has no host.
func resolve(uri string, single bool) string {
	uri = strings.TrimSpace(uri)
	if strings.ContainsFunc(uri, func(r rune) bool { return r == '\\' || r < ' ' || r == 0x7f }) {
		uri = strings.Map(func(r rune) rune {
			switch {
			case r == '\\':
				return '/'
			case r < ' ' || r == 0x7f:
				return -1
			}
			return r
		}, uri)
	}
	begin, rest := "", uri
	if scheme, after, ok := strings.Cut(uri, ":"); ok && !strings.Contains(scheme, "/") {
		begin, rest = strings.ToLower(scheme)+":", after
		if after, ok := strings.CutPrefix(rest, "//"); ok {
			host, path, slash := strings.Cut(after, "/")
			if host = strings.ToLower(host); begin == "file:" && host == "localhost" {
				host = ""
			}
			begin, rest = begin+"//"+host, ""
			if slash {
				rest = "/" + path
			}
		} else if begin == "file:" {
			begin, rest = begin+"//", "/"+strings.TrimPrefix(rest, "/")
		}
	}
	segments := strings.Split(rest, "/")
	kept := segments[:0]
	for i, s := range segments {
		name, _, _ := strings.Cut(s, ";")
		switch {
		case name == ".":
			if i == len(segments)-1 {
				kept = append(kept, "")
			}
		case name == "..":
			if n := len(kept); n > 1 || n == 1 && kept[0] != "" {
				kept = kept[:n-1]
			}
			if i == len(segments)-1 {
				kept = append(kept, "")
			}
		case s == "" && single && i > 0 && i < len(segments)-1:
		default:
			kept = append(kept, s)
		}
	}
	return begin + strings.Join(kept, "/")
}

// samePlace returns a web address without the user, the scheme's own port and the dot that may end
// a host, with the two slashes that browsers and their like read into it; and the URI of a file
// without a host, which many readers do not look at. Other URIs stay as they are.
func samePlace(uri string) string {
	scheme, rest, ok := strings.Cut(uri, ":")
	scheme = strings.ToLower(scheme)
	port, web := map[string]string{"http": ":80", "https": ":443", "ws": ":80", "wss": ":443", "ftp": ":21"}[scheme]
	after, slashes := strings.CutPrefix(rest, "//")
	switch {
	case ok && web:
		after = strings.TrimLeft(rest, "/")
		end := len(after)
		if i := strings.IndexAny(after, "/?#"); i >= 0 {
			end = i
		}
		host := after[strings.LastIndexByte(after[:end], '@')+1 : end]
		return scheme + "://" + strings.ToLower(strings.TrimRight(strings.TrimSuffix(host, port), ".")) + after[end:]
	case ok && scheme == "file" && slashes:
		if _, path, ok := strings.Cut(after, "/"); ok {
			return "file:///" + path
		}
	}
	return uri
}

// percentDecode decodes what is percent-encoded, and leaves a % that encodes nothing.
func percentDecode(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) && unhex(s[i+1]) >= 0 && unhex(s[i+2]) >= 0 {
			b = append(b, byte(unhex(s[i+1])<<4|unhex(s[i+2])))
			i += 2
			continue
		}
		b = append(b, s[i])
	}
	return string(b)
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}

// A place is a glob over URIs.
type place struct {
	plain   glob
	decoded glob // the same as forms writes URIs
	same    bool // the two are one
}

func compilePlace(s string) place {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) && unhex(s[i+1]) >= 0 && unhex(s[i+2]) >= 0 {
			c := byte(unhex(s[i+1])<<4 | unhex(s[i+2]))
			if c == '*' || c == '?' || c == '\\' {
				b.WriteByte('\\')
			}
			b.WriteByte(c)
			i += 2
			continue
		}
		b.WriteByte(s[i])
	}
	d := b.String()
	if scheme, rest, ok := strings.Cut(d, "://"); ok {
		host, _, _ := strings.Cut(rest, "/")
		d = strings.ToLower(scheme) + "://" + strings.ToLower(host) + rest[len(host):]
		if !strings.Contains(host, "@") && !strings.HasPrefix(d, "file:") {
			d = samePlace(d)
		}
	}
	return place{compileGlob(s), compileGlob(d), s == d}
}

// means reports whether the place is what one of the texts says.
func (p *place) means(texts []string) bool {
	return slices.ContainsFunc(texts, func(s string) bool { return p.plain.match(s) || !p.same && p.decoded.match(s) })
}

// mayMean reports whether the place may be what a URI means of which only what every reader finds
// at its beginning is known; "" stands for nothing.
func (p *place) mayMean(begin string) bool {
	return p.plain.mayBegin(begin) || p.decoded.mayBegin(begin)
}

// beginningOf returns what a URI begins with for every reader: its scheme, and the host too if the
// scheme is mcp; "" if that is not sure.
func beginningOf(uri string) string {
	scheme, rest, ok := strings.Cut(uri[:min(len(uri), maxBeginning)], ":")
	if !ok || !isWord(scheme) {
		return ""
	}
	begin := scheme + ":"
	if rest, ok = strings.CutPrefix(rest, "//"); ok && begin == "mcp:" {
		if host, _, ok := strings.Cut(rest, "/"); ok && isWord(host) {
			return begin + "//" + host
		}
	}
	return begin
}

// maxBeginning is where a scheme and a host that are known end.
const maxBeginning = 256

// isWord reports whether a text has only characters that all readers leave as they are: no letters
// in upper case, either.
func isWord(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || 'z' < r) && (r < '0' || '9' < r) && r != '-' && r != '+' && r != '_'
	})
}
