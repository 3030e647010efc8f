package signin

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/integration/harness/needs"
	"junction/upstream/upstreamtest"
)

// TestFaultDisk fills the disk of the audit and of SQLite while people work: calls go on, a sign-in ends
// with a page that says so, and when there is room again nothing is lost: neither the lines of the audit
// nor what was stored.
func TestFaultDisk(t *testing.T) {
	harness.Waits(t)
	harness.WithoutShort(t)
	disk := t.TempDir()
	needs.Skip(t, syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=2m")) // only root can make a disk
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	audit := filepath.Join(disk, "audit.jsonl")
	c := mustCompany(t, up, "", fmt.Sprintf("storage: { dsn: %q }\naudit: { file: %q }\n", filepath.Join(disk, "junction.db"), audit))
	app := mustRegister(t, c, "https://app.example/callback")
	status, first := app.mustExchange(t, c.origin, app.mustEnter(t, "ann"))
	if status != http.StatusOK {
		t.Fatalf("the code: %d, %+v", status, first)
	}
	ann := working(t, c.Program, first.AccessToken)
	ann.AwaitCalls(50)
	filler := filepath.Join(disk, "filler")
	mustFill(t, filler)
	ann.AwaitCalls(50)
	bob := newPerson(t, "bob").through(app.authorize())
	if bob.status < 500 {
		t.Errorf("a sign-in without room: %d %s", bob.status, bob.body)
	}
	ann.AwaitCalls(50)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	over := time.Now()
	ann.AwaitCalls(50)
	if status, got := app.mustExchange(t, c.origin, refreshing(first.RefreshToken)); status != http.StatusOK {
		t.Errorf("the refresh after it: %d, %+v", status, got)
	}
	ann.Stop()
	f := ann.Figures(over)
	if f.Lost > 0 {
		t.Errorf("calls are lost: %v", f)
	}
	c.MustStop(t)
	out, err := exec.Command(harness.JunctionBinary(t), "audit", "verify", "--config", c.File()).CombinedOutput()
	text, _ := os.ReadFile(audit)
	if n := bytes.Count(text, []byte(`"name":"up__echo"`)); err != nil || n < f.Calls {
		t.Errorf("the audit has %d of %d calls; verify: %v %s", n, f.Calls, err, out)
	}
	t.Logf("FAULT the disk is full: %v; a sign-in: %d; the audit has every line", f, bob.status)
}

// mustFill writes a file until the disk is full.
func mustFill(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}
