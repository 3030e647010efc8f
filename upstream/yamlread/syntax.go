package yamlread

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"gopkg.in/yaml.v3"
)

// This file guesses the intention behind text that is not YAML.

// syntax reports text that is not YAML. The parser's line belongs to the enclosing structure,
// and may be far above, off by one, or absent. syntax therefore searches for the last line before
// which the text still parses.
func (r *Reader) syntax(text []byte, err error) {
	reason := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if n, scanErr := fmt.Sscanf(reason, "line %d:", &line); n == 1 && scanErr == nil {
		_, reason, _ = strings.Cut(reason, ": ")
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	begin := text
	budget := 2 << 20 // bytes to parse; enough for any file of realistic size
	for n := len(lines); n > 0 && budget > 0; n-- {
		begin = begin[:len(begin)-len(lines[n-1])]
		if budget -= len(begin); parses(begin) {
			line = n
			break
		}
	}
	line = max(1, min(line, len(lines)))
	r.At(line, "", "cannot be read as YAML (%s); %s", reason,
		yamlRemedy(string(lines[line-1]), lineAbove(lines[:line-1])))
}

// parses reports whether text is YAML; empty text is.
func parses(text []byte) bool {
	d := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var doc yaml.Node
		if err := d.Decode(&doc); err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}

// lineAbove returns the last line that is neither blank nor a comment, with surrounding space
// removed.
func lineAbove(lines [][]byte) string {
	for _, line := range slices.Backward(lines) {
		if l := bytes.TrimSpace(line); len(l) > 0 && l[0] != '#' {
			return string(l)
		}
	}
	return ""
}

// yamlRemedy guesses a remedy from the line and the line before it.
func yamlRemedy(line, before string) string {
	indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
	content := strings.TrimSpace(line)
	key, value, _ := strings.Cut(content, ": ")
	value = strings.TrimSpace(value)
	switch {
	case strings.ContainsFunc(content, unicode.IsControl):
		return "it holds an invisible character; type the line anew"
	case strings.Contains(indent, "\t"):
		return "indent with spaces, not with a tab"
	case strings.Contains(content, "${") && strings.ContainsAny(strings.ReplaceAll(content, "${", ""), "{["):
		return `put quotes around a value with ${…}, such as "Bearer ${TOKEN}"`
	case strings.Contains(content, "{{"):
		return `put quotes around a value with {{…}}, such as "{{name}}"`
	case strings.ContainsAny(first(key), "*&%@`") || strings.ContainsAny(first(value), "*&%@`") ||
		followsBracket(content):
		return "put quotes around what begins with *, &, %, @ or `"
	case strings.Contains(value, ": ") && !strings.ContainsAny(value, `"'{`):
		return "put quotes around a value that contains a colon"
	case strings.Count(content, `"`)%2 == 1 || strings.Count(content, "'")%2 == 1:
		return "a quote is not closed, or stands inside others"
	case strings.Count(content, "[") != strings.Count(content, "]") ||
		strings.Count(content, "{") != strings.Count(content, "}"):
		return "a bracket is not closed, or not opened"
	case content != "" && !strings.Contains(content, ":") && content[0] != '-':
		return "write key: value, with a space after the colon"
	case before != "" && before[0] != '-' && !strings.Contains(before, ": ") &&
		!strings.ContainsAny(before[len(before)-1:], ":[{,"):
		return "the line above needs a colon and a space: key: value"
	}
	return "check its indentation against the lines above"
}

// first returns the first byte of s, or "" if s is empty.
func first(s string) string { return s[:min(1, len(s))] }

// followsBracket reports whether an element of a list in brackets begins with a character that YAML
// reserves.
func followsBracket(s string) bool {
	_, s, _ = strings.Cut(s, "[")
	for e := range strings.SplitSeq(s, ",") {
		if strings.ContainsAny(first(strings.TrimSpace(e)), "*&%@`") {
			return true
		}
	}
	return false
}
