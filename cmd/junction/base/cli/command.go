// Package cli has what all commands share: Run with its exit codes, errors of usage, questions to a
// person, lists and tables, help, and completion.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"junction/upstream/prose"
	"junction/upstream/shell"
)

// Run runs a command line and prints its error. It returns the exit code: 0, 1 for a failure,
// 2 for wrong usage.
func Run(ctx context.Context, root *cobra.Command, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(FlagError)
	command, err := root.ExecuteContextC(ctx)
	code := 1
	if IsUsage(err) {
		code = 2
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrTool):
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		_ = Tell(stderr, "junction: interrupted\n")
	case wantsJSON(command):
		PrintErrorJSON(stderr, err)
	case IsUsage(err):
		help := "junction help"
		if command.Name() != "help" {
			help += strings.TrimPrefix(command.CommandPath(), "junction")
		}
		_ = Tell(stderr, fmt.Sprintf("junction: %s; see %s\n", Harmless(shown(err.Error())), help))
	default:
		_ = Tell(stderr, fmt.Sprintf("junction: %s\n", Harmless(shown(err.Error()+remedy(err)))))
	}
	return code
}

// shown returns an error for people, with ~ for the home folder.
func shown(text string) string { return prose.Tilde(text) }

// remedy returns what to do about an error of a disk, which any command may have. It is "" for others.
func remedy(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "; free some space there, and run the same command again"
	case errors.Is(err, syscall.EROFS):
		return "; make it writable, and run the same command again"
	}
	return ""
}

// wantsJSON reports whether a command prints JSON.
func wantsJSON(command *cobra.Command) bool {
	if f := command.Flags().Lookup("json"); f != nil && f.Value.Type() == "bool" && f.Value.String() == "true" {
		return true
	}
	f := command.Flags().Lookup("output")
	return f != nil && f.Value.String() == "json"
}

// PrintErrorJSON prints the error of a command that prints JSON, in one line.
func PrintErrorJSON(w io.Writer, err error) {
	_ = PrintLine(w, struct {
		Error string `json:"error"`
	}{err.Error()})
}

// usageError is an error about wrong usage; the program exits with 2. Every other error means that
// the command itself failed.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }

func (e usageError) Unwrap() error { return e.err }

// IsUsage tells whether err is about wrong usage.
func IsUsage(err error) bool {
	_, ok := errors.AsType[usageError](err)
	return ok
}

// Usagef returns an error about wrong usage; the program exits with 2.
func Usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// fileAnnotation marks the commands of OfFile.
const fileAnnotation = "file"

// OfFile marks commands whose subject is the configuration file, with their own commands, and returns
// them. Without --config they use the user's own file; CheckFile rejects them with an empty --config.
func OfFile(list ...*cobra.Command) []*cobra.Command {
	for _, cmd := range list {
		cmd.Annotations = map[string]string{fileAnnotation: ""}
	}
	return list
}

// CheckFile rejects an empty --config of a command of OfFile.
func CheckFile(cmd *cobra.Command, file string) error {
	if file != "" || !cmd.Flags().Changed("config") {
		return nil
	}
	for c := cmd; c != nil; c = c.Parent() {
		if _, ok := c.Annotations[fileAnnotation]; ok {
			return Usagef("%s needs a configuration file, and --config is empty; name the file, or leave --config out "+
				"for your own", strings.TrimPrefix(cmd.CommandPath(), "junction "))
		}
	}
	return nil
}

// ErrTool is returned for a call whose result has isError. The result has been printed, so that Run
// prints no further error.
var ErrTool = errors.New("the tool reported an error")

// CheckOutput rejects invalid values of --output.
func CheckOutput(output string) error {
	if output != "text" && output != "json" {
		return Usagef("--output is text or json, not %q", output)
	}
	return nil
}

// NoArguments rejects arguments. For a command that has only subcommands, the argument is the name of
// an unknown subcommand, and the error lists the known ones.
func NoArguments(cmd *cobra.Command, args []string) error {
	what := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
	switch {
	case len(args) == 0:
		return nil
	case !cmd.HasSubCommands() && isConfig(args[0]):
		return Usagef("%s takes no arguments, and got %q; write --config %s", what, args[0], shell.Quote(args[0]))
	case !cmd.HasSubCommands():
		return Usagef("%s takes no arguments, and got %q", what, args[0])
	}
	return UnknownCommand(cmd, args[0])
}
