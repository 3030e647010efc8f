package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/record"
	"junction/upstream/files"
	"junction/upstream/prose"
)

func verifyCommand(stdout io.Writer, file *string) *cobra.Command {
	known, asJSON := "", false
	cmd := &cobra.Command{
		Use: "verify [FILE]", Short: "Find changed and missing lines of the audit",
		Long: `Find changed, added and missing lines of the audit, including files that a rotation has renamed.

Each line has a number and the SHA-256 hash of the line before. The hash needs no secret: a user who can write
the file can compute all hashes again, or cut off the end. So the proxy writes the number and the hash of the last
line to its log once an hour, and when it stops (msg=audit last=NUMBER:HASH). Keep the log where the user of
the proxy cannot change it, and pass such a line with --known: then every line up to that one is unchanged.

If the lines of the beginning are in no file any more, pass a line with --known, too: that of the last line before,
or of any later one. Without it, a first line with another number than 1 is a problem.

The exit code is 1 if lines were changed, added or are missing, or if there is no line.`,
		Example: `  junction audit verify --config config.yaml
  junction audit verify audit.jsonl --known 812:3c8d91797a1b7c2489620aac86db8ef4b69971dbb13b49ce58b67c558fe45671`,
		Args: oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			mark, err := parseKnown(known)
			if err != nil {
				return err
			}
			name, err := auditFile("audit verify", args, *file)
			if err != nil {
				return err
			}
			report, err := verify(cmd.Context(), name, mark)
			if err != nil {
				return err
			}
			if err := report.print(stdout, asJSON); err != nil {
				return err
			}
			if n := len(report.Problems); n > 0 {
				return fmt.Errorf("the audit %s has %s", name, prose.Count(n, "problem"))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&known, "known", "", "`NUMBER:HASH` of a line from the log, which the audit must contain")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	return cmd
}

// parseKnown reads the value of --known; "" is the zero Link.
func parseKnown(text string) (record.Link, error) {
	if text == "" {
		return record.Link{}, nil
	}
	number, hash, ok := strings.Cut(text, ":")
	n, err := strconv.ParseUint(number, 10, 64)
	if !ok || err != nil || n == 0 || len(hash) != 64 {
		return record.Link{}, cli.Usagef("--known %q is not NUMBER:HASH, as in the log", text)
	}
	return record.Link{Number: n, Hash: strings.ToLower(hash)}, nil
}

// Report is the result of a verification.
type Report struct {
	Files    []string `json:"files"`   // in the order in which they were written
	Lines    int      `json:"lines"`   // with a number
	First    uint64   `json:"first"`   // number of the first line; 0 without any
	Last     string   `json:"last"`    // NUMBER:HASH of the last line; "" without any
	Dropped  int      `json:"dropped"` // lines that the program could not write, by its own account
	Notes    []string `json:"notes"`   // irregular lines that are no sign of an attack
	Problems []string `json:"problems"`
}

// verifier checks one line after the other.
type verifier struct {
	Report
	last   record.Link
	known  record.Link
	proven bool // the known line was found
	name   string
	at     int // line of the file
}

// maxProblems limits the list: after a wholesale change, every line is a problem.
const maxProblems = 20

func (v *verifier) problem(format string, args ...any) { v.add(&v.Problems, format, args...) }

func (v *verifier) note(format string, args ...any) { v.add(&v.Notes, format, args...) }

func (v *verifier) add(list *[]string, format string, args ...any) {
	if len(*list) < maxProblems {
		*list = append(*list, fmt.Sprintf("%s:%d: ", v.name, v.at)+fmt.Sprintf(format, args...))
	}
}

// verify reads all lines of an audit. known is the zero Link if no line is known.
func verify(ctx context.Context, file string, known record.Link) (Report, error) {
	names, err := record.Files(file)
	if err != nil {
		return Report{}, fmt.Errorf("cannot read the audit %s: %w", file, files.Reason(err))
	}
	v := verifier{known: known, proven: known.Number == 0}
	v.Files, v.Notes, v.Problems = names, []string{}, []string{}
	for _, name := range names {
		v.name, v.at = name, 0
		r := reader{file: name}
		err := r.lines(ctx, []string{name}, func(text []byte) error {
			v.at++
			v.line(text)
			return ctx.Err()
		})
		r.close()
		if unread, ok := errors.AsType[*fileError](err); ok {
			v.at++
			v.problem("the file cannot be read: %v", files.Reason(unread.err))
			continue
		}
		if err != nil {
			return Report{}, err
		}
		if v.at++; r.torn > 0 {
			v.note("the last line is incomplete (%s)", prose.Count(r.torn, "byte"))
		}
	}
	if v.last.Number > 0 {
		v.Last = v.last.String()
	}
	if v.Lines == 0 {
		v.name, v.at = file, 1
		v.problem("the audit has no line with a number, so that nothing was checked")
	}
	if !v.proven {
		v.problem("the audit ends before number %d, which --known names", known.Number)
	}
	return v.Report, nil
}

// line checks the next line.
func (v *verifier) line(text []byte) {
	c, ok := record.ParseLink(text)
	switch {
	case !ok && torn(text):
		v.note("an incomplete line (%s), such as after a full disk or a crash", prose.Count(len(text), "byte"))
		return
	case !ok:
		v.problem("the line is none of an audit: it was added or changed after number %d", v.last.Number)
		return
	case c.Number == 0:
		v.problem("the line has no number: it was added or changed after number %d", v.last.Number)
		return
	}
	v.follows(c)
	v.last = record.Link{Number: c.Number - 1}.Next(text)
	if v.Lines++; v.First == 0 {
		v.First = c.Number
	}
	if v.last.Number == v.known.Number && !v.proven {
		if v.proven = true; v.last.Hash != v.known.Hash {
			v.problem("number %d is not the line that --known names: it, or a line before it, was changed", c.Number)
		}
	}
	var l struct{ Dropped int }
	if json.Unmarshal(text, &l) == nil {
		v.Dropped += l.Dropped
	}
}

// torn reports whether a text can be the beginning of a line that was not written to its end. A crash
// may leave zeros in place of the rest.
func torn(text []byte) bool {
	const begin = `{"time":"`
	text = bytes.TrimRight(text, "\x00")
	n := min(len(text), len(begin))
	return string(text[:n]) == begin[:n] && !json.Valid(text)
}

// begins checks that the first line is the beginning, or that --known proves the line before it.
func (v *verifier) begins(c record.Chained) {
	before := c.Number - 1
	switch {
	case before == 0 && c.After != "":
		v.problem("the first line names a line before it")
	case before == 0:
	case before == v.known.Number:
		if v.proven = true; c.After == v.known.Hash {
			v.note("the first line is number %d, and follows the one that --known names", c.Number)
		} else {
			v.problem("the first line, number %d, does not follow the line that --known names", c.Number)
		}
	case before < v.known.Number: // without that line, or with another one there, there will be a problem
		v.note("the first line is number %d; the lines before it are in no file here", c.Number)
	case v.known.Number > 0:
		v.proven = true
		v.problem("numbers %d to %d are missing after the line that --known names", v.known.Number+1, before)
	default:
		v.problem("the first line is number %d: the lines before it are in no file here; name the file that the proxy "+
			"writes, so that those of a rotation are found, or pass a line of the log with --known", c.Number)
	}
}

// follows checks that a line follows the last one.
func (v *verifier) follows(c record.Chained) {
	switch last := v.last; {
	case last.Number == 0:
		v.begins(c)
	case c.Number == last.Number+1 && c.After == last.Hash:
	case c.Number == last.Number+1:
		v.problem("number %d does not follow: number %d was changed", c.Number, last.Number)
	case c.Number > last.Number+1:
		v.problem("numbers %d to %d are missing", last.Number+1, c.Number-1)
	case c.Number == 1 && c.After == "":
		v.problem("the numbers begin again: lines after number %d may be missing", last.Number)
	default:
		v.problem("number %d comes after number %d: lines were added, or another process writes this file", c.Number,
			last.Number)
	}
}

// print writes the report.
func (r *Report) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return cli.PrintValue(w, r)
	}
	for _, n := range r.Notes {
		cli.Tellf(w, "note     %s\n", n)
	}
	for _, p := range r.Problems {
		cli.Tellf(w, "problem  %s\n", p)
	}
	if r.Dropped > 0 {
		cli.Tellf(w, "%s could not be written; the audit has a line about that.\n", prose.Count(r.Dropped, "line"))
	}
	if len(r.Problems) > 0 || r.Lines == 0 {
		return cli.Tellf(w, "Checked: %s in %s.\n", prose.Count(r.Lines, "line"), prose.Count(len(r.Files), "file"))
	}
	return cli.Tellf(w, "Every line follows the one before: %s in %s.\nThe last line is %s.\n",
		prose.Count(r.Lines, "line"), prose.Count(len(r.Files), "file"), r.Last)
}
