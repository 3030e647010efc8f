package safety

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"junction/integration/harness"
)

// TestSandboxLinkInWriteIsNotFollowed starts the program where the command of one entry has left links
// for another entry: the other one does not start, and the reason names the link, in the status and in
// check. Entries whose paths have no links start.
func TestSandboxLinkInWriteIsNotFollowed(t *testing.T) {
	defer harness.Computes(t)()
	mustEnforce(t)
	dir := t.TempDir()
	w := filepath.Join(dir, "w")
	for _, d := range []string{"w/folder", "secret"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(dir, "secret"), filepath.Join(w, "link")); err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(`
upstreams:
  writer: { command: [junction, demo], dir: W/folder, sandbox: { write: [W], require: true } }
  reader: { command: [junction, demo], sandbox: { read: [W/folder], require: true } }
  led: { command: [junction, demo], sandbox: { read: [W/link], require: true } }
  standing: { command: [junction, demo], dir: W/link, sandbox: { read: [W], require: true } }
`, "W", w)
	p := harness.NewProgram(t)
	p.MustConfigure(t, text)
	p.MustStart(t, exec.Command(harness.JunctionBinary(t), "--config", p.File()))
	got := mustSettle(t, p)
	for _, name := range []string{"writer", "reader"} {
		if s := got[name]; s[0] != "ready" || s[1] != "enforced" {
			t.Errorf("%s is %q, want ready", name, s)
		}
	}
	reason := fmt.Sprintf("%s/link is a link", w)
	for _, name := range []string{"led", "standing"} {
		if s := got[name]; s[0] == "ready" || !strings.Contains(s[2], reason) {
			t.Errorf("%s is %q, want an error with %q", name, s, reason)
		}
	}
	out, _, err := harness.RunJunction(t, nil, "check", "--config", p.File())
	for _, part := range []string{"upstreams.led.sandbox.read[0]: " + reason,
		"upstreams.standing.dir: the folder " + w + "/link"} {
		if err != nil || !strings.Contains(out, part) {
			t.Errorf("check (%v) does not say %q:\n%s", err, part, out)
		}
	}
}
