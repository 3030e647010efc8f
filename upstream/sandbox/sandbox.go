// Package sandbox starts a command that may use only some files and TCP ports. Linux enforces the
// rules with Landlock, which restricts a whole process and its descendants and cannot be undone.
// Junction must therefore not restrict itself. It starts its own program again as a small wrapper
// (Main). The wrapper reads the rules from a socket, restricts itself and then executes the
// command. Process id, group, session, standard streams and exit status stay the same, so the
// caller sees only the command.
//
// places.go lists the files that every command may read. sandbox_linux.go contains the wrapper.
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
}

// Support describes the restrictions that the kernel can enforce.
type Support struct {
	ABI int    // version of Landlock's interface; 0 without Landlock
	Why string // for ABI 0: the reason and a solution
}

// Versions of Landlock's interface that add restrictions which Rules needs.
const (
	abiMove     = 2 // files can be moved between folders, as package managers do
	abiTruncate = 3 // truncating a file counts as writing
	abiTCP      = 4
	abiNewest   = 9 // the newest whose restrictions are used; later ones restrict UDP
)

// Enforces reports whether the kernel can enforce any part of rules.
func (s Support) Enforces() bool { return s.ABI >= abiMove }

// Missing returns the part of the rules that the kernel cannot enforce, with a solution; "" if it
// enforces all. tcp reports whether the rules restrict TCP.
func (s Support) Missing(tcp bool) string {
	const newer = "use Linux 6.7 or newer"
	switch {
	case s.ABI <= 0:
		return s.Why
	case s.ABI < abiMove:
		return "Landlock of this kernel (ABI 1) does not let programs move files between folders; " + newer
	case s.ABI < abiTruncate && tcp:
		return fmt.Sprintf("Landlock of this kernel (ABI %d) restricts neither truncating files nor TCP; %s",
			s.ABI, newer)
	case s.ABI < abiTruncate:
		return fmt.Sprintf("Landlock of this kernel (ABI %d) does not restrict truncating files; "+
			"use Linux 6.2 or newer", s.ABI)
	case s.ABI < abiTCP && tcp:
		return fmt.Sprintf("Landlock of this kernel (ABI %d) does not restrict TCP; %s, or set tcp: all",
			s.ABI, newer)
	}
	return ""
}

// order contains the instructions for the wrapper.
type order struct {
	Rules Rules    `json:"rules"`
	ABI   int      `json:"abi"`
	Path  string   `json:"path"`
	Args  []string `json:"args"`
	Env   []string `json:"env"`

	Parent int `json:"parent"` // the process that waits for the wrapper
	Signal int `json:"signal"` // signal that the kernel sends when the parent ends; 0 for none
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
