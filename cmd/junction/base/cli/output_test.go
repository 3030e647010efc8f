package cli

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestHarmless: text of a server does not control the terminal, also in an error.
func TestHarmless(t *testing.T) {
	const hostile = "a\x1b]52;c;eA==\x07\u009b31m\u202eb\r\n\tc\rd é 👩\u200d💻"
	const want = `a\u001b]52;c;eA==\u0007\u009b31m\u202eb` + "\n\tc" + `\u000dd é 👩` + "\u200d💻"
	if got := Harmless(hostile); got != want {
		t.Errorf("harmless gives %q, want %q", got, want)
	}
	root := &cobra.Command{Use: "junction", SilenceErrors: true, SilenceUsage: true,
		RunE: func(*cobra.Command, []string) error { return errors.New(hostile) }}
	var stderr strings.Builder
	if code := Run(t.Context(), root, nil, nil, io.Discard, &stderr); code != 1 || stderr.String() != "junction: "+want+"\n" {
		t.Errorf("Run gives %d and prints %q", code, stderr.String())
	}
}
