package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	temp, err := os.MkdirTemp("", "process")
	if err == nil {
		err = Prepare(temp)
	}
	if err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(temp)
	os.Exit(code)
}

// recorder is a test whose failures are looked at, and not counted.
type recorder struct {
	testing.TB
	name     string
	cleanups []func()
	failures []string
}

func (r *recorder) Name() string     { return r.name }
func (r *recorder) Helper()          {}
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

// TestOwnerFindsWhatATestLeaves runs two tests beside each other that leave a goroutine, a process and
// a file, and one beside them that leaves nothing. Each failure is that of its own test.
func TestOwnerFindsWhatATestLeaves(t *testing.T) {
	if ChildPIDs(os.Getpid()) == nil {
		if _, err := os.Stat("/proc/self/environ"); err != nil {
			t.Skip("this system does not show the environment of processes")
		}
	}
	over := make(chan struct{})
	defer close(over)
	type step struct{ leaves, looks chan struct{} }
	run := func(name string, leave bool) (*recorder, step, chan struct{}) {
		r := &recorder{TB: t, name: name}
		s, done := step{make(chan struct{}), make(chan struct{})}, make(chan struct{})
		go func() {
			defer close(done)
			o := OwnerOf(r)
			o.patience = 0
			if leave {
				began := make(chan struct{})
				go leftGoroutine(began, over)
				<-began // before, its stack does not have its name
				cmd := exec.Command("sleep", "60")
				cmd.Env = o.Environ(os.Environ())
				if err := cmd.Start(); err != nil {
					t.Error(err)
				}
				t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
				if err := os.WriteFile(filepath.Join(o.temp, "left"), nil, 0o600); err != nil {
					t.Error(err)
				}
			}
			close(s.leaves)
			<-s.looks
			for _, f := range slices.Backward(r.cleanups) {
				f()
			}
		}()
		return r, s, done
	}
	for _, leave := range []struct {
		name   string
		things bool
	}{{"TestA", true}, {"TestA/b", true}, {"TestC", false}} {
		defer func(r *recorder, s step, done chan struct{}) {
			<-s.leaves // all have left their things when the first one looks
			close(s.looks)
			<-done
			text := strings.Join(r.failures, "\n")
			if !leave.things {
				if text != "" {
					t.Errorf("%s leaves nothing, and fails with:\n%s", leave.name, text)
				}
				return
			}
			if len(r.failures) != 3 || !strings.Contains(text, "leftGoroutine") || !strings.Contains(text, "(sleep)") ||
				!strings.Contains(text, "/left") {
				t.Errorf("%s fails with %d lines, want its goroutine, its process and its file:\n%s", leave.name, len(r.failures), text)
			}
		}(run(leave.name, leave.things))
	}
}

func leftGoroutine(began chan<- struct{}, over <-chan struct{}) {
	close(began)
	<-over
}

// TestLeftFindsWhatIsOfNoTest does so in a process of its own.
func TestLeftFindsWhatIsOfNoTest(t *testing.T) {
	const role = "TEST_LEFT"
	if temp := os.Getenv(role); temp != "" {
		if err := Prepare(temp); err != nil {
			t.Fatal(err)
		}
		begun, over := make(chan struct{}), make(chan struct{})
		defer close(over)
		time.AfterFunc(0, func() { close(begun); leftGoroutine(make(chan struct{}), over) })
		<-begun
		cmd := exec.Command("sleep", "60")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { cmd.Process.Kill(); cmd.Wait() }()
		if err := os.WriteFile(filepath.Join(os.TempDir(), "left"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		fmt.Println(strings.Join(Left(0), "\n"))
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), role+"="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"leftGoroutine", "(sleep)", "/left"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is missing in:\n%s", want, out)
		}
	}
}
