package upstream

import (
	"cmp"
	"net/url"
	"reflect"
	"strings"

	"junction/upstream/client"
)

// This file has what an entry of the file adds to the facts of its kind of server (client.ServerKind).

// Kind returns the kind of the server, which follows from the address of the entry.
func (c *Config) Kind() *client.ServerKind { return client.ServerKindOf(c.Command, c.URL) }

// Program returns the program of a command; "" for other servers, and if it is missing.
func (c *Config) Program() string {
	if !c.Kind().Process || len(c.Command) == 0 {
		return ""
	}
	return c.Command[0]
}

// Address returns all parts of the address of a server: servers that differ in one may be different
// servers, so that nothing that was remembered of one is used for another one.
func (c *Config) Address() []any { return []any{c.URL, c.Command, c.Dir} }

// kindFacts are the facts of a kind of server that need the entry.
type kindFacts struct {
	// validate reports the mistakes in the address, and in the keys that only this kind has.
	validate func(c *Config, bad func(path, format string, args ...any))
	// shown returns the address without parts that may be secret.
	shown func(c *Config) string
	// assume completes an address that could not be read.
	assume func(c *Config)
}

// kindRows has a row for each of client.ServerKinds.
var kindRows = map[*client.ServerKind]kindFacts{
	client.Command: {(*Config).validateCommand, (*Config).Program, (*Config).assumeCommand},
	client.Remote:  {(*Config).validateRemote, (*Config).shownURL, (*Config).assumeURL},
}

// shown returns where the server is, without parts that may be secret.
func (c *Config) shown() string {
	return cmp.Or(kindRows[c.Kind()].shown(c), "url")
}

// shownURL returns the URL without its query; "" if it is none.
func (c *Config) shownURL() string {
	u, err := url.Parse(c.URL)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host + u.Path
}

// validateKind reports mistakes in the address of the server, and keys of another kind of server.
func (c *Config) validateKind(bad func(path, format string, args ...any)) {
	switch kinds := client.ServerKindsOf(c.Command, c.URL); {
	case len(kinds) == 0:
		var all []string
		for _, k := range client.ServerKinds() {
			all = append(all, k.Name+" ("+k.About+")")
		}
		bad("", "needs %s or a pack (a folder of tools)", strings.Join(all, ", "))
	case len(kinds) > 1:
		bad("", "has both %s and %s; keep one", kinds[0].Name, kinds[1].Name)
	}
	kind := c.Kind()
	kindRows[kind].validate(c, bad)
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		field := v.Type().Field(i)
		of, advice, _ := strings.Cut(field.Tag.Get("kind"), ",")
		if of == "" || of == kind.Key || isUnset(v.Field(i)) {
			continue
		}
		is, key := "is", field.Tag.Get("yaml")
		if strings.HasSuffix(key, "s") {
			is = "are"
		}
		bad(key, "%s only for %s; %s", is, client.ServerKindOfKey(of).Name, cmp.Or(advice, "remove it"))
	}
}

// isUnset reports whether the value of a key is empty, as for a missing key.
func isUnset(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Map, reflect.Slice:
		return v.Len() == 0
	case reflect.Struct:
		for i := range v.NumField() {
			if !isUnset(v.Field(i)) {
				return false
			}
		}
		return true
	}
	return v.IsZero()
}

// validateCommand checks the program of a command, and the keys that only a command has.
func (c *Config) validateCommand(bad func(path, format string, args ...any)) {
	if len(c.Command) > 0 && c.Program() == "" {
		bad("command", "the program's name is empty")
	}
	c.validateMode(nil, bad)
	c.validateKeyed(bad)
}

// Addressed reports whether the entry has the address of a server.
func (c *Config) Addressed() bool { return len(client.ServerKindsOf(c.Command, c.URL)) > 0 }

// Assume completes the addresses whose keys have mistakes, so that they are not missing as well.
func (c *Config) Assume(broken func(key string) bool) {
	for _, kind := range client.ServerKinds() {
		if broken(kind.Key) {
			kindRows[kind].assume(c)
		}
	}
}

func (c *Config) assumeCommand() {
	if len(c.Command) == 0 || c.Command[0] == "" {
		c.Command = append([]string{"unknown"}, c.Command[min(1, len(c.Command)):]...)
	}
}

func (c *Config) assumeURL() { c.URL = cmp.Or(c.URL, "http://unknown.invalid") }
