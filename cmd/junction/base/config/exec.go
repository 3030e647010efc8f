package config

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"junction/upstream"
	"junction/upstream/prose"
	"junction/upstream/sandbox"
	"junction/upstream/shell"
)

// This file has the references to programs, ${exec: [program, argument]}. Reading a file runs no program: the
// caller gives what the programs have printed (Printed). Without it, a constant word stands for the secret, which
// is enough to check the file. Only a value of this file can name a program, and only where a secret belongs: the
// values of other references, manifests of packs and entries of clients cannot.

// Printed returns what a program of an upstream has printed, or why there is no value. It does not wait.
type Printed func(upstream string, command []string) (value, problem string)

// unprinted stands for a secret that is not needed.
const unprinted = "of-a-program"

// An Origin is where a secret of an entry is kept: in a file, in an environment variable, or with a program. The
// others are empty.
type Origin struct {
	Key      string // below the entry, such as headers.Authorization
	File     string
	Variable string
	Program  []string // with its arguments
	text     string   // the value of the key as it stands in the file, for a Program
}

// From returns where the secret is kept, in words.
func (o Origin) From() string {
	switch {
	case len(o.Program) > 0:
		return "the program " + filepath.Base(o.Program[0])
	case o.File != "":
		return "the file " + o.File
	}
	return "the environment variable " + o.Variable
}

// takesProgram reports whether the value at a path may come from a program: it is a secret.
func takesProgram(path string) bool {
	key, inAuth := strings.CutPrefix(path, entry(path)+".auth.")
	return isEnv(path) || isIn(path, ".headers.") || inAuth && new(upstream.Auth).Secret(key) != nil
}

// HasProgram reports whether a program prints a secret of an upstream.
func (c *Config) HasProgram(name string) bool {
	return slices.ContainsFunc(c.Origins[name], func(o Origin) bool { return len(o.Program) > 0 })
}

// printer returns what gives the values of programs in the text at a path, and notes the programs; nil if none
// belongs there.
func (d *decoder) printer(path, text string) func([]string) (string, string) {
	at := entry(path)
	name := strings.TrimPrefix(at, "upstreams.")
	switch {
	case !takesProgram(path):
		return nil
	case d.off[at]:
		return func([]string) (string, string) { return unprinted, "" }
	}
	return func(command []string) (string, string) {
		d.from[name] = append(d.from[name], Origin{Key: strings.TrimPrefix(path, at+"."), Program: command, text: text})
		if d.printed == nil {
			return unprinted, ""
		}
		return d.printed(name, command)
	}
}

// noteOrigins notes the files of a value at a path, and the variables of one that is a secret.
func (d *decoder) noteOrigins(path string, refs []reference) {
	name, within := strings.CutPrefix(entry(path), "upstreams.")
	for _, r := range refs {
		o := Origin{Key: strings.TrimPrefix(path, entry(path)+".")}
		if file, ok := strings.CutPrefix(r.text, "${file:"); ok {
			o.File = beside(d.File, strings.TrimSuffix(file, "}"))
		} else if takesProgram(path) && !strings.Contains(r.text, r.value) { // a default is in this file
			o.Variable = r.variable()
		}
		if within && (o.File != "" || o.Variable != "") {
			d.from[name] = append(d.from[name], o)
		}
	}
}

// programKeys returns the keys of an upstream in which a program can stand, as words of a sentence.
func programKeys() string {
	list := []string{"headers", "env"}
	for _, key := range (upstream.Auth{}).SecretKeys() {
		list = append(list, "auth."+key)
	}
	last := len(list) - 1
	return strings.Join(list[:last], ", ") + " and " + list[last]
}

// run returns the value of the reference to a program, whose words are a list of YAML.
func (e *expander) run(list string) (value, problem string) {
	command, problem := programOf(list)
	switch {
	case problem != "":
		return "", problem
	case e.print == nil:
		return "", "${exec: …} is possible only in " + programKeys() + " of an upstream, and not in a pack; write " +
			"${VAR} or ${file:/path}"
	}
	return e.print(command)
}

