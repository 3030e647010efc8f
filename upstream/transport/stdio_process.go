package transport

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

// process is a child process, and what it started itself, as far as it stays in its group.
//
// It leads a session of its own: signals go to it and its descendants together, those of our
// terminal do not reach it, and a program that would ask for a password on the terminal fails
// instead of waiting for input.
//
// When we are killed and can do nothing any more, Linux kills the child itself (stdio_linux.go),
// everywhere its input ends, which tells servers and the wrappers around them to go, and whoever of
// the group does not go then is ended by the keeper (stdio_keeper.go). What remains is what has
// left the group: a daemon, and a container whose docker command was killed.
type process struct {
	cmd      *exec.Cmd
	grace    time.Duration
	words    time.Duration // see lastWords
	log      *slog.Logger
	watchdog *Watchdog
	cell     *cell // nil if it is not confined

	stdin          *os.File // written to by stdio
	stdout, stderr *os.File

	exited chan struct{} // closed when the child has ended and is reaped
	state  *os.ProcessState
	silent chan struct{} // closed when nothing more comes from stderr

	mu   sync.Mutex
	tail []byte // the last of stderr, whole lines as a rule, at most tailKept bytes
}

const (
	tailKept   = 4 << 10 // bytes of stderr that are kept for the end
	stderrLine = 4 << 10 // bytes of one line of it that are logged
	shownLine  = 300     // bytes of it in an error
)

// startProcess starts the child. It is owned by the caller, who must call finish.
func startProcess(o StdioOptions) (*process, error) {
	cmd, cell, err := confined(o)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, grace: o.StopGrace, words: o.LastWords, log: o.Log, watchdog: o.Watchdog, cell: cell,
		exited: make(chan struct{}), silent: make(chan struct{})}
	var theirs, ours [3]*os.File
	for i, open := range [3]func() (ours, theirs *os.File, err error){inputPair, outputPair, os.Pipe} {
		if ours[i], theirs[i], err = open(); err != nil {
			closeFiles(theirs[:i])
			closeFiles(ours[:i])
			cell.close()
			return nil, fmt.Errorf("start %s: %w", o.Command[0], err)
		}
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs[0], theirs[1], theirs[2]
	p.stdin, p.stdout, p.stderr = ours[0], ours[1], ours[2]
	started := make(chan error)
	go p.own(started)
	err = <-started
	closeFiles(theirs[:])
	if err != nil {
		closeFiles(ours[:])
		cell.close()
		if e, ok := errors.AsType[*fs.PathError](err); ok {
			err = e.Err
		}
		return nil, fmt.Errorf("start %s: %w", o.Command[0], err)
	}
	go p.listen()
	return p, nil
}

// inputPair returns the two ends of the child's standard input.
func inputPair() (ours, theirs *os.File, err error) {
	theirs, ours, err = os.Pipe()
	return ours, theirs, err
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// own starts the child and waits for it. Both happen on one locked operating system thread, because
// Linux treats the end of the thread that started the child as the end of the parent.
func (p *process) own(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	if err != nil {
		started <- err
		return
	}
	if err := p.watchdog.keep(p); err != nil {
		p.log.Debug("no watchdog: child processes may outlive Junction if it is killed", "err", err)
	}
	if err := p.cell.started(); err != nil { // the wrapper is no command, and has started nothing
		p.cmd.Process.Kill()
		p.cmd.Wait()
		p.watchdog.forget(p)
		started <- err
		return
	}
	started <- nil
	p.cmd.Wait() // what it returns is in the state, too
	p.state = p.cmd.ProcessState
	if !p.left() {
		p.watchdog.forget(p)
	}
	close(p.exited)
}

// listen logs what the child writes to stderr, line by line, and remembers the last of it. It takes
// everything, so that the child never waits for us.
func (p *process) listen() {
	defer close(p.silent)
	r := bufio.NewReaderSize(p.stderr, stderrLine)
	for {
		line, err := r.ReadSlice('\n')
		if len(line) > 0 {
			p.heard(line)
		}
		for err == bufio.ErrBufferFull { // the rest of a long line
			_, err = r.ReadSlice('\n')
		}
		if err != nil {
			return
		}
	}
}

func (p *process) heard(line []byte) {
	p.mu.Lock()
	p.tail = append(append(p.tail, bytes.TrimRight(line, "\r\n")...), '\n')
	if over := len(p.tail) - tailKept; over > 0 {
		if i := bytes.IndexByte(p.tail[over:], '\n') + 1; over+i < len(p.tail) { // whole lines, if there are several
			over += i
		}
		p.tail = append(p.tail[:0], p.tail[over:]...)
	}
	p.mu.Unlock()
	if p.log.Enabled(context.Background(), slog.LevelDebug) {
		p.log.Debug("stderr", "line", clean(line))
	}
}

// clean makes foreign bytes fit to be shown.
func clean(b []byte) string {
	return strings.TrimRight(strings.ToValidUTF8(string(b), "\uFFFD"), "\r\n\t ")
}

// finish ends the process and what is left of its group, and closes our ends of its pipes, so that
// whoever reads from them ends too, even where a descendant that left the group holds the other
// end. If the child still runs, its input is closed and it has a grace to end, then SIGTERM and
// another grace, then SIGKILL. What a child leaves behind that ended by itself is killed at once.
func (p *process) finish(drained <-chan struct{}) {
	p.stdin.Close()
	select {
	case <-p.exited:
	default:
		if !p.gone(drained) {
			p.signal(false)
			p.gone(drained)
		}
	}
	p.signal(true)
	p.gone(drained) // a killed process needs a moment, too
	<-p.exited
	p.watchdog.forget(p)
	p.stdout.Close()
	last := time.NewTimer(p.words)
	defer last.Stop()
	select { // its output is read to the end, unless another process holds the other end
	case <-p.silent:
	case <-last.C:
	}
	p.stderr.Close()
	p.cell.close()
}

// gone waits for one grace until the child has ended, and its descendants as well: all of its
// output has come, or its group is empty.
func (p *process) gone(drained <-chan struct{}) bool {
	timeout := time.NewTimer(p.grace)
	defer timeout.Stop()
	select {
	case <-p.exited:
	case <-timeout.C:
		return false
	}
	if !p.left() {
		return true
	}
	select {
	case <-drained:
		return true
	case <-timeout.C:
		return false
	}
}

// ExitError returns how the child ended; nil while it runs.
func (p *process) exitError() error {
	select {
	case <-p.exited:
	default:
		return nil
	}
	e := &ExitError{How: "ended by " + p.state.String()}
	if p.state.Exited() {
		e.How = fmt.Sprintf("exited with status %d", p.state.ExitCode())
	}
	p.mu.Lock()
	e.Stderr = clean(p.tail)
	p.mu.Unlock()
	return e
}

// ExitError is the end of a child process that we did not ask for.
type ExitError struct {
	How    string // exited with status 1, ended by signal: killed
	Stderr string // the last lines that it wrote to stderr, without the last line's end
}

// Error shows the line of stderr that most likely is the cause.
func (e *ExitError) Error() string {
	if line := causeLine(e.Stderr); line != "" {
		return e.How + ": " + line
	}
	return e.How
}

// causeLine chooses the line to show of what a program wrote before it ended: the last one that
// calls itself an error, because a stack trace or advice often follows it, and otherwise the last.
// What npm says is the other way round: first a code, then the cause, then advice.
func causeLine(text string) string {
	last := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		lower := strings.ToLower(line)
		if npm, ok := strings.CutPrefix(lower, "npm err"); ok && !npmDetail(npm) {
			last = line
			break
		}
		if strings.Contains(lower, "error:") || strings.Contains(lower, "panic:") {
			last = line
		}
	}
	if last == "" {
		last = strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
	}
	return last[:min(len(last), shownLine)]
}

