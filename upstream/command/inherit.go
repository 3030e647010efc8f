// Package command has the parts of a configuration entry that are about a command: which variables
// of the environment it gets, and which files and ports it may use.
package command

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"junction/upstream/stdio"
)

// Inherit are the variables of our own environment that a command gets besides the default ones:
// names, and globs such as AWS_*. The word all stands for all variables.
type Inherit []string

// Shape returns what the node is to be read into: the word all, or a list.
func (i *Inherit) Shape(n *yaml.Node) (into any, want string) {
	switch {
	case n.Kind == yaml.SequenceNode && len(n.Content) > 0:
		return (*[]string)(i), ""
	case n.Kind == yaml.ScalarNode && n.Value == "all":
		*i = Inherit{"all"}
		return &(*i)[0], ""
	}
	return nil, "the word all, or a list of variables such as [DOCKER_HOST, AWS_*]"
}

// Validate reports the names that are none.
func (i Inherit) Validate(bad func(path, format string, args ...any)) {
	for k, name := range i {
		if _, err := path.Match(name, ""); err != nil || name == "" || strings.ContainsAny(name, "=/$ ") {
			bad(fmt.Sprintf("inherit_env[%d]", k), "is no name of a variable; write a name such as DOCKER_HOST, or a "+
				"glob such as AWS_*")
		}
	}
}

// Matches reports whether the list has the variable, by its name or by a glob.
func (i Inherit) Matches(variable string) bool { return stdio.Matches(i, variable) }

// Withheld returns the names of the variables of our environment that a command does not get, and
// that servers often need: those that look like keys. Junction's own are not among them.
func Withheld(given stdio.Environment) []string {
	var names []string
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		_, own := given.Own[name]
		if !own && !strings.HasPrefix(name, "JUNCTION_") && looksSecret(name) && !given.Passes(name, value) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Secrets returns the values of variables that a command gets and that look like keys.
func Secrets(given stdio.Environment) (values []string) {
	for name, value := range given.Own {
		if looksSecret(name) {
			values = append(values, value)
		}
	}
	for _, variable := range os.Environ() {
		if name, value, _ := strings.Cut(variable, "="); looksSecret(name) && given.Passes(name, value) {
			values = append(values, value)
		}
	}
	return values
}

// looksSecret reports whether servers take a key from a variable of the name, most likely.
func looksSecret(name string) bool {
	name = strings.ToUpper(name)
	return slices.ContainsFunc([]string{"API_KEY", "APIKEY", "TOKEN", "SECRET"},
		func(part string) bool { return strings.Contains(name, part) })
}

// deciding are variables that decide which programs and libraries run. Globs end in *.
var deciding = []string{"PATH", "LD_*", "DYLD_*", "BASH_ENV", "ENV", "IFS", "SHELLOPTS", "BASHOPTS", "PS4", "PYTHON*",
	"NODE_OPTIONS", "NODE_PATH", "PERL5*", "PERLLIB", "RUBY*", "GIT_*", "SSH_*", "HOME", "SHELL", "EDITOR", "PAGER",
	"VISUAL"}

// Decides reports whether a variable decides which programs and libraries run, so that its value must be fixed.
func Decides(name string) bool {
	return slices.ContainsFunc(deciding, func(d string) bool {
		prefix, glob := strings.CutSuffix(d, "*")
		return glob && strings.HasPrefix(name, prefix) || name == d
	})
}
