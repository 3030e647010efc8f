package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// OutputFlag registers --output, and --json as its short form unless the command has another flag of
// that name.
func OutputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", "text", "text or json")
	if cmd.Flags().Lookup("json") != nil {
		return
	}
	cmd.Flags().BoolFunc("json", "print JSON; the same as --output json", func(text string) error {
		on, err := strconv.ParseBool(text)
		if *output = "text"; on {
			*output = "json"
		}
		return err
	})
}

// JSONFlag registers --json for a command that has no --output.
func JSONFlag(cmd *cobra.Command, on *bool) { cmd.Flags().BoolVar(on, "json", false, "print JSON") }

// PrintValue writes a value as indented JSON.
func PrintValue(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// Print writes a value as indented JSON, or the text for people.
func Print(w io.Writer, asJSON bool, v any, text string) error {
	if asJSON {
		return PrintValue(w, v)
	}
	return Tell(w, text)
}

// PrintLine writes a value as JSON in one line.
func PrintLine(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// Table writes rows in columns that are as wide as their widest cell. rows calls row for each one,
// usually the first time with the names of the columns.
func Table(w io.Writer, rows func(row func(cells ...any))) error {
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	rows(func(cells ...any) {
		fmt.Fprintf(t, strings.TrimSuffix(strings.Repeat("%v\t", len(cells)), "\t")+"\n", cells...)
	})
	if err := t.Flush(); err != nil {
		return err
	}
	return Tell(w, b.String())
}

// Aligned returns a line for each row, with two spaces between columns that are as wide as their
// widest cell. The first left columns are aligned left, the others right. On a terminal of fewer columns
// (0 is none), the columns with the headings spare are left out, the first of them first, until the rows
// fit.
func Aligned(rows [][]string, left, terminal int, spare ...string) []string {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	hidden, whole := make([]bool, len(width)), -2
	for _, w := range width {
		whole += w + 2
	}
	for _, name := range spare {
		if at := slices.Index(rows[0], name); terminal > 0 && whole > terminal && at >= 0 {
			hidden[at] = true
			whole -= width[at] + 2
		}
	}
	for i := range width[:left] {
		width[i] = -width[i] // for package fmt
	}
	var lines []string
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			if !hidden[i] {
				line += fmt.Sprintf("%*s  ", width[i], cell)
			}
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}

// A List is the output of a command that lists things.
type List[T any] struct {
	Name  string // of the member that has the things in JSON
	Of    []T
	None  string // written if there are no things
	Head  []any  // the names of the columns
	Cells func(T) []any
}

// Print writes the list as a table or as JSON.
func (l List[T]) Print(w io.Writer, asJSON bool) error {
	switch {
	case asJSON:
		return PrintValue(w, map[string][]T{l.Name: append([]T{}, l.Of...)})
	case len(l.Of) == 0:
		return Tell(w, l.None+"\n")
	}
	return Table(w, func(row func(...any)) {
		row(l.Head...)
		for _, one := range l.Of {
			row(l.Cells(one)...)
		}
	})
}

// Harmless escapes control characters, and those that change the direction of text, except tabs and
// line ends. Text of servers must not control the terminal: it could write into the clipboard, say.
func Harmless(text string) string {
	var b strings.Builder
	for _, r := range strings.ReplaceAll(text, "\r\n", "\n") {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Size formats a number of bytes.
func Size(n int) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	amount, unit := float64(n)/1000, "KB"
	for _, next := range []string{"MB", "GB"} {
		if amount >= 1000 {
			amount, unit = amount/1000, next
		}
	}
	return fmt.Sprintf("%.1f %s", amount, unit)
}
