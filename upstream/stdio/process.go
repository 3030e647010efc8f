package stdio

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"junction/upstream/files"
	"junction/upstream/transport"
)

// process is a child process and its descendants, as far as they stay in its process group.
//
// It leads its own session. Signals reach it and its descendants together. Signals of Junction's
// terminal do not reach it. A program that would ask for a password on the terminal fails instead
// of waiting for input.
//
// If Junction is killed and cannot clean up, Linux kills the child itself (process_linux.go). On all
// systems the child's input ends, which makes servers and their wrappers exit. The watchdog
// (watchdog.go) kills the rest of the group. Only processes that have left the group remain:
// a daemon, or a container whose docker command was killed.
type process struct {
	cmd  *exec.Cmd
	o    Options
	cell *cell // nil if it has no sandbox

	stdin          *os.File // stdio writes to it
	stdout, stderr *os.File

	exited chan struct{} // closed when the child has ended and is reaped
	state  *os.ProcessState
	begun  time.Time     // when it was started
	silent chan struct{} // closed at the end of stderr

	mu       sync.Mutex
	tail     []byte // the last part of stderr, usually whole lines, at most tailKept bytes
	reported []Reported

	problems transport.LogLimit // of lines with a priority
}

const (
	tailKept   = 4 << 10 // bytes of stderr that are kept for the ExitError
	stderrLine = 4 << 10 // bytes of one line of stderr that are logged
	shownLine  = 600     // bytes of a line of stderr in an error: the advice of an SDK is at the end of a long one

	maxReported = 10 // problems that are kept
)

// Reported is a problem that a server has written to its standard error.
type Reported struct {
	At   time.Time
	Text string // one line
}

// Child is the transport to a process.
type Child interface {
	// PID returns the id of the process, which leads the session of its children.
	PID() int
	// Started returns when the process was started.
	Started() time.Time
	// Reported returns the last problems that the process has reported: lines of its standard error
	// with a priority of sd-daemon(3) up to <4>, since the last line with another priority. The
	// caller must not change them.
	Reported() []Reported
	// Tail returns the last lines of the standard error of the process, at most 4 KiB.
	Tail() string
}

// startProcess starts the child. The caller owns it and must call finish.
func startProcess(o Options) (*process, error) {
	dirs, err := o.Folder.open(o.Confine != nil)
	if err != nil {
		return nil, err
	}
	defer closeFiles(dirs) // after the start
	cmd, cell, err := confined(o, dirs)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, o: o, cell: cell, begun: time.Now(), exited: make(chan struct{}),
		silent: make(chan struct{})}
	output := outputPair
	if o.piped {
		output = os.Pipe
	}
	var theirs, ours [3]*os.File
	for i, open := range [3]func() (ours, theirs *os.File, err error){inputPair, output, os.Pipe} {
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
		return nil, fmt.Errorf("start %s: %w", o.Command[0], files.Reason(err))
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
	if err := p.o.Watchdog.keep(p); err != nil {
		p.o.Log.Debug("no watchdog: child processes may outlive Junction if it is killed", "err", err)
	}
	// the sandbox wrapper failed and has not started the command
	if err := p.cell.started(); err != nil {
		p.cmd.Process.Kill()
		p.cmd.Wait()
		p.o.Watchdog.forget(p)
		started <- err
		return
	}
	started <- nil
	p.cmd.Wait() // its result is in the state, too
	p.state = p.cmd.ProcessState
	if !p.left() {
		p.o.Watchdog.forget(p)
	}
	close(p.exited)
}

// listen logs the child's stderr line by line and keeps the last part of it. It reads everything,
// so that the child never blocks on a full pipe.
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

// heard keeps and logs a line. A line that begins with a priority of sd-daemon(3) up to <4> is a
// warning or an error, which operators see without debugging. A line with another priority ends the
// problems that the server has reported before.
func (p *process) heard(line []byte) {
	prioritized, problem := false, false
	if len(line) > 3 && line[0] == '<' && line[1] >= '0' && line[1] <= '7' && line[2] == '>' {
		prioritized, problem, line = true, line[1] <= '4', line[3:]
	}
	p.mu.Lock()
	switch {
	case problem:
		kept := p.reported[max(0, len(p.reported)+1-maxReported):]
		p.reported = append(slices.Clip(kept), Reported{time.Now(), clean(line)}) // Reported returned the old ones
	case prioritized:
		p.reported = nil
	}
	p.tail = append(append(p.tail, bytes.TrimRight(line, "\r\n")...), '\n')
	if over := len(p.tail) - tailKept; over > 0 {
		// whole lines, if there are several
		if i := bytes.IndexByte(p.tail[over:], '\n') + 1; over+i < len(p.tail) {
			over += i
		}
		p.tail = append(p.tail[:0], p.tail[over:]...)
	}
	p.mu.Unlock()
	if problem {
		p.problems.Warn(p.o.Log, "the server reports a problem", "line", p.o.logged(line))
		return
	}
	if p.o.Log.Enabled(context.Background(), slog.LevelDebug) {
		p.o.Log.Debug("stderr", "line", p.o.logged(line))
	}
}

// clean makes bytes of a server printable: valid UTF-8 without white space at the end.
func clean(b []byte) string {
	return strings.TrimRight(strings.ToValidUTF8(string(b), "\uFFFD"), "\r\n\t ")
}