// npmDetail reports whether a line of npm's, without its mark, is one of those that come before the
// sentence.
func npmDetail(line string) bool {
	for _, word := range []string{" code ", " errno ", " syscall ", " path ", " dest "} {
		if strings.Contains(line, word) {
			return true
		}
	}
	return false
}

// confined is command in a cell of its own, which the caller closes; nil if the options confine
// nothing.
func confined(o StdioOptions) (*exec.Cmd, *cell, error) {
	if len(o.Command) == 0 {
		return nil, nil, errors.New("no command")
	}
	x, err := o.Confine.open()
	if err != nil {
		return nil, nil, err
	}
	dir := o.Dir
	o, err = x.enter(o)
	var cmd *exec.Cmd
	if err == nil {
		cmd, err = command(o)
	}
	if err == nil {
		err = x.wrap(cmd, dir)
	}
	if err != nil {
		x.close()
		return nil, nil, err
	}
	return cmd, x, nil
}

// command finds the program as a shell would: a name is looked for in PATH, which is the server's
// own where its Env has one.
func command(o StdioOptions) (*exec.Cmd, error) {
	if len(o.Command) == 0 {
		return nil, errors.New("no command")
	}
	if o.Dir != "" {
		if i, err := os.Stat(o.Dir); err != nil {
			if e, ok := errors.AsType[*fs.PathError](err); ok {
				err = e.Err
			}
			return nil, fmt.Errorf("dir %s: %w", o.Dir, err)
		} else if !i.IsDir() {
			return nil, fmt.Errorf("dir %s: is no directory", o.Dir)
		}
	}
	name := o.Command[0]
	if path, ok := o.Env["PATH"]; ok && filepath.Base(name) == name {
		for _, dir := range filepath.SplitList(path) {
			if found, err := exec.LookPath(filepath.Join(dir, name)); err == nil && filepath.IsAbs(found) {
				name = found
				break
			}
		}
		if name == o.Command[0] {
			return nil, fmt.Errorf("%s: %w of its env", name, ErrNoProgram)
		}
	}
	if o.program != "" {
		name = o.program
	}
	cmd := exec.Command(name, o.Command[1:]...)
	cmd.Args[0] = o.Command[0]
	if cmd.Err != nil {
		if errors.Is(cmd.Err, exec.ErrNotFound) {
			return nil, fmt.Errorf("%s: %w", name, ErrNoProgram)
		}
		return nil, cmd.Err
	}
	cmd.Dir = o.Dir
	// which has the PWD of Dir
	cmd.Env = Environment{o.Env, o.Inherit, o.Reserved}.of(exchange(cmd.Environ(), o.private, o.Env))
	cmd.SysProcAttr = ownGroup()
	return cmd, nil
}

// ErrNoProgram is why a command cannot be started.
var ErrNoProgram = errors.New("not found in PATH")
