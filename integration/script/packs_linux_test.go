package script

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"junction/integration/harness"
)

// TestPacksAskAtATerminal: a pack is enabled after the person has seen what it would do, and has said
// yes.
func TestPacksAskAtATerminal(t *testing.T) {
	binary := harness.JunctionBinary(t)
	for answer, want := range map[string]string{"n\n": "nothing was changed", "\n": "nothing was changed", "y\n": "Enabled own"} {
		dir := t.TempDir()
		for name, text := range map[string]string{
			"config.yaml":   "listen: 127.0.0.1:0\nupstreams:\n  own: { pack: ./own, enabled: false }\n",
			"own/pack.yaml": "tools: { t: { description: d, command: [wipe, '${HOME}'] } }\n",
		} {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		ours, theirs := mustTerminal(t, 40, 110)
		cmd := exec.CommandContext(t.Context(), binary, "packs", "enable", "own", "--config", filepath.Join(dir, "config.yaml"))
		cmd.Env = append(os.Environ(), "HOME="+dir, "TERM=xterm")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ours.SetReadDeadline(time.Now().Add(harness.Patience))
		var output bytes.Buffer
		until := func(text string) {
			part := make([]byte, 4096)
			for !strings.Contains(output.String(), text) {
				n, err := ours.Read(part)
				output.Write(part[:n])
				if err != nil {
					t.Fatalf("%v; the terminal got:\n%s", err, output.String())
				}
			}
		}
		until("Enable own? [y/N]")
		for _, shown := range []string{"runs           wipe ${HOME}", "Programs: wipe", "Variables of the environment: HOME"} {
			if !strings.Contains(output.String(), shown) {
				t.Errorf("the question does not follow %q:\n%s", shown, output.String())
			}
		}
		if _, err := ours.WriteString(answer); err != nil {
			t.Fatal(err)
		}
		until(want)
		cmd.Wait() // its status follows from what it said
		text, err := os.ReadFile(filepath.Join(dir, "config.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if enabled := !bytes.Contains(text, []byte("enabled: false")); enabled != (answer == "y\n") {
			t.Errorf("after %q, the file is\n%s", answer, text)
		}
	}
}
