// Package cli has the commands of junction-pack: serve.go serves a pack, print.go shows it, call.go
// calls one of its tools, and init.go writes an example.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// Run runs a command line and prints its error. It returns the exit code: 0, 1 for a failure,
// 2 for wrong usage.
func Run(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	command, err := root.ExecuteContextC(ctx)
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "junction-pack: %v; see %s --help\n", err, command.CommandPath())
		return 2
	case errors.Is(err, errTool):
		return 1
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintf(stderr, "junction-pack: %s\n", line)
	}
	return 1
}

// usageError is an error about wrong usage.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }

func (e usageError) Unwrap() error { return e.err }

// Usagef returns an error about wrong usage; the program exits with 2.
func Usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Arguments returns a check for the number of arguments; most is -1 for any number.
func Arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return Usagef("%s needs more arguments: %s", cmd.Name(), cmd.Use)
		case most >= 0 && len(args) > most:
			return Usagef("%s takes fewer arguments: %s", cmd.Name(), cmd.Use)
		}
		return nil
	}
}
