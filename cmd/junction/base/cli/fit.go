package cli

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"junction/upstream/prose"
)

// This file decides how wide the output of a command is: Columns is the only place that does. A text is
// fitted once. NewPage breaks paragraphs where it is made, columns and Rows choose the columns of a
// table, and Tell breaks the other lines.

// leastWidth is the width of a terminal below which lines are left to the terminal.
const leastWidth = 20

// Columns returns the columns of the terminal that w is. It is 0 if w is none, or is too narrow for
// any text.
func Columns(w io.Writer) int {
	if width, _ := TerminalSize(w); width >= leastWidth {
		return width
	}
	return 0
}

// NewPage returns an empty page for w.
func NewPage(w io.Writer) *prose.Page { return &prose.Page{Terminal: Columns(w)} }

// Tell writes a text for people. On a terminal that is narrower than other output, lines are broken
// between words.
func Tell(w io.Writer, text string) error {
	if width := Columns(w); width > 0 {
		text = Fit(text, width)
	}
	_, err := io.WriteString(w, text)
	return err
}

// Tellf is Tell with a format.
func Tellf(w io.Writer, format string, args ...any) error {
	return Tell(w, fmt.Sprintf(format, args...))
}

// TerminalSize returns the size of the terminal that w is; 0 if w is none.
func TerminalSize(w io.Writer) (width, height int) {
	if !IsTerminal(w) {
		return 0, 0
	}
	width, height, err := term.GetSize(int(w.(*os.File).Fd()))
	if err != nil {
		return 0, 0
	}
	return width, height
}

// Fit breaks the lines of a text that are wider than a terminal, between words. The rest of a line
// stands below the last cell of a row, the text of a list's item, or the beginning of any other line. A
// word that is wider than the terminal stays whole.
func Fit(text string, width int) string {
	if width < leastWidth {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		body := strings.TrimSuffix(line, "\n")
		end, rest := line[len(body):], hanging(body, width)
		for first := true; utf8.RuneCountInString(body) > width; first = false {
			head, tail, ok := split(body, width, first)
			if !ok {
				break
			}
			b.WriteString(head + "\n")
			body = strings.Repeat(" ", rest) + tail
		}
		b.WriteString(body + end)
	}
	return b.String()
}

// marked matches the beginning of an item of a list.
var marked = regexp.MustCompile(`^ *(→|-|[0-9]+\.) +`)

// hanging returns the column where the rest of a line begins.
func hanging(line string, width int) int {
	if mark := marked.FindString(line); mark != "" {
		return min(utf8.RuneCountInString(mark), width/3)
	}
	indent := len(line) - len(strings.TrimLeft(line, " "))
	cell := strings.LastIndex(line[indent:], "  ") // the last cell of a row begins behind it
	if cell < 0 {
		return min(indent, width/3)
	}
	if at := utf8.RuneCountInString(line[:indent+cell]) + 2; at <= width/2 {
		return at
	}
	return min(indent+2, width/3)
}

// split breaks a line at the last space that fits, or at the first one after a long word. It does not
// break behind the mark of an item of a list, which only the first line has.
func split(line string, width int, first bool) (head, rest string, ok bool) {
	begin := len(line) - len(strings.TrimLeft(line, " "))
	if mark := marked.FindString(line); first && mark != "" {
		begin = len(mark)
	}
	at, columns := -1, 0
	for i, r := range line {
		if r == ' ' && i > begin {
			if columns > width && at >= 0 {
				break
			}
			at = i
			if columns > width {
				break
			}
		}
		columns++
	}
	if at < 0 {
		return "", "", false
	}
	head, rest = strings.TrimRight(line[:at], " "), strings.TrimLeft(line[at:], " ")
	return head, rest, rest != ""
}
