package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Tell writes a text for people. On a terminal that is narrower than other output, lines are broken
// between words.
func Tell(w io.Writer, text string) error {
	if width, _ := terminalSize(w); width > 0 {
		text = Fit(text, width)
	}
	_, err := io.WriteString(w, text)
	return err
}

// Tellf is Tell with a format.
func Tellf(w io.Writer, format string, args ...any) error {
	return Tell(w, fmt.Sprintf(format, args...))
}

// terminalSize returns the size of the terminal that w is; 0 if w is none.
func terminalSize(w io.Writer) (width, height int) {
	if !IsTerminal(w) {
		return 0, 0
	}
	width, height, err := term.GetSize(int(w.(*os.File).Fd()))
	if err != nil {
		return 0, 0
	}
	return width, height
}

// leastWidth is the width of a terminal below which lines are left to the terminal.
const leastWidth = 20

// Fit breaks the lines of a text that are wider than a terminal, between words. The rest of a line
// is indented like the line, and by two columns more in a table. A word that is wider than the terminal
// stays whole.
func Fit(text string, width int) string {
	if width < leastWidth {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		body := strings.TrimSuffix(line, "\n")
		for utf8.RuneCountInString(body) > width {
			head, rest, ok := split(body, width)
			if !ok {
				break
			}
			b.WriteString(head + "\n")
			body = rest
		}
		b.WriteString(body + line[len(strings.TrimSuffix(line, "\n")):])
	}
	return b.String()
}

// split breaks a line at the last space that fits, or at the first one after a long word.
func split(line string, width int) (head, rest string, ok bool) {
	indent := len(line) - len(strings.TrimLeft(line, " "))
	at, columns := -1, 0
	for i, r := range line {
		if r == ' ' && i > indent {
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
	if rest == "" {
		return "", "", false
	}
	if strings.Contains(strings.TrimLeft(line, " "), "  ") { // a row of a table
		indent += 2
	}
	return head, strings.Repeat(" ", min(indent, width/3)) + rest, true
}
