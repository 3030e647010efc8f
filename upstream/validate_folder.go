package upstream

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"junction/upstream/folder"
)

// shells run their argument after one of the flags as a program.
var shells = map[string][]string{"sh": {"-c"}, "bash": {"-c"}, "zsh": {"-c"}, "dash": {"-c"}, "ash": {"-c"},
	"ksh": {"-c"}, "fish": {"-c"}, "cmd": {"/c", "/k"}, "powershell": {"-command", "-c"}, "pwsh": {"-command", "-c"}}

// validateFolder reports the word for the folder of a client where there is none, or where a name that a client
// chooses would be divided or run.
func (c *Config) validateFolder(bad func(path, format string, args ...any)) {
	if c.Isolation == IsolationFolder && !c.Kind().Process {
		bad("isolation", "folder is only for a command: a server at a URL gets no folder; write session or principal")
		return
	}
	values := map[string]string{"dir": c.Dir}
	for i, word := range c.Command {
		values[fmt.Sprintf("command[%d]", i)] = word
	}
	for name, value := range c.Env {
		values["env."+name] = value
	}
	if c.Sandbox.OnlyReadsFolder() {
		values["sandbox.read"] = folder.Word
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		value := values[key]
		before, whole := strings.CutSuffix(value, folder.Word)
		switch {
		case !folder.Named(value):
		case c.Isolation != IsolationFolder:
			bad(key, "%s needs isolation: folder, which gives each folder of a client its own process", folder.Word)
		case key == "dir" && value != folder.Word:
			bad(key, "must be %s alone, or a path without it", folder.Word)
		case key == "command[0]":
			bad(key, "the program cannot be the folder of the client, which an agent can change; name another one")
		case !whole || folder.Named(before) || before != "" && !strings.ContainsAny(before[len(before)-1:], "=:"):
			bad(key, "%s must be the whole value, or its end after = or :, so that no folder divides it", folder.Word)
		case strings.HasPrefix(key, "command[") && c.runs(value):
			bad(key, "a shell would run the name of the folder, which a client chooses; pass it as an argument after "+
				"the script, such as [sh, -c, 'exec server \"$1\"', sh, \"%s\"]", folder.Word)
		}
	}
}

// grantsFolders reports whether a confined command may change the folders of its clients.
func grantsFolders(configs map[string]Config) bool {
	for _, c := range configs {
		if c.Isolation == IsolationFolder && c.Sandbox != nil && !c.Sandbox.OnlyReadsFolder() {
			return true
		}
	}
	return false
}

// runs reports whether the command runs an argument as a program: it is a batch file, which divides its
// arguments, or a shell whose script is the argument.
func (c *Config) runs(argument string) bool {
	name := strings.ToLower(filepath.Base(strings.ReplaceAll(c.Command[0], `\`, "/")))
	if strings.HasSuffix(name, ".bat") || strings.HasSuffix(name, ".cmd") {
		return true
	}
	flags := shells[strings.TrimSuffix(name, ".exe")]
	flag := func(word string) bool { return slices.Contains(flags, strings.ToLower(word)) }
	at := slices.IndexFunc(c.Command[1:], flag)
	if at < 0 {
		return false
	}
	script := c.Command[1+at:] // with the flag
	return len(script) > 1 && (script[1] == argument || strings.HasPrefix(script[0], "/"))
}
