package service

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"time"

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
	p, err = Await(ctx, h, u.File, 0)
	return p, u.Log, err
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
