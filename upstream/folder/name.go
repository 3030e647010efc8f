package folder

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxName is the largest number of bytes of a name: a path of Linux with each byte encoded (PATH_MAX).
const maxName = 3 * 4096

// Word stands in a configuration for the folder that the client of a call names.
const Word = "${folder}"

// Named reports whether the folder of a client stands in a value of the configuration.
func Named(value string) bool { return strings.Contains(value, Word) }

// Headers is Header for all values of the header in one request.
func Headers(values []string) (path string, err error) {
	switch len(values) {
	case 0:
		return "", nil
	case 1:
		return Header(values[0])
	}
	return "", fmt.Errorf("the request has %d headers with a folder; send one", len(values))
}

// Header returns the absolute path that the value of a header names; "" if it names none: it is empty,
// or has a variable that the client did not replace. A value that begins with file: is a URI. Another
// one is the path, without any encoding. Clients write a letter such as é as UTF-8, as one byte
// (Latin-1), or as UTF-8 whose bytes they took for Latin-1. Header touches no file.
func Header(value string) (path string, err error) {
	switch value = strings.Trim(value, " \t"); {
	case len(value) > maxName:
		return "", tooLong(len(value))
	case value == "" || unexpanded(value):
		return "", nil
	case hasFileScheme(value):
		return URI(value)
	case schemeOf(value) != "":
		return "", fmt.Errorf("the folder is a URI with the scheme %s; name a folder of this machine", schemeOf(value))
	}
	return clean(latin1(value), runtime.GOOS == "windows")
}

// URI returns the absolute path that the URI of a root names. Only URIs of the scheme file name a folder
// of this machine. URI touches no file.
func URI(uri string) (path string, err error) { return fromURI(uri, runtime.GOOS == "windows") }

func fromURI(uri string, windows bool) (path string, err error) {
	if len(uri) > maxName {
		return "", tooLong(len(uri))
	}
	if !hasFileScheme(uri) {
		return "", errors.New("it is no URI of the scheme file, so it names no folder of this machine")
	}
	rest := uri[len("file:"):]
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		host, below, found := strings.Cut(after, "/")
		if host != "" && !strings.EqualFold(host, "localhost") {
			return "", fmt.Errorf("it names the host %q; name a folder of this machine", short(host))
		}
		if rest = "/" + below; !found {
			return "", errors.New("it has no path; name a folder")
		}
	}
	if strings.ContainsAny(rest, "?#") {
		return "", errors.New("it has a ? or a #; write %3F or %23 if the folder's name has one")
	}
	decoded, err := url.PathUnescape(rest)
	if err != nil {
		return "", errors.New("it has a % that begins no encoded byte; write %25")
	}
	if drive.MatchString(strings.TrimPrefix(decoded, "/")) { // file:///C:/shop
		decoded = strings.TrimPrefix(decoded, "/")
	}
	return clean(decoded, windows)
}

// drive matches an absolute path of Windows.
var drive = regexp.MustCompile(`^[A-Za-z]:[/\\]`)

// shortName matches the second name that Windows may give to a file, such as SSH~1 to .ssh.
var shortName = regexp.MustCompile(`~[0-9]`)

// clean returns an absolute path without needless parts, or why it names no folder of this machine.
func clean(path string, windows bool) (string, error) {
	slashes := path
	if windows {
		slashes = strings.ReplaceAll(path, `\`, "/")
	}
	switch {
	case strings.ContainsRune(path, 0):
		return "", errors.New("the folder has a NUL byte; send its path")
	case !utf8.ValidString(path):
		return "", errors.New("the folder is not UTF-8; encode its path as UTF-8")
	case strings.HasPrefix(slashes, "//") || strings.HasPrefix(path, `\\`):
		return "", errors.New("the folder is on a network share; name a folder of this machine")
	case !windows && drive.MatchString(path):
		return "", errors.New("the folder is a path of Windows; name a folder of the machine on which Junction runs")
	case windows && !drive.MatchString(path), !windows && !strings.HasPrefix(path, "/"):
		return "", fmt.Errorf("the folder %q is relative; send an absolute path", short(path))
	case windows && strings.Contains(path[2:], ":"):
		return "", errors.New("the folder has a colon, which names a stream of a file; send the path of a folder")
	}
	for part := range strings.SplitSeq(slashes, "/") {
		if part == ".." {
			return "", errors.New("the folder has the part ..; send its path without it")
		}
		if windows && shortName.MatchString(part) {
			return "", errors.New("a part of the folder looks like a short name of Windows (~1); send the long name")
		}
		if windows && part != strings.TrimRight(part, ". ") && part != "." {
			return "", errors.New("a part of the folder ends with a dot or a space; leave it out, as Windows does")
		}
	}
	if windows && runtime.GOOS != "windows" {
		return slashes, nil // only in tests
	}
	return filepath.Clean(path), nil
}

// PathProblem returns why a path of a configuration cannot name folders of this machine, with what to do; ""
// if it can. It touches no file.
func PathProblem(path string) string {
	switch cleaned, err := clean(path, runtime.GOOS == "windows"); {
	case strings.HasPrefix(path, "~"):
		return `must be an absolute path; write "${HOME}` + short(path[1:]) + `"`
	case err != nil && !filepath.IsAbs(path):
		return "must be an absolute path, such as /home/ann/src"
	case err != nil:
		return err.Error()
	case filepath.Dir(cleaned) == cleaned:
		return "would be nearly every folder of this machine; name the folders with projects"
	}
	return ""
}

func tooLong(bytes int) error {
	return fmt.Errorf("the folder has %d bytes, and at most %d are read; send a path", bytes, maxName)
}

// short returns the beginning of a text for a message.
func short(text string) string {
	if len(text) <= 200 {
		return text
	}
	return strings.ToValidUTF8(text[:200], "") + "…"
}

// plain returns a path as it is, and in quotes with escapes if it has characters that a reader does not see.
func plain(path string) string {
	if strings.ContainsFunc(path, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(short(path))
	}
	return path
}

func hasFileScheme(value string) bool {
	return len(value) >= len("file:") && strings.EqualFold(value[:len("file:")], "file:")
}

// scheme matches the scheme of a URI. One letter is a drive of Windows.
var scheme = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]+):`)

func schemeOf(value string) string {
	if m := scheme.FindStringSubmatch(value); m != nil {
		return short(m[1])
	}
	return ""
}

// variables match a variable at the beginning of a value, in the forms that clients replace. A path does
// not begin so.
var variables = regexp.MustCompile(
	`(?i)^(?:file:/*)?(?:\$\{[^}]*\}|\$[A-Z_][A-Z0-9_]*|\{env:[^}]*\}|%[A-Z_][A-Z0-9_]*%)(?:/.*)?$`)

func unexpanded(value string) bool { return variables.MatchString(value) }

// latin1 returns the text of a header as its sender meant it.
func latin1(value string) string {
	if !utf8.ValidString(value) { // one byte for each letter
		letters := make([]rune, len(value))
		for i := range len(value) {
			letters[i] = rune(value[i])
		}
		return string(letters)
	}
	bytes := make([]byte, 0, len(value))
	for _, r := range value {
		if r > 0xff {
			return value
		}
		bytes = append(bytes, byte(r))
	}
	if len(bytes) < len(value) && utf8.Valid(bytes) { // UTF-8 whose bytes were encoded once more
		return string(bytes)
	}
	return value
}
