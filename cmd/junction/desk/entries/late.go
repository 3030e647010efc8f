package entries

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/upstream/shell"
)

// This file finds flags of junction add that a person has put behind the command.

// lateFlags returns a note about the flags of junction add at the end of the words after --. These words are the
// command's, and some programs have flags of the same names. A configuration file of Junction is an error: the
// upstream would go to another file. A --config before -- says which file is meant, so that a second one is
// the command's.
func lateFlags(cmd *cobra.Command, args []string) (notes []string, err error) {
	if cmd.ArgsLenAtDash() != 1 || len(args) < 2 || shell.ProgramName(args[1]) == "junction" {
		return nil, nil
	}
	command, late := args[1:], []string{}
	for {
		n := lastFlag(command[1:])
		rest := len(command) - n
		name, value := flagOf(command[rest:])
		if n == 0 || name == configFlag && cmd.Flags().Changed("config") {
			break
		} else if name == configFlag && isConfig(value) {
			line := slices.Concat([]string{"junction", "add", args[0]}, args[1+rest:], []string{"--"}, command[:rest])
			return nil, cli.Usagef("--config %s stands after --, so that it belongs to the command; write %s",
				shell.Quote(value), shell.Join(line...))
		}
		command, late = command[:rest], append(late, name) // without the value, which may be a secret
	}
	if len(late) == 0 {
		return nil, nil
	}
	slices.Reverse(late)
	return []string{fmt.Sprintf("Note: behind --, these flags belong to the command: %s. Flags of junction add "+
		"stand before --.", strings.Join(late, ", "))}, nil
}

// configFlag is the flag that names the configuration file.
const configFlag = "--config"

// Flags that junction add has for a command. Their long forms count: other programs have the short ones, too.
var (
	switches = []string{"--json", "--yes", "--disabled"}
	valued   = []string{configFlag, "--env", "--cwd"}
)

// lastFlag returns the number of words of the flag of junction add with which a command ends; 0 if there is none.
func lastFlag(words []string) int {
	last := len(words) - 1
	name, value := flagOf(words[max(last, 0):])
	switch {
	case last < 0:
	case slices.Contains(switches, name) && value == "", slices.Contains(valued, name) && value != "":
		return 1
	case last > 0 && slices.Contains(valued, words[last-1]):
		return 2
	}
	return 0
}

// flagOf returns the name and the value of a flag of one or two words.
func flagOf(words []string) (name, value string) {
	if len(words) == 2 {
		return words[0], words[1]
	}
	name, value, _ = strings.Cut(strings.Join(words, ""), "=")
	return name, value
}

// isConfig reports whether a file is a configuration of Junction: it can be read, and has upstreams.
func isConfig(path string) bool {
	f, err := read(path)
	return err == nil && f.text != nil && len(f.section().Content) > 0
}
