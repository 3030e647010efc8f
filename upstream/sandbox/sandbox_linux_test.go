package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain makes the test binary the wrapper, and the program that tries what it must not.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == Word:
		os.Exit(Main())
	case len(os.Args) > 1 && os.Args[1] == "hostile":
		hostile(os.Args[2:])
		return
	}
	os.Exit(m.Run())
}

// hostile does what each argument says, and writes what came of it: ok, or the error.
func hostile(deeds []string) {
	for _, deed := range deeds {
		what, rest, _ := strings.Cut(deed, " ")
		a, b, _ := strings.Cut(rest, " ")
		var err error
		switch what {
		case "read":
			_, err = os.ReadFile(a)
		case "list":
			_, err = os.ReadDir(a)
		case "run":
			err = exec.Command(a).Run()
		case "write":
			err = os.WriteFile(a, []byte("x"), 0o600)
		case "truncate":
			err = os.Truncate(a, 0)
		case "remove":
			err = os.Remove(a)
		case "move":
			err = os.Rename(a, b)
		case "link":
			err = os.Link(a, b)
		case "connect":
			var c net.Conn
			if c, err = net.Dial("tcp", "127.0.0.1:"+a); err == nil {
				c.Close()
			}
		case "listen":
			var l net.Listener
			if l, err = net.Listen("tcp", "127.0.0.1:0"); err == nil {
				l.Close()
			}
		case "unix":
			var c net.Conn
			if c, err = net.Dial("unix", a); err == nil {
				c.Close()
			}
		case "signal":
			pid, _ := strconv.Atoi(a)
			err = syscall.Kill(pid, 0)
		default:
			err = evade(what, a)
		}
		result := "ok"
		if errno, is := errors.AsType[syscall.Errno](err); is {
			result = unix.ErrnoName(errno)
		} else if exit, is := errors.AsType[*exec.ExitError](err); is {
			result = unix.SignalName(exit.Sys().(syscall.WaitStatus).Signal())
		} else if err != nil {
			result = err.Error()
		}
		fmt.Println(result)
	}
}

// enforced skips a test of what the kernel enforces where it cannot.
func enforced(t *testing.T, least int) {
	t.Helper()
	if s := Kernel(); s.ABI < least || !s.Filter {
		t.Skipf("NOT TESTED: this kernel's Landlock has ABI %d, and the test needs %d. %s%s",
			s.ABI, least, s.Why, s.FilterWhy)
	}
}

