package service

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/revision"
	"junction/upstream/prose"
	"junction/upstream/stdio"
)

// marker is in each definition of ours.
const marker = "Written by junction service install"

// A Unit is what a service runs.
type Unit struct {
	Name    string
	Program string // an absolute path
	File    string // the configuration, an absolute path
	Home    string
	Env     []string // NAME=VALUE
	Log     string   // the file of the log; "" if the manager has its own
	// Stop is how long the process may take to end: what the file asks for when the service is installed.
	// A manager that the process can tell a longer time is told it.
	Stop time.Duration
}

// stopSeconds returns Stop for a definition.
func (u *Unit) stopSeconds() int {
	return int(max(u.Stop, 30*time.Second).Round(time.Second) / time.Second)
}

// command returns the command line of the process.
func (u *Unit) command() []string {
	words := []string{u.Program, "service", "run", "--config", u.File}
	if u.Log != "" {
		words = append(words, "--log", u.Log)
	}
	return words
}

// kept reports whether a service has the variable of the shell, too. Its commands are found by the PATH of the
// shell in which they were tried, with the settings of that shell, and other commands find the service by
// XDG_STATE_HOME.
func kept(name, value string) bool {
	switch name {
	case "PATH", "LANG", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME":
		return true
	}
	return stdio.Setting(name, value)
}

// unit returns the unit that serves a configuration file.
func (h *Host) unit(file string) (*Unit, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	u := &Unit{Name: h.nameOf(file), File: file, Home: h.Home}
	if u.Program, err = Program(); err != nil {
		return nil, err
	}
	if c, err := config.LoadForCommand(u.File); err == nil { // a mistake is shown elsewhere
		u.Stop = c.DrainDelay + c.ShutdownGrace + 10*time.Second
	}
	for _, variable := range h.Environ() {
		if name, value, _ := strings.Cut(variable, "="); value != "" && kept(name, value) {
			u.Env = append(u.Env, variable)
		}
	}
	slices.Sort(u.Env) // two shells with the same values give the same definition
	if h.OS != "linux" {
		if u.Log, err = h.stateDir("service", u.Name+".log"); err != nil {
			return nil, err
		}
	}
	for _, text := range slices.Concat(u.command(), u.Env, []string{u.Home}) {
		if strings.ContainsFunc(text, unprintable) {
			return nil, fmt.Errorf("cannot write the service: %s has a control character; use another path",
				prose.Quote(text))
		}
	}
	return u, nil
}

// unprintable reports whether a definition cannot have the character: no form of it means the same to
// all managers.
func unprintable(r rune) bool { return unicode.IsControl(r) || r == unicode.ReplacementChar }

// nameOf returns the name of the service of a configuration file: junction for that of the user. The
// others have a part of the checksum of their paths.
func (h *Host) nameOf(file string) string {
	if own, err := config.File(""); err == nil && revision.SamePath(own, file) {
		return "junction"
	}
	return "junction-" + config.FolderOf(file)[:8]
}

// Program returns the path of this program. The path of a package manager's link stays the same after
// an update.
func Program() (string, error) {
	program, err := os.Executable()
	if err != nil {
		return "", errors.New("cannot find the path of junction: " + err.Error())
	}
	if link, err := exec.LookPath("junction"); err == nil && filepath.IsAbs(link) && revision.SamePath(link, program) {
		program = link
	}
	if temporary(program) {
		return "", errors.New("go run deletes this program when it ends, so that no service and no client can start " +
			"it; install it first, with go install ./cmd/junction, and run the command again with the installed one")
	}
	return program, nil
}

// temporary reports whether go run has built a program: its path is like /tmp/go-build1/b001/exe/junction.
func temporary(program string) bool {
	parts := strings.Split(filepath.ToSlash(program), "/")
	n := len(parts)
	return n > 3 && parts[n-2] == "exe" && strings.HasPrefix(parts[n-4], "go-build")
}

// lastLine returns the last line that is not empty.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return prose.OneLine(strings.TrimSpace(lines[len(lines)-1]))
}
