package upstream

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"

	"junction/upstream/remedy"
)

// This file has the remedies for a command that lacks its program or its folder: for the state of the upstream,
// and for a check of the file.

// ForProgram returns what a person does if the program of the command does not exist.
func (c *Config) ForProgram() string {
	program, words := c.Program(), strings.Fields(c.Program())
	if rest, ok := strings.CutPrefix(program, "~/"); ok {
		return "write ${HOME}/" + rest + ", because ~ means nothing here"
	}
	if len(words) > 1 && filepath.Base(words[0]) == words[0] {
		if len(c.Command) > 1 {
			words = append(words, "…") // an argument may be secret
		}
		return "write its arguments apart: [" + strings.Join(words, ", ") + "]"
	}
	if filepath.Base(program) != program && !filepath.IsAbs(program) {
		verb := "set"
		if c.Dir != "" {
			verb = "correct"
		}
		return program + " is relative to " + cmp.Or(c.Dir, "the folder where Junction was started") +
			": write the full path into command, or " + verb + " dir"
	}
	return remedy.Install(program)
}

// ForMode is what a person does if the program of a command may not be run.
const ForMode = "chmod +x, or run Junction as another user"

// ForDir returns what a person does if the folder of the command does not exist.
func (c *Config) ForDir() string { return "create the folder " + c.Dir + ", or correct dir" }

// forMissing returns what a person does if the system has not found what the command names: its folder, its
// program, or the interpreter of that.
func (c *Config) forMissing() string {
	program := c.Program()
	if !filepath.IsAbs(program) {
		program = filepath.Join(c.Dir, program)
	}
	if _, err := os.Stat(c.Dir); c.Dir != "" && err != nil {
		return c.ForDir()
	}
	if _, err := os.Stat(program); err != nil {
		return c.ForProgram()
	}
	return "install the interpreter that the first line of " + c.Program() + " names, or correct that line"
}
