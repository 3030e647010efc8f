package main

import (
	"bytes"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// TestManualHasEachCommand: the manual page has the commands and flags of the help, escaped, and no hidden
// command. groff reads it without a warning where it is installed.
func TestManualHasEachCommand(t *testing.T) {
	var page bytes.Buffer
	if code := run(t.Context(), []string{"man"}, strings.NewReader(""), &page, io.Discard); code != 0 {
		t.Fatalf("junction man gave %d", code)
	}
	for _, want := range []string{
		".TH JUNCTION 1 ", ".SS junction keys create ", ".SS junction doctor ", ".B \\-\\-config file\n", "\\-\\-listen address",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the manual page lacks %q", want)
		}
	}
	for _, hidden := range []string{".SS junction man", ".SS junction run", ".SS junction help"} {
		if strings.Contains(page.String(), hidden) {
			t.Errorf("the manual page has %q", hidden)
		}
	}
	if got := roff(".x\n'y a-b c\\d…"); got != "\\&.x\n\\&'y a\\-b c\\ed\\[u2026]" {
		t.Errorf("roff gives %q", got)
	}
	if groff, err := exec.LookPath("groff"); err == nil {
		cmd := exec.CommandContext(t.Context(), groff, "-man", "-Tutf8", "-ww", "-z")
		cmd.Stdin = &page
		if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "warning") {
			t.Errorf("groff: %v\n%.1000s", err, out)
		}
	}
}
