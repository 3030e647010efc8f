package config

import (
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"junction/auth/store"
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
	paths := upstream.Writable(c.Upstreams, Sandboxes(KeyDir("", getenv), file))
	if key := c.Sessions.KeyFile; key != "" {
		paths = append(paths, upstream.Writable(c.Upstreams, Sandboxes(filepath.Dir(key), file))...)
	}
	writable, err := sandbox.NewWritable(paths)
	if err != nil {
		warn(at+".write", "%v; that upstream cannot start", err)
	}
	absent := u.Absent(writable)
	for _, key := range slices.Sorted(maps.Keys(absent)) {
		warn(at+"."+key, "%s; that upstream cannot start", absent[key])
	}
	for _, list := range []struct {
		key, verb string
		paths     []string
	}{{"read", "read", u.Sandbox.Read}, {"write", "change", u.Sandbox.Write}} {
		for i, p := range list.paths {
			if own := c.within(p, file, getenv); own != "" {
				warn(fmt.Sprintf("%s.%s[%d]", at, list.key, i), "lets the command %s %s; name a narrower path",
					list.verb, own)
			}
		}
	}
	if sandbox.Kernel().Enforces() {
		c.warnWritable(at, u, writable, warn)
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
			filepath.Base(u.Command[0]))
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
	if len(u.Command) > 0 && u.Command[0] != Self {
		if program, err := exec.LookPath(u.Command[0]); err == nil {
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

// installer reports whether a command downloads packages when it starts.
func installer(command []string) bool {
	return len(command) > 0 && slices.Contains([]string{"npx", "uvx", "bunx", "pnpx"}, filepath.Base(command[0]))
}

// within returns the name of a secret of Junction that is inside path or contains it; "" if there
// is none.
func (c *Config) within(path, file string, getenv func(string) (string, bool)) string {
	if !filepath.IsAbs(path) {
		return ""
	}
	paths := []string{filepath.Clean(path)}
	if real, err := filepath.EvalSymlinks(path); err == nil && real != paths[0] {
		paths = append(paths, real)
	}
	database := c.Storage.DSN
	if c.Storage.Driver == store.Postgres {
		database = ""
	}
	for _, own := range []struct{ what, path string }{
		{"the configuration file", file}, {"the key of sessions", c.Sessions.KeyFile},
		{"the master keys", c.Storage.KeyFile},
		{"the sign-ins", database}, {"the accepted definitions", c.Pins},
		{"the keys and sign-ins of Junction", KeyDir("", getenv)},
	} {
		secret, err := filepath.Abs(own.path)
		if own.path != "" && err == nil && (sandbox.Covers(paths, secret) ||
			sandbox.Covers([]string{secret}, paths[0])) {
			return own.what + ", " + secret
		}
	}
	return ""
}
