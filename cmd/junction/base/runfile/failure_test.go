package runfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"junction/cmd/junction/base/config"
)

// TestCrashHasLastWords: a process that crashes is reported with what Go wrote about it, and not with lines of a
// process before, also at the end of a long log, and in a log that has become a new one.
func TestCrashHasLastWords(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	const before, after = "panic: of yesterday\n", "level=INFO msg=serving\npanic: canary\n\ngoroutine 1 [running]:\n"
	long := strings.Repeat(strings.Repeat("x", 100<<10)+"\n", 20)
	for _, test := range []struct {
		text   string
		offset int
		want   string
	}{
		{before + after, len(before), "panic: canary"},
		{before + after, len(before + after), ""}, // it was killed
		{before + long + after, len(before), "panic: canary"},
		{after, len(after) + 1, "panic: canary"},
	} {
		if err := os.WriteFile(log, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := LastWords(log, int64(test.offset)); got != test.want {
			t.Errorf("behind %d of %d bytes, the last words are %q, want %q", test.offset, len(test.text), got, test.want)
		}
	}
}

// TestHowTheLastProcessHasEnded: a process that was killed, has crashed or could not serve is told apart from one
// that was stopped, which needs no reason, and from one that serves.
func TestHowTheLastProcessHasEnded(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	dir := t.TempDir()
	file, log := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "log")
	ended := func(when, want string) {
		t.Helper()
		if got := Ended(file); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	ended("nothing has run", "")
	NoteFailure(os.LookupEnv, file, errors.New("the disk is full"))
	ended("it could not serve", "the disk is full")
	ClearFailure(os.LookupEnv, file)
	cmd := mustLive(t)
	mustRecord(t, file, ".1.json", string(mustJSON(t, Place{URL: "http://127.0.0.1:1/mcp", Process: ProcessOf(cmd.Process.Pid)})))
	ended("it serves", "")
	if err := os.WriteFile(log, []byte("panic: of yesterday\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := Background{Process: ProcessOf(cmd.Process.Pid), Log: log, At: int64(len("panic: of yesterday\n"))}
	mustRecord(t, file, ".background", string(mustJSON(t, b)))
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	ended("it was killed", "has ended without a word")
	if err := os.WriteFile(log, []byte("panic: of yesterday\npanic: canary\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ended("it has crashed", "has crashed: panic: canary")
	record, err := Note(os.LookupEnv, file, Place{URL: "http://127.0.0.1:1/mcp"}, "")
	if err != nil {
		t.Fatal(err)
	}
	record.Forget()
	ended("the next one was stopped", "")
}

// TestUnchangedSaysWhatGoesOn: an error about a broken file names the first mistake, the process that goes on, and
// the next step.
func TestUnchangedSaysWhatGoesOn(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	file := filepath.Join(t.TempDir(), "config.yaml")
	ps := config.Problems{{File: file, Line: 3, Path: "listn", Text: "unknown key"}, {File: file, Line: 5, Text: "another"}}
	const mistake = ":3: listn: unknown key (and 1 mistake more; run: junction check --config "
	if got := Unchanged(file, ps).Error(); !strings.Contains(got, mistake) || strings.Contains(got, "process") {
		t.Errorf("without a process: %s", got)
	}
	record, err := Note(os.LookupEnv, file, Place{URL: "http://127.0.0.1:1/mcp"}, "")
	if err != nil {
		t.Fatal(err)
	}
	defer record.Forget()
	got := Unchanged(file, ps[:1]).Error()
	if !strings.Contains(got, "goes on serving what it did; correct the file") || strings.Contains(got, "more") {
		t.Errorf("with a process: %s", got)
	}
}
