package audit

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/ops/diagnose"
	"junction/proxy"
	"junction/upstream/prose"
	"junction/upstream/shell"
)

// printer prints lines as a table or as JSON.
type printer struct {
	w      io.Writer
	asJSON bool
	table  *table // nil before the first line
}

func (p *printer) print(l *line, text []byte) error {
	if p.asJSON {
		_, err := fmt.Fprintf(p.w, "%s\n", text)
		return err
	}
	if p.table == nil {
		p.table = tableFor(cli.Columns(p.w))
		if err := p.row("TIME", "WHO", "WHAT", "OUTCOME", "DETAIL"); err != nil {
			return err
		}
	}
	who := func(width int) string { return l.caller(width) }
	return p.line(l.Time.Local().Format(p.table.layout), who, l.what(), l.outcome(), l.detail(), l.explained())
}

// table are the widths of the columns. The lines come one by one, so that the widths cannot follow from
// them.
type table struct {
	layout             string // of the time
	who, what, outcome int
	detail             int  // 0 if there is no column for it
	below              bool // a detail that explains something has a line of its own
	uncut              bool // longer texts are printed whole
}

// whole is the table of an output that is no terminal, such as a pipe: a program that reads it needs whole names.
var whole = table{time.DateTime, 28, 36, 11, 60, false, true}

// mostUncut bounds a text that is printed whole.
const mostUncut = 4096

// room returns how many characters a text in a column of this width may have.
func (t *table) room(width int) int {
	if t.uncut {
		return mostUncut
	}
	return width
}

// tableFor returns the table for a terminal with this number of columns; 0 is none. The time, the
// caller, the target and the outcome have a column on every terminal. Only a wide terminal has a column
// for the detail; others show it below the line, except how long a call took.
func tableFor(columns int) *table {
	const gap, short, least, duration = 2, "01-02 15:04:05", 40, 10
	t := whole
	if columns == 0 {
		return &t
	}
	t.uncut = false
	left := columns - len(t.layout) - t.who - t.what - t.outcome - 3*gap
	t.detail = min(left-gap, t.detail)
	if t.below = t.detail < least; t.detail < duration {
		t.detail = 0
	}
	if left < 0 {
		t.layout = short
		room := max(columns-len(short)-t.outcome-3*gap, 16)
		t.who = (room*2 + 4) / 5
		t.what = room - t.who
	}
	return &t
}

// row prints the names of the columns.
func (p *printer) row(at, who, what, outcome, detail string) error {
	return p.line(at, func(int) string { return who }, what, outcome, detail, false)
}

// line prints a line, and its detail below if there is no column for it and it explains the outcome.
func (p *printer) line(at string, who func(width int) string, what, outcome, detail string, explained bool) error {
	t := p.table
	short := func(text string, width int) string { return prose.Cut(shell.Visible(text), t.room(width)) }
	text := fmt.Sprintf("%-*s  %-*s  %-*s  %-*s", len(t.layout), at, t.who, who(t.room(t.who)), t.what,
		short(what, t.what), t.outcome, short(outcome, t.outcome))
	switch {
	case !(t.below && explained):
		text += "  " + short(detail, t.detail)
	case detail != "":
		text = strings.TrimRight(text, " ") + "\n    " + short(detail, whole.detail)
	}
	return cli.Tell(p.w, strings.TrimRight(text, " ")+"\n")
}

// explained reports whether the detail is worth a line of its own: it is about an event, says why a call was not
// answered, or names the folder of the client.
func (l *line) explained() bool {
	return l.Event != "" || l.Dropped > 0 || l.reason() != "" || l.Error != "" || l.Folder != ""
}

// caller returns the readable name of the caller, with the ID of a key, in at most width characters.
func (l *line) caller(width int) string {
	who, id := shell.Visible(cmp.Or(l.Email, l.Person, l.Principal, l.Address, "-")), ""
	if l.KeyID != "" {
		id = " " + prose.Cut(shell.Visible(l.KeyID), 8)
	}
	if utf8.RuneCountInString(who)+len(id) > width && id != "" {
		who = strings.TrimPrefix(who, "key:") // the ID says that it is a key
	}
	return prose.Cut(who, width-len(id)) + id
}

// what returns the name of the event, or the target of the call. A request that was refused before it was read may
// have only its endpoint.
func (l *line) what() string {
	if l.Dropped > 0 {
		return "lines are missing"
	}
	return cmp.Or(l.Event, l.Name, l.Method, "request to "+diagnose.EndpointPath(l.Endpoint))
}

// detail returns what explains the outcome, and the folder of the client.
func (l *line) detail() string {
	if l.Folder != "" {
		return l.outcomeDetail() + ", in " + l.Folder
	}
	return l.outcomeDetail()
}

// outcomeDetail returns what explains the outcome.
func (l *line) outcomeDetail() string {
	switch {
	case l.Dropped > 0:
		return fmt.Sprintf("%s could not be written", prose.Count(l.Dropped, "line"))
	case l.Event != "" && l.Path != "":
		text := cmp.Or(l.Detail, l.Error) + " at " + l.Path
		if l.Method != "" {
			text = cmp.Or(l.Detail, l.Error) + ", " + l.Method + " at " + l.Path
		}
		if l.Principal != "" && l.Address != "" { // otherwise the address is the caller
			text += ", from " + l.Address
		}
		if l.More > 0 {
			text += fmt.Sprintf(", and %d more", l.More)
		}
		return text
	case l.Event != "" && l.Principal != "" && l.Address != "":
		return cmp.Or(l.Detail, l.Error, "from "+l.Address)
	case l.Event != "":
		return cmp.Or(l.Detail, l.Error)
	}
	if reason := l.reason(); reason != "" {
		return reason
	}
	if l.Endpoint != "" && cmp.Or(l.Name, l.Method) != "" && proxy.Outcome(l.Outcome) == proxy.Invalid {
		return "at " + diagnose.EndpointPath(l.Endpoint)
	}
	took := time.Duration(l.Took * float64(time.Millisecond)).Round(100 * time.Microsecond).String()
	switch {
	case l.Error != "":
		return l.Error
	case l.Cached:
		return took + ", from the cache"
	}
	return took + given[l.Approval]
}
