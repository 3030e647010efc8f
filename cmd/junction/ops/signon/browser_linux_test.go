package signon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTheBrowserGetsNoKey has a program called xdg-open write its environment into a pipe, whose end
// is the end of that program.
func TestTheBrowserGetsNoKey(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\nenv >" + pipe + "\n"
	if err := os.WriteFile(filepath.Join(dir, "xdg-open"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("BROWSER", "some")
	t.Setenv("JUNCTION_KEY", "canary-of-the-browser")
	if err := OpenBrowser("http://127.0.0.1/"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(pipe)
	if err != nil || !strings.Contains(string(text), "BROWSER=some") {
		t.Fatalf("the browser wrote %q, %v", text, err)
	}
	if strings.Contains(string(text), "JUNCTION_KEY") {
		t.Error("the browser has the key in its environment")
	}
}
