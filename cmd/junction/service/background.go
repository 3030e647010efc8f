package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"time"

	"junction/cmd/junction/config"
	"junction/cmd/junction/runfile"
	"junction/upstream/pace"
)

// Background starts a process that serves a configuration file, and that outlives this one, until the
// machine or the user's session ends. It returns when the process serves. The log is in a file.
func (h *Host) Background(ctx context.Context, file string) (p runfile.Place, log string, err error) {
	u, err := h.unit(file)
	if err != nil {
		return p, "", err
	}
	if u.Log, err = h.stateDir("service", u.Name+".log"); err != nil {
		return p, "", err
	}
	h.clearFailure(u.File)
	words := u.command()
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir, cmd.SysProcAttr = h.Home, detached()
	if err := cmd.Start(); err != nil {
		return p, u.Log, fmt.Errorf("cannot start junction: %w", err)
	}
	if err := cmd.Process.Release(); err != nil {
		return p, u.Log, err
	}
	if p, err = Await(ctx, h, u.File, 0); err == nil {
		err = runfile.NoteBackground(u.File, runfile.Background{PID: p.PID, Log: u.Log})
	}
	return p, u.Log, err
}

// stopBackground ends the process in the background that serves a configuration file. The process ID is 0
// if no process serves the file. The record of the process stays, so that it can be started again.
func stopBackground(ctx context.Context, file string) (pid int, err error) {
	p, running := runfile.Find(file)
	if !running {
		return 0, nil
	}
	if b, ok := runfile.InBackground(file); !ok || b.PID != p.PID {
		return 0, foreign(p, file)
	}
	return p.PID, Stop(ctx, file, p.PID)
}

// foreign is the error for a process that no command of this package has started.
func foreign(p runfile.Place, file string) error {
	return fmt.Errorf("process %d serves %s, and neither a service nor junction setup started it; end it where it "+
		"was started (Ctrl-C)", p.PID, file)
}

// Restart starts the service of a configuration file again, or the process in the background, also if it
// was stopped. Only the process gets the variables of this shell.
func (s *Service) Restart(ctx context.Context) (runfile.Place, error) {
	if s.Installed() {
		return s.Install(ctx)
	}
	none := runfile.Place{}
	_, running := runfile.Find(s.unit.File)
	if _, ok := runfile.LastBackground(s.unit.File); !ok && !running {
		return none, errors.New(s.absent(ctx))
	}
	if _, err := config.LoadForCommand(s.unit.File); err != nil { // while the old process serves
		return none, err
	}
	if _, err := stopBackground(ctx, s.unit.File); err != nil {
		return none, err
	}
	p, log, err := s.host.Background(ctx, s.unit.File)
	if err != nil {
		return p, fmt.Errorf("cannot start Junction in the background: %w; its log: %s", err, log)
	}
	return p, nil
}

// Halt stops the service until it is started again, at the latest at the next login, or the process in
// the background. The process ID is 0 if no process ran.
func (s *Service) Halt(ctx context.Context) (pid int, err error) {
	if !s.Installed() {
		return stopBackground(ctx, s.unit.File)
	}
	p, running := runfile.Find(s.unit.File)
	failure := s.manager.halt(ctx, s.unit) // also if no process runs: the manager may try again and again
	if !running {
		return 0, nil
	}
	for end := time.Now().Add(haltLimit); time.Now().Before(end); {
		if now, still := runfile.Find(s.unit.File); !still || now.PID != p.PID {
			return p.PID, nil
		}
		if !pace.Sleep(ctx, 50*time.Millisecond, nil) {
			return 0, ctx.Err()
		}
	}
	if failure != nil {
		return 0, fmt.Errorf("cannot stop the service %s: %w", s.unit.Name, failure)
	}
	return 0, foreign(p, s.unit.File)
}

// haltLimit is how long a process may still run after its manager has stopped it.
const haltLimit = 5 * time.Second

// answers reports whether something listens at the address of a URL.
func answers(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	c, err := net.DialTimeout("tcp", u.Host, time.Second)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// Stop ends the process that serves a configuration file, and waits for its end. It does nothing if no
// process answers at the recorded address: the process ID may be that of another program now.
func Stop(ctx context.Context, file string, pid int) error {
	now, running := runfile.Find(file)
	if !running || now.PID != pid || !answers(now.URL) {
		return nil
	}
	process, err := os.FindProcess(pid)
	if err == nil {
		err = terminate(process)
	}
	if err != nil {
		return fmt.Errorf("cannot stop process %d: %w", pid, err)
	}
	for end := time.Now().Add(commandLimit); time.Now().Before(end); {
		if now, running = runfile.Find(file); !running || now.PID != pid {
			return nil
		}
		if !pace.Sleep(ctx, 50*time.Millisecond, nil) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("cannot stop process %d: it still runs after %v; end it by hand", pid, commandLimit)
}
