package upstream

import (
	"os"
	"path/filepath"
	"strings"

	"junction/upstream/remedy"
)

// This file has the remedies for a command that lacks its program or its folder: for the state of the upstream,
// and for a check of the file.

// Running is where a relative path begins, for the state of an upstream. A check of the file may run in another
// folder than the process that serves it.
const Running = "where Junction runs"

// ForProgram returns what a person does if the program of the command does not exist. where names the folder of
// this process.
func (c *Config) ForProgram(where string) string {
	program, words := c.Program(), strings.Fields(c.Program())
	if inHome(program) {
		return "write its full path into command, because ~ is not expanded"
	}
	if len(words) > 1 && filepath.Base(words[0]) == words[0] {
		if len(c.Command) > 1 {
			words = append(words, "…") // an argument may be secret
		}
		return "write its arguments apart: [" + strings.Join(words, ", ") + "]"
	}
	if filepath.Base(program) != program && !filepath.IsAbs(program) {
		folder, verb := absolute(c.Dir), "correct" // that of this process for ""
		there := folder
		if c.Dir == "" {
			there, verb = folder+", "+where, "set"
		}
		return "there is no " + filepath.Join(folder, program) + " (relative to " + there +
			"): write the full path into command, or " + verb + " dir"
	}
	return remedy.Install(program)
}

// inHome reports whether a shell makes a path in the home folder of a path.
func inHome(path string) bool {
	rest, ok := strings.CutPrefix(path, "~")
	return ok && (rest == "" || rest[0] == '/')
}

// absolute returns a path as an absolute one, if the folder of this process is known.
func absolute(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return path
}

// ForMode is what a person does if the program of a command may not be run.
const ForMode = "chmod +x, or run Junction as another user"

// ForDir returns what a person does if the folder of the command does not exist. where names the folder of this
// process.
func (c *Config) ForDir(where string) string {
	if inHome(c.Dir) {
		return "write its full path into dir, because ~ is not expanded"
	}
	if filepath.IsAbs(c.Dir) {
		return "create the folder " + c.Dir + ", or correct dir"
	}
	return "create the folder " + absolute(c.Dir) + " (" + c.Dir + " is relative to " + absolute(".") + ", " + where +
		"), or write the full path into dir"
}

// forMissing returns what a person does if the system has not found what the command names: its folder, its
// program, or the interpreter of that.
func (c *Config) forMissing() string {
	program := c.Program()
	if !filepath.IsAbs(program) {
		program = filepath.Join(c.Dir, program)
	}
	if _, err := os.Stat(c.Dir); c.Dir != "" && err != nil {
		return c.ForDir(Running)
	}
	if _, err := os.Stat(program); err != nil {
		return c.ForProgram(Running)
	}
	return "install the interpreter that the first line of " + c.Program() + " names, or correct that line"
}
