package policy

import (
	"slices"
	"strings"
)

// This file computes the readings of a URI as a path. A parser of URLs takes the first part behind
// the slashes for a host, which ".." cannot leave. A server that joins a folder and the text behind
// the slashes takes the first part for a segment of the path. Others use the path alone.

// maxReadings limits the bytes of the readings of one item. An item within maxWork stays within this
// limit, unless its URI is ambiguous (see odd).
const maxReadings = 8 * maxWork

// maxAbove is how many folders above its beginning a path may begin and lead back. Beyond, it may mean
// anything.
const maxAbove = 16

// pathReadings collects readings in a normalised form: scheme://path for a server that takes the
// first part for a segment, and scheme:///path for one that ignores the first part. The path has no
// dot segments and no empty segments.
type pathReadings struct {
	list []string
	seen map[string]bool // the list, if it is long
	done []urlPath       // parts whose readings are in the list
	work *int            // of all URIs of the item
}

func (r *pathReadings) add(s string) {
	if *r.work += len(s) + formCost; *r.work > maxReadings {
		return
	}
	if r.seen == nil && len(r.list) >= 16 { // an ordinary URI has one or two
		r.seen = map[string]bool{}
		for _, s := range r.list {
			r.seen[s] = true
		}
	}
	switch {
	case r.seen == nil && slices.Contains(r.list, s), r.seen[s]:
		return
	case r.seen != nil:
		r.seen[s] = true
	}
	r.list = append(r.list, s)
}

// of adds all readings of a URI.
func (r *pathReadings) of(uri string) {
	// of a server that decodes the URI, and then takes it apart
	s := uri
	for range maxDecodings + 1 {
		r.text(s)
		for _, ends := range [...]string{"\x00", "\x00#", "\x00#?"} { // the first is the end in C
			if i := strings.IndexAny(s, ends); i >= 0 {
				r.text(s[:i])
			}
		}
		next := percentDecode(s)
		if next == s {
			break
		}
		s = next
	}
	// of a server that takes the URI apart, and then decodes the parts
	texts := []string{uri}
	for _, ends := range [...]string{"\x00", "\x00#", "\x00#?"} {
		if i := strings.IndexAny(uri, ends); i >= 0 {
			texts = append(texts, uri[:i])
		}
	}
	for _, s := range texts {
		for _, s := range [...]string{s, withoutControls(s, false), withoutControls(s, true)} {
			u, ok := splitPath(s)
			if !ok || !strings.Contains(s, "%") && !strings.Contains(s, "..") {
				continue // text has added it
			}
			paths := []string{u.path, resolveEncoded(u.path)}
			kept, above := walkPath(u.path, false)
			for _, v := range append(paths, strings.Repeat("../", above)+strings.Join(kept, "/")) {
				r.decoded(urlPath{u.scheme, u.first, v, u.host, u.more})
			}
			if !u.host && u.more { // a parser finds a path without a host, so ".." removes the first part, too
				u.first, u.path, u.more = strings.Cut(resolveEncoded(u.first+"/"+u.path), "/")
				r.decoded(u)
			}
		}
	}
}

// text adds the readings of a text that is not decoded any more.
func (r *pathReadings) text(s string) {
	if u, ok := splitPath(s); ok {
		r.parts(u)
	}
	if clean := withoutControls(s, true); clean != s {
		if u, ok := splitPath(clean); ok {
			r.parts(u)
		}
	}
}

// decoded adds the readings of parts that are decoded one by one: both, or the path alone.
func (r *pathReadings) decoded(u urlPath) {
	first := u.first
	for range maxDecodings + 1 {
		r.parts(u)
		if first != u.first {
			all := u
			all.first = first
			r.parts(all)
		}
		path, next := percentDecode(u.path), percentDecode(first)
		if path == u.path && next == first {
			return
		}
		u.path, first = path, next
	}
}

// A urlPath is a URI in its parts.
type urlPath struct {
	scheme string // in lower case
	first  string // the part behind the slashes
	path   string // behind the first part, without the slash between them
	host   bool   // there are two slashes, behind which a parser finds a host
	more   bool   // a slash ends the first part
}

// splitPath splits a URI; false if it has no scheme.
func splitPath(uri string) (u urlPath, ok bool) {
	scheme, rest, ok := strings.Cut(uri, ":")
	if !ok || scheme == "" || strings.Contains(scheme, "/") {
		return u, false
	}
	after := strings.TrimLeft(rest, "/")
	u = urlPath{scheme: strings.ToLower(scheme), host: len(rest)-len(after) == 2}
	u.first, u.path, u.more = strings.Cut(after, "/")
	return u, true
}

// parts adds the readings of the parts of a URI.
func (r *pathReadings) parts(u urlPath) {
	if *r.work > maxReadings || slices.Contains(r.done, u) {
		return
	}
	r.done = append(r.done, u)
	begin, paths := u.scheme+"://", []string{u.path}
	if clean := withoutControls(u.path, true); clean != u.path {
		paths = append(paths, clean)
	}
	if u.host && u.more {
		for _, path := range paths {
			r.walk(begin+"/", path)
		}
	}
	for _, first := range u.authorities() {
		if !u.more {
			r.walk(begin, first)
			continue
		}
		for _, path := range paths {
			r.walk(begin, first+"/"+path)
			if strings.Contains(path, "..") {
				r.walk(begin+first+"/", path) // a host cannot be left
			}
		}
	}
}