// mostWords is the most words of the command of a program.
const mostWords = 64

// programOf returns the command in a list of YAML.
func programOf(list string) (command []string, problem string) {
	err := yaml.Unmarshal([]byte(list), &command)
	switch {
	case err != nil || len(command) == 0 || command[0] == "":
		return nil, "${exec: …} needs a program and its arguments as a list, such as ${exec: [op, read, " +
			"\"op://vault/item/field\"]}"
	case len(command) > mostWords:
		return nil, "${exec: …} has too many words; write a script, and name it"
	case strings.Contains(strings.Join(command, " "), "${"):
		return nil, "${exec: …} has another reference in it, which is not possible; name the variables that the " +
			"program needs in exec.inherit_env"
	case strings.Contains(strings.Join(command, " "), "\x00"):
		return nil, "${exec: …} has a NUL byte"
	case filepath.Base(command[0]) != command[0] && !filepath.IsAbs(command[0]):
		return nil, "${exec: …} must name a program in PATH, or by its absolute path, not " + prose.Quote(command[0])
	}
	return command, ""
}

// programNotes returns what check shows of the programs.
func (c *Config) programNotes(name string) (notes []string) {
	for _, o := range c.Origins[name] {
		if len(o.Program) > 0 {
			notes = append(notes, "upstreams."+name+"."+o.Key+": Junction runs this program for the secret; junction "+
				"check does not run it: "+prose.Cut(prose.OneLine(shell.Join(o.Program...)), maxShown))
		}
	}
	return notes
}

// maxShown is how much of a command line is shown.
const maxShown = 300

// withoutPrinted returns an entry with the text of the file in place of what programs have printed: each member has
// secrets of its own.
func (c *Config) withoutPrinted(name string, u upstream.Config) upstream.Config {
	u.Headers, u.Env = maps.Clone(u.Headers), maps.Clone(u.Env)
	for _, o := range c.Origins[name] {
		section, key, _ := strings.Cut(o.Key, ".")
		switch {
		case len(o.Program) == 0:
		case section == "headers":
			u.Headers[key] = o.text
		case section == "env":
			u.Env[key] = o.text
		default:
			*u.Auth.Secret(key) = o.text
		}
	}
	return u
}

// Reprinted returns an entry with what its programs have printed now, in headers and auth. A value with a mistake is
// as it was when the file was read: a reload tells the mistake.
func (c *Config) Reprinted(name, file string, getenv func(string) (string, bool), printed Printed) upstream.Config {
	u := c.Upstreams[name]
	u.Headers = maps.Clone(u.Headers)
	for _, o := range c.Origins[name] {
		section, key, _ := strings.Cut(o.Key, ".")
		if len(o.Program) == 0 || section == "env" {
			continue
		}
		e := expander{dir: filepath.Dir(file), file: file, getenv: getenv, left: maxReferenced, named: Inputs{},
			print: func(command []string) (string, string) { return printed(name, command) }}
		value, _, problems := e.expand(o.text)
		switch {
		case len(problems) > 0 || strings.ContainsAny(value, "\r\n\x00"):
		case section == "headers":
			u.Headers[key] = value
		default:
			*u.Auth.Secret(key) = value
		}
	}
	return u
}

// printers returns the files that decide which programs print the secrets of an entry.
func (c *Config) printers(d *decoder, name string) (list sandbox.Deciders) {
	path, _ := d.refs.getenv("PATH")
	for _, o := range c.Origins[name] {
		if len(o.Program) == 0 {
			continue
		}
		for _, file := range sandbox.Searched(o.Program[0], "", path) {
			list = append(list, sandbox.Decider{What: "the program of upstreams." + name + "." + o.Key, Path: file})
		}
	}
	return list
}
