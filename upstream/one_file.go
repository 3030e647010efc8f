package upstream

import (
	"maps"
	"slices"
	"strings"
)

// ownData are the servers of which we know that they write to one file, with the variable that names it. Without
// the variable, the file is beside the program. The keys are the package, and the image, whose volume has the file.
var ownData = map[string]string{
	"@modelcontextprotocol/server-memory": "MEMORY_FILE_PATH",
	"mcp/memory":                          "MEMORY_FILE_PATH",
}

// OneFile returns the name of the variable with the file of data that several processes of the command use at
// once; "" if there is none. known means that the server writes to the file. Otherwise the name suggests it, and
// a word of isolation in the file shows that the operator has decided.
func (c *Config) OneFile() (variable string, known bool) {
	several := c.Isolation.OfSession() ||
		c.Separate && (c.Isolation.OfCallers() || c.Isolation == IsolationUnset)
	if !several || !c.Kind().Process || c.NamesFolder() { // with ${folder}, each folder may have a file
		return "", false
	}
	words := c.words()
	for _, word := range words {
		for server, variable := range ownData {
			rest, is := strings.CutPrefix(word, server)
			if is && (rest == "" || rest[0] == '@' || rest[0] == ':') && (server[0] == '@' || c.hasVolume()) {
				return variable, true
			}
		}
	}
	if c.Isolation != IsolationUnset {
		return "", false
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		if c.Env[name] != "" && namesData(name) {
			return name, false
		}
	}
	// Flags such as --db-path are not looked at: most files of them are only read, such as a specification, or are
	// databases, which lock.
	for _, word := range words {
		if name, value, ok := strings.Cut(word, "="); ok && value != "" && isVariable(name) && namesData(name) {
			return name, false
		}
	}
	return "", false
}

// words returns the words of the command, and those of a text for a shell.
func (c *Config) words() (words []string) {
	for i, word := range c.Command {
		if i > 1 && c.Command[i-1] == "-c" {
			between := func(r rune) bool { return strings.ContainsRune(" \t\n'\";", r) }
			words = append(words, strings.FieldsFunc(word, between)...)
		} else {
			words = append(words, word)
		}
	}
	return words
}

// hasVolume reports whether a container that the command runs has a folder that outlives it.
func (c *Config) hasVolume() bool {
	return slices.ContainsFunc(c.Command, func(word string) bool {
		flag, _, _ := strings.Cut(word, "=")
		return flag == "-v" || flag == "--volume" || flag == "--mount"
	})
}

// isVariable reports whether a name is written as that of a variable, in contrast to the parameter of a program.
func isVariable(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r != '_' && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	})
}

// readOnly are parts of the names of variables with a file that a server only reads, such as a certificate.
var readOnly = []string{"CERT", "CA_", "KEY", "TOKEN", "SECRET", "PASS", "CRED", "CONFIG", "ENV_"}

// namesData reports whether a variable of the name has, most likely, the path of a file of data.
func namesData(name string) bool {
	name = strings.ToUpper(name)
	return slices.ContainsFunc([]string{"_FILE_PATH", "_FILE", "_DB"},
		func(end string) bool { return strings.HasSuffix(name, end) }) &&
		!slices.ContainsFunc(readOnly, func(part string) bool { return strings.Contains(name, part) })
}
