package process

// This file finds out what a test leaves behind, although other tests run beside it. A goroutine
// belongs to the test whose label it has inherited (runtime/pprof), a process to the test that one of
// its environment variables names, and a temporary file to the test in whose folder it is. Left finds
// what belongs to no test, when all tests of a package have ended.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// label is the key of the label of goroutines.
	label = "test"
	// variable has the test that a process belongs to. Junction passes variables to its commands whose
	// names begin with XDG_, and so does the program for all its descendants.
	variable = "XDG_TEST_OWNER"
	// labelled makes runtime.Stack show the labels of goroutines.
	labelled = "tracebacklabels=1"
)

// Owner is a test to which goroutines, processes and files belong.
type Owner struct {
	name   string // of the test
	temp   string // the folder of its temporary files
	others string // that of programs that others wrote

	given    atomic.Bool   // processes may have the variable
	leftPIDs []int         // the processes that were found at the end
	patience time.Duration // for what is ending
}

// owners are the tests that run.
type owners struct {
	mu  sync.Mutex
	all map[testing.TB]*Owner
}

var running = sync.OnceValue(func() *owners { return &owners{all: map[testing.TB]*Owner{}} })

// OwnerOf returns the owner of what a test starts from the first call on. It must be called by the
// goroutine of the test. When the test has ended and its later cleanups have run, it fails the test
// for each goroutine, process and temporary file that is left.
func OwnerOf(t testing.TB) *Owner {
	t.Helper()
	r := running()
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.all[t]; o != nil {
		return o
	}
	o := &Owner{name: t.Name(), temp: mustTemp(t), others: mustTemp(t), patience: Patience}
	r.all[t] = o
	o.label()
	t.Cleanup(func() {
		if t.Failed() { // a test that has failed may leave something
			o.patience = min(o.patience, time.Second)
		}
		for _, thing := range o.left() {
			t.Errorf("left behind: %s", thing)
		}
		for _, pid := range o.leftPIDs {
			KillGroup(pid)
			Kill(pid)
		}
		os.RemoveAll(o.temp)
		os.RemoveAll(o.others)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.all, t)
	})
	return o
}

// mustTemp makes a folder for temporary files, as open to other users as /tmp is. Its path is short,
// because the path of a socket must be.
func mustTemp(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "t")
	if err == nil {
		err = os.Chmod(dir, 0o777|os.ModeSticky)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Lasts runs f, which starts something that outlives the test: its goroutines belong to no test.
func (o *Owner) Lasts(f func()) {
	pprof.SetGoroutineLabels(context.Background())
	defer o.label()
	f()
}

func (o *Owner) label() {
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(label, o.name)))
}

func (o *Owner) id() string { return strconv.Itoa(os.Getpid()) + "/" + o.name }

// Variable returns a variable of the environment that makes a process belong to the test.
func (o *Owner) Variable() (name, value string) {
	o.given.Store(true)
	return variable, o.id()
}

// Environ appends variables to an environment that make a process, and the temporary files of it,
// belong to the test.
func (o *Owner) Environ(environment []string) []string {
	return o.environ(environment, o.temp)
}

// EnvironOfOthers is Environ for a program that others wrote, which may leave temporary files: they go
// with the test.
func (o *Owner) EnvironOfOthers(environment []string) []string {
	return o.environ(environment, o.others)
}

func (o *Owner) environ(environment []string, temp string) []string {
	name, value := o.Variable()
	return append(slices.Clip(environment), name+"="+value, "TMPDIR="+temp)
}

// left waits until nothing is left of the test, and returns what is left at the end of its patience. It
// looks for processes when the goroutines have ended, and for files when the processes have.
func (o *Owner) left() []string {
	end := time.Now().Add(o.patience)
	list := awaitNothing(end, func() (list []string) {
		for _, g := range goroutines() {
			if g.label == o.name {
				list = append(list, g.String())
			}
		}
		return list
	})
	list = append(list, awaitNothing(end, func() (list []string) {
		o.findProcesses()
		for _, pid := range o.leftPIDs {
			name, _ := Living(pid)
			list = append(list, fmt.Sprintf("process %d (%s)", pid, name))
		}
		return list
	})...)
	return append(list, awaitNothing(end, func() []string { return files(o.temp) })...)
}

