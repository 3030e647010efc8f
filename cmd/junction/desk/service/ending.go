package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/runfile"
	"junction/upstream/files"
	"junction/upstream/pace"
)

// This file ends a process that serves a configuration file. Commands and starts take turns, so that two of
// them do not end and start processes at once.

// turn waits until no other command or start ends or starts a process that serves the file. The turn ends
// with its process at the latest. In a folder that cannot be written, all have their turn at once.
func (h *Host) turn(ctx context.Context, file string) (end func(), err error) {
	return h.lock(ctx, file, ".lock")
}

// lock takes one of the locks of a configuration file. suffix names it.
func (h *Host) lock(ctx context.Context, file, suffix string) (end func(), err error) {
	name, err := h.stateDir("service", config.FolderOf(file)+suffix)
	if err != nil || os.MkdirAll(filepath.Dir(name), 0o700) != nil {
		return func() {}, nil
	}
	end, err = files.LockFile(ctx, name)
	if err != nil && ctx.Err() == nil {
		return func() {}, nil
	}
	return end, err
}

// killLimit is how long a process may still be there after it was killed.
const killLimit = 5 * time.Second

// end ends a process that serves a file, and waits until it is gone: it has given back its addresses and
// files then. It gives the process the time that its record names, and kills it then.
func (h *Host) end(ctx context.Context, p runfile.Place) error {
	if !p.Alive() || p.Start == "" && !answers(p.URL) { // the process ID may be that of another program
		return nil
	}
	process, err := os.FindProcess(p.PID)
	if err == nil && !p.Ending() { // a second signal would cut off its calls
		err = terminate(process)
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("cannot stop process %d: %w", p.PID, err)
	}
	limit := p.Left()
	ended, err := h.awaitEnd(ctx, p.Process, limit)
	if ended || err != nil {
		return err
	}
	if p.Start != "" {
		h.tell(fmt.Sprintf("Process %d has not ended within %v and is killed.", p.PID, limit.Round(time.Second)))
		_ = process.Kill() // it may have ended now
		if ended, err = h.awaitEnd(ctx, p.Process, killLimit); ended || err != nil {
			return err
		}
	}
	return fmt.Errorf("cannot stop process %d: it still runs after %v; end it by hand", p.PID, limit.Round(time.Second))
}

// awaitEnd waits until a process has ended.
func (h *Host) awaitEnd(ctx context.Context, p runfile.Process, limit time.Duration) (ended bool, err error) {
	begun, reported := time.Now(), false
	for p.Alive() {
		if past := time.Since(begun); past > limit {
			return false, nil
		} else if past > time.Second && !reported {
			reported = true
			h.tellWaiting(p.PID, limit)
		}
		if !pace.Sleep(ctx, poll, nil) {
			return false, ctx.Err()
		}
	}
	return true, nil
}

// tellWaiting says which process is waited for, and how long at most.
func (h *Host) tellWaiting(pid int, limit time.Duration) {
	h.tell(fmt.Sprintf("Waiting until process %d has ended, up to %v: calls are in flight, or servers end slowly. "+
		"New connections are refused until then …", pid, limit.Round(time.Second)))
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

// Stop ends the process with an ID that serves a configuration file, or is ending, and waits for its end.
func (h *Host) Stop(ctx context.Context, file string, pid int) error {
	unlock, err := h.turn(ctx, file)
	if err != nil {
		return err
	}
	defer unlock()
	if now, running := runfile.Present(file); running && now.PID == pid {
		return h.end(ctx, now)
	}
	return nil
}
