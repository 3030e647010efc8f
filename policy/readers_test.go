package policy_test

import (
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The plain readers are servers that find a file below a folder by a URI, as programs do it that
// check nothing. Each returns the files that it may open, as absolute paths.

// root is the folder of all plain readers.
const root = "/srv/root"

type plainReader struct {
	name string
	rule string // how a rule denies the files of the folder secret
	read func(uri string) []string
}

var plainReaders = []plainReader{
	{"join to a folder", "notes://secret/*", func(uri string) []string {
		rest, ok := strings.CutPrefix(uri, "notes://")
		return below(ok, rest)
	}},
	{"clean after the scheme", "notes://secret/*", func(uri string) []string {
		rest, ok := strings.CutPrefix(uri, "notes:")
		if !ok {
			return nil
		}
		files := below(true, path.Clean("/"+rest))
		if decoded, err := url.PathUnescape(rest); err == nil {
			files = append(files, below(true, path.Clean("/"+decoded))...)
		}
		return files
	}},
	{"host and path of url.Parse", "notes://secret/*", func(uri string) []string {
		u, err := url.Parse(uri)
		if err != nil || u.Scheme != "notes" {
			return nil
		}
		p := u.Path + u.Opaque
		return slices.Concat(below(true, u.Host, p), below(true, u.Hostname(), p),
			below(true, u.Host, path.Clean("/"+p)))
	}},
	{"host and path of Node's URL", "notes://secret/*", func(uri string) []string {
		u, ok := nodeURL(uri)
		return slices.Concat(below(ok, u.host, u.pathname), below(ok, u.hostname(), u.pathname))
	}},
	{"path of Node's URL", "notes:///secret/*", func(uri string) []string {
		u, ok := nodeURL(uri)
		return below(ok, u.pathname)
	}},
	{"Python's urlsplit", "notes://secret/*", func(uri string) []string {
		u, ok := pythonSplit(uri)
		host, _, _ := strings.Cut(u.netloc[strings.LastIndexByte(u.netloc, '@')+1:], ":")
		return slices.Concat(below(ok, u.netloc, u.path), below(ok, strings.ToLower(host), u.path))
	}},
}

// below joins the parts to the folder: as they are, all of them decoded, and only the last one, the
// path, decoded.
func below(ok bool, parts ...string) (files []string) {
	if !ok || strings.Contains(strings.Join(parts, ""), "\x00") {
		return nil // no file has such a name
	}
	add := func(parts []string) {
		if file := path.Join(append([]string{root}, parts...)...); !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	add(parts)
	some, all := slices.Clone(parts), slices.Clone(parts)
	for i, part := range parts {
		decoded, err := url.PathUnescape(part)
		if err != nil {
			return files
		}
		if all[i] = decoded; i == len(parts)-1 {
			some[i] = decoded
		}
	}
	if strings.Contains(strings.Join(all, ""), "\x00") {
		return files
	}
	add(some)
	add(all)
	return files
}

func isControlOrSpace(r rune) bool { return r <= ' ' }

var withoutTabs = strings.NewReplacer("\t", "", "\n", "", "\r", "")

// node is what Node's URL has of a URI.
type node struct{ host, pathname string }

func (u node) hostname() string {
	if i := strings.LastIndexByte(u.host, ':'); i >= 0 && !strings.HasSuffix(u.host, "]") {
		return u.host[:i]
	}
	return u.host
}

// nodeURL reads a URI as Node's URL does (url.spec.whatwg.org), for the scheme notes; false if Node
// rejects it, or if the model does not know what Node does.
func nodeURL(uri string) (u node, ok bool) {
	if !utf8.ValidString(uri) {
		return u, false
	}
	uri = withoutTabs.Replace(strings.TrimFunc(uri, isControlOrSpace))
	scheme, rest, found := strings.Cut(uri, ":")
	if !found || !strings.EqualFold(scheme, "notes") {
		return u, false
	}
	opaque := !strings.HasPrefix(rest, "/")
	rest, _, _ = strings.Cut(rest, "#")
	rest, _, _ = strings.Cut(rest, "?")
	if after, authority := strings.CutPrefix(rest, "//"); authority {
		end := strings.IndexByte(after, '/')
		if end < 0 {
			end = len(after)
		}
		host := after[:end]
		at := strings.LastIndexByte(host, '@')
		rest = after[end:]
		if host = host[at+1:]; host == "" && at >= 0 {
			return u, false
		}
		name, port, hasPort := cutPort(host)
		if n, err := strconv.ParseUint(port, 10, 16); port != "" {
			if err != nil {
				return u, false
			}
			port = strconv.FormatUint(n, 10)
		}
		if name == "" && hasPort || strings.ContainsAny(name, "\x00 :<>[\\]^|@") {
			return u, false
		}
		if u.host = encoded(name, ""); port != "" {
			u.host += ":" + port
		}
		if rest == "" {
			return u, true
		}
	}
	if opaque {
		if strings.HasSuffix(rest, " ") { // which depends on the version
			return u, false
		}
		u.pathname = encoded(rest, "")
		return u, true
	}
	if rest == "/.." { // of which Node 20 makes nothing, and the standard a slash
		return u, false
	}
	segments := strings.Split(rest[1:], "/")
	var kept []string
	for i, s := range segments {
		switch strings.ReplaceAll(strings.ToLower(s), "%2e", ".") {
		case ".":
		case "..":
			kept = kept[:max(0, len(kept)-1)]
		default:
			kept = append(kept, encoded(s, " \"<>`{}^"))
			continue
		}
		if i == len(segments)-1 {
			kept = append(kept, "")
		}
	}
	u.pathname = "/" + strings.Join(kept, "/")
	return u, true
}

// cutPort cuts a host at the colon before its port.
func cutPort(host string) (name, port string, found bool) {
	if strings.HasPrefix(host, "[") {
		return host, "", false
	}
	return strings.Cut(host, ":")
}

// encoded percent-encodes controls, characters outside of ASCII and those of more.
func encoded(s, more string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c < ' ' || c >= 0x7f || strings.IndexByte(more, c) >= 0 {
			b.WriteString("%" + strings.ToUpper(string("0123456789abcdef"[c>>4])+string("0123456789abcdef"[c&15])))
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// python is what Python's urlsplit has of a URI.
type python struct{ netloc, path string }

// pythonSplit reads a URI as Python's urlsplit does, for the scheme notes; false if Python rejects it,
// or if the model does not know what Python does.
func pythonSplit(uri string) (u python, ok bool) {
	if !utf8.ValidString(uri) {
		return u, false
	}
	uri = withoutTabs.Replace(strings.TrimLeftFunc(uri, isControlOrSpace))
	scheme, rest, found := strings.Cut(uri, ":")
	if !found || !strings.EqualFold(scheme, "notes") {
		return u, false
	}
	if after, authority := strings.CutPrefix(rest, "//"); authority {
		end := strings.IndexAny(after, "/?#")
		if end < 0 {
			end = len(after)
		}
		if u.netloc, rest = after[:end], after[end:]; strings.ContainsAny(u.netloc, "[]") ||
			strings.ContainsFunc(u.netloc, func(r rune) bool { return r >= utf8.RuneSelf }) {
			return u, false
		}
	}
	rest, _, _ = strings.Cut(rest, "#")
	u.path, _, _ = strings.Cut(rest, "?")
	return u, true
}
