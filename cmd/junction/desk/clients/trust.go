package clients

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"junction/cmd/junction/desk/clients/format"
)

// trustVariables name files and folders with the certificates that junction stdio trusts. A program of the
// desktop does not see those of a shell, and several clients pass only a few variables to a command.
var trustVariables = []string{"SSL_CERT_FILE", "SSL_CERT_DIR"}

// withEnv returns an entry that starts junction stdio, with the variables of the target.
func (c *Client) withEnv(entry format.Object, t Target) format.Object {
	if c.env == "" || len(t.Env) == 0 {
		return entry
	}
	var all format.Object
	for _, name := range slices.Sorted(maps.Keys(t.Env)) {
		all = append(all, format.Member{Key: name, Value: t.Env[name]})
	}
	return append(entry, format.Member{Key: c.env, Value: all})
}

// Trust returns the variables that an entry for a target needs to trust the certificate of an https URL: those of
// this shell, and those that the present entry of Junction has. It returns nil if the entry starts no command, or
// is in the file of a project, because others have the certificates elsewhere.
func (o *Outfit) Trust(p Place, t Target) map[string]string {
	if p.Scope == Project || p.Client.env == "" || !p.Client.Commanded(t) || !strings.HasPrefix(t.URL, "https://") {
		return nil
	}
	var now map[string]any
	servers, _ := o.Home.read(p) // Connect reports an error
	for _, s := range servers {
		if s.Name == t.Name && t.is(s, o.Home) {
			now, _ = s.fields[p.Client.env].(map[string]any)
		}
	}
	env := map[string]string{}
	for _, name := range trustVariables {
		value, _ := o.Home.Getenv(name)
		if written, ok := now[name].(string); value == "" && ok {
			value = written
		}
		if paths := absolute(value); paths != "" {
			env[name] = paths
		}
	}
	return env
}

// absolute returns a list of paths from the root: a client starts its commands in another folder. It leaves out
// those that do not exist.
func absolute(list string) string {
	var all []string
	for _, path := range filepath.SplitList(list) {
		full, err := filepath.Abs(path)
		if err != nil || path == "" {
			continue
		}
		if _, err := os.Stat(full); err == nil {
			all = append(all, full)
		}
	}
	return strings.Join(all, string(filepath.ListSeparator))
}
