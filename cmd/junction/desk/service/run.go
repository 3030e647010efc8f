package service

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/runfile"
)

// Proxy is the proxy, as a service runs it.
type Proxy struct {
	// Serve serves a configuration file until ctx ends. If the file does not serve, it serves the last
	// content of the file that was in force.
	Serve func(ctx context.Context, s Start) error
	// Check returns an error if Serve could not serve the file instead of a process, which is zero if none
	// serves it. Otherwise it returns the upstreams that Serve would leave out. It writes mistakes of the file to
	// stderr.
	Check func(file string, stderr io.Writer, replaced runfile.Place) ([]config.LeftOut, error)
}

// Start is what a process of a service serves.
type Start struct {
	File           string
	Stdout, Stderr io.Writer
	Served         func() // called when the process serves, and is recorded
	// Crashed is how a process ended that was to serve the file: the last good content is served instead.
	Crashed string
}

// process is the process of a service.
type process struct {
	*Host
	proxy      Proxy
	file       string // an absolute path
	log        string // the file of the log; "" if the manager has its own
	background bool   // a command has started it, and no manager
	replace    bool   // it replaces the process in the background that serves the file
	crashed    string // see Start
	served     atomic.Bool
}

// runService is `junction service run`, the process of a service.
func runService(stdout, stderr io.Writer, file *string, proxy Proxy) *cobra.Command {
	var p process
	var check bool
	cmd := &cobra.Command{
		Use: "run", Short: "Serve as a service does", Args: cli.NoArguments, Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if p.Host, err = ThisHost(); err != nil {
				return err
			}
			if p.file, err = config.File(*file); err != nil {
				return err
			}
			p.proxy = proxy
			if check {
				return p.checkOnly(cmd.Context(), stdout, stderr)
			}
			return p.run(cmd.Context(), stdout, stderr)
		},
	}
	cmd.Flags().StringVar(&p.log, "log", "", "`file` for the log")
	cmd.Flags().BoolVar(&p.background, "background", false, "no manager has started it")
	cmd.Flags().BoolVar(&p.replace, "replace", false, "replace the process in the background")
	cmd.Flags().StringVar(&p.crashed, "crashed", "", "the `end` of a process that was to serve the file")
	cmd.Flags().BoolVar(&check, "check", false, "check only whether it could serve")
	return cmd
}

// run serves until ctx ends.
func (p *process) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	defer func() {
		if err != nil {
			runfile.NoteFailure(p.Getenv, p.file, err)
		}
	}()
	p.Tell = nil
	if p.log != "" {
		l, err := openLog(p.log)
		if err != nil {
			return err
		}
		defer l.close()
		defer func() {
			if err != nil {
				fmt.Fprintln(l, err)
			}
		}()
		stdout, stderr = l, l
		p.Tell = func(line string) { fmt.Fprintln(l, line) }
		_ = debug.SetCrashOutput(l.file, debug.CrashOptions{}) // the words of a crash are in the log, too
	}
	if err := useEnvironment(p.file); err != nil {
		return err
	}
	done, err := p.takePlace(ctx, stderr)
	if err != nil {
		return err
	}
	defer done()
	if p.background {
		defer p.noteBackground(stderr)(&err)
	}
	return p.proxy.Serve(ctx, Start{File: p.file, Stdout: stdout, Stderr: stderr, Crashed: p.crashed, Served: func() {
		runfile.ClearFailure(p.Getenv, p.file)
		p.served.Store(true)
		done()
	}})
}

// noteBackground records this process, so that commands know it from the moment at which it serves. ended
// takes the record back if it was the first one for the file, and the process has not served.
func (p *process) noteBackground(stderr io.Writer) (ended func(*error)) {
	_, known := runfile.LastBackground(p.file)
	if err := runfile.NoteBackground(p.file, p.log); err != nil {
		fmt.Fprintln(stderr, "junction service will not find this process again:", err)
	}
	return func(err *error) {
		if *err != nil && !known && !p.served.Load() {
			runfile.ForgetBackground(p.file)
		}
	}
}

// takePlace waits for the turn of this process to start, and ends the process that it replaces. The caller
// calls done when this process serves.
func (p *process) takePlace(ctx context.Context, stderr io.Writer) (done func(), err error) {
	end, err := p.turn(ctx, p.file)
	if err != nil {
		return nil, err
	}
	done = sync.OnceFunc(end)
	old, running := runfile.Find(p.file)
	_, background := runfile.InBackground(p.file)
	switch {
	case !running:
		return done, nil
	case !p.replace:
		err = fmt.Errorf("process %d serves %s already", old.PID, p.file)
	case !background:
		err = foreign(old, p.file)
	default:
		if _, err = p.proxy.Check(p.file, stderr, old); err == nil {
			err = p.end(ctx, old)
		}
	}
	if err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// maxLog is how many bytes the file of a log has before it becomes the old one.
const maxLog = 10 << 20

// logFile is a log in a file of bounded size. The lines before are in a second file.
type logFile struct {
	name string

	mu   sync.Mutex
	file *os.File // guarded by mu
	size int64    // guarded by mu
}

func openLog(name string) (*logFile, error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return nil, fmt.Errorf("--log: %w", err)
	}
	l := &logFile{name: name}
	return l, l.open()
}

func (l *logFile) open() error {
	f, err := os.OpenFile(l.name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("--log: %w", err)
	}
	l.file, l.size = f, 0
	if info, err := f.Stat(); err == nil {
		l.size = info.Size()
	}
	return nil
}

// Write implements io.Writer.
func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size+int64(len(p)) > maxLog && l.size > 0 {
		l.file.Close()
		if err := os.Rename(l.name, l.name+".old"); err != nil {
			os.Remove(l.name)
		}
		if err := l.open(); err != nil {
			return 0, err
		}
	}
	n, err := l.file.Write(p)
	l.size += int64(n)
	return n, err
}

func (l *logFile) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.file.Close()
}
