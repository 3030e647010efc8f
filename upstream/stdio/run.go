package stdio

import (
	"context"
	"errors"
	"io"
	"os"
	"time"
)

// A Result is what a command that ran once has left behind.
type Result struct {
	Output   []byte // standard output, at most as many bytes as the limit
	Stderr   string // the last 4 KiB of standard error, as valid UTF-8
	Code     int    // the exit status; -1 if a signal ended the process
	How      string // such as: exited with status 1, ended by signal: killed
	Exceeded bool   // the output was longer than the limit; the command was ended
}

// runWords is the default of LastWords for Run. It is the longest wait for the rest of the output,
// if a process that left the group holds the pipe open. The rest of the group is dead by then, so
// that others end the wait at once.
const runWords = 2 * time.Second

// Run runs a command that is no server: it gets input on its standard input, and its output is
// returned when it has ended. The process and its group are started, confined and ended like those
// of Open; when Run returns, no process of the group is left.
//
// Run sends SIGTERM when ctx ends or the output exceeds limit bytes, and SIGKILL within twice
// StopGrace. If ctx ended first, it returns the cause, together with the Result. Any other error
// means that the command was not started. LastWords has a default of 2s.
func Run(ctx context.Context, o Options, input []byte, limit int) (*Result, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if o.LastWords == 0 {
		o.LastWords = runWords
	}
	o = o.withDefaults()
	o.piped = true
	p, err := startProcess(o)
	if err != nil {
		return nil, err
	}
	fed, drained, full := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() { // ends when all is written, or when finish closes the pipe
		defer close(fed)
		p.stdin.Write(input) // a command need not read its input
		p.stdin.Close()
	}()
	var output []byte
	go func() { // ends with the output, or when finish closes the pipe
		defer close(drained)
		var err error
		if output, err = readAtMost(p.stdout, limit); errors.Is(err, errExceeded) {
			close(full)
		}
	}()
	select {
	case <-p.exited:
		p.signal(true) // its descendants, which may hold the output open
		await(drained, o.LastWords)
	case <-full:
		p.signal(false)
	case <-ctx.Done():
		p.signal(false)
		err = context.Cause(ctx)
	}
	p.finish(drained)
	<-drained
	<-p.silent
	<-fed
	return p.result(output, full), err
}

// result returns how the process ended. All its readers have ended.
func (p *process) result(output []byte, full <-chan struct{}) *Result {
	r := &Result{Output: output, Code: p.state.ExitCode(), Stderr: clean(p.tail)}
	if e, ok := errors.AsType[*ExitError](p.exitError()); ok {
		r.How = e.How
	}
	select {
	case <-full:
		r.Exceeded = true
	default:
	}
	return r
}

var errExceeded = errors.New("more than the limit")

// readAtMost reads to the end. It returns errExceeded, and the first bytes, if there are more than
// limit.
func readAtMost(f *os.File, limit int) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if len(b) > limit {
		return b[:limit], errExceeded
	}
	return b, err
}

// await waits for the end of done, at most d. It reports whether done has ended.
func await(done <-chan struct{}, d time.Duration) bool {
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case <-done:
		return true
	case <-late.C:
		return false
	}
}
