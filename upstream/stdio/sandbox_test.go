//go:build unix

package stdio

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/upstream/sandbox"
)

// sandboxEnv has the tests of stdio start every child in a sandbox.
const sandboxEnv = "JUNCTION_TEST_SANDBOX"

// confinedTest returns the sandbox of the children of a test, which may write the paths; nil unless
// sandboxEnv asks for one. The race detector reads its options in /proc; without them, each child
// takes a second to exit.
func confinedTest(paths ...string) *Confinement {
	if os.Getenv(sandboxEnv) == "" {
		return nil
	}
	return &Confinement{Rules: sandbox.Rules{Read: []string{"/proc"}, Write: paths}, Require: true, Name: "test", Support: sandbox.Kernel()}
}

// mustEnforce skips a test of what the kernel enforces where it does not.
func mustEnforce(t *testing.T) {
	t.Helper()
	if s := sandbox.Kernel(); s.Missing(&sandbox.Rules{}) != "" {
		t.Skip("NOT TESTED: " + s.Missing(&sandbox.Rules{}))
	}
}

// TestSandboxWrapperIsNotSeen runs the tests of stdio once more with all children in sandboxes:
// group, session, streams, exit status, the texts of errors, the way to the end of a process and
// what the watchdog does after kill -9 are the same.
func TestSandboxWrapperIsNotSeen(t *testing.T) {
	t.Parallel()
	mustEnforce(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	names := "TestStdio(Call|ConcurrentCalls|Close|OpenErrors|EnvAndDir|Death|Stderr)|" +
		"TestStdio(AnswersBeforeDeathCount|ContextEnds|StrangeLines)|" +
		"TestWatchdog(LivesWithChildren|ParentKilled)|TestChildLeadsItsOwnSession"
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^("+names+")$", "-test.v")
	cmd.Env = append(os.Environ(), sandboxEnv+"=1", "TMPDIR="+t.TempDir()) // where processes that are killed leave folders
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := strings.Count(string(out), "\n--- PASS: "); n != 13 || strings.Contains(string(out), "--- SKIP") {
		t.Errorf("%d tests passed, want 13:\n%s", n, out)
	}
}

// TestSandboxPrivateFolders: a confined command keeps caches and temporary files in folders of its
// own, in which it stands, and what is temporary goes with its process.
func TestSandboxPrivateFolders(t *testing.T) {
	t.Setenv("NPM_CONFIG_CACHE", "/home/shared") // in another case than ours
	t.Setenv("PIP_CACHE_DIR", "/home/shared")
	t.Setenv("XDG_CACHE_HOME", "/home/shared")
	for name, kernel := range map[string]sandbox.Support{
		"enforced": sandbox.Kernel(), "not enforced": {Why: "none here"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "enforced" {
				mustEnforce(t)
			}
			private := filepath.Join(t.TempDir(), "sandboxes", "up")
			start := func(dir, script string, env map[string]string) (said []string) {
				t.Helper()
				o := Options{Command: []string{"sh", "-c", script + "; exit 3"}, Env: Environment{Own: env}, Dir: dir,
					Log:     authtest.Log(t),
					Confine: &Confinement{Name: "up", Support: kernel, Private: private}}
				w, err := Open(o, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer w.Close()
				exit, ok := errors.AsType[*ExitError](w.Wait())
				if !ok || exit.How != "exited with status 3" {
					t.Fatalf("it ended with %v %+v", ok, exit)
				}
				return strings.Split(exit.Stderr, "\n")
			}
			const show = `echo a >kept; echo b >"$TMPDIR/x"; mkdir -p "$XDG_CACHE_HOME"; echo c >"$XDG_CACHE_HOME/y"
				{ pwd; env | sort; } >&2`
			said := start("", show, map[string]string{"UV_CACHE_DIR": "/own"})
			temp := ""
			for _, line := range said {
				if value, ok := strings.CutPrefix(line, "TMPDIR="); ok {
					temp = value
				}
			}
			want := []string{private, "PWD=" + private, "XDG_CACHE_HOME=" + private + "/.cache",
				"npm_config_cache=" + private + "/.cache/npm", "UV_CACHE_DIR=/own", "UV_TOOL_DIR=" + private + "/.cache/uv-tools"}
			for _, line := range want {
				if !slices.Contains(said, line) {
					t.Errorf("the command has no %s, but %q", line, said)
				}
			}
			if slices.ContainsFunc(said, func(line string) bool { return strings.Contains(line, "/home/shared") }) {
				t.Errorf("the command knows the shared cache: %q", said)
			}
			if _, err := os.Stat(temp); temp == "" || !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the temporary folder %q is left: %v", temp, err)
			}
			dir := t.TempDir()
			said = start(dir, `pwd >&2; cat "$OLD/kept" "$XDG_CACHE_HOME/y" >&2`, map[string]string{"OLD": private})
			if !slices.Equal(said, []string{dir, "a", "c"}) {
				t.Errorf("the next process says %q, want what the first one kept", said)
			}
		})
	}
}

