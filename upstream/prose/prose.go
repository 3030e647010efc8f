// Package prose formats text for people: counts, quoted values, similar names, and lines that fit a
// terminal. Text from servers and files passes through Flat, OneLine or Quote before it is printed,
// so that it cannot control the terminal.
package prose

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Flat returns s as one line: each run of white space becomes one space, and control characters are
// removed.
func Flat(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, s)
	return strings.Join(strings.Fields(s), " ")
}

// Cut shortens s to at most width characters. A shortened text ends with an ellipsis.
func Cut(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	if width <= 0 {
		return ""
	}
	return strings.TrimRight(string([]rune(s)[:width-1]), " ") + "…"
}

// Width is the terminal width that all output fits, except long addresses. A narrower terminal gets
// narrower lines (Page).
const Width = 80

// ASCII returns untrusted text for a page or a log, cut after n bytes, with every character outside of
// printable ASCII replaced.
func ASCII(s string, n int) string {
	cut := len(s) > n
	if cut {
		s = s[:n]
	}
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	if cut {
		s += "…"
	}
	return s
}

// Count returns n and the thing counted, with a plural s unless n is 1.
func Count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// Quote quotes a value of the file for a message, shortened to 60 characters.
func Quote(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return strconv.Quote(s)
}

// Whole returns a text of a peer for an error, or only its length if it has more than most bytes. It does
// not shorten the text: a policy that redacts the error would not find a part of a match.
func Whole(s string, most int) string {
	if len(s) > most {
		return Count(len(s), "byte")
	}
	return s
}

// OneLine escapes line breaks and control characters in s, and shortens it to 400 characters.
func OneLine(s string) string {
	const most = 400
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return Escaped(s)
}

// Escaped escapes line breaks and control characters in s, so that nothing of s is hidden.
func Escaped(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	q := strconv.Quote(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

// A Page is a text for people whose paragraphs fit its reader. The zero value is for an output that is
// no terminal.
type Page struct {
	bytes.Buffer
	Terminal int // columns of the terminal that shows the page; 0 for any other output
}

// Columns returns how wide the paragraphs of the page may be: at most Width, also on a wider terminal.
func (p *Page) Columns() int {
	if p.Terminal > 0 && p.Terminal < Width {
		return p.Terminal
	}
	return Width
}

// Wrap writes a text in lines of at most Columns characters. The first line begins with first, the
// others with others. A word that is too long gets a line of its own.
func (p *Page) Wrap(first, others, text string) {
	line, empty := first, true
	for word := range strings.FieldsSeq(text) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > p.Columns() {
			p.WriteString(line + "\n")
			line, empty = others, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	p.WriteString(line + "\n")
}

// Duration returns a duration without units of zero: 1m, not 1m0s.
func Duration(d time.Duration) string {
	text := d.String()
	if rest, ok := strings.CutSuffix(text, "m0s"); ok {
		text = rest + "m"
	}
	if rest, ok := strings.CutSuffix(text, "h0m"); ok {
		text = rest + "h"
	}
	return text
}

// Age formats a duration in its largest unit: 5s, 3m, 2h or 4d.
func Age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
