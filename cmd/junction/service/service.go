// Package service keeps Junction running for a user: a user unit of systemd on Linux, an agent of
// launchd on macOS, a task at logon on Windows. It also starts Junction in the background where there
// is none of them.
//
// unit.go has what a service runs, and install.go installs, examines and removes it. systemd.go,
// launchd.go and task.go know one manager each: they write its definition and run its commands.
// run.go is the process that the manager starts. commands.go has the commands.
package service

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"junction/cmd/junction/config"
	"junction/upstream/prose"
	"junction/upstream/sandbox"
)

// Host is where a service is installed.
type Host struct {
	OS     string // a GOOS
	Home   string // the home folder
	User   int    // the user id, for launchd
	Getenv func(name string) (string, bool)
	// Run runs a command of the manager and returns its output.
	Run func(ctx context.Context, name string, args ...string) (output string, err error)
}

// ThisHost returns the host of this process.
func ThisHost() (*Host, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, errors.New("cannot find the home folder; set HOME")
	}
	return &Host{runtime.GOOS, home, os.Getuid(), os.LookupEnv, runCommand}, nil
}

// commandLimit is how long a command of a manager may take: stopping a service includes the grace of
// its calls.
const commandLimit = 90 * time.Second

// runCommand runs a command without the keys of Junction in its environment.
func runCommand(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
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
	// start starts a service whose definition was written, or starts it again.
	start(ctx context.Context, u *Unit, file string) error
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
	said := prose.Cut(lastLine(output), 300)
	if said == "" {
		said = err.Error()
	}
	return &commandError{words, said, err}
}

// commandError is a command of a manager that failed.
type commandError struct {
	words []string
	said  string
	err   error
}

func (e *commandError) Error() string {
	line := ""
	for _, w := range e.words {
		line += w + " "
	}
	return line + "failed: " + e.said
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