// TestSandboxExchangesVariables: names that npm takes for one are one, and the entry's own count.
func TestSandboxExchangesVariables(t *testing.T) {
	private := map[string]string{"npm_config_cache": "/p", "PIP_CACHE_DIR": ""}
	for name, row := range map[string]struct {
		own  map[string]string
		want []string
	}{
		"ours":                  {nil, []string{"A=1", "npm_config_cache=/p"}},
		"the entry's":           {map[string]string{"npm_config_cache": "/e"}, []string{"A=1"}},
		"the entry's, in upper": {map[string]string{"NPM_CONFIG_CACHE": "/e"}, []string{"A=1"}},
	} {
		given := []string{"A=1", "NPM_CONFIG_CACHE=/h", "npm_config_cache=/h", "PIP_CACHE_DIR=/h"}
		if got := exchange(given, private, row.own); !slices.Equal(got, row.want) {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
}

// TestSandboxPathsMustExist: a command does not start without a path of its sandbox, also
// where the kernel enforces nothing, and the error names the path and the remedy.
func TestSandboxPathsMustExist(t *testing.T) {
	dir := t.TempDir()
	there, gone := filepath.Join(dir, "there"), filepath.Join(dir, "gone")
	if err := os.Mkdir(there, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, kernel := range []sandbox.Support{sandbox.Kernel(), {Why: "none here"}} {
		for _, row := range []struct {
			c    Confinement
			want string
		}{
			{Confinement{Rules: sandbox.Rules{Read: []string{there, gone}}}, "sandbox.read: " + gone + " does not exist; create it, or remove the entry"},
			{Confinement{Rules: sandbox.Rules{Write: []string{gone}}}, "sandbox.write: " + gone +
				" does not exist; create it (a folder: mkdir -p " + gone + "), or remove the entry"},
			{Confinement{Rules: sandbox.Rules{Write: []string{there + "\x00"}}}, "sandbox.write: " + there + "\x00 cannot be used: " +
				"invalid argument; make it accessible to the user of Junction, or remove the entry"},
		} {
			c := row.c
			c.Name, c.Support = "up", kernel
			var confined *SandboxError
			w, err := Open(Options{Command: []string{"true"}, Log: authtest.Log(t), Confine: &c}, nil)
			if err == nil {
				w.Close()
			}
			if err == nil || err.Error() != row.want || errors.As(err, &confined) && confined.Permanent {
				t.Errorf("the error is %v, want %s", err, row.want)
			}
		}
	}
}

// TestSandboxSocketsThatNoKernelLimits: where the kernel cannot restrict UNIX sockets, a command that
// requires its sandbox has none, and it does not start if its entry names one.
func TestSandboxSocketsThatNoKernelLimits(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	kernel := func(abi int) sandbox.Support { return sandbox.Support{ABI: abi, Filter: true} }
	want := "sandbox.write: " + socket + " is a UNIX socket, and with Landlock of this kernel (ABI 8) " +
		"require: true permits none; use Linux 7.1 or newer, or remove require"
	for name, row := range map[string]struct {
		c    Confinement
		want string
	}{
		"required":        {Confinement{Rules: sandbox.Rules{Write: []string{socket}}, Support: kernel(8)}, want},
		"restricted":      {Confinement{Rules: sandbox.Rules{Write: []string{socket}}, Support: kernel(9)}, ""},
		"not required":    {Confinement{Rules: sandbox.Rules{Write: []string{socket}, AnyUnix: true}, Support: kernel(8)}, ""},
		"only to be read": {Confinement{Rules: sandbox.Rules{Read: []string{socket}}, Support: kernel(8)}, ""},
	} {
		row.c.Name = "up"
		x, err := row.c.open()
		x.close()
		if got := fmt.Sprint(err); row.want != "" && got != row.want || row.want == "" && err != nil {
			t.Errorf("%s: %s, want %q", name, got, row.want)
		}
	}
}

// TestSandboxRelativePrograms: a program whose path is relative stays the one below our folder,
// although the command stands in its own.
func TestSandboxRelativePrograms(t *testing.T) {
	mustEnforce(t)
	t.Chdir(t.TempDir())
	if err := os.WriteFile("server", []byte("#!/bin/sh\necho \"$0\" >&2; exit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	c := &Confinement{Name: "up", Support: sandbox.Kernel()}
	w, err := Open(Options{Command: []string{"./server"}, Log: authtest.Log(t), Confine: c}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Wait(); err == nil || !strings.HasPrefix(err.Error(), "exited with status 3") {
		t.Errorf("it ended with %v", err)
	}
}
