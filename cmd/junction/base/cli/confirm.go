package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"junction/upstream/prose"
)

// YesFlag registers --yes for a command that asks before it does something that cannot be undone.
func YesFlag(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVarP(yes, "yes", "y", false, "do not ask")
}

// Confirm asks the person at the terminal a question, unless yes is true. Without a terminal,
// --yes is required.
func Confirm(cmd *cobra.Command, yes bool, question string) error {
	if yes {
		return nil
	}
	if !IsTerminal(cmd.InOrStdin()) {
		return Usagef("%s needs --yes, because standard input is not a terminal",
			strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" "))
	}
	agreed, err := Questions{cmd}.YesNo(question, false)
	if err == nil && !agreed {
		return errors.New("nothing was changed")
	}
	return err
}

// Questions asks the person at the terminal of a command. The end of the command's context ends a
// question with an error.
type Questions struct{ cmd *cobra.Command }

// QuestionsOf returns the questions of a command whose standard input is a terminal (CanAsk).
func QuestionsOf(cmd *cobra.Command) Questions { return Questions{cmd} }

// Line returns the line that the person types, without spaces around it. The end of the input is an
// empty line.
func (q Questions) Line(question string) (string, error) {
	return q.read(question, func(in io.Reader) (string, error) {
		var line []byte
		for one := make([]byte, 1); ; { // the rest of the input belongs to the next question
			n, err := in.Read(one)
			switch {
			case n > 0 && one[0] == '\n', errors.Is(err, io.EOF):
				return string(line), nil
			case err != nil:
				return "", err
			case n > 0 && len(line) < maxLine:
				line = append(line, one[0])
			}
		}
	})
}

// maxLine is the most bytes of an answer.
const maxLine = 64 << 10

// Hidden is Line for a secret: the terminal does not show a line that is typed after the question.
// Ctrl-C and Ctrl-D end the command.
func (q Questions) Hidden(question string) (string, error) {
	file, ok := q.cmd.InOrStdin().(*os.File)
	if !ok {
		return q.Line(question)
	}
	fd := int(file.Fd())
	before, err := term.MakeRaw(fd)
	if err != nil {
		return "", fmt.Errorf("read the answer: %w", err)
	}
	line, err := q.read(question, func(io.Reader) (string, error) {
		return term.NewTerminal(struct {
			io.Reader
			io.Writer
		}{file, io.Discard}, "").ReadPassword("")
	})
	_ = term.Restore(fd, before)
	fmt.Fprintln(q.cmd.ErrOrStderr())
	if errors.Is(err, io.EOF) {
		err = errStopped
	}
	return line, err
}

// errStopped means that the person or a signal has ended the command at a question.
var errStopped = errors.New("stopped at the question; no more was changed")

// read writes the question, and reads the answer. If ctx ends first, a goroutine stays in the read.
func (q Questions) read(question string, from func(io.Reader) (string, error)) (string, error) {
	out := q.cmd.ErrOrStderr()
	if width := Columns(out); width > 0 {
		question = strings.ReplaceAll(Fit(question, width-1), "\n", "\r\n") // also for a raw terminal
	}
	if _, err := io.WriteString(out, question+" "); err != nil {
		return "", fmt.Errorf("ask: %w", err)
	}
	type answer struct {
		line string
		err  error
	}
	answers := make(chan answer, 1)
	go func() { // ends with the answer, or with the process
		line, err := from(q.cmd.InOrStdin())
		answers <- answer{line, err}
	}()
	ctx := q.cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	select {
	case a := <-answers:
		if a.err != nil {
			return "", fmt.Errorf("read the answer: %w", a.err)
		}
		return strings.TrimSpace(a.line), nil
	case <-ctx.Done():
		fmt.Fprintln(q.cmd.ErrOrStderr())
		return "", errStopped
	}
}

// YesNo reports whether the person answers yes. An empty line is the default. Another answer than yes
// or no is asked for again; after the last attempt, the answer is no.
func (q Questions) YesNo(question string, byDefault bool) (bool, error) {
	choice := " [y/N]"
	if byDefault {
		choice = " [Y/n]"
	}
	say := func(line string) { Tellf(q.cmd.ErrOrStderr(), "%s\n", line) }
	return Decide(func() (string, error) { return q.Line(question + choice) }, say, byDefault)
}

// yesNoAttempts is how often a yes/no question is asked.
const yesNoAttempts = 3

// Decide reads lines until one of them answers a yes/no question. An empty line is the default.
func Decide(read func() (string, error), say func(string), byDefault bool) (bool, error) {
	for n := 1; ; n++ {
		line, err := read()
		if err != nil {
			return false, err
		}
		if line == "" {
			return byDefault, nil
		}
		if agreed, known := YesOrNo(line); known {
			return agreed, nil
		}
		const answers = "answer y (yes) or n (no)"
		if n == yesNoAttempts {
			say(prose.Quote(line) + " is no answer; " + answers + ". That counts as no.")
			return false, nil
		}
		say(prose.Quote(line) + " is no answer; " + answers + ".")
	}
}

// YesOrNo reads the answer to a yes/no question; known is false if it is neither.
func YesOrNo(line string) (agreed, known bool) {
	switch strings.ToLower(line) {
	case "y", "yes":
		return true, true
	case "n", "no":
		return false, true
	}
	return false, false
}

// IsTerminal reports whether a stream of the process is a terminal, at which a person may be.
func IsTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// CanAsk reports whether Confirm could ask.
func CanAsk(cmd *cobra.Command) bool { return IsTerminal(cmd.InOrStdin()) }