// authorities returns the first part with and without user and port, as written and in lower case.
// In the schemes of the web, another port is another server, so only the default port is removed.
func (u *urlPath) authorities() []string {
	all := []string{u.first}
	if !u.host {
		return all
	}
	host := u.first[strings.LastIndexByte(u.first, '@')+1:]
	name := u.withoutPort(host)
	_, web := defaultPort(u.scheme)
	if i := strings.IndexByte(host, ':'); i >= 0 && host[0] != '[' && !web { // some parsers do not check a port
		name = host[:i]
	}
	for _, s := range [...]string{host, u.withoutPort(u.first), u.withoutPort(host), name, strings.ToLower(name)} {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

// withoutPort returns a host without the number behind the last colon. In the schemes of the web,
// another port than the default one stays, as a plain number.
func (u *urlPath) withoutPort(host string) string {
	if usual, web := defaultPort(u.scheme); web {
		host, port := webPort(host, usual)
		return host + port
	}
	if i := strings.LastIndexByte(host, ':'); i >= 0 && strings.Trim(host[i+1:], "0123456789") == "" {
		return host[:i]
	}
	return host
}

// walk adds the readings of a path behind begin. Nothing is above the beginning, or the names of
// some folders are, which the path may repeat: ../root/a is a, if the folder is root.
func (r *pathReadings) walk(begin, path string) {
	if !strings.HasPrefix(path, ".") && !strings.HasPrefix(path, "/") && !strings.Contains(path, "/.") &&
		!strings.Contains(path, "//") {
		r.ends(begin, path)
		return
	}
	r.resolved(begin, path, false)
	if strings.Contains(path, ".;") { // some servers ignore the part after a semicolon
		r.resolved(begin, path, true)
	}
}

func (r *pathReadings) resolved(begin, path string, parameters bool) {
	kept, above := walkPath(path, parameters)
	r.ends(begin, strings.Join(kept, "/"))
	if above == 0 {
		return
	}
	r.ends(begin, strings.Repeat("../", above)+strings.Join(kept, "/"))
	most := min(above, len(kept))
	if most > maxAbove {
		*r.work = maxReadings + 1
		return
	}
	for k := 1; k <= most; k++ {
		r.ends(begin, strings.Join(kept[k:], "/"))
	}
}

// ends adds a path with and without the slash at its end.
func (r *pathReadings) ends(begin, path string) {
	s := begin + path
	r.add(s)
	if path != "" && s[len(s)-1] == '/' {
		r.add(s[:len(s)-1])
	}
}

// walkPath removes empty segments and dot segments. It returns the others, the last one empty if the
// path ends in a folder, and how many folders above the beginning the path begins.
func walkPath(path string, parameters bool) (kept []string, above int) {
	folder := false
	for s := range strings.SplitSeq(path, "/") {
		name := s
		if parameters {
			name, _, _ = strings.Cut(s, ";")
		}
		folder = true
		switch name {
		case "", ".":
			if s != name { // a name that begins with a semicolon
				kept = append(kept, s)
			}
		case "..":
			if len(kept) > 0 {
				kept = kept[:len(kept)-1]
			} else {
				above++
			}
		default:
			kept, folder = append(kept, s), false
		}
	}
	if folder && len(kept) > 0 {
		kept = append(kept, "")
	}
	return kept, above
}

// resolveEncoded resolves dot segments as browsers do: also percent-encoded ones, and each empty
// segment is one that ".." removes.
func resolveEncoded(path string) string {
	if !strings.Contains(path, ".") && !strings.Contains(strings.ToLower(path), "%2e") {
		return path
	}
	segments := strings.Split(path, "/")
	kept := segments[:0]
	for i, s := range segments {
		last := i == len(segments)-1
		switch dotsReplacer.Replace(s) {
		case ".":
			if last {
				kept = append(kept, "")
			}
		case "..":
			if len(kept) > 0 {
				kept = kept[:len(kept)-1]
			}
			if last {
				kept = append(kept, "")
			}
		default:
			kept = append(kept, s)
		}
	}
	return strings.Join(kept, "/")
}

var dotsReplacer = strings.NewReplacer("%2e", ".", "%2E", ".")

// withoutControls removes what parsers of URLs remove: spaces at both ends, and control characters.
// With slashes, backslashes become slashes.
func withoutControls(s string, slashes bool) string {
	s = strings.TrimFunc(s, func(r rune) bool { return r <= ' ' })
	if !strings.ContainsFunc(s, func(r rune) bool { return r == '\\' && slashes || r < ' ' || r == 0x7f }) {
		return s
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\\' && slashes:
			return '/'
		case r < ' ' || r == 0x7f:
			return -1
		}
		return r
	}, s)
}
