package command

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"junction/upstream/folder"
	"junction/upstream/sandbox"
	"junction/upstream/stdio"
)

// Sandbox is the sandbox section of a command. It lists the files and TCP ports that the command
// may use in addition to those that every program needs (System and Programs of package sandbox).
// Without the section, a command has the same access as Junction's user. Linux enforces it with
// Landlock and a filter of system calls.
type Sandbox struct {
	// Files and folders to read and run.
	//
	// Paths are absolute. "${folder}" stands for the folders of the client, with isolation: folder: the
	// command can then read them, and not change them. Without this entry the command can change them.
	Read []string `yaml:"read" example:"[/srv/notes]"`
	// Files and folders to change as well, and folders to create and remove files in. With require,
	// not a folder with this file, a manifest or a program that runs without a sandbox.
	//
	// For every sandbox of this file, Junction follows no link in these folders, and no program,
	// dir or certificate in them is readable by default.
	Write []string `yaml:"write" example:"[/srv/notes]"`
	// Ports to connect to, on any host. all lifts the restriction, and allows listening; by default
	// none. npx and uvx need 443 to download packages.
	TCP Ports `yaml:"tcp"`
	// true: do not start the command if the kernel cannot enforce all of this. Before Linux 7.1,
	// the command can then create no UNIX sockets. false: warn. Default false.
	//
	// With false, the command starts with the restrictions that the kernel can enforce, perhaps
	// none. The log and /readyz show the reason.
	Require bool `yaml:"require"`
}

// sandboxKeys is Sandbox without its methods.
type sandboxKeys Sandbox

// Shape returns the value to decode the node into. It accepts mappings, including an empty one.
func (s *Sandbox) Shape(n *yaml.Node) (into any, want string) {
	if n.Kind == yaml.MappingNode {
		return (*sandboxKeys)(s), ""
	}
	return nil, "a mapping, such as { write: [/srv/notes], tcp: [443] }"
}

// Ports is a list of TCP ports, or all of them.
type Ports struct {
	List []Port
	word string // "all", or empty
}

// All reports whether TCP is not restricted.
func (p Ports) All() bool { return p.word == allPorts }

const allPorts = "all"

// Shape returns the value to decode the node into: the word all, or a list.
func (p *Ports) Shape(n *yaml.Node) (into any, want string) {
	switch {
	case n.Kind == yaml.SequenceNode:
		return &p.List, ""
	case n.Kind == yaml.ScalarNode && n.Value == allPorts:
		return &p.word, ""
	}
	return nil, "the word all, or a list of ports such as [443]"
}

// Port is a TCP port.
type Port uint16

// UnmarshalText parses a number from 1 to 65535.
func (p *Port) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("must be a port from 1 to 65535, such as 443, not %.20q", text)
	}
	*p = Port(n)
	return nil
}

// mostPaths limits the number of entries in read and in write.
const mostPaths = 64

// Validate reports invalid paths.
func (s *Sandbox) Validate(bad func(path, format string, args ...any)) {
	for key, list := range map[string][]string{"read": s.Read, "write": s.Write} {
		if len(list) > mostPaths {
			bad("sandbox."+key, "has more than %d entries; name a folder that contains several of them", mostPaths)
		}
		for i, p := range list {
			at := fmt.Sprintf("sandbox.%s[%d]", key, i)
			rest, home := strings.CutPrefix(p, "~")
			switch {
			case p == folder.Word && key == "read":
			case folder.Named(p):
				bad(at, "the folder of the client needs no entry here; write %s into read if the command may not "+
					"change it", folder.Word)
			case p == "":
				bad(at, "is empty; write an absolute path, or remove the entry")
			case home && (rest == "" || rest[0] == '/'):
				bad(at, "~ means nothing here; write ${HOME}%s", rest)
			case !filepath.IsAbs(p):
				bad(at, "must be an absolute path, such as /srv/data; "+
					"a relative one would depend on the folder in which Junction was started")
			case strings.Contains(p, "\x00"):
				bad(at, "has a NUL byte; write an absolute path, such as /srv/data")
			}
		}
	}
}

// rules returns the rules of the section. With require, a command has no UNIX sockets that the
// kernel cannot restrict.
func (s *Sandbox) rules() sandbox.Rules {
	r := sandbox.Rules{Read: s.paths(), Write: s.Write, AnyTCP: s.TCP.All(), AnyUnix: !s.Require}
	for _, p := range s.TCP.List {
		r.TCP = append(r.TCP, uint16(p))
	}
	return r
}

// OnlyReadsFolder reports whether the command may not change the folder of its client.
func (s *Sandbox) OnlyReadsFolder() bool { return s != nil && slices.Contains(s.Read, folder.Word) }

// paths returns read without the word for the folder of the client.
func (s *Sandbox) paths() []string {
	if !s.OnlyReadsFolder() {
		return s.Read
	}
	return slices.DeleteFunc(slices.Clone(s.Read), func(p string) bool { return p == folder.Word })
}

// Missing returns the part of the sandbox that a kernel does not enforce; "" if it enforces all.
func (s *Sandbox) Missing(k sandbox.Support) string {
	r := s.rules()
	return k.Missing(&r)
}

// Enforcement describes in one line, for display, how far the kernel enforces the sandbox.
func (s *Sandbox) Enforcement(k sandbox.Support) string {
	switch missing := s.Missing(k); {
	case missing == "":
		return Enforced
	case k.Enforces():
		return "enforced in part: " + missing
	default:
		return "not enforced: " + missing
	}
}

// Enforced is the value of upstream.Status.Sandbox if the kernel enforces the whole section.
const Enforced = "enforced"

// Absent returns the paths of the sandbox that do not exist, or that the kernel does not let the
// command use. The keys are those in the section, such as write[0]; each value has a solution.
// writable is what confined commands may change.
func (s *Sandbox) Absent(k sandbox.Support, writable sandbox.Writable) map[string]string {
	absent, r := map[string]string{}, s.rules()
	if k.Enforces() {
		r.Writable = writable
	}
	for key, list := range map[string][]string{"read": s.Read, "write": s.Write} {
		for i, p := range list {
			if p == folder.Word {
				continue
			}
			if problem := k.PathProblem(&r, key, p); problem != "" {
				absent[fmt.Sprintf("%s[%d]", key, i)] = problem
			}
		}
	}
	return absent
}

// Confinement returns the sandbox for a process. name is the upstream's name. private is the folder
// for files that the command keeps; "" for none. others returns the paths that other confined commands
// may change; nil if there are none.
func (s *Sandbox) Confinement(name, private string, kernel sandbox.Support, others func() []string) *stdio.Confinement {
	return &stdio.Confinement{Name: name, Require: s.Require, Support: kernel, Private: private, Rules: s.rules(),
		Others: others}
}
