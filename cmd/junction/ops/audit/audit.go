// Package audit has the commands that read the audit: audit.go selects and follows its lines, print.go
// prints them, and verify.go checks their chain. Package record writes the audit.
package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/record"
	"junction/proxy"
	"junction/upstream/files"
	"junction/upstream/pace"
	"junction/upstream/prose"
)

// Command returns the command audit. file points to the value of --config.
func Command(stdout, stderr io.Writer, file *string) *cobra.Command {
	var f filter
	var since string
	asJSON, follow := false, false
	cmd := &cobra.Command{
		Use: "audit [FILE]", Short: "Show the audit: calls, sign-ins and administration",
		Long: `Show the lines of the audit, the oldest first, including files that a rotation has renamed.

FILE is the file of the audit; the default is audit.file of the configuration file. All filters that are given
must match. --json prints the lines as they are in the file.

The outcomes are
` + strings.Replace(outcomes(), " invalid", "\ninvalid", 1) + `.`,
		Example: `  junction audit --config config.yaml --outcome denied --since 24h
  junction audit --config config.yaml --who ann@example.com --tool 'shell__*'
  junction audit --config config.yaml --follow --json`,
		Args: oneFile,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if f.since, err = parseSince(since, time.Now()); err != nil {
				return err
			}
			if err := f.check(); err != nil {
				return err
			}
			name, err := auditFile("audit", args, *file)
			if err != nil {
				return err
			}
			p := printer{w: stdout, asJSON: asJSON}
			return show(cmd.Context(), &p, stderr, name, f, follow)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.who, "who", "", "only lines of this `caller`: part of an e-mail address, a name, an id, or the "+
		"ID of a key in keys list")
	flags.StringVar(&f.tool, "tool", "", "only calls of this `tool`, prompt or resource; * stands for any characters")
	flags.StringSliceVar(&f.outcomes, "outcome", nil, "only lines with one of these `outcomes`, separated by commas")
	flags.StringVar(&since, "since", "", "only lines since this `time`: 90m, 24h, 7d, 2026-01-31, or "+
		"2026-01-31T12:00:00Z")
	flags.BoolVar(&asJSON, "json", false, "print the lines as JSON")
	flags.BoolVarP(&follow, "follow", "f", false, "go on with new lines until the command is interrupted")
	cmd.AddCommand(verifyCommand(stdout, file))
	return cmd
}

// oneFile accepts at most one argument.
func oneFile(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return cli.Usagef("%s takes one file, and got %d; it finds the files of a rotation itself",
			strings.TrimPrefix(cmd.CommandPath(), "junction "), len(args))
	}
	return nil
}

// auditFile returns the file of the audit, from the command line or from the configuration.
func auditFile(what string, args []string, file string) (string, error) {
	if len(args) == 1 {
		if _, err := os.Stat(args[0]); err != nil {
			return "", fmt.Errorf("cannot read the audit %s: %w", args[0], files.Reason(err))
		}
		return args[0], nil
	}
	if file == "" {
		return "", cli.Usagef("%s needs --config FILE, or the file of the audit", what)
	}
	c, err := config.LoadPlaces(file)
	switch {
	case err != nil && (c == nil || c.Audit.File == ""): // the mistake may hide the name
		return "", err
	case c.Audit.File == "":
		return "", fmt.Errorf("%s writes no audit; add audit: { file: audit.jsonl }", file)
	case c.Audit.File == config.AuditStderr:
		return "", fmt.Errorf("the audit of %s goes to standard error; name the file that keeps it", file)
	}
	return c.Audit.File, nil
}

// line is the part of a line that is filtered and shown.
type line struct {
	record.Chained
	Time      time.Time `json:"time"`
	Event     string    `json:"event"`
	Principal string    `json:"principal"`
	KeyID     string    `json:"key_id"`
	Person    string    `json:"person"`
	Email     string    `json:"email"`
	Address   string    `json:"address"`
	Endpoint  string    `json:"endpoint"`
	Path      string    `json:"path"` // of a rejected request
	Method    string    `json:"method"`
	Name      string    `json:"name"`
	Own       string    `json:"own_name"`
	Folder    string    `json:"folder"`
	Verdict   string    `json:"verdict"`
	Policy    string    `json:"policy"`
	Rule      string    `json:"rule"`
	Missing   string    `json:"missing"`
	Approval  string    `json:"approval"`
	Outcome   string    `json:"outcome"`
	Cached    bool      `json:"cached"`
	Took      float64   `json:"duration_ms"`
	Detail    string    `json:"detail"`
	Error     string    `json:"error"`
	Dropped   int       `json:"dropped"`
	More      int       `json:"more"`
}

// filter holds the flags that select lines. Zero fields match every line.
type filter struct {
	who, tool string
	outcomes  []string
	since     time.Time
}

func (f *filter) check() error {
	if _, err := path.Match(f.tool, ""); err != nil {
		return cli.Usagef("--tool %q is no pattern", f.tool)
	}
	for _, o := range f.outcomes {
		if o != asked && !slices.Contains(proxy.Outcomes(), proxy.Outcome(o)) {
			return cli.Usagef("--outcome %q is none of %s", o, outcomes())
		}
	}
	return nil
}

