package cli

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"unicode/utf8"

	"junction/upstream/prose"
)

// Live is the text at the end of a terminal that is redrawn. A caller must not use it concurrently.
type Live struct {
	Out  io.Writer
	Size func() (width, height int) // of the terminal; nil if Out is not redrawn

	text string // what is drawn; "" if nothing is
	rows int    // of text on the terminal
}

// NewLive returns a Live without a text. Its Size is nil if out is no terminal that can be redrawn.
func NewLive(out io.Writer) Live {
	l := Live{Out: out}
	if IsTerminal(out) && os.Getenv("TERM") != "dumb" && runtime.GOOS != "windows" {
		l.Size = func() (int, int) { return TerminalSize(out) }
	}
	return l
}

// Text returns what is drawn; "" if nothing is.
func (l *Live) Text() string { return l.text }

// Erase removes what is drawn.
func (l *Live) Erase() {
	if l.rows > 0 {
		fmt.Fprintf(l.Out, "\x1b[%dA\r\x1b[J", l.rows)
	}
	l.Keep()
}

// Keep leaves what is drawn on the terminal: the next text follows it.
func (l *Live) Keep() { l.text, l.rows = "", 0 }

// Draw draws text, which replaces what was drawn before. It returns false, and draws nothing, if the
// terminal is too small. It leaves the same text as it is.
func (l *Live) Draw(text string) bool {
	if text != "" && text == l.text {
		return true
	}
	rows, fits := l.Height(text)
	if l.Erase(); text == "" || !fits {
		return fits
	}
	io.WriteString(l.Out, text)
	l.text, l.rows = text, rows
	return true
}

// Print writes text in place of what is drawn.
func (l *Live) Print(text string) error {
	l.Erase()
	return Tell(l.Out, text)
}

// entered counts the line that the terminal has shown because the person pressed Enter.
func (l *Live) entered() {
	if l.rows > 0 {
		l.rows++
	}
}

// Height returns how many rows text takes on the terminal, and whether it can be redrawn there.
func (l *Live) Height(text string) (rows int, fits bool) {
	width, height := l.Size()
	if width < prose.Width {
		return 0, false
	}
	for line := range strings.Lines(text) {
		rows += 1 + max(0, utf8.RuneCountInString(strings.TrimSuffix(line, "\n"))-1)/width
	}
	return rows, rows < height
}
