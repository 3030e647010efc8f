//go:build unix

package failure

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"junction/integration/harness"
)

// TestAStopOutlivesTheReaderOfTheLog: in junction 2>&1 | tee log, an interrupt ends tee, too. The stop is as
// complete as without the pipe: it is in the audit, and the exit code is 0.
func TestAStopOutlivesTheReaderOfTheLog(t *testing.T) {
	harness.Waits(t)
	dir := t.TempDir()
	audit := filepath.Join(dir, "audit.jsonl")
	file := filepath.Join(dir, "config.yaml")
	text := "listen: 127.0.0.1:0\nadmin: \"\"\naudit: { file: " + audit + " }\nupstreams: { demo: { command: [junction, demo] } }\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	tee, log, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(harness.JunctionBinary(t), "--config", file)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+dir, "XDG_RUNTIME_DIR="+dir)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	log.Close()
	lines := bufio.NewScanner(tee)
	for lines.Scan() && !strings.Contains(lines.Text(), "serving") {
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	tee.Close()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("Junction ends with %v", err)
	}
	if is, err := os.ReadFile(audit); err != nil || !strings.Contains(string(is), `"stopped"`) {
		t.Errorf("the stop is not in the audit: %v\n%s", err, is)
	}
}