// finish ends the process and the rest of its group, and closes Junction's ends of the pipes, so
// that their readers end even if a descendant outside the group holds the other end. If the child
// still runs, finish closes its input, waits for the grace period, sends SIGTERM, waits again and
// sends SIGKILL. If the child had already exited, the rest of its group is killed at once.
func (p *process) finish(drained <-chan struct{}) {
	p.stdin.Close()
	select {
	case <-p.exited:
	default:
		if !p.awaitGone(drained) {
			p.signal(false)
			p.awaitGone(drained)
		}
	}
	p.signal(true)
	p.awaitGone(drained) // a killed process needs a moment, too
	<-p.exited
	p.o.Watchdog.forget(p)
	p.stdout.Close()
	await(p.silent, p.o.LastWords) // to the end of the output, unless another process holds the other end
	p.stderr.Close()
	p.cell.close()
}

// awaitGone waits at most one grace period for the end of the child and its descendants: until its
// stdout has ended, or its group is empty.
func (p *process) awaitGone(drained <-chan struct{}) bool {
	end := time.Now().Add(p.o.StopGrace)
	return await(p.exited, p.o.StopGrace) && (!p.left() || await(drained, time.Until(end)))
}

// exitError returns how the child ended, or nil while it runs.
func (p *process) exitError() error {
	select {
	case <-p.exited:
	default:
		return nil
	}
	e := &ExitError{How: "ended by " + p.state.String(), Killed: killed(p.state)}
	if p.state.Exited() {
		e.How = fmt.Sprintf("exited with status %d", p.state.ExitCode())
	}
	p.mu.Lock()
	e.Stderr = clean(p.tail)
	p.mu.Unlock()
	return e
}

// ExitError means that a child process ended although Junction did not end it.
type ExitError struct {
	How    string // such as: exited with status 1, ended by signal: killed
	Stderr string // its last lines on stderr, without the end of the last line
	Killed bool   // another process, or the system, has sent SIGKILL
}

// Error includes the line of stderr that is most likely the cause.
func (e *ExitError) Error() string {
	if line := causeLine(e.Stderr); line != "" {
		return e.How + ": " + line
	}
	return e.How
}

// causeLine chooses the line of a program's stderr to show: the last line with an error, because a stack trace or
// advice often follows it, otherwise the last line that does more than point to help. npm prints a code first, then
// the cause, then advice.
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
		last = lastReason(text)
	}
	return last[:min(len(last), shownLine)]
}

// lastReason returns the last line that is not empty and does more than point to help; without one, the last line.
func lastReason(text string) string {
	last := ""
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && (last == "" || !pointsToHelp(line)) {
			last = line
		}
	}
	return last
}

// pointsToHelp reports whether a line only says where a program explains its use.
func pointsToHelp(line string) bool {
	lower := strings.ToLower(line)
	begins := func(word string) bool { return strings.HasPrefix(lower, word) }
	return (strings.Contains(lower, "--help") || strings.Contains(lower, " help")) &&
		slices.ContainsFunc([]string{"run ", "see ", "try ", "use ", "type ", "for more ", "for help", "for details",
			"for usage"}, begins)
}

// npmDetail reports whether a line of npm, without its prefix, is one of the details before the
// cause.
func npmDetail(line string) bool {
	for _, word := range []string{" code ", " errno ", " syscall ", " path ", " dest "} {
		if strings.Contains(line, word) {
			return true
		}
	}
	return false
}

// confined returns the command in a cell of its own, which the caller must close. The cell is nil
// if the options have no sandbox. folders are the open Options.Folder and its others.
func confined(o Options, folders []*os.File) (*exec.Cmd, *cell, error) {
	if len(o.Command) == 0 {
		return nil, nil, errors.New("no command")
	}
	x, err := o.Confine.open()
	if err != nil {
		return nil, nil, err
	}
	if o.Folder.starts() {
		o.Dir = ""
	}
	dir := o.Dir
	o, err = x.enter(o)
	var cmd *exec.Cmd
	if err == nil {
		cmd, err = command(o)
	}
	if err == nil {
		err = x.wrap(cmd, dir, o.Folder, folders)
	}
	if err == nil && o.Folder.starts() && (x == nil || x.handover == nil) {
		startIn(cmd, folders[0])
	}
	if err != nil {
		x.close()
		return nil, nil, err
	}
	return cmd, x, nil
}

// command returns the command to start. It searches the program as a shell does, in PATH; a PATH in
// the server's own Env replaces Junction's.
func command(o Options) (*exec.Cmd, error) {
	if o.Dir != "" {
		if i, err := os.Stat(o.Dir); err != nil {
			return nil, fmt.Errorf("dir %s: %w", o.Dir, files.Reason(err))
		} else if !i.IsDir() {
			return nil, fmt.Errorf("dir %s: is no directory", o.Dir)
		}
	}
	name := o.Command[0]
	if path, ok := o.Env.Own["PATH"]; ok && filepath.Base(name) == name {
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
	if cmd.Dir = o.Dir; o.Folder.starts() {
		cmd.Dir = o.Folder.Path
	}
	// cmd.Environ has the PWD of Dir
	cmd.Env = o.Env.variables(exchange(cmd.Environ(), o.private, o.Env.Own))
	cmd.SysProcAttr = ownGroup()
	return cmd, nil
}

// ErrNoProgram means that the program of a command was not found.
var ErrNoProgram = errors.New("not found in PATH")
