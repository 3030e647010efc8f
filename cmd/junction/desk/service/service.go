// Package service keeps Junction running for a user: a user unit of systemd on Linux, an agent of
// launchd on macOS, a task at logon on Windows. It also starts Junction in the background where there
// is none of them.
//
// unit.go has what a service runs, and install.go installs, examines and removes it. systemd.go, launchd.go
// and task.go know one manager each: they write its definition and run its commands. run.go is the process
// that the manager starts, and environ.go has its variables. background.go starts that process without a
// manager, and ending.go ends it. left.go asks before a restart that would lose servers. other.go finds the
// process of another user. commands.go has the commands. Package runfile has why a process has ended.
//
// A restart without a manager begins with the new process. It checks the file, the keys and the addresses
// while the old process serves, ends the old one, and serves. A command that is killed meanwhile changes
// nothing.
package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"junction/cmd/junction/base/config"
	"junction/upstream/prose"
	"junction/upstream/sandbox"
)

// Host is where a service is installed.
type Host struct {
	OS     string // a GOOS
	Home   string // the home folder
	User   int    // the user id, for launchd
	Getenv func(name string) (string, bool)
	// Environ returns the variables of Getenv, as NAME=VALUE.
	Environ func() []string
	// Run runs a command of the manager and returns its output.
	Run func(ctx context.Context, name string, args ...string) (output string, err error)
	// Check has a process with the environment of a service check whether it could serve, and returns what it
	// would leave out. A nil Check does nothing.
	Check func(ctx context.Context, u *Unit) ([]LeftOut, error)
	// Tell shows a line to the person who waits. A nil Tell does nothing.
	Tell func(line string)
}

func (h *Host) tell(line string) {
	if h.Tell != nil {
		h.Tell(line)
	}
}

// ThisHost returns the host of this process.
func ThisHost() (*Host, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, errors.New("cannot find the home folder; set HOME")
	}
	h := &Host{OS: runtime.GOOS, Home: home, User: os.Getuid(), Getenv: os.LookupEnv, Environ: os.Environ,
		Run: runCommand}
	h.Check, h.Tell = h.checkInProcess, func(line string) { fmt.Fprintln(os.Stderr, line) }
	return h, nil
}

// managerLimit is how long a command of a manager may take, without the time of a process that it ends.
const managerLimit = 30 * time.Second

// runCommand runs a command without the keys of Junction in its environment.
func runCommand(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = sandbox.ForOthers(os.Environ())
	output, err := cmd.CombinedOutput()
	return string(output[:min(len(output), maxOutput)]), err
}

// maxOutput is the most bytes of a command's output that are looked at.
const maxOutput = 64 << 10

// manager starts the services of a user.
type manager interface {
	name() string
	// reach returns an error if the manager does not answer.
	reach(ctx context.Context) error
	// definition returns the path of the file that describes a service, and its text.
	definition(u *Unit) (file string, text []byte)
	// start starts a service whose definition was written, or starts it again. ended ends the process of an
	// older start, and waits for its end; it returns false if there was none.
	start(ctx context.Context, u *Unit, file string, ended func(context.Context) (bool, error)) error
	// halt stops a service until start or the next login.
	halt(ctx context.Context, u *Unit) error
	// stop stops a service, and keeps the manager from starting it again.
	stop(ctx context.Context, u *Unit) error
	// removed tells the manager that the definition is gone.
	removed(ctx context.Context, u *Unit)
	// state returns the state in the words of the manager.
	state(ctx context.Context, u *Unit) string
	// log returns the command that shows the log, or "" if the log is in the file of the unit.
	log(u *Unit) string
	// later says when the service starts again, as a sentence.
	later() string
}

// manager returns the manager of the system.
func (h *Host) manager() (manager, error) {
	switch h.OS {
	case "linux":
		return systemd{h}, nil
	case "darwin":
		return launchd{h}, nil
	case "windows":
		return tasks{h}, nil
	}
	return nil, errors.New("there is no service on this system; start Junction with: junction")
}

// failed returns the error of a command of a manager, with the last line of its output.
func failed(err error, output string, words ...string) error {
	if err == nil {
		return nil
	}
	reason := prose.Cut(lastLine(output), 300)
	if reason == "" {
		reason = err.Error()
	}
	return &commandError{words, reason, err}
}

// commandError is a command of a manager that failed.
type commandError struct {
	words  []string
	reason string
	err    error
}

func (e *commandError) Error() string {
	line := ""
	for _, w := range e.words {
		line += w + " "
	}
	return line + "failed: " + e.reason
}

func (e *commandError) Unwrap() error { return e.err }

// stateDir returns a folder of Junction for state.
func (h *Host) stateDir(elements ...string) (string, error) {
	dir, err := config.StateDir(h.Getenv)
	if err != nil {
		return "", err
	}
	return filepath.Join(append([]string{dir, "junction"}, elements...)...), nil
}

// configDir returns the folder of the user's configurations.
func (h *Host) configDir() string {
	if dir, _ := h.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Join(h.Home, ".config")
}

// domain is the target of launchd for the user's agents.
func (h *Host) domain() string { return "gui/" + strconv.Itoa(h.User) }
