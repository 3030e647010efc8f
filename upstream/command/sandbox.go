package command

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"junction/upstream/sandbox"
	"junction/upstream/transport"
)

// Sandbox is the sandbox section of a command: the files and TCP ports that it may use beside those
// of package sandbox (System, Programs), which every program needs. Without the section a command
// may use all that the user of Junction may. Linux enforces it by Landlock.
type Sandbox struct {
	// Read are files and folders that the command may read and run: absolute paths.
	Read []string `yaml:"read"`
	// Write are files and folders that it may also change, create files in and remove files from.
	Write []string `yaml:"write"`
	// TCP are the ports that it may connect to, on any host, or the word all. It may listen only
	// with all. Default: none. Landlock restricts neither UDP nor multipath TCP.
	TCP Ports `yaml:"tcp"`
	// Require true keeps the command from starting where the kernel cannot enforce all of this.
	// Default: it starts with what the kernel can enforce, perhaps nothing, and the log and /readyz
	// have the reason.
	Require bool `yaml:"require"`
}

// sandboxKeys is Sandbox without its methods.
type sandboxKeys Sandbox

// Shape returns what the node is to be read into: a mapping, also an empty one.
func (s *Sandbox) Shape(n *yaml.Node) (into any, want string) {
	if n.Kind == yaml.MappingNode {
		return (*sandboxKeys)(s), ""
	}
	return nil, "a mapping, such as { write: [/srv/notes], tcp: [443] }"
}

// Ports are TCP ports, or all of them.
type Ports struct {
	List []Port
	word string // all
}

// All reports whether TCP is not restricted.
func (p Ports) All() bool { return p.word == allPorts }

const allPorts = "all"

// Shape returns what the node is to be read into: the word all, or a list.
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

// UnmarshalText reads a number from 1 to 65535.
func (p *Port) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("want a port from 1 to 65535, such as 443, not %.20q", text)
	}
	*p = Port(n)
	return nil
}

// mostPaths bounds the entries of read, and those of write.
const mostPaths = 64

// Validate reports the paths that are none.
func (s *Sandbox) Validate(bad func(path, format string, args ...any)) {
	for key, list := range map[string][]string{"read": s.Read, "write": s.Write} {
		if len(list) > mostPaths {
			bad("sandbox."+key, "has more than %d entries; name a folder that contains several of them", mostPaths)
		}
		for i, p := range list {
			at := fmt.Sprintf("sandbox.%s[%d]", key, i)
			rest, home := strings.CutPrefix(p, "~")
			switch {
			case p == "":
				bad(at, "is empty; write an absolute path, or remove the entry")
			case home && (rest == "" || rest[0] == '/'):
				bad(at, "~ means nothing here; write ${HOME}%s", rest)
			case !filepath.IsAbs(p):
				bad(at, "want an absolute path, such as /srv/data; "+
					"a relative one would depend on the folder in which Junction was started")
			case strings.Contains(p, "\x00"):
				bad(at, "has a NUL byte; write an absolute path, such as /srv/data")
			}
		}
	}
}

// Missing returns which part of the sandbox a kernel does not enforce; "" if it enforces all.
func (s *Sandbox) Missing(k sandbox.Support) string { return k.Missing(!s.TCP.All()) }

// Enforcement returns in one line how far the kernel enforces the sandbox, for a person.
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

// Enforced is the value of upstream.Status.Sandbox when the kernel enforces all of it.
const Enforced = "enforced"

// Absent returns the paths of the sandbox that do not exist, by the keys in the section,
// such as write[0], each with what to do.
func (s *Sandbox) Absent() map[string]string {
	absent := map[string]string{}
	for key, list := range map[string][]string{"read": s.Read, "write": s.Write} {
		for i, p := range list {
			if problem := sandbox.PathProblem(key, p); problem != "" {
				absent[fmt.Sprintf("%s[%d]", key, i)] = problem
			}
		}
	}
	return absent
}

// Confinement returns what the sandbox is to a process: name is that of the upstream, private the
// folder for what it keeps; "" for none.
func (s *Sandbox) Confinement(name, private string, kernel sandbox.Support) *transport.Confinement {
	c := &transport.Confinement{Name: name, Read: s.Read, Write: s.Write, AnyTCP: s.TCP.All(), Require: s.Require,
		Support: kernel, Private: private}
	for _, p := range s.TCP.List {
		c.TCP = append(c.TCP, uint16(p))
	}
	return c
}
