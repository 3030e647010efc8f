package upstream

import (
	"maps"
	"slices"
	"strings"
)

// ownData are the servers of which we know that they write to one file, with the variable that names it. Without
// the variable, the file is beside the program.
var ownData = map[string]string{"@modelcontextprotocol/server-memory": "MEMORY_FILE_PATH"}

// OneFile returns the name of the variable with the file of data that several processes of the command use at
// once; "" if there is none. known means that the server writes to the file. Otherwise the name suggests it, and
// a word of isolation in the file shows that the operator has decided.
func (c *Config) OneFile() (variable string, known bool) {
	several := c.Isolation.OfSession() ||
		c.Separate && (c.Isolation.OfCallers() || c.Isolation == IsolationUnset)
	if !several || !c.Kind().Process || c.NamesFolder() { // with ${folder}, each folder may have a file
		return "", false
	}
	for _, word := range c.Command {
		for server, variable := range ownData {
			if word == server || strings.HasPrefix(word, server+"@") {
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
	return "", false
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
