package canon

import (
	"cmp"
	"fmt"
	"strings"

	"junction/upstream/raw"
	"junction/upstream/shell"
)

// This file shows the line differences of two definitions.

// Lines appends a line for each value in a canonical text, with its path. A text of several lines
// has a line for each.
func Lines(lines []string, path string, text []byte) []string {
	switch text[0] {
	case '{':
		o, err := raw.Parse(text)
		if err != nil || len(o.Members()) == 0 {
			break
		}
		for _, m := range o.Members() {
			key := strings.Trim(string(m.Key), `"`)
			if strings.ContainsAny(key, `\."[]: `) {
				key = string(m.Key)
			}
			if path != "" {
				key = path + "." + key
			}
			lines = Lines(lines, key, m.Value)
		}
		return lines
	case '[':
		list, err := raw.Elements(text)
		if err != nil || len(list) == 0 {
			break
		}
		short := true // a list of scalars is one line
		for _, v := range list {
			short = short && v[0] != '{' && v[0] != '['
		}
		if short && len(text) <= 200 {
			break
		}
		for i, v := range list {
			lines = Lines(lines, fmt.Sprintf("%s[%d]", path, i), v)
		}
		return lines
	case '"':
		if parts := strings.SplitAfter(string(text[1:len(text)-1]), `\n`); len(parts) > 1 &&
			!strings.Contains(string(text), `\\`) {
			for _, part := range parts {
				lines = append(lines, shell.Visible(cmp.Or(path, "(all)"))+` | `+shell.Visible(part))
			}
			return lines
		}
	}
	return append(lines, shell.Visible(cmp.Or(path, "(all)"))+": "+shell.Visible(string(text)))
}

// maxDifferences bounds the work of comparing two definitions line by line. Longer definitions are
// shown whole.
const maxDifferences = 16 << 20

// Differences returns the lines that are only in old or only in now, each in its place.
func Differences(old, now []string) (out []string) {
	for len(old) > 0 && len(now) > 0 && old[0] == now[0] {
		old, now = old[1:], now[1:]
	}
	for len(old) > 0 && len(now) > 0 && old[len(old)-1] == now[len(now)-1] {
		old, now = old[:len(old)-1], now[:len(now)-1]
	}
	n, m := len(old), len(now)
	common := make([][]int, 1) // common[i][k] is the number of lines of old[i:] and now[k:] that can be paired
	if n*m <= maxDifferences {
		common = make([][]int, n+1)
		for i := n; i >= 0; i-- {
			common[i] = make([]int, m+1)
			for k := m - 1; k >= 0 && i < n; k-- {
				if old[i] == now[k] {
					common[i][k] = common[i+1][k+1] + 1
				} else {
					common[i][k] = max(common[i+1][k], common[i][k+1])
				}
			}
		}
	}
	i, k := 0, 0
	for i < n || k < m {
		switch {
		case i < n && k < m && old[i] == now[k] && len(common) > 1:
			i, k = i+1, k+1
		case i < n && (k == m || len(common) == 1 || common[i+1][k] >= common[i][k+1]):
			out = append(out, "- "+old[i])
			i++
		default:
			out = append(out, "+ "+now[k])
			k++
		}
	}
	return out
}
