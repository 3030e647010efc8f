package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"junction/upstream"
	"junction/upstream/files"
	"junction/upstream/folder"
	"junction/upstream/prose"
	"junction/upstream/yamlread"
)

// An expander replaces the references in the values of one file:
//
//	${VAR}  ${env:VAR}      the environment variable; a mistake if it is not set
//	${VAR:-default}         the default if the variable is not set or empty, as in a shell
//	${file:/path}           the content of a file without the newline at its end
//	${exec: [program, a]}   what the program prints, in the values that take a secret (exec.go)
//	env:VAR                 as the whole value: the same as ${VAR}
//	${folder}               itself: the folder of the client, which is known at a call
//	${user.key}             itself: the key of the caller, which the process of the caller gets
//	$${                     the two characters ${
//
// The value of a reference is not expanded again and not parsed as YAML.
type expander struct {
	dir    string // the base of relative paths
	file   string // the configuration file; "" without one
	getenv func(string) (string, bool)
	unset  string // the variable of the last reference that could not be resolved
	left   int    // bytes left for values of references, so that aliases of large files stay bounded
	named  Inputs // the files that references name
	// print returns what a program prints; nil where no program belongs
	print func(command []string) (value, problem string)
}

// A reference is one reference in a value, and its replacement.
type reference struct{ text, value string }

// variable returns the name of the environment variable that the reference names; "" for a file.
func (r reference) variable() string {
	body, whole := strings.CutPrefix(r.text, "env:")
	if !whole {
		body = strings.TrimSuffix(strings.TrimPrefix(r.text, "${"), "}")
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(body, "env:"), ":-")
	if !yamlread.IsVariable(name) {
		return ""
	}
	return name
}

// reserve sets Reserved of each upstream: the variables that the file uses outside the env of its
// entry. It leaves out variables that inherit_env does not match, so that a change of theirs does
// not restart the upstream.
func (d *decoder) reserve(c *Config) {
	for name, u := range c.Upstreams {
		u.Reserved = nil
		for _, v := range slices.Sorted(maps.Keys(d.variables)) {
			elsewhere := func(path string) bool { return !strings.HasPrefix(path, "upstreams."+name+".env.") }
			if u.InheritEnv.Matches(v) && slices.ContainsFunc(d.variables[v], elsewhere) {
				u.Reserved = append(u.Reserved, v)
			}
		}
		c.Upstreams[name] = u
	}
}

const (
	maxReferencedFile = 64 << 10
	maxReferenced     = 4 << 20
)

// expand returns s with its references replaced, the references, and the mistakes. An invalid
// reference is replaced by "".
func (e *expander) expand(s string) (out string, refs []reference, problems []string) {
	resolve := func(text, body string) string {
		value, problem := e.resolve(body)
		if problem == "" && len(value) > e.left {
			problem = fmt.Sprintf("the references of the file stand for more than %d MiB; use fewer or shorter ones",
				maxReferenced>>20)
		}
		if problem != "" {
			problems = append(problems, problem)
			return ""
		}
		e.left -= len(value)
		refs = append(refs, reference{text, value})
		return value
	}
	if name, ok := strings.CutPrefix(s, "env:"); ok && yamlread.IsVariable(name) {
		return resolve(s, name), refs, problems
	}
	out, closed := yamlread.Expand(s, func(body string) string { return resolve("${"+body+"}", body) })
	if !closed {
		problems = append(problems, "has a ${ without its }; close it, or write $${ where ${ is meant as it stands")
	}
	return out, refs, problems
}

// resolve returns the value of ${body}, or a problem.
func (e *expander) resolve(body string) (value, problem string) {
	if path, ok := strings.CutPrefix(body, "file:"); ok {
		return e.read(path)
	}
	if words, ok := strings.CutPrefix(body, yamlread.Exec); ok {
		return e.run(words)
	}
	if word := "${" + body + "}"; word == folder.Word || word == upstream.KeyWord { // the upstream replaces it
		return word, ""
	}
	name, fallback, hasFallback := strings.Cut(strings.TrimPrefix(body, "env:"), ":-")
	if !yamlread.IsVariable(name) {
		return "", prose.Quote("${"+body+"}") +
			" is no reference; write ${VAR}, ${VAR:-default} or ${file:/path}, or $${ where ${ is meant as it stands"
	}
	if strings.Contains(fallback, "${") {
		return "", fmt.Sprintf("the default of ${%s:-…} holds another reference, which is not possible; use a plain "+
			"value", name)
	}
	if problem := launchFolder(name); problem != "" {
		return "", problem
	}
	value, ok := e.getenv(name)
	switch {
	case hasFallback && value == "":
		return fallback, ""
	case !ok:
		e.unset = name
		service, _ := e.getenv(ServiceVariables)
		problem = fmt.Sprintf("the environment variable %s is not set; set it %s, or write ${%s:-default}", name,
			ToSet(service), name)
		if service == "" && inEnvironment(e.file, name) {
			problem += fmt.Sprintf("; %s has it, but only a service and a process in the background read that file: "+
				"to start one, end this process, and run: %s", EnvironmentOf(e.file),
				Command(e.file, "service", "start"))
		}
		return "", problem
	}
	return value, ""
}

func (e *expander) read(path string) (value, problem string) {
	if path == "" {
		return "", "${file:} names no file; write ${file:/path}"
	}
	full := path
	if !filepath.IsAbs(full) {
		full = filepath.Join(e.dir, full)
	}
	text, err := files.Read(full, maxReferencedFile)
	if absolute, problem := filepath.Abs(full); problem == nil {
		e.named.note(absolute, text, err)
	}
	if err != nil {
		return "", yamlread.Unread(path, full, err)
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r"), ""
}
