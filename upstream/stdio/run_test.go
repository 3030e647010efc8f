//go:build unix

package stdio

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"junction/auth/authtest"
)

// TestRun: a command runs once, gets its input, and returns what it wrote; nothing of it stays.
func TestRun(t *testing.T) {
	run := func(script, input string, limit int) *Result {
		t.Helper()
		r, err := Run(t.Context(), Options{Command: []string{"sh", "-c", script}, Log: authtest.Log(t)},
			[]byte(input), limit)
		if err != nil {
			t.Fatalf("run %s: %v", script, err)
		}
		return r
	}
	if r := run("cat; echo bad >&2; exit 3", strings.Repeat("x", 1<<20), 1<<20); len(r.Output) != 1<<20 ||
		r.Code != 3 || r.Stderr != "bad" || r.How != "exited with status 3" || r.Exceeded {
		t.Errorf("%d bytes, %+v", len(r.Output), r)
	}
	if r := run("true", strings.Repeat("not read", 1<<20), 10); r.Code != 0 || len(r.Output) != 0 {
		t.Errorf("a command that reads nothing: %+v", r)
	}
	if r := run("echo out >/dev/stdout", "", 10); string(r.Output) != "out\n" {
		t.Errorf("stdout by name: %+v", r)
	}
	if r := run("yes", "", 1000); !r.Exceeded || len(r.Output) != 1000 || r.Code != -1 {
		t.Errorf("flood: %d bytes, exceeded %v, code %d", len(r.Output), r.Exceeded, r.Code)
	}
	if r := run("sleep 1000 & echo done", "", 10); string(r.Output) != "done\n" {
		t.Errorf("a descendant that holds the output: %+v", r)
	}
	if r := run("cat </dev/tty", "", 10); r.Code == 0 {
		t.Errorf("there is a terminal: %+v", r)
	}
}

// TestRunEnds: the end of the context ends the command and its descendants.
func TestRunEnds(t *testing.T) {
	cause := errors.New("the caller has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		os.ReadFile(fifo) // ends when the command has started
		cancel(cause)
	}()
	_, err := Run(ctx, Options{Command: []string{"sh", "-c", "echo started >" + fifo + "; sleep 1000 & wait"},
		Log: authtest.Log(t)}, nil, 10)
	if !errors.Is(err, cause) {
		t.Errorf("%v, want the cause", err)
	}
	if _, err := Run(ctx, Options{Command: []string{"true"}}, nil, 10); !errors.Is(err, cause) {
		t.Errorf("after the end: %v, want the cause", err)
	}
	_, err = Run(t.Context(), Options{Command: []string{"no-such-program"}}, nil, 10)
	if !errors.Is(err, ErrNoProgram) {
		t.Errorf("%v, want ErrNoProgram", err)
	}
}