// run returns what the hostile program, confined by the rules, writes of each deed; a nil r
// confines nothing.
func run(t *testing.T, r *Rules, s Support, deeds ...string) []string {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"hostile"}, deeds...)...)
	cmd.Env = []string{"GORACE=atexit_sleep_ms=0"}
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	var h *Handover
	if r != nil {
		needed := *r
		needed.Default = append(System(), os.Args[0])
		needed.Devices = Devices()
		var err error
		if h, err = Wrap(cmd, needed, s); err != nil {
			t.Fatal(err)
		}
		defer h.Close()
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if h != nil {
		if err := h.Started(); err != nil {
			cmd.Process.Kill()
			cmd.Wait()
			t.Fatal(err)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s%s", err, &out, &log)
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// TestSandboxConfinesACommand tries what it must not, first without a sandbox: each deed must work
// there, or the test would prove nothing.
func TestSandboxConfinesACommand(t *testing.T) {
	enforced(t, abiTCP)
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	allowed, denied := mustServe(t), mustServe(t)
	// prepare makes the files anew.
	prepare := func() {
		t.Helper()
		os.RemoveAll(path("r"))
		os.RemoveAll(path("w"))
		os.RemoveAll(path("other"))
		for _, f := range []string{"r/file", "w/file", "w/one/file", "other/file", "other/more"} {
			os.MkdirAll(filepath.Dir(path(f)), 0o700)
			if err := os.WriteFile(path(f), []byte("secret"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		os.Mkdir(path("w/two"), 0o700)
		os.Symlink(path("other"), path("w/out"))
		script := []byte("#!/bin/sh\n")
		for _, f := range []string{"r/run", "other/run"} {
			if err := os.WriteFile(path(f), script, 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	self := strconv.Itoa(os.Getpid())
	rows := []struct {
		deed, want string
		abi        int // from which on it is restricted
	}{
		{"read " + path("r/file"), "ok", 0},
		{"list " + path("r"), "ok", 0},
		{"run " + path("r/run"), "ok", 0},
		{"read /etc/passwd", "ok", 0},
		{"write /dev/null", "ok", 0},
		{"write " + path("w/new"), "ok", 0},
		{"write " + path("w/file"), "ok", 0},
		{"move " + path("w/one/file") + " " + path("w/two/file"), "ok", 0}, // across folders, as npm and uv do
		{"link " + path("w/two/file") + " " + path("w/one/again"), "ok", 0},
		{"truncate " + path("w/two/file"), "ok", 0},
		{"remove " + path("w/one/again"), "ok", 0},
		{"connect " + allowed, "ok", 0},
		{"read " + path("other/file"), "EACCES", 0},
		{"list " + path("other"), "EACCES", 0},
		{"list " + dir, "EACCES", 0},
		{"run " + path("other/run"), "EACCES", 0},
		{"read /proc/" + self + "/environ", "EACCES", 0},
		{"read /proc/" + self + "/cmdline", "EACCES", 0},
		{"list /", "EACCES", 0},
		{"list /tmp", "EACCES", 0},
		{"write " + path("r/file"), "EACCES", 0},
		{"write " + path("other/new"), "EACCES", 0},
		{"write " + path("w/out/new"), "EACCES", 0}, // through a link of its own
		{"read " + path("w/out/file"), "EACCES", 0},
		{"truncate " + path("other/more"), "EACCES", 0},
		{"link " + path("other/file") + " " + path("w/linked"), "EXDEV", 0},
		{"move " + path("other/file") + " " + path("w/moved"), "EACCES", 0},
		{"remove " + path("r/run"), "EACCES", 0},
		{"connect " + denied, "EACCES", 0},
		{"listen", "EACCES", 0},
		{"signal " + self, "EPERM", 6},
	}
	var deeds []string
	for _, row := range rows {
		deeds = append(deeds, row.deed)
	}
	prepare()
	for i, got := range run(t, nil, Support{}, deeds...) {
		if got != "ok" {
			t.Errorf("without a sandbox: %s: %s", deeds[i], got)
		}
	}
	prepare()
	n, _ := strconv.Atoi(allowed)
	rules := Rules{Read: []string{path("r")}, Write: []string{path("w")}, TCP: []uint16{uint16(n)}}
	for i, got := range run(t, &rules, Kernel(), deeds...) {
		if row := rows[i]; got != row.want && row.abi <= Kernel().ABI {
			t.Errorf("%s: %s, want %s", row.deed, got, row.want)
		}
	}
}

// TestSandboxOfOlderKernels: what an older Landlock can enforce is in force, and nothing more is
// tried.
func TestSandboxOfOlderKernels(t *testing.T) {
	enforced(t, abiTCP)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	deeds := []string{"read " + secret, "truncate " + secret, "connect " + strconv.Itoa(l.Addr().(*net.TCPAddr).Port)}
	for abi, want := range map[int][]string{
		2: {"EACCES", "ok", "ok"}, 3: {"EACCES", "EACCES", "ok"}, 4: {"EACCES", "EACCES", "EACCES"},
	} {
		if got := run(t, &Rules{}, Support{ABI: abi, Filter: true}, deeds...); !slices.Equal(got, want) {
			t.Errorf("ABI %d: %q, want %q", abi, got, want)
		}
	}
	if got := run(t, &Rules{AnyTCP: true}, Kernel(), deeds...); !slices.Equal(got, []string{"EACCES", "EACCES", "ok"}) {
		t.Errorf("tcp: all: %q", got)
	}
}

// TestSandboxStartsNothingUnconfined: where the rules cannot be put in force, the command does not
// start.
func TestSandboxStartsNothingUnconfined(t *testing.T) {
	enforced(t, abiMove)
	for name, row := range map[string]struct {
		rules Rules
		path  string
		want  error
	}{
		"a path that is not there":      {Rules{Write: []string{"/no/such/folder"}}, "/bin/true", ErrSetUp},
		"a program that is not there":   {Rules{Default: System()}, "/no/such/program", syscall.ENOENT},
		"a program that it cannot read": {Rules{}, "/bin/true", syscall.EACCES},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := &exec.Cmd{Path: row.path, Args: []string{"x"}, Env: []string{}}
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			h, err := Wrap(cmd, row.rules, Kernel())
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if err := h.Started(); !errors.Is(err, row.want) {
				t.Errorf("the error is %v, want %v", err, row.want)
			}
			cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != 126 || out.Len() > 0 {
				t.Errorf("the wrapper ended with %d and wrote %q, want 126 and nothing", code, &out)
			}
		})
	}
}

// TestSandboxReadsItsWholeOrder: the wrapper leaves nothing in the socket, also of an order that just fills the
// buffer of the decoder. The kernel would report the rest as a reset of the connection.
func TestSandboxReadsItsWholeOrder(t *testing.T) {
	enforced(t, 1)
	rules := Rules{Default: System(), Devices: Devices()}
	for path, want := range map[string]error{"/bin/true": nil, "/no/such/program": syscall.ENOENT} {
		for size := 512; size < 32<<10; size = 2*size + 512 { // as the decoder enlarges its buffer
			cmd := &exec.Cmd{Path: path, Args: []string{"x", ""}, Env: []string{}}
			h, err := Wrap(cmd, rules, Kernel())
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			text, err := json.Marshal(&h.order)
			if err != nil {
				t.Fatal(err)
			}
			if len(text) > size {
				continue
			}
			h.order.Args[1] = strings.Repeat("x", size-len(text))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if err := h.Started(); !errors.Is(err, want) {
				t.Errorf("%s, %d bytes: the error is %v, want %v", path, size, err, want)
			}
			cmd.Wait()
		}
	}
}
