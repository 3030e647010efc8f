package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// asking returns the questions of a command with this input, and what it writes.
func asking(ctx context.Context, in io.Reader) (Questions, *bytes.Buffer) {
	var out bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetContext(ctx)
	cmd.SetIn(in)
	cmd.SetErr(&out)
	return QuestionsOf(cmd), &out
}

// TestQuestions: each question takes one line of the input, and an empty line is the default.
func TestQuestions(t *testing.T) {
	q, out := asking(t.Context(), strings.NewReader("  one two \n\nY\nno\nlast"))
	if line, err := q.Line("Which?"); line != "one two" || err != nil {
		t.Errorf("the line is %q, %v", line, err)
	}
	for i, want := range []bool{true, true, false} {
		if got, err := q.YesNo("Really?", i == 0); got != want || err != nil {
			t.Errorf("answer %d is %v, %v; want %v", i, got, err, want)
		}
	}
	for _, want := range []string{"last", ""} { // the end of the input
		if line, err := q.Hidden("More?"); line != want || err != nil {
			t.Errorf("the line is %q, %v; want %q", line, err, want)
		}
	}
	if text := out.String(); !strings.HasPrefix(text, "Which? Really? [Y/n] Really? [y/N] ") {
		t.Errorf("it asks %q", text)
	}
}

// TestAnotherAnswerIsAskedForAgain: an answer that is neither yes nor no does not count as one of them,
// until the third is no.
func TestAnotherAnswerIsAskedForAgain(t *testing.T) {
	const again = "\"maybe\" is no answer; answer y (yes) or n (no)."
	for input, want := range map[string]bool{"maybe\nYES\n": true, "maybe\nno\n": false, "maybe\n\n": true,
		"sure\nmaybe\nmaybe\ny\n": false} {
		q, out := asking(t.Context(), strings.NewReader(input))
		if got, err := q.YesNo("Really?", true); got != want || err != nil || !strings.Contains(out.String(), again) {
			t.Errorf("%q is %v, %v: %s", input, got, err, out)
		}
		if said := strings.Contains(out.String(), "That counts as no.\n"); said != (strings.Count(input, "\n") == 4) {
			t.Errorf("after %q it says %s", input, out)
		}
	}
}

// TestQuestionEndsWithItsCommand: an interrupt ends a question that nobody has answered.
func TestQuestionEndsWithItsCommand(t *testing.T) {
	in, typed := io.Pipe()
	defer typed.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	q, _ := asking(ctx, in)
	if line, err := q.Line("Which?"); err == nil || line != "" {
		t.Errorf("the answer is %q, %v", line, err)
	}
	if agreed, err := q.YesNo("Really?", true); err == nil || agreed {
		t.Errorf("the answer is %v, %v", agreed, err)
	}
}

// TestInterruptedCommandSaysSo: a command that an interrupt ends has no error of a library.
func TestInterruptedCommandSaysSo(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	var stderr strings.Builder
	root := &cobra.Command{Use: "junction", SilenceErrors: true, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			interrupt()
			return fmt.Errorf("tools/call: %w", cmd.Context().Err())
		}}
	if code := Run(ctx, root, nil, strings.NewReader(""), io.Discard, &stderr); code != 1 ||
		stderr.String() != "junction: interrupted\n" {
		t.Errorf("exit code %d, %q", code, stderr.String())
	}
}
