package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"junction/upstream/prose"
)

// TestHelpFits: the help of each command fits a terminal, except addresses, and each command is in a
// group.
func TestHelpFits(t *testing.T) {
	var each func(cmd *cobra.Command, args []string)
	each = func(cmd *cobra.Command, args []string) {
		if len(args) == 1 && !cmd.Hidden && cmd.GroupID == "" {
			t.Errorf("%s is in no group of the help", args[0])
		}
		var out bytes.Buffer
		if code := run(t.Context(), append([]string{"help"}, args...), strings.NewReader(""), &out, io.Discard); code != 0 {
			t.Errorf("help %s gave %d", strings.Join(args, " "), code)
		}
		for line := range strings.Lines(out.String()) {
			if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > prose.Width {
				t.Errorf("help %s has a line of more than %d columns: %q", strings.Join(args, " "), prose.Width, line)
			}
		}
		for _, sub := range cmd.Commands() {
			if sub.Name() != "help" {
				each(sub, append(args[:len(args):len(args)], sub.Name()))
			}
		}
	}
	each(rootCommand(strings.NewReader(""), io.Discard, io.Discard), nil)
}
