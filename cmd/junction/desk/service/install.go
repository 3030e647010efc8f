package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/runfile"
	"junction/upstream/files"
	"junction/upstream/shell"
)

// startLimit is how long a service may take until it serves.
const startLimit = 30 * time.Second

// maxDefinition is the most bytes of a definition.
const maxDefinition = 64 << 10

// A Service is the service of one configuration file.
type Service struct {
	host    *Host
	unit    *Unit
	manager manager
	file    string // of the definition
	text    []byte // of the definition that Install would write

	// Agree decides whether Install and Restart may end upstreams that the start leaves out. An error prevents
	// the restart. A nil Agree is Refuse.
	Agree func(lost []LeftOut) error
	// Left has the upstreams that Install or Restart has left out, in the order of their names.
	Left []LeftOut
}

// Of returns the service of a configuration file, whether it is installed or not.
func (h *Host) Of(file string) (*Service, error) {
	m, err := h.manager()
	if err != nil {
		return nil, err
	}
	u, err := h.unit(file)
	if err != nil {
		return nil, err
	}
	s := &Service{host: h, unit: u, manager: m}
	s.file, s.text = m.definition(u)
	return s, nil
}

// Name returns the name of the service.
func (s *Service) Name() string { return s.unit.Name }

// Later says when the service starts again, and whether the clients find it then.
func (s *Service) Later() string {
	text := s.manager.later()
	if c, err := config.LoadForCommand(s.unit.File); err == nil && strings.HasSuffix(c.Listen, ":0") {
		text += "\nThe port changes at each start (listen: " + c.Listen + "); set listen to another port, so that " +
			"connected clients find Junction."
	}
	return text
}

// present returns the text of the definition that exists, or nil.
func (s *Service) present() []byte {
	text, err := files.Read(s.file, maxDefinition)
	if err != nil {
		return nil
	}
	return text
}

// Installed reports whether the definition of the service exists.
func (s *Service) Installed() bool { return ours(s.present()) }

// ours reports whether the text is a definition of ours.
func ours(text []byte) bool {
	return bytes.Contains(text, []byte(marker)) || bytes.Contains(text, wide(marker)[2:])
}

// Install writes the definition, starts the service, and waits until it serves. After an error nothing
// stays but a service that starts later.
func (s *Service) Install(ctx context.Context) (runfile.Place, error) {
	none := runfile.Place{}
	old := s.present()
	if old != nil && !ours(old) {
		return none, fmt.Errorf("%s exists, and junction did not write it; move it away first", s.file)
	}
	before, running := runfile.Present(s.unit.File)
	if running && old == nil {
		if err := s.Reach(ctx); err != nil { // before a person stops the process in vain
			return none, s.unstarted(ctx, err)
		}
		how := "stop that process"
		if _, background := runfile.InBackground(s.unit.File); background {
			how += ": " + config.Command(s.unit.File, "service", "stop")
		}
		return none, fmt.Errorf("process %d serves %s already; %s; then run the same command again", before.PID,
			s.unit.File, how)
	}
	if err := s.host.notOfOther(ctx, s.unit.File); err != nil {
		return none, err
	}
	if p, same := runfile.ByOtherPath(s.unit.File); same {
		return none, fmt.Errorf("process %d serves this file already, by the path %s; use that path: %s", p.PID, p.File,
			config.Command(p.File, "service", "status"))
	}
	if err := s.check(ctx); err != nil { // while the old process serves
		return none, err
	}
	if err := os.MkdirAll(filepath.Dir(s.file), 0o700); err != nil {
		return none, fmt.Errorf("cannot write the service %s: %w", s.file, files.Reason(err))
	}
	if err := files.Write(s.file, s.text); err != nil {
		s.host.removeFolders()
		return none, fmt.Errorf("cannot write the service %s: %w", s.file, files.Reason(err))
	}
	runfile.ClearFailure(s.host.Getenv, s.unit.File)
	err := s.start(ctx, before)
	if failure, _ := runfile.Failure(s.host.Getenv, s.unit.File); err != nil && failure == "" {
		if old == nil {
			s.withdraw(ctx)
		}
		return none, s.unstarted(ctx, err)
	}
	runfile.ForgetBackground(s.unit.File) // the service serves instead
	return s.await(ctx, before.Process)
}

// start has the manager start the service, or start it again. before is the process that serves now, or is
// zero.
func (s *Service) start(ctx context.Context, before runfile.Place) error {
	ctx, cancel := context.WithTimeout(ctx, managerLimit+startLimit+before.Left())
	defer cancel()
	ended := func(ctx context.Context) (bool, error) { return before.PID != 0, s.host.end(ctx, before) }
	return s.manager.start(ctx, s.unit, s.file, ended)
}

// Reach returns an error if the manager of the system does not answer.
func (s *Service) Reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reachLimit)
	defer cancel()
	return s.manager.reach(ctx)
}

// reachLimit is how long a manager may take to answer.
const reachLimit = 5 * time.Second

func (s *Service) unstarted(ctx context.Context, err error) error {
	if p, running := runfile.Find(s.unit.File); running {
		return fmt.Errorf("cannot start the service: %w; process %d serves %s until the machine ends; after a "+
			"reboot, start Junction with: %s", err, p.PID, s.unit.File, s.byHand(ctx))
	}
	return fmt.Errorf("cannot start the service: %w; without a service, start Junction with: %s", err,
		s.byHand(ctx))
}

