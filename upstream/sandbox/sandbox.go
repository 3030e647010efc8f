// Package sandbox starts a command that may use only some files and TCP ports. Linux enforces the
// rules with Landlock, and with a filter of system calls (seccomp) for the ways around Landlock.
// Both restrict a whole process and its descendants and cannot be undone. Junction must therefore
// not restrict itself. It starts its own program again as a small wrapper (Main). The wrapper reads
// the rules from a socket, restricts itself and then executes the command. Process id, group,
// session, standard streams and exit status stay the same, so the caller sees only the command.
//
// places.go lists the files that every command may read. writable.go keeps the links that a command
// can make from deciding about a sandbox. sandbox_linux.go contains the wrapper, and filter_linux.go
// the filter. hide_linux.go hides the environment of Junction's own processes.
package sandbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
)

// Word is the first argument of the wrapper. A program that starts sandboxed commands through
// package upstream must check for Word before anything else, and then call Main.
const Word = "sandbox-exec"

// Rules list the files and ports that a sandboxed command may use. The zero value allows nothing.
type Rules struct {
	Read []string `json:"read"` // files and folders to read and run; each must exist
	// files and folders that it may also change, including sockets and devices
	Write   []string `json:"write"`
	Default []string `json:"default"` // like Read, but missing files are skipped
	Devices []string `json:"devices"` // device files to read and write; missing ones are skipped
	TCP     []uint16 `json:"tcp"`     // ports to connect to
	AnyTCP  bool     `json:"any_tcp"` // TCP is not restricted at all
	// UNIX sockets are permitted even if the kernel cannot restrict them to those in Write
	AnyUnix bool `json:"any_unix"`
	// what all confined commands may change, with Write; no link below it is followed
	Writable Writable `json:"writable"`
}

// Support describes the restrictions that the kernel can enforce.
type Support struct {
	ABI       int    // version of Landlock's interface; 0 without Landlock
	Why       string // for ABI 0: the reason and a solution
	Filter    bool   // system calls can be filtered
	FilterWhy string // without Filter: the reason and a solution
}

// Versions of Landlock's interface that add restrictions which Rules needs.
const (
	abiMove     = 2 // files can be moved between folders, as package managers do
	abiTruncate = 3 // truncating a file counts as writing
	abiTCP      = 4
	abiUnix     = 9 // UNIX sockets can be restricted to those in Write
	abiNewest   = 9 // the newest whose restrictions are used; later ones restrict UDP
)

// Enforces reports whether the kernel can enforce any part of rules.
func (s Support) Enforces() bool { return s.ABI >= abiMove }

// Missing returns the part of the rules that the kernel cannot enforce, with a solution; "" if it
// enforces all.
func (s Support) Missing(r *Rules) string {
	switch {
	case s.ABI <= 0:
		return s.Why
	case s.ABI < abiMove:
		return "Landlock of this kernel (ABI 1) does not let programs move files between folders; " +
			"use Linux 6.7 or newer"
	}
	var lacks []string
	remedy := ""
	for _, part := range []struct {
		missing      bool
		what, remedy string
	}{
		{s.ABI < abiTruncate, "truncating files", "use Linux 6.2 or newer"},
		{s.ABI < abiTCP && !r.AnyTCP, "TCP", "use Linux 6.7 or newer, or set tcp: all"},
		{s.ABI < abiUnix && r.AnyUnix, "UNIX sockets",
			"set require: true, which permits none, or use Linux 7.1 or newer"},
	} {
		if part.missing {
			lacks, remedy = append(lacks, part.what), part.remedy
		}
	}
	if len(lacks) > 1 { // one remedy for all of it
		remedy = "use Linux 6.7 or newer"
		if r.AnyUnix {
			remedy = "use Linux 7.1 or newer"
		}
	}
	var list []string
	if len(lacks) > 0 {
		list = append(list, fmt.Sprintf("Landlock of this kernel (ABI %d) does not restrict %s; %s",
			s.ABI, strings.Join(lacks, " and "), remedy))
	}
	if !s.Filter {
		list = append(list, "TCP Fast Open, protocols other than TCP and io_uring are not restricted: "+s.FilterWhy)
	}
	return strings.Join(list, "; ")
}

// permitsUnix reports whether a command may create UNIX sockets.
func (s Support) permitsUnix(r *Rules) bool { return r.AnyUnix || s.ABI >= abiUnix }

// order contains the instructions for the wrapper.
type order struct {
	Rules   Rules    `json:"rules"`
	Support Support  `json:"support"`
	Path    string   `json:"path"`
	Dir     string   `json:"dir"`               // the working directory, if it is below a writable path
	Granted *Granted `json:"granted,omitempty"` // what open folders are for; nil without one
	Args    []string `json:"args"`
	Env     []string `json:"env"`

	Parent int `json:"parent"` // the process that waits for the wrapper
	Signal int `json:"signal"` // signal that the kernel sends when the parent ends; 0 for none
}

// Granted says what the command may do with open folders that it gets beside its Rules.
type Granted struct {
	Start   bool `json:"start"`   // the first one is the working directory
	Write   bool `json:"write"`   // the command may change them, and not only read them
	Folders int  `json:"folders"` // how many; Grant sets it
}

// failure is the wrapper's report that it could not start the command. Errno is set if executing
// the command failed.
type failure struct {
	Errno int    `json:"errno,omitempty"`
	Text  string `json:"text,omitempty"`
}

func (f failure) error() error {
	if f.Errno != 0 {
		return syscall.Errno(f.Errno)
	}
	return fmt.Errorf("%w: %s", ErrSetUp, f.Text)
}

// ErrSetUp means that the rules could not be applied. The command was not started.
var ErrSetUp = errors.New("the sandbox could not be set up")

// Covers reports whether one of the paths is file, or a folder that contains it. All are absolute.
func Covers(paths []string, file string) bool {
	return slices.ContainsFunc(paths, func(p string) bool { return within(file, p) })
}

// within reports whether file is folder, or is below it.
func within(file, folder string) bool {
	return file == folder || folder == "/" || strings.HasPrefix(file, strings.TrimSuffix(folder, "/")+"/")
}
