package config

import (
	"cmp"
	"slices"
	"strings"

	"junction/auth"
	"junction/upstream/yamlread"
)

// Problem is one mistake of the file, or one warning.
type Problem = yamlread.Problem

// Problems are all mistakes of a file.
type Problems = yamlread.Problems

// err returns the mistakes, or nil if there are none.
func (d *decoder) err() error {
	if len(d.Problems) == 0 {
		return nil
	}
	return d.Problems
}

// bad reports a mistake at path and marks the path, so that its value is not validated.
func (d *decoder) bad(path, format string, args ...any) { d.Bad(path, format, args...) }

// invalid reports a mistake of a value that the decoder could read. It reports nothing for an
// unreadable value, where the Config has only a placeholder.
func (d *decoder) invalid(path, format string, args ...any) {
	if !d.wrong[path] {
		d.At(d.line(path), path, format, args...)
	}
}

// check reports the problem at path, unless it is "".
func (d *decoder) check(path, problem string) {
	if problem != "" {
		d.invalid(path, "%s", problem)
	}
}

// plaintextKey is the message about an API key in the file, where others can read it. API keys of
// Junction are the only secrets that can be recognized by their form.
const plaintextKey = "an API key in plain text; take it out of the file, and replace it if others could read it"

// plaintext reports the API key at path.
func (d *decoder) plaintext(path string) {
	remedy := ""
	switch {
	case strings.HasPrefix(path, "auth.") && strings.HasSuffix(path, ".hash"):
		remedy = "; junction keys hash prints the hash that belongs here"
	case strings.HasPrefix(path, "upstreams."):
		remedy = "; ${VAR} or ${file:/path} keeps it elsewhere"
	}
	d.bad(path, "holds %s%s", plaintextKey, remedy)
}

// conceal returns path and a message about it in which the values of references, which may be secret,
// are replaced by the references, and API keys are redacted.
func (d *decoder) conceal(path, text string) (string, string) {
	// The longest value comes first, because one value may be part of another. A value of up to
	// three bytes is left alone: it may be part of any word.
	refs := slices.SortedFunc(slices.Values(d.secrets[entry(path)]), func(a, b reference) int {
		return cmp.Or(cmp.Compare(len(b.value), len(a.value)), cmp.Compare(a.text, b.text))
	})
	for _, r := range refs {
		if len(r.value) > 3 {
			text = strings.ReplaceAll(text, r.value, r.text)
		}
	}
	return auth.Redact(path), auth.Redact(text)
}

// entry returns the first two keys of path, such as upstreams.github. A message about an upstream
// may quote any value of its entry.
func entry(path string) string {
	if i := strings.IndexByte(path, '.'); i >= 0 {
		if j := strings.IndexByte(path[i+1:], '.'); j >= 0 {
			return path[:i+1+j]
		}
	}
	return path
}

// mark records that the value at path could not be read as the file gives it.
func (d *decoder) mark(path string) {
	d.wrong[path] = true
	for path != "" {
		if path = yamlread.Above(path); !d.wrong[path] {
			d.wrong[path] = false
		}
	}
}

// has reports whether the file gives the key.
func (d *decoder) has(path string) bool { return d.Lines[path] > 0 }

// broken reports whether the decoder has found a mistake at path or inside it.
func (d *decoder) broken(path string) bool {
	_, ok := d.wrong[path]
	return ok
}

// within reports whether the decoder has found a mistake in a parent of path as a whole.
func (d *decoder) within(path string) bool {
	for path != "" {
		if path = yamlread.Above(path); d.wrong[path] {
			return true
		}
	}
	return false
}

// line returns the line of path in the file, or that of its nearest parent.
func (d *decoder) line(path string) int { return d.Lines.At(path) }
