// Package sandbox starts a command that may use only some files and TCP ports. Linux enforces this
// by Landlock, which confines a whole process and what it starts, and cannot be undone. Junction
// must therefore not confine itself: it starts its own program again as a small wrapper (Main),
// which reads the rules from a socket, confines itself and then becomes the command. The wrapper is
// the process that the caller started: process id, group, session, standard streams and exit status
// are those of the command.
//
// places.go has the files that every command may read. sandbox_linux.go is the wrapper.
package sandbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
)

// Word is the first argument of the wrapper. A program whose package upstream starts confined
// commands calls Main when it finds Word there, before anything else.
const Word = "sandbox-exec"

// Rules are what a confined command may use. The zero value permits nothing.
type Rules struct {
	Read    []string `json:"read"`    // files and folders to read and run; each must exist
	Write   []string `json:"write"`   // the same, to change as well, sockets and devices included
	Default []string `json:"default"` // as Read; one that does not exist is left out
	Devices []string `json:"devices"` // device files to read and write; left out likewise
	TCP     []uint16 `json:"tcp"`     // ports to connect to
	AnyTCP  bool     `json:"any_tcp"` // TCP is not restricted at all
}

// Support is what the kernel can enforce.
type Support struct {
	ABI int    // version of Landlock's interface; 0 is no Landlock
	Why string // for ABI 0: why, and what to do
}

// The versions of Landlock's interface that the promises of Rules need.
const (
	abiMove     = 2 // files can be moved between folders, as package managers do
	abiTruncate = 3 // truncating a file counts as writing
	abiTCP      = 4
	abiNewest   = 9 // the newest whose restrictions are used; later ones restrict UDP
)

// Enforces reports whether the kernel can enforce any part of rules.
func (s Support) Enforces() bool { return s.ABI >= abiMove }

// Missing returns which promise of the rules the kernel cannot keep; "" if it keeps all.
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

// order is what the wrapper is to do.
type order struct {
	Rules Rules    `json:"rules"`
	ABI   int      `json:"abi"`
	Path  string   `json:"path"`
	Args  []string `json:"args"`
	Env   []string `json:"env"`

	Parent int `json:"parent"` // the process that waits for the wrapper
	Signal int `json:"signal"` // which the kernel sends when the parent ends; 0 is none
}

// failure is what the wrapper reports when it cannot become the command. Errno is set if the
// command itself could not be executed.
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

// ErrSetUp means that the rules could not be put in force. The command was not started.
var ErrSetUp = errors.New("the sandbox could not be set up")

// Covers reports whether one of the paths is file, or a folder that contains it. All are absolute.
func Covers(paths []string, file string) bool {
	return slices.ContainsFunc(paths, func(p string) bool { return within(file, p) })
}

// within reports whether file is folder, or is below it.
func within(file, folder string) bool {
	return file == folder || folder == "/" || strings.HasPrefix(file, strings.TrimSuffix(folder, "/")+"/")
}
