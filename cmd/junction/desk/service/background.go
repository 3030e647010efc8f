package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/ops/admin"
	"junction/upstream/pace"
	"junction/upstream/prose"
)

// Background starts a process that serves a configuration file, and that outlives this one, until the
// machine or the user's session ends. It returns when the process serves. The log is in a file.
func (h *Host) Background(ctx context.Context, file string) (p runfile.Place, log string, err error) {
	return h.background(ctx, file)
}

// background is Background, with more flags for the process.
func (h *Host) background(ctx context.Context, file string, flags ...string) (p runfile.Place, log string, err error) {
	u, err := h.unit(file)
	if err != nil {
		return p, "", err
	}
	if u.Log, err = h.stateDir("service", u.Name+".log"); err != nil {
		return p, "", err
	}
	runfile.ClearFailure(h.Getenv, u.File)
	if err := h.keep(u); err != nil {
		return p, u.Log, fmt.Errorf("cannot keep PATH and the certificates for the next start: %w", err)
	}
	words := append(u.command(), append(flags, "--background")...)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = h.Home, h.environ(u), detached()
	written := sizeOf(u.Log)
	if err := cmd.Start(); err != nil {
		return p, u.Log, fmt.Errorf("cannot start junction: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with the process, which may outlive this one
	started := runfile.ProcessOf(cmd.Process.Pid)
	p, err = h.await(ctx, u.File, ended, func(p runfile.Process) bool { return p.Is(started) })
	if crash, ok := errors.AsType[*crashError](err); ok {
		crash.words = runfile.LastWords(u.Log, written)
	}
	return p, u.Log, err
}

// stopBackground ends the process in the background that serves a configuration file. The process ID is 0
// if no process serves the file. The record of the process stays, so that it can be started again.
func (h *Host) stopBackground(ctx context.Context, file string) (pid int, err error) {
	unlock, err := h.turn(ctx, file)
	if err != nil {
		return 0, err
	}
	defer unlock()
	p, running := runfile.Present(file)
	if !running {
		return 0, ofOther(ctx, file)
	}
	if _, ok := runfile.InBackground(file); !ok {
		return 0, foreign(p, file)
	}
	return p.PID, h.end(ctx, p)
}

// foreign is the error for a process that no command of this package has started.
func foreign(p runfile.Place, file string) error {
	return fmt.Errorf("process %d serves %s, and is neither a service nor in the background; end it where it "+
		"was started (Ctrl-C)", p.PID, file)
}

// Restart starts the service of a configuration file again, or the process in the background, also if it
// was stopped. Where no service manager answers, it also starts the first process in the background. A
// process that serves is ended when the new one has checked the file, its keys and its addresses. If the
// error is a LastGoodError, a process serves.
func (s *Service) Restart(ctx context.Context) (runfile.Place, error) {
	if s.Installed() {
		return s.Install(ctx)
	}
	old, running := runfile.Find(s.unit.File)
	if err := s.host.notOfOther(ctx, s.unit.File); err != nil {
		return runfile.Place{}, err
	}
	_, background := runfile.InBackground(s.unit.File)
	if _, known := runfile.LastBackground(s.unit.File); !known && !running && s.Reach(ctx) == nil {
		return runfile.Place{}, errors.New(s.absent(ctx))
	}
	if running && !background {
		return runfile.Place{}, foreign(old, s.unit.File)
	}
	if err := s.check(ctx); err != nil {
		return runfile.Place{}, err
	}
	p, log, err := s.host.background(ctx, s.unit.File, "--replace")
	now, serves := runfile.Find(s.unit.File)
	if crash, ok := errors.AsType[*crashError](err); ok && !serves { // it could not serve the last good content itself
		p, log, err = s.host.background(ctx, s.unit.File, "--replace", "--crashed", crash.Error())
	}
	if err != nil {
		err = fmt.Errorf("cannot start Junction in the background: %w; its log: %s", err, log)
		if serves && running && now.Is(old.Process) {
			err = fmt.Errorf("%w; process %d goes on serving what it did", err, old.PID)
		} else if !serves {
			err = fmt.Errorf("%w; Junction does not run now; start it with: %s", err,
				config.Command(s.unit.File, "service", "start"))
		}
		return p, err
	}
	return p, lastGood(p)
}

// Start is Restart if no process serves the file; otherwise it returns that process, and serves is true. Of two
// starts at once, the second one waits for the first one: it would end the new process otherwise.
func (s *Service) Start(ctx context.Context) (p runfile.Place, serves bool, err error) {
	unlock, err := s.host.lock(ctx, s.unit.File, ".start.lock") // the new process needs the turn itself
	if err != nil {
		return p, false, err
	}
	defer unlock()
	end, err := s.host.turn(ctx, s.unit.File) // a command may just stop the process
	if err != nil {
		return p, false, err
	}
	end()
	if p, serves = runfile.Find(s.unit.File); serves {
		return p, true, nil
	}
	if other, serves := admin.ServedAt(ctx, s.unit.File); serves {
		return other.Place, true, nil
	}
	p, err = s.Restart(ctx)
	if _, lastGood := errors.AsType[*LastGoodError](err); err != nil && !lastGood {
		if now, serves := runfile.Find(s.unit.File); serves { // a restart has started it meanwhile
			return now, true, nil
		}
	}
	return p, false, err
}

// LastGoodError means that a process serves the last good content of a file, because the content of the file
// does not serve.
type LastGoodError struct{ Place runfile.Place }

func (e *LastGoodError) Error() string {
	return fmt.Sprintf("%s is not in force: %s; Junction serves its last good content at %s (process %d); correct "+
		"the file, then run: %s", e.Place.File, prose.Flat(e.Place.Mistake), e.Place.URL, e.Place.PID,
		config.Command(e.Place.File, "service", "restart"))
}

func lastGood(p runfile.Place) error {
	if p.Mistake == "" {
		return nil
	}
	return &LastGoodError{p}
}

// Halt stops the service until it is started again, at the latest at the next login, or the process in
// the background. The process ID is 0 if no process ran.
func (s *Service) Halt(ctx context.Context) (pid int, err error) {
	if !s.Installed() {
		return s.host.stopBackground(ctx, s.unit.File)
	}
	p, running := runfile.Present(s.unit.File)
	managing, cancel := context.WithTimeout(ctx, managerLimit+p.Left())
	defer cancel()
	failure := s.manager.halt(managing, s.unit) // also if no process runs: the manager may try again and again
	if !running {
		return 0, nil
	}
	if failure != nil && p.Alive() { // a manager may fail because it had nothing to stop
		if now, _ := runfile.Present(s.unit.File); !now.Ending() {
			return 0, fmt.Errorf("cannot stop the service %s: %w", s.unit.Name, failure)
		}
	}
	return p.PID, s.host.end(ctx, p)
}

// await waits until a process serves the file, of those that want accepts, or until it has failed. ended
// gets the end of a process that this one has started; nil if a manager starts it.
func (h *Host) await(ctx context.Context, file string, ended <-chan error,
	want func(runfile.Process) bool) (runfile.Place, error) {
	begun := time.Now()
	limit := startLimit
	for _, p := range append(runfile.Endings(), present(file)) { // the new process may wait for these
		limit = max(limit, startLimit+2*p.Left())
	}
	for reported := false; ; {
		p, ok := runfile.Find(file)
		failure, by := runfile.Failure(h.Getenv, file)
		select {
		case err := <-ended:
			return h.buried(ctx, file, err, want)
		default:
		}
		switch {
		case ok && want(p.Process):
			return p, nil
		case ended == nil && failure != "" && want(by):
			return p, errors.New(failure)
		case time.Since(begun) > limit:
			return p, fmt.Errorf("it does not serve after %v, and goes on starting", limit.Round(time.Second))
		}
		if old := present(file); !reported && old.Ending() && time.Since(begun) > time.Second {
			reported = true
			h.tellWaiting(old.PID, old.Left())
		}
		if !pace.Sleep(ctx, poll, nil) {
			return p, ctx.Err()
		}
	}
}

// poll is how often a process is looked at.
const poll = 50 * time.Millisecond

func present(file string) runfile.Place {
	p, _ := runfile.Present(file)
	return p
}

// buried returns what is known about a process that has ended before this one saw that it serves. Another
// command may have replaced it by another process: then that one serves.
func (h *Host) buried(ctx context.Context, file string, err error,
	was func(runfile.Process) bool) (runfile.Place, error) {
	failure, by := runfile.Failure(h.Getenv, file)
	switch {
	case failure != "" && was(by):
		return runfile.Place{}, errors.New(failure)
	case err != nil:
		return runfile.Place{}, &crashError{end: err}
	}
	end, err := h.turn(ctx, file) // until that command has ended
	if err != nil {
		return runfile.Place{}, err
	}
	end()
	if p, serves := runfile.Find(file); serves {
		return p, nil
	}
	return runfile.Place{}, errors.New("another command has stopped it")
}

// crashError means that a process has ended before it served, without an error of its own.
type crashError struct {
	end   error
	words string // what the runtime of Go has written about it; "" if it was killed
}

func (e *crashError) Error() string {
	text := "the new process ended with " + e.end.Error()
	if e.words != "" {
		text += ": " + e.words
	}
	return text
}

func sizeOf(name string) int64 {
	info, err := os.Stat(name)
	if err != nil {
		return 0
	}
	return info.Size()
}
