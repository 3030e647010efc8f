package config

import (
	"maps"
	"os"
	"path/filepath"
	"slices"

	"junction/upstream"
	"junction/upstream/folder"
	"junction/upstream/prose"
	"junction/upstream/shell"
)

// This file has the mistakes and warnings about the folder in which a command starts.

// launchVariables are variables with the folder in which a program was started. Those of Junction are the folder of
// a shell, the home folder or /, and not that of a client.
var launchVariables = []string{"PWD", "OLDPWD", "INIT_CWD", "CLAUDE_PROJECT_DIR"}

// launchFolder returns the mistake of a reference to a variable; "" if the variable is no folder of a start.
func launchFolder(name string) string {
	if !slices.Contains(launchVariables, name) {
		return ""
	}
	return "${" + name + "} would be the folder in which Junction was started; write the full path of one folder, or " +
		folder.Word + " with isolation: folder for the folder of each client"
}

// unplaced returns the first relative path of a command that has no folder; "" if there is none. With a sandbox,
// the command starts in a private folder.
func (c *Config) unplaced(name string) string {
	u := c.Upstreams[name]
	if u.Dir != "" || u.Sandbox != nil || u.Off() || c.Packs[name] != "" {
		return ""
	}
	for _, word := range shell.Relative(u.Command, nil) {
		return word
	}
	return ""
}

// unplacedText says what is wrong with a relative path.
func unplacedText(word, means string) string {
	return "the relative path " + prose.Quote(word) + " begins in the folder in which Junction starts, " + means +
		"; set dir to the folder where it begins, or write the full path"
}

// validateFolder blocks a command with a relative path in a service, where the path would begin in the home folder
// or /.
func (c *Config) validateFolder(d *decoder, name string) {
	if !d.inService() {
		return
	}
	if word := c.unplaced(name); word != "" {
		at := "upstreams." + name
		d.unresolved[at] = true // it blocks this upstream alone, also while Junction runs
		d.invalid(at, "%s", unplacedText(word, "which is the home folder or / for a service"))
	}
}

// inService reports whether the file is judged as a service reads it.
func (d *decoder) inService() bool {
	service, _ := d.refs.getenv(ServiceVariables)
	return service != "" || atRoot()
}

// lostInService returns the enabled upstreams that a service would block for a relative path, where the file is not
// judged as a service reads it.
func (c *Config) lostInService(d *decoder) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		if !d.inService() && c.unplaced(name) != "" {
			names = append(names, name)
		}
	}
	return names
}

// atRoot reports whether this process runs in the root folder, as a service of the system does.
func atRoot() bool {
	dir, err := os.Getwd()
	return err == nil && dir == filepath.Dir(dir)
}

// warnFolder warns of a command whose folder depends on how Junction is started, which is a mistake in a service, or
// which would run a program that lies in the folder of a client.
func (c *Config) warnFolder(d *decoder, name string, warn func(path, format string, args ...any)) {
	u, at := c.Upstreams[name], "upstreams."+name
	if word := c.unplaced(name); word != "" && !d.inService() {
		warn(at, "%s", unplacedText(word, "which differs between a shell and a service"))
	}
	if why := insecure(&u); why != "" {
		warn(at, "dir is %s, and %s: an agent that can write there gets a program of its own started outside of its "+
			"sandbox; set dir to a folder of yours, and name %s in an argument", folder.Word, why, folder.Word)
	}
}

// insecure returns why a command that starts in the folder of a client may run a program that lies there; ""
// if it does not start there, or runs none.
func insecure(u *upstream.Config) string {
	if !folder.Named(u.Dir) || !u.Kind().Process {
		return ""
	}
	return shell.RunsFrom(u.Command)
}
