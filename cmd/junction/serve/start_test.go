package serve

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
	"junction/auth/store"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/listeners"
	"junction/cmd/junction/base/record"
	"junction/cmd/junction/base/runfile"
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
	p := newProgram(options{file: filepath.Join(t.TempDir(), "config.yaml"), stdout: io.Discard, stderr: authtest.Searched(t, "what the program writes"),
		getenv: os.LookupEnv})
	p.log = authtest.Log(t)
	defer func() {
		if p.listening.admin != nil {
			p.listening.admin.Close()
		}
	}()
	err = p.listening.openListeners(&config.Config{Listen: taken.Addr().String(), Admin: &admin})
	if !errors.Is(err, syscall.EADDRINUSE) || p.listening.admin != nil {
		t.Errorf("openListeners gives %v, and has the admin address: %v", err, p.listening.admin != nil)
	}
	admin = taken.Addr().String() // one error names both addresses
	if both := p.listening.openListeners(&config.Config{Listen: admin, Admin: &admin}); both == nil || both.Error() == err.Error() {
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

// TestAddressOfANamelessProcessIsTriedAgain: a process that was killed while it started has an address for a moment, and
// no record. Another program keeps its address, and is reported.
func TestAddressOfANamelessProcessIsTriedAgain(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, inUse := listeners.Listen(taken.Addr().String(), "listen")
	for name, frees := range map[string]time.Duration{"killed": time.Second, "another program": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, opened := time.Now(), new(program)
				p, err := openInTurn(t.Context(), options{}, func(options) (*program, error) {
					if time.Since(began) < frees {
						return nil, inUse
					}
					return opened, nil
				})
				if took := time.Since(began); (p == opened) != (frees <= unknownFor) || took > unknownFor {
					t.Errorf("after %v: %v, %v", took, p, err)
				}
			})
		})
	}
}

// TestCheckBeforeARestart: the mistakes, full disks and addresses that would keep a new process from serving
// are found while the old one serves, whose own addresses are none of them.
func TestCheckBeforeARestart(t *testing.T) {
	state, dir := t.TempDir(), t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	mine, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	file, address := filepath.Join(dir, "config.yaml"), mine.Addr().String()
	note, err := runfile.Note(os.LookupEnv, file, runfile.Place{URL: runfile.URL(address)}, "")
	if err != nil {
		t.Fatal(err)
	}
	old, _ := runfile.Find(file)
	const server = "upstreams: { a: { command: [b] } }\n"
	bad := filepath.Join(dir, "bad.key")
	for name, test := range map[string]struct {
		text     string
		replaced runfile.Place
		want     string // of the error; "" if there is none
	}{
		"its own address":     {"listen: " + address + "\nadmin: \"\"\n" + server, old, ""},
		"another's address":   {"listen: 127.0.0.1:0\nadmin: " + address + "\n" + server, runfile.Place{}, "is taken by"},
		"a mistake":           {"listen: 127.0.0.1:0\nupstream: {}\n", old, "upstream: unknown key"},
		"no key of a storage": {"admin: \"\"\nlisten: 127.0.0.1:0\nstorage: { key_file: " + bad + " }\nupstreams:\n  a: { url: https://a.example/mcp, auth: { mode: oauth } }\n", old, bad},
	} {
		t.Run(name, func(t *testing.T) {
			for name, text := range map[string]string{file: test.text, bad: "nonsense\n"} {
				if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := checkStart(options{file: file, stdout: io.Discard, stderr: authtest.Searched(t, "what the program writes"), getenv: os.LookupEnv}, test.replaced)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("checkStart gives %v, want %q", err, test.want)
			}
		})
	}
	note.Forget()
	running := filepath.Join(state, "junction", "running")
	if err := errors.Join(os.WriteFile(file, []byte(server), 0o600), os.Remove(running), os.WriteFile(running, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	_, err = checkStart(options{file: file, stdout: io.Discard, stderr: authtest.Searched(t, "what the program writes"), getenv: os.LookupEnv}, old)
	if err == nil || !strings.Contains(err.Error(), running) {
		t.Errorf("a folder that cannot be written gives %v", err)
	}
}
