package cli

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"junction/auth"
	"junction/cmd/junction/base/config"
	"junction/upstream/prose"
)

// instead has words that other programs have as commands, and what a person types here.
var instead = map[string]string{
	"config":    "to validate the configuration file, run: junction check",
	"init":      "to set up Junction, run: junction setup",
	"install":   "to set up Junction, run: junction setup; to add a server, run: junction add",
	"ps":        "for the processes of the servers, run: junction status",
	"restart":   "run: junction service restart",
	"run":       "to serve, run junction without a command",
	"serve":     "to serve, run junction without a command",
	"start":     "run: junction service start; to serve in this shell, run junction without a command",
	"stop":      "run: junction service stop",
	"uninstall": "to undo the setup, run: junction setup --undo",
	"update":    "replace the program, and then run: junction service restart",
	"upgrade":   "replace the program, and then run: junction service restart",
}

// UnknownCommand returns the error for a word that is no command of parent.
func UnknownCommand(parent *cobra.Command, word string) error {
	what := strings.TrimPrefix(parent.CommandPath()+" ", parent.Root().Name()+" ")
	var known []string
	for _, sub := range parent.Commands() {
		if sub.IsAvailableCommand() {
			known = append(known, sub.Name())
		}
	}
	near := prose.Nearest(strings.ToLower(word), known)
	switch how := instead[strings.ToLower(word)]; {
	case how != "" && !parent.HasParent():
		return Usagef("there is no command %s; %s", prose.Quote(word), how)
	case isConfig(word) && !parent.HasParent():
		return Usagef("there is no command %s; to serve that file, run: %s", prose.Quote(auth.Redact(word)),
			config.Start(word))
	case near != "":
		return Usagef("there is no command %s; did you mean %s?", prose.Quote(what+auth.Redact(word)), what+near)
	case !parent.HasParent():
		return Usagef("there is no command %s", prose.Quote(auth.Redact(word)))
	}
	for i, name := range known {
		known[i] = what + name
	}
	return Usagef("there is no command %s%s; there is %s", what, auth.Redact(word), strings.Join(known, ", "))
}

// isConfig reports whether a word looks like the name of a configuration file.
func isConfig(word string) bool {
	return slices.Contains([]string{".yaml", ".yml"}, strings.ToLower(filepath.Ext(word)))
}

// FlagError adds the closest flag to the error about an unknown one.
func FlagError(cmd *cobra.Command, err error) error {
	unknown, ok := err.(*pflag.NotExistError)
	if !ok || unknown.GetSpecifiedShortnames() != "" {
		return usageError{err}
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, f.Name)
		}
	})
	if near := prose.Nearest(strings.ToLower(unknown.GetSpecifiedName()), known); near != "" {
		return Usagef("%w; did you mean --%s?", err, near)
	}
	return usageError{err}
}
