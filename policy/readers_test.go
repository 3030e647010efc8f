package policy_test

import (
	"cmp"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The plain readers are servers that find a file below a folder by a URI, or fetch a web address, as
// programs do it that check nothing. Each returns what it may open: the files as absolute paths, the
// addresses with their port.

// root is the folder of the plain readers of files. private begins the denied addresses.
const root, private = "/srv/root", "https://corp.example:443/private/"

type plainReader struct {
	name string
	rule string // how a rule denies the files of the folder secret, or the addresses below private
	read func(uri string) []string
}

// denied returns the beginning of what the rule denies.
func (r *plainReader) denied() string {
	if strings.HasPrefix(r.rule, "https:") {
		return private
	}
	return root + "/secret/"
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
		ok = ok && u.scheme == "notes"
		return slices.Concat(below(ok, u.host, u.pathname), below(ok, u.hostname(), u.pathname))
	}},
	{"path of Node's URL", "notes:///secret/*", func(uri string) []string {
		u, ok := nodeURL(uri)
		return below(ok && u.scheme == "notes", u.pathname)
	}},
	{"Python's urlsplit", "notes://secret/*", func(uri string) []string {
		u, ok := pythonSplit(uri)
		ok = ok && u.scheme == "notes"
		host, _, _ := strings.Cut(u.netloc[strings.LastIndexByte(u.netloc, '@')+1:], ":")
		return slices.Concat(below(ok, u.netloc, u.path), below(ok, strings.ToLower(host), u.path))
	}},
	{"net/http", "https://corp.example/private/*", func(uri string) []string {
		u, err := url.Parse(uri)
		if err != nil {
			return nil
		}
		return address(u.Scheme, u.Hostname(), u.Port(), u.EscapedPath())
	}},
	{"Node's fetch", "https://corp.example/private/*", func(uri string) []string {
		u, ok := nodeURL(uri)
		if !ok {
			return nil
		}
		_, port, _ := cutPort(u.host)
		return address(u.scheme, u.hostname(), port, u.pathname)
	}},
	{"Python's http.client", "https://corp.example/private/*", func(uri string) []string {
		u, ok := pythonSplit(uri)
		host, port := u.server()
		if !ok || port == invalidPort {
			return nil
		}
		return address(u.scheme, host, port, u.path)
	}},
}

// address returns the web address that a program fetches; nothing if it is not one of https.
func address(scheme, host, port, path string) []string {
	number, err := strconv.ParseUint(cmp.Or(port, "443"), 10, 16)
	if scheme != "https" || err != nil {
		return nil
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return []string{"https://" + host + ":" + strconv.FormatUint(number, 10) + path}
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
type node struct{ scheme, host, pathname string }

func (u node) hostname() string {
	if i := strings.LastIndexByte(u.host, ':'); i >= 0 && !strings.HasSuffix(u.host, "]") {
		return u.host[:i]
	}
	return u.host
}

// nodeURL reads a URI as Node's URL does (url.spec.whatwg.org), for the schemes notes and https; false
// if Node rejects it, or if the model does not know what Node does.
func nodeURL(uri string) (u node, ok bool) {
	if !utf8.ValidString(uri) {
		return u, false
	}
	uri = withoutTabs.Replace(strings.TrimFunc(uri, isControlOrSpace))
	scheme, rest, found := strings.Cut(uri, ":")
	u.scheme = strings.ToLower(scheme)
	special := u.scheme == "https"
	if !found || u.scheme != "notes" && !special {
		return u, false
	}
	opaque := !special && !strings.HasPrefix(rest, "/")
	rest, _, _ = strings.Cut(rest, "#")
	rest, _, _ = strings.Cut(rest, "?")
	if special {
		rest = "//" + strings.TrimLeft(strings.ReplaceAll(rest, `\`, "/"), "/")
	}
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
		if special {
			if name, ok = webName(name); !ok {
				return u, false
			}
			if port == "443" {
				port = ""
			}
		}
		if u.host = encoded(name, ""); port != "" {
			u.host += ":" + port
		}
		if rest == "" && special {
			rest = "/"
		} else if rest == "" {
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

// webName returns the name of a host of the web as Node's URL does; false for an address and for names
// outside of ASCII.
func webName(name string) (string, bool) {
	name, err := url.PathUnescape(name)
	name = strings.ToLower(name)
	labels := strings.Split(strings.TrimSuffix(name, "."), ".")
	last := labels[len(labels)-1]
	if err != nil || last == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" ||
		'0' <= last[0] && last[0] <= '9' || slices.ContainsFunc(labels, func(l string) bool {
		return len(l) > 3 && l[2:4] == "--"
	}) {
		return "", false
	}
	return name, true
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
type python struct{ scheme, netloc, path string }

// invalidPort is the port that http.client rejects.
const invalidPort = "invalid"

// pythonInt matches the numbers that int of Python accepts.
var pythonInt = regexp.MustCompile(`^ *[+-]?[0-9]+(_[0-9]+)* *$`)

// server returns the host and the port that http.client takes of the part behind the user; "" is the
// default port.
func (u python) server() (host, port string) {
	host = u.netloc[strings.LastIndexByte(u.netloc, '@')+1:]
	if i := strings.LastIndexByte(host, ':'); i >= 0 {
		host, port = host[:i], host[i+1:]
		if port != "" && !pythonInt.MatchString(port) {
			return "", invalidPort
		}
		port = strings.NewReplacer(" ", "", "+", "", "_", "").Replace(port)
	}
	if strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return "", invalidPort
	}
	return host, port
}

// pythonSplit reads a URI as Python's urlsplit does, for the schemes notes and https; false if Python
// rejects it, or if the model does not know what Python does.
func pythonSplit(uri string) (u python, ok bool) {
	if !utf8.ValidString(uri) {
		return u, false
	}
	uri = withoutTabs.Replace(strings.TrimLeftFunc(uri, isControlOrSpace))
	scheme, rest, found := strings.Cut(uri, ":")
	u.scheme = strings.ToLower(scheme)
	if !found || u.scheme != "notes" && u.scheme != "https" {
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