// End waits until no process has a variable in its environment, as NAME=VALUE. After the time for that, it kills
// those that have it, and returns their names.
func End(variable string, patience time.Duration) []string {
	var left []int
	list := awaitNothing(time.Now().Add(patience), func() (list []string) {
		left = ownedBy(variable)
		for _, pid := range left {
			name, _ := Living(pid)
			list = append(list, fmt.Sprintf("process %d (%s)", pid, name))
		}
		return list
	})
	for _, pid := range left {
		KillGroup(pid)
		Kill(pid)
	}
	return list
}

// findProcesses sets leftPIDs. The environments of all processes of a machine are many files, so it reads them
// only if a process can have the variable, and not again while one lives that it has found.
func (o *Owner) findProcesses() {
	text := variable + "=" + o.id()
	o.leftPIDs = slices.DeleteFunc(o.leftPIDs, func(pid int) bool { return !isOwned(pid, text) })
	if len(o.leftPIDs) == 0 && o.given.Load() {
		o.leftPIDs = ownedBy(text)
	}
}

// Prepare makes labels visible and gives this process a folder for temporary files, through which
// processes of other users may pass. Left looks there,
// and remove removes it. Call it before the first test.
func Prepare(temp string) error {
	debug := labelled
	if other := os.Getenv("GODEBUG"); other != "" {
		debug = other + "," + labelled
	}
	return errors.Join(os.Setenv("GODEBUG", debug), os.MkdirAll(temp, 0o711), os.Setenv("TMPDIR", temp))
}

// Left waits until nothing is left of a package whose tests have ended, and returns what is left at
// the end of its patience: goroutines and children of no test, such as those of a timer, and files in
// the folder of Prepare.
func Left(patience time.Duration) []string {
	return awaitNothing(time.Now().Add(patience), func() (list []string) {
		for _, g := range goroutines() {
			list = append(list, g.String())
		}
		for _, pid := range ChildPIDs(os.Getpid()) {
			if name, lives := Living(pid); lives {
				list = append(list, fmt.Sprintf("process %d (%s)", pid, name))
			}
		}
		return append(list, files(os.TempDir())...)
	})
}

// awaitNothing waits until nothing is left, or the time is over. It looks at least once.
func awaitNothing(end time.Time, left func() []string) (list []string) {
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if list = left(); len(list) == 0 || time.Now().After(end) {
			return list
		}
		time.Sleep(pause)
	}
}

// goroutine is a goroutine that runs code of this module.
type goroutine struct{ label, stack string }

func (g goroutine) String() string { return "a goroutine:\n" + g.stack }

// goroutines returns the goroutines of this module, but the current one and those that run tests.
func goroutines() (list []goroutine) {
	for _, stack := range strings.Split(stacks().text(), "\n\n")[1:] {
		if !strings.Contains(stack, "junction/") || strings.Contains(stack, "\ntesting.(*T).Run(") ||
			strings.Contains(stack, "\ntesting.tRunner(") {
			continue
		}
		g := goroutine{stack: stack}
		header, _, _ := strings.Cut(stack, "\n")
		if _, value, ok := strings.Cut(header, `labels:{"`+label+`": `); ok {
			if quoted, err := strconv.QuotedPrefix(value); err == nil {
				g.label, _ = strconv.Unquote(quoted) // QuotedPrefix has checked it
			}
		}
		list = append(list, g)
	}
	return list
}

// stacks has the memory for the stacks of all goroutines, which tests read one after the other.
var stacks = sync.OnceValue(func() *dump { return &dump{b: make([]byte, 1<<20)} })

type dump struct {
	mu sync.Mutex
	b  []byte
}

// text returns the stacks. That of the current goroutine is the first one.
func (d *dump) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := runtime.Stack(d.b, true)
	for n == len(d.b) {
		d.b = make([]byte, 2*len(d.b))
		n = runtime.Stack(d.b, true)
	}
	return string(d.b[:n])
}

// files returns the files in a folder that is there for a test or a package.
func files(dir string) (list []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return []string{err.Error()}
	}
	for _, e := range entries {
		list = append(list, "the file "+filepath.Join(dir, e.Name()))
	}
	return list
}
