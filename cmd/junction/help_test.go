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

// TestHelpBeginsWithTheFirstStep: each group of the help lists its commands in the order in which a new
// user needs them.
func TestHelpBeginsWithTheFirstStep(t *testing.T) {
	var out bytes.Buffer
	if code := run(t.Context(), []string{"help"}, strings.NewReader(""), &out, io.Discard); code != 0 {
		t.Fatalf("help gave %d", code)
	}
	for _, want := range []string{"\nSet up:\n  setup ", "\nWatch:\n  status ", "\nTeam:\n  keys ", "\nOperate:\n  check "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the help does not contain %q:\n%s", want, out.String())
		}
	}
	if n := strings.Count(out.String(), "\n  setup "); n != 1 {
		t.Errorf("the help lists setup %d times", n)
	}
}