func (f *filter) matches(l *line) bool {
	who := func(text string) bool { return strings.Contains(strings.ToLower(text), strings.ToLower(f.who)) }
	tool := func(text string) bool { ok, _ := path.Match(f.tool, text); return ok }
	switch {
	case l.Time.Before(f.since):
	case f.who != "" && !who(l.Principal) && !who(l.Email) && !who(l.Person) && !who(l.KeyID):
	case f.tool != "" && !tool(l.Name) && !tool(l.Own):
	case len(f.outcomes) > 0 && !slices.Contains(f.outcomes, l.Outcome) && !slices.Contains(f.outcomes, l.outcome()):
	default:
		return true
	}
	return false
}

// parseSince reads the value of --since; "" is the zero time.
func parseSince(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateTime, time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	unit := time.Duration(1)
	span := text
	if days, ok := strings.CutSuffix(text, "d"); ok {
		span, unit = days+"h", 24
	}
	if d, err := time.ParseDuration(span); err == nil && d > 0 {
		return now.Add(-d * unit), nil
	}
	return time.Time{}, cli.Usagef("--since %q is no time; write it like 90m, 7d, 2026-01-31 or 2026-01-31T12:00:00Z",
		text)
}

// show prints the lines that match. With follow it does not return before ctx ends.
func show(ctx context.Context, p *printer, stderr io.Writer, file string, f filter, follow bool) error {
	names, err := record.Files(file)
	if err == nil && len(names) == 0 && !follow {
		err = errors.New("there is no such file yet; the proxy makes it when it starts")
	}
	if err != nil {
		return fmt.Errorf("cannot read the audit %s: %w", file, files.Reason(err))
	}
	r := reader{file: file, follow: follow}
	defer r.close()
	broken, shown, read := 0, 0, 0
	err = r.lines(ctx, names, func(text []byte) error {
		read++
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			broken++
			return nil
		}
		if !f.matches(&l) {
			return nil
		}
		shown++
		return p.print(&l, text)
	})
	if err == nil && shown == 0 && !follow {
		cli.Tellf(stderr, "No line of %s matches; it has %s.\n", file, prose.Count(read, "line"))
	}
	if r.torn > 0 {
		cli.Tellf(stderr, "The last line of %s is incomplete and not shown (%s).\n", file,
			prose.Count(r.torn, "byte"))
	}
	if broken > 0 {
		cli.Tellf(stderr, "Not shown: %s that cannot be read. junction audit verify shows which.\n",
			prose.Count(broken, "line"))
	}
	return err
}

// reader reads the lines of an audit.
type reader struct {
	file   string
	follow bool
	torn   int // bytes of an incomplete last line

	name string // of open
	open io.ReadCloser
	rows *record.Lines // of open
	info os.FileInfo   // of open, if it may grow
}

func (r *reader) close() {
	if r.open != nil {
		r.open.Close()
	}
}

// lines calls f with each whole line of the files, of which the last one may grow.
//
// A file that cannot be read does not prevent reading the others. It is the error at the end.
func (r *reader) lines(ctx context.Context, names []string, f func(text []byte) error) error {
	var unread error // the first one
	for _, name := range names {
		last := r.follow && name == r.file
		err := r.use(name)
		if err == nil {
			err = r.read(ctx, last, f)
		}
		if errors.As(err, new(*fileError)) && !last {
			unread = cmp.Or(unread, err)
			continue
		}
		if err != nil || last {
			return cmp.Or(err, unread)
		}
	}
	if !r.follow {
		return unread
	}
	return cmp.Or(r.read(ctx, true, f), unread) // the file does not exist yet
}

// fileError means that a file of the audit cannot be read.
type fileError struct {
	name string
	err  error
}

func (e *fileError) Error() string {
	return fmt.Sprintf("cannot read the audit %s: %v", e.name, files.Reason(e.err))
}

func (e *fileError) Unwrap() error { return e.err }

// use opens a file instead of the one before.
func (r *reader) use(name string) (err error) {
	r.close()
	r.open, r.info, r.name = nil, nil, name
	if r.open, err = record.OpenFile(name); err != nil {
		r.open = nil
		return &fileError{name, err}
	}
	r.rows, r.torn = record.NewLines(r.open), 0
	if file, ok := r.open.(*os.File); ok {
		r.info, err = file.Stat()
	}
	return err
}

// polling is how often a growing file is read.
const polling = 200 * time.Millisecond

// read calls f with the lines of the open file. If grows is set, it goes on with those of the file
// that takes its place, until ctx ends.
func (r *reader) read(ctx context.Context, grows bool, f func(text []byte) error) error {
	for moved := false; ; {
		if err := r.readOpen(f); err != nil || !grows {
			return err
		}
		switch {
		case moved: // the old file has been read to its end after the rotation
			moved = false
			if err := r.use(r.file); err != nil {
				return err
			}
		case r.moved():
			moved = true
		case !pace.Sleep(ctx, polling, nil):
			return nil
		}
	}
}

// readOpen calls f with the lines of the open file, as far as it was written.
func (r *reader) readOpen(f func(text []byte) error) error {
	if r.open == nil {
		return nil
	}
	for {
		text, err := r.rows.Next()
		if err == io.EOF {
			r.torn = r.rows.Torn()
			return nil
		}
		if err != nil {
			return &fileError{r.name, err}
		}
		if err := f(text); err != nil {
			return err
		}
	}
}

// moved reports whether another file has the name now.
func (r *reader) moved() bool {
	info, err := os.Stat(r.file)
	return err == nil && (r.info == nil || !os.SameFile(info, r.info))
}
