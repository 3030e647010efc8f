package policy

import (
	"slices"
	"strings"
)

// This file handles ambiguous URIs. Only the upstream knows how it reads them. So an allow does not
// match them, and a deny is compared with all common readings. paths.go has the readings of servers
// that take the first part of a URI, behind the slashes, for a folder.

// maxDecodings is how often a URI is percent-decoded. A URI that needs more is ambiguous.
const maxDecodings = 4

// odd reports whether a URI is ambiguous: it contains a dot segment, a backslash, a control
// character, or one of these or a slash percent-encoded once or more.
func odd(uri string) bool {
	for range maxDecodings {
		if strings.TrimSpace(uri) != uri ||
			strings.ContainsFunc(uri, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' }) {
			return true
		}
		for s := range strings.FieldsFuncSeq(uri, func(r rune) bool { return strings.ContainsRune("/?#:=&", r) }) {
			if s, _, _ = strings.Cut(s, ";"); s == "." || s == ".." { // some servers ignore the part after a semicolon
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

// forms returns the URIs with all common readings: decoded, without dot segments and double
// slashes, with backslashes as slashes, without query, fragment or trailing slash, and without a
// default port, user or missing slashes (see samePlace), and as paths (see pathReadings). It returns
// false if that is too much work for one item.
//
// The first URI is the upstream's own. The others are the same URI as clients see it. Junction itself
// reads the part of those that names the upstream, so only the rest has readings as a path.
func forms(uris []string) ([]string, bool) {
	var f former
	var all []string
	var own meanings // of the first URI
	for i, uri := range uris {
		if i > 0 && uri == f.known {
			continue
		}
		its := f.within(uri, maxNesting, i == 0)
		if i == 0 {
			own = its
		} else {
			f.exposed(uri, uris[0], own.paths, &its)
		}
		f.known, f.meanings = uri, its
		all = append(append(append(all, uri), its.forms...), its.paths...)
	}
	return all, f.work <= maxWork && f.reading <= maxReadings
}

// meanings are the readings of a URI besides itself.
type meanings struct{ forms, paths []string }

// exposed adds the readings of an upstream's own URI to the readings of the URI for clients, if the URI for
// clients has the name of the upstream behind the scheme: scheme://name/x for scheme://x.
func (f *former) exposed(uri, own string, paths []string, to *meanings) {
	scheme, rest, ok := strings.Cut(own, "://")
	begin, found := strings.CutSuffix(uri, rest)
	if !ok || !found || !strings.HasPrefix(begin, scheme+"://") {
		return
	}
	r := pathReadings{list: to.paths, work: &f.reading}
	for _, path := range paths {
		if _, path, ok := strings.Cut(path, "://"); ok {
			r.add(begin + path)
		}
	}
	to.paths = r.list
}

const (
	// maxNesting is how many URIs may be nested in one another. Without a limit, a URI of some
	// kilobytes would take minutes.
	maxNesting = 3
	// maxURI is the longest URI that is compared with patterns of resources. A longer one may mean
	// anything.
	maxURI = 2 << 10
	// maxWork limits the bytes that are read for the forms of one item. An item beyond the limit
	// may mean anything.
	maxWork = 40 << 10
	// formCost and segmentCost are the costs of a form and of each segment, besides their bytes.
	formCost, segmentCost = 32, 8
)

// former computes the forms of one item.
type former struct {
	work     int
	reading  int    // the work of pathReadings, which has a limit of its own
	known    string // the previous URI, which the next one usually contains
	meanings meanings
}

// spend adds the cost of a text to the work, and reports whether it is within the limit.
func (f *former) spend(text string, segments int) bool {
	f.work += len(text) + formCost + segmentCost*segments
	return f.work <= maxWork
}

func (f *former) inner(uri string, nesting int) meanings {
	if uri == f.known {
		return f.meanings
	}
	return f.within(uri, nesting, true)
}

// within returns the readings of a URI. asPath includes its readings as a path.
func (f *former) within(uri string, nesting int, asPath bool) meanings {
	var all []string
	add := func(s string) {
		if s != uri && !slices.Contains(all, s) && f.spend(s, 0) {
			all = append(all, s)
		}
	}
	s := uri
	for range maxDecodings + 1 {
		path, _, _ := strings.Cut(s, "\x00") // the end in C
		path, _, _ = strings.Cut(path, "#")
		bare, _, _ := strings.Cut(path, "?")
		for i, t := range [...]string{s, path, bare} {
			if i > 0 && len(t) == len(s) || i == 2 && len(t) == len(path) {
				continue // same as the previous one
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
			return meanings{}
		}
		add(samePlace(one))
	}
	r := pathReadings{work: &f.reading}
	if asPath {
		r.of(uri)
	}
	// A URI may contain another one, behind the name of its upstream: mcp://files/file:///a.
	if scheme, rest, ok := strings.Cut(uri, "://"); ok {
		if host, inner, ok := strings.Cut(rest, "/"); ok && nesting > 0 && strings.Contains(inner, ":") {
			begin, its := scheme+"://"+host+"/", f.inner(inner, nesting-1)
			for _, form := range its.forms {
				add(begin + form)
			}
			for _, path := range its.paths {
				r.add(begin + path)
			}
		}
	}
	return meanings{all, r.list}
}

// resolve removes dot segments and, with single, empty ones. Scheme and host become lower case, and
// the host of a file URI is removed.
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

// samePlace normalises a web address: without user, default port and final dot of the host, with
// another port as a plain number, and with the two slashes that browsers add. It removes the host of
// a file URI, which many readers ignore. Other URIs stay as they are.
func samePlace(uri string) string {
	scheme, rest, ok := strings.Cut(uri, ":")
	scheme = strings.ToLower(scheme)
	usual, web := defaultPort(scheme)
	after, slashes := strings.CutPrefix(rest, "//")
	switch {
	case ok && web:
		after = strings.TrimLeft(rest, "/")
		end := len(after)
		if i := strings.IndexAny(after, "/?#"); i >= 0 {
			end = i
		}
		host, port := webPort(after[strings.LastIndexByte(after[:end], '@')+1:end], usual)
		return scheme + "://" + strings.ToLower(strings.TrimRight(host, ".")) + port + after[end:]
	case ok && scheme == "file" && slashes:
		if _, path, ok := strings.Cut(after, "/"); ok {
			return "file:///" + path
		}
	}
	return uri
}

// defaultPort returns the default port of a scheme of the web, with its colon.
func defaultPort(scheme string) (port string, web bool) {
	switch scheme {
	case "http", "ws":
		return ":80", true
	case "https", "wss":
		return ":443", true
	case "ftp":
		return ":21", true
	}
	return "", false
}

// webPort splits a host of the web from its port, which it returns with the colon and without
// leading zeros. An empty port is the default port, which is left out. If the text behind the last
// colon is no number, it stays with the host.
func webPort(hostport, usual string) (host, port string) {
	i := strings.LastIndexByte(hostport, ':')
	if i < 0 {
		return hostport, ""
	}
	digits := portSigns.Replace(hostport[i+1:])
	if strings.Trim(digits, "0123456789") != "" { // also the end of an IPv6 address
		return hostport, ""
	}
	port = ":" + strings.TrimLeft(digits, "0")
	switch {
	case port == ":" && digits != "":
		port = ":0"
	case port == ":", port == usual:
		port = ""
	}
	return hostport[:i], port
}

// portSigns removes what Python's http.client permits in a port.
var portSigns = strings.NewReplacer("+", "", "_", "", " ", "")

// percentDecode decodes percent-encoding, and keeps a % that encodes nothing.
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
	plain  glob
	others []glob // normalised like the results of forms, without plain
}

// escapedSpecials keeps decoded characters from getting a meaning in a glob.
var escapedSpecials = strings.NewReplacer("%2a", `\*`, "%2A", `\*`, "%3f", `\?`, "%3F", `\?`, "%5c", `\\`, "%5C", `\\`)

func compilePlace(s string) place {
	p, seen := place{plain: compileGlob(s)}, []string{s}
	for _, s := range normalised(percentDecode(escapedSpecials.Replace(s)), maxNesting) {
		if !slices.Contains(seen, s) {
			seen, p.others = append(seen, s), append(p.others, compileGlob(s))
		}
	}
	return p
}

// normalised returns the globs for the results of forms that a decoded glob means.
func normalised(d string, nesting int) []string {
	all := []string{d}
	if scheme, rest, ok := strings.Cut(d, "://"); ok {
		host, inner, found := strings.Cut(rest, "/")
		lower := strings.ToLower(scheme) + "://" + strings.ToLower(host) + rest[len(host):]
		if !strings.Contains(host, "@") && !strings.HasPrefix(lower, "file:") {
			lower = samePlace(lower)
		}
		all = append(all, lower)
		if found && nesting > 0 && strings.Contains(inner, ":") { // the URI of an upstream
			for _, s := range normalised(inner, nesting-1) {
				all = append(all, d[:len(d)-len(inner)]+s)
			}
		}
	}
	if scheme, rest, ok := strings.Cut(d, ":"); ok && !strings.Contains(scheme, "/") { // as in pathReadings
		path := strings.TrimLeft(rest, "/")
		begin := strings.ToLower(scheme) + "://"
		if len(rest)-len(path) != 2 {
			all = append(all, begin+"/"+singleSlashes(path))
		}
		all = append(all, begin+singleSlashes(path))
	}
	return all
}

// singleSlashes replaces runs of slashes by one.
func singleSlashes(s string) string {
	for strings.Contains(s, "//") {
		s = strings.ReplaceAll(s, "//", "/")
	}
	return s
}

// means reports whether the place matches one of the texts.
func (p *place) means(texts []string) bool {
	return p.some(func(g glob) bool { return slices.ContainsFunc(texts, g.match) })
}

// mayMean reports whether the place may match a URI of which only the beginning is certain; "" if
// nothing is.
func (p *place) mayMean(begin string) bool {
	return p.some(func(g glob) bool { return g.mayBegin(begin) })
}

// some reports whether a glob of the place has the property.
func (p *place) some(has func(glob) bool) bool {
	return has(p.plain) || slices.ContainsFunc(p.others, has)
}

// mayMeanOne reports whether a place may match one of the names of an item, of which only the
// beginnings are certain.
func (p *place) mayMeanOne(names []string) bool {
	for i, uri := range names {
		if p.mayMean(beginningOf(uri, i > 0)) {
			return true
		}
	}
	return false
}

// beginningOf returns the beginning of a URI on which all readers agree: its scheme; "" if there is
// none. Junction itself reads the host of mcp in a URI for clients (exposed), so that is certain, too.
func beginningOf(uri string, exposed bool) string {
	scheme, rest, ok := strings.Cut(uri[:min(len(uri), maxBeginning)], ":")
	if !ok || !isWord(scheme) {
		return ""
	}
	begin := scheme + ":"
	if rest, ok = strings.CutPrefix(rest, "//"); ok && exposed && begin == "mcp:" {
		if host, _, ok := strings.Cut(rest, "/"); ok && isWord(host) {
			return begin + "//" + host
		}
	}
	return begin
}

// maxBeginning is the longest beginning.
const maxBeginning = 256

// isWord reports whether a text consists of characters that no reader changes, which excludes upper
// case.
func isWord(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-+_") == ""
}
