package config

import (
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"junction/upstream"
	"junction/upstream/sandbox"
)

// warnSandbox warns if this machine cannot enforce the sandbox of a command, if paths of the
// sandbox do not exist, and if it exposes secrets of Junction.
func (c *Config) warnSandbox(at string, u *upstream.Config, d *decoder, warn func(path, format string, args ...any)) {
	file, getenv := d.File, d.refs.getenv
	if u.Sandbox == nil {
		return
	}
	at += ".sandbox"
	switch missing := u.Unconfined(); {
	case missing == "":
	case u.Sandbox.Require:
		warn(at+".require", "this machine cannot enforce the sandbox, and that upstream shows as blocked: %s", missing)
	default:
		warn(at, "this machine does not enforce all of it, and the command starts all the same, "+
			"because require is not true: %s", missing)
	}
	writable, err := sandbox.NewWritable(c.writable(file, getenv))
	if err != nil {
		warn(at+".write", "%v; that upstream cannot start", err)
	}
	absent := u.Absent(writable)
	for _, key := range slices.Sorted(maps.Keys(absent)) {
		warn(at+"."+key, "%s; that upstream cannot start", absent[key])
	}
	for i, p := range u.Sandbox.Read {
		if own := c.within(p, file, getenv); own != "" {
			warn(fmt.Sprintf("%s.read[%d]", at, i), "lets the command read %s; name a narrower path", own)
		}
	}
	if sandbox.Kernel().Enforces() {
		c.warnWritable(at, u, writable, warn)
		warnShown(at, u, getenv, warn)
	}
	if own := c.within(u.Dir, file, getenv); own != "" && u.WideDir() == "" {
		warn(at, "makes the working directory readable, and with it %s; set dir to another folder", own)
	}
	for _, p := range sandbox.System() {
		if own := c.within(p, file, getenv); own != "" {
			warn(at, "every command may read %s, and with it %s; move the file", p, own)
		}
	}
	if dir := u.WideDir(); dir != "" {
		warn(at, "does not make the working directory %s readable, because it contains the home folder; "+
			"name in read what the command needs there", dir)
	}
	if installer(u.Command) && !u.Sandbox.TCP.All() && len(u.Sandbox.TCP.List) == 0 {
		warn(at, "permits no TCP, which %s needs to download packages; add tcp: [443], or the port of your proxy",
			filepath.Base(u.Program()))
	}
}

// warnWritable names each path of an entry that a confined command may change. No link there is
// followed, and nothing there is readable by default.
func (c *Config) warnWritable(at string, u *upstream.Config, writable sandbox.Writable,
	warn func(path, format string, args ...any)) {
	named := slices.Concat(u.Sandbox.Read, u.Sandbox.Write)
	check := func(key, what, path string, needed bool) {
		in := writable.Holds(path)
		switch {
		case in == "":
		case needed && !writable.Permits(named, path):
			warn(key, "%s %s is in %s, which confined commands may change, so it is not readable by default; "+
				"add it to sandbox: { read: [%s] }; that upstream cannot start", what, path, in, path)
		case writable.Below(path) != "":
			warn(key, "%s %s is in %s, which confined commands may change, so no link there is followed",
				what, path, in)
		}
	}
	entry := strings.TrimSuffix(at, ".sandbox")
	if u.Program() != "" && u.Program() != Self {
		if program, err := exec.LookPath(u.Program()); err == nil {
			if program, err = filepath.Abs(program); err == nil {
				check(entry+".command", "the program", program, true)
			}
		}
	}
	if u.Dir != "" {
		check(entry+".dir", "the folder", u.Dir, u.WideDir() == "")
	}
	for i, path := range u.Sandbox.Read {
		check(fmt.Sprintf("%s.read[%d]", at, i), "the path", path, false)
	}
	for i, path := range u.Sandbox.Write {
		check(fmt.Sprintf("%s.write[%d]", at, i), "the path", path, false)
	}
}

// warnShown warns of paths of write in a folder that every confined command may read.
func warnShown(at string, u *upstream.Config, getenv func(string) (string, bool),
	warn func(path, format string, args ...any)) {
	var environment []string
	for _, name := range []string{"PATH", "HOME"} {
		if value, ok := getenv(name); ok {
			environment = append(environment, name+"="+value)
		}
	}
	shown := append(sandbox.System(), sandbox.Programs("", environment, nil)...)
	for i, path := range u.Sandbox.Write {
		real, err := sandbox.NewWritable([]string{path})
		if err != nil || len(real) == 0 {
			continue
		}
		if k := slices.IndexFunc(shown, func(f string) bool {
			folder, err := sandbox.NewWritable([]string{f})
			return err == nil && real[0] != f && sandbox.Covers(folder, real[0])
		}); k >= 0 {
			warn(fmt.Sprintf("%s.write[%d]", at, i), "is in %s, where every confined command may read and run files, "+
				"also those that this command writes; name a path elsewhere", shown[k])
		}
	}
}

// installer reports whether a command downloads packages when it starts.
func installer(command []string) bool {
	return len(command) > 0 && slices.Contains([]string{"npx", "uvx", "bunx", "pnpx"}, filepath.Base(command[0]))
}

// within returns the first file of Junction that is inside path or contains it; "" if there is none.
func (c *Config) within(path, file string, getenv func(string) (string, bool)) string {
	if own := c.own(file, getenv).Changed(path); own != nil {
		return own.String()
	}
	return ""
}