// byHand returns the command that starts Junction without a service.
func (s *Service) byHand(ctx context.Context) string {
	if _, known := runfile.LastBackground(s.unit.File); known || s.Reach(ctx) != nil {
		return config.Command(s.unit.File, "service", "start")
	}
	return config.Start(s.unit.File)
}

// Reboot says how Junction runs after a reboot, as the end of a sentence: with a service if the manager
// answers, and otherwise with a command that a person runs then. It returns "" if a service is installed.
// command returns a command line of junction about the file.
func (s *Service) Reboot(ctx context.Context, command func(words ...string) string) string {
	switch {
	case s.Installed():
		return ""
	case s.Reach(ctx) != nil:
		return "start it then with: " + command("service", "start")
	}
	return "to start it at each login: " + command("service", "install")
}

// Cron returns the line with which cron starts Junction after a reboot; "" if a service manager can, or without cron.
func (s *Service) Cron(ctx context.Context) string {
	if s.Installed() || s.Reach(ctx) == nil {
		return ""
	}
	if _, err := exec.LookPath("crontab"); err != nil {
		return ""
	}
	line := "@reboot " + shell.Join(s.unit.Program, "service", "start", "--config", s.unit.File)
	if strings.ContainsAny(line, "%\n") { // cron reads these in another way
		return ""
	}
	return line
}

// absent says that no service is installed, and what to do.
func (s *Service) absent(ctx context.Context) string {
	if err := s.Reach(ctx); err != nil {
		return fmt.Sprintf("no service of %s is installed, and the service manager does not answer (%v); start "+
			"Junction with: %s", s.unit.File, err, s.byHand(ctx))
	}
	return fmt.Sprintf("no service of %s is installed; run: %s; without a service, start Junction with: %s",
		s.unit.File, config.Command(s.unit.File, "service", "install"), config.Start(s.unit.File))
}

// withdraw removes the definition of a service that could not be started.
func (s *Service) withdraw(ctx context.Context) {
	_ = s.manager.stop(ctx, s.unit)
	os.Remove(s.file)
	s.manager.removed(ctx, s.unit)
	s.host.forget(s.unit.File)
}

// Forget removes what a service of a configuration file has kept: its last good content, and why it
// ended. It also forgets the process in the background.
func (h *Host) Forget(file string) {
	runfile.ForgetBackground(file)
	if path, err := h.keptFile(h.nameOf(file)); err == nil {
		os.Remove(path)
	}
	h.forget(file)
}

func (h *Host) forget(file string) {
	runfile.ClearFailure(h.Getenv, file)
	if name, err := config.LastGood(h.Getenv, file); err == nil {
		os.Remove(name)
	}
	h.removeFolders()
}

// removeFolders removes the folders of units that are empty.
func (h *Host) removeFolders() {
	if h.OS == "linux" {
		os.Remove(filepath.Join(h.configDir(), "systemd", "user"))
		os.Remove(filepath.Join(h.configDir(), "systemd"))
	}
}

// ReadGood returns the last content of a configuration file that was in force.
func ReadGood(getenv func(string) (string, bool), file string) ([]byte, error) {
	name, err := config.LastGood(getenv, file)
	if err != nil {
		return nil, err
	}
	return files.Read(name, MaxGood)
}

// MaxGood is the most bytes of a configuration that is kept.
const MaxGood = 16 << 20

// await waits until a process serves the file that is not the one before, or the process has failed.
func (s *Service) await(ctx context.Context, before runfile.Process) (runfile.Place, error) {
	other := func(p runfile.Process) bool { return before.PID == 0 || !p.Is(before) }
	p, err := s.host.await(ctx, s.unit.File, nil, other)
	if err == nil {
		return p, lastGood(p)
	} else if ctx.Err() != nil {
		return p, err
	}
	return p, fmt.Errorf("the service %s is installed, and does not serve yet: %w; its log: %s", s.unit.Name, err,
		s.log())
}

// log returns how the log is read.
func (s *Service) log() string {
	if line := s.manager.log(s.unit); line != "" {
		return line
	}
	return s.unit.Log
}

// Uninstall stops the service and removes its definition. It returns false if there is none.
func (s *Service) Uninstall(ctx context.Context) (bool, error) {
	text := s.present()
	switch {
	case text == nil:
		return false, nil
	case !ours(text):
		return false, fmt.Errorf("%s was not removed: junction did not write it", s.file)
	}
	p, running := runfile.Present(s.unit.File)
	managing, cancel := context.WithTimeout(ctx, managerLimit+p.Left())
	defer cancel()
	stopped := s.manager.stop(managing, s.unit)
	if running && stopped == nil {
		stopped = s.host.end(ctx, p)
	}
	if err := os.Remove(s.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("cannot remove %s: %w", s.file, files.Reason(err))
	}
	s.manager.removed(ctx, s.unit)
	s.host.Forget(s.unit.File)
	if p, running := runfile.Present(s.unit.File); stopped != nil && running {
		return true, fmt.Errorf("the service is removed, and process %d still runs: %w", p.PID, stopped)
	}
	return true, nil
}
