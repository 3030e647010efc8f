package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
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
	fmt.Fprintf(cmd.ErrOrStderr(), "%s [y/N] ", question)
	line, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		return errors.New("nothing was changed")
	}
	return nil
}

// IsTerminal reports whether a stream of the process is a terminal, at which a person may be.
func IsTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// CanAsk reports whether Confirm could ask.
func CanAsk(cmd *cobra.Command) bool { return IsTerminal(cmd.InOrStdin()) }
