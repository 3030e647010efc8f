package service

import (
	"context"
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

// StopBackground ends the process in the background that serves a configuration file. The error names
// what else serves the file.
func StopBackground(ctx context.Context, file string) (pid int, err error) {
	b, ok := runfile.InBackground(file)
	if !ok {
		if p, running := runfile.Find(file); running {
			return 0, fmt.Errorf("process %d serves %s, and junction setup did not start it; end it where it was "+
				"started (Ctrl-C)", p.PID, file)
		}
		return 0, fmt.Errorf("no junction serves %s; start one: %s", file, config.Start(file))
	}
	if err := Stop(ctx, file, b.PID); err != nil {
		return 0, err
	}
	runfile.ForgetBackground(file)
	return b.PID, nil
}

// Restart starts the service of a configuration file again, or the process in the background. Only the
// process gets the variables of this shell.
func (s *Service) Restart(ctx context.Context) (runfile.Place, error) {
	if s.Installed() {
		return s.Install(ctx)
	}
	if _, err := config.LoadForCommand(s.unit.File); err != nil { // while the old process serves
		return runfile.Place{}, err
	}
	if _, err := StopBackground(ctx, s.unit.File); err != nil {
		return runfile.Place{}, err
	}
	p, log, err := s.host.Background(ctx, s.unit.File)
	if err != nil {
		return p, fmt.Errorf("cannot start Junction in the background: %w; its log: %s", err, log)
	}
	return p, nil
}

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
