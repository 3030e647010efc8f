package main

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/auth/store"
	"junction/cmd/junction/config"
	"junction/cmd/junction/listeners"
	"junction/cmd/junction/record"
	"junction/cmd/junction/runfile"
)

// TestStartTakesNoAdminAddressInVain: a start whose address is taken does not take the admin address, not
// even for a moment. Otherwise, of two processes that start at once, each could keep the other from it.
func TestStartTakesNoAdminAddressInVain(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	admin := "127.0.0.1:0"
	p := newProgram(options{file: filepath.Join(t.TempDir(), "config.yaml"), stdout: io.Discard, stderr: io.Discard,
		getenv: os.LookupEnv})
	p.log = authtest.Log(t, io.Discard)
	defer func() {
		if p.admin != nil {
			p.admin.Close()
		}
	}()
	err = p.openListeners(&config.Config{Listen: taken.Addr().String(), Admin: &admin})
	if !errors.Is(err, syscall.EADDRINUSE) || p.admin != nil {
		t.Errorf("openListeners gives %v, and has the admin address: %v", err, p.admin != nil)
	}
	admin = taken.Addr().String() // one error names both addresses
	if both := p.openListeners(&config.Config{Listen: admin, Admin: &admin}); both == nil || both.Error() == err.Error() {
		t.Errorf("for two taken addresses, the error is %v", both)
	}
}

// TestStartWaitsForEndingProcessesOnly: what a process has is worth waiting for once that process ends.
func TestStartWaitsForEndingProcessesOnly(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	file := filepath.Join(t.TempDir(), "config.yaml")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	note, err := runfile.Note(os.LookupEnv, file, runfile.Place{URL: runfile.URL(taken.Addr().String()), Grace: time.Hour}, "")
	if err != nil {
		t.Fatal(err)
	}
	_, inUse := listeners.Listen(taken.Addr().String(), "listen")
	own := map[string]error{"its address": inUse, "its storage": &store.InUseError{PID: os.Getpid()},
		"a storage of the same file": &store.InUseError{}, "its audit": record.ErrShared}
	others := map[string]error{"another storage": &store.InUseError{PID: os.Getpid() + 1}, "a file": os.ErrNotExist}
	for what, err := range own {
		if p, ok := endingHolder(err, file); ok {
			t.Errorf("%s: %+v is waited for, which serves", what, p)
		}
	}
	note.End()
	for what, err := range own {
		if p, ok := endingHolder(err, file); !ok || !p.Is(runfile.This()) {
			t.Errorf("%s: the process that ends is not waited for: %v", what, err)
		}
	}
	for what, err := range others {
		if p, ok := endingHolder(err, file); ok {
			t.Errorf("%s: %+v is waited for, which does not have it", what, p)
		}
	}
}
