package manifest

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"junction/upstream/prose"

	"gopkg.in/yaml.v3"
)

// CommandKind are tools that run a program.
var CommandKind = &Kind{Key: "command", Example: `command: [program, "{{parameter}}"]`,
	Tools: "commands", Shows: "programs",
	Runs:   true,
	Keys:   []string{"shell", "stdin", "dir", "env", "inherit_env", "sandbox", "exit_codes"},
	Limits: acceptedLimits, New: func(t *Tool) Action { return &runs{t} }}

// runs is the Action of a command. Its keys are those of the Tool, since manifests have defaults for them.
type runs struct{ *Tool }

func (r *runs) decode(d *decoder, path string, n *yaml.Node) { r.Command.decode(d, path, n) }

// Check checks the keys of a tool with a command.
func (r *runs) Check(c *Checker) { c.d.runs(c.path, r.Tool) }

// Uses implements Action. The variables and the standard input are noted with all tools.
func (r *runs) Uses(note func(at string, names []string, optional bool)) {
	r.Command.Walk(func(at string, a *Arg, inGroup bool) {
		note(".command"+at, a.Text.Names(), inGroup)
		if a.When != "" {
			note(".command"+at, []string{a.When}, true)
		}
	})
}

// runs checks the keys of a tool with a command.
func (d *decoder) runs(path string, t *Tool) {
	at := path + ".command"
	if len(t.Command) == 0 {
		return
	}
	d.references(at, t)
	program, constant := t.Command[0].Text.Constant()
	switch {
	case t.Command[0].Group != nil || !constant:
		d.bad(at+"[0]", "must not depend on the arguments of a call; write the program as plain text%s",
			map[bool]string{true: ", and use \"$1\" for the value that stands after the script"}[t.Shell])
		return
	case program == "":
		d.bad(at+"[0]", "is empty; write the name of the program")
	case !t.Shell:
		d.program(at, t, program)
	}
	if !t.Dir.open {
		d.folder(path+".dir", t.WorkDir)
	}
}

// references replaces the references in the arguments, but not in a script: ${NAME} is for the
// shell there.
func (d *decoder) references(path string, t *Tool) {
	first := true
	t.Command.Walk(func(at string, a *Arg, _ bool) {
		if a.Group == nil && !(first && t.Shell) {
			a.Text.resolve(d, path+at)
		}
		first = false
	})
}

// interpreters are programs that run the text after one of these options.
var interpreters = map[string][]string{
	"sh": {"-c"}, "bash": {"-c"}, "dash": {"-c"}, "zsh": {"-c"}, "ksh": {"-c"}, "fish": {"-c"}, "busybox": {"-c"},
	"python": {"-c"}, "python3": {"-c"}, "perl": {"-e", "-E"}, "ruby": {"-e"}, "node": {"-e", "-p"},
	"php": {"-r"}, "lua": {"-e"}, "pwsh": {"-c", "-Command"},
}

// program checks the program and what it would run.
func (d *decoder) program(path string, t *Tool, program string) {
	runs := interpreters[filepath.Base(program)]
	script := false
	t.Command.Walk(func(at string, a *Arg, _ bool) {
		text, constant := a.Text.Constant()
		switch {
		case a.Group != nil:
		case script && !constant:
			d.bad(path+at, "would put a value into a program text, where it could run anything; "+
				"use shell: true with \"$1\", or read the value from stdin, env or an argument")
		default:
			script = constant && slices.ContainsFunc(runs, func(o string) bool {
				return text == o || len(o) == 2 && len(text) > 2 && text[0] == '-' && text[1] != '-' &&
					strings.HasSuffix(text, o[1:])
			})
		}
	})
	if strings.ContainsRune(program, filepath.Separator) {
		program = inside(t.WorkDir, program)
	}
	if _, err := exec.LookPath(program); err != nil && t.Env["PATH"].Source == "" && !t.Command[0].Text.open {
		d.warn(path+"[0]", "the program %s is not found here; install it, or calls of the tool fail",
			prose.Quote(program))
	}
}
