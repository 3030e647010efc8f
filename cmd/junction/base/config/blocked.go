package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"junction/upstream"
	"junction/upstream/prose"
)

// LoadServing is Load for a proxy that serves. Mistakes in the entry of one upstream block only
// that upstream (upstream.Config.Blocked). If there are other mistakes, the error is Problems with
// all of them. An API key in plain text always is such another mistake.
//
// While a proxy is running, only unresolved references and mistakes in credentials (upstream.IsCredential)
// block an upstream. Any other mistake rejects the file, so that a misspelling does not end a working
// connection. Then the error has only the mistakes that reject the file.
func LoadServing(file string, getenv func(string) (string, bool), running bool) (*Config, Problems, error) {
	return LoadServingWith(file, getenv, nil, running)
}

// LoadServingWith is LoadServing with what programs have printed.
func LoadServingWith(file string, getenv func(string) (string, bool), printed Printed, running bool) (
	*Config, Problems, error) {
	c, _, _, warnings, err := loadServing(file, getenv, printed, running)
	return c, warnings, err
}

// loadServing is LoadServing, with the warnings of packs apart.
func loadServing(file string, getenv func(string) (string, bool), printed Printed, running bool) (c *Config,
	d *decoder, packs, warnings Problems, err error) {
	c, d, warnings, err = load(file, getenv, printed)
	packs = c.packWarnings(d)
	warnings = append(warnings, packs...)
	problems, ok := errors.AsType[Problems](err)
	if !ok {
		return c, d, packs, warnings, err
	}
	switch rejecting := c.block(d, problems, running); {
	case len(rejecting) == 0:
		err = nil
	case running:
		err = rejecting
	}
	return c, d, packs, warnings, err
}

// ParseServing is LoadServing for a text that was the content of the file, at the start of a proxy.
func ParseServing(file string, text []byte, getenv func(string) (string, bool)) (*Config, error) {
	return ParseServingWith(file, text, getenv, nil)
}

// ParseServingWith is ParseServing with what programs have printed.
func ParseServingWith(file string, text []byte, getenv func(string) (string, bool), printed Printed) (*Config, error) {
	c, d := parse(file, text, getenv, printed)
	problems, ok := errors.AsType[Problems](d.err())
	if ok && len(c.block(d, problems, false)) > 0 {
		return nil, problems
	}
	return c, nil
}

// block blocks the upstreams with problems. If problems reject the whole file, it returns these and
// blocks nothing.
func (c *Config) block(d *decoder, problems Problems, running bool) (rejecting Problems) {
	reasons := map[string][]string{}
	for _, p := range problems {
		name, one := c.blockedBy(p)
		if !one || running && !d.unresolved[p.Path] && !upstream.IsCredential(keyWithin(p.Path)) {
			rejecting = append(rejecting, p)
		}
		reason := p.String()
		if unset := d.unset[p.Path]; one && unset != "" && !inEnvironment(d.File, unset) {
			reason += ", or run " + Command(d.File, "setup") + ", which asks for it"
		}
		reasons[name] = append(reasons[name], reason)
	}
	if len(rejecting) > 0 {
		return rejecting
	}
	for name, list := range reasons {
		u := c.Upstreams[name]
		u.Blocked = firstOf(d.File, list)
		c.Upstreams[name] = u
	}
	return nil
}

// firstOf returns the first one of the mistakes of a file, and how many more there are.
func firstOf(file string, list []string) string {
	more := len(list) - 1
	if more == 0 {
		return list[0]
	}
	return fmt.Sprintf("%s (and %s more; run: %s)", list[0], prose.Count(more, "mistake"), Command(file, "check"))
}

// First returns the first mistake of a file with its place, and how many more there are. Problems must not
// be empty.
func First(file string, ps Problems) string {
	list := make([]string, len(ps))
	for i, p := range ps {
		list[i] = p.String()
	}
	return firstOf(file, list)
}

// Broken returns the first mistake of a file; "" if there is none. A variable that is not set is no mistake: the
// process that serves has variables of its own. The error means that the file cannot be read.
func Broken(file string) (string, error) {
	c, _, _, err := load(file, func(name string) (string, bool) { return os.Getenv(name), true }, nil)
	problems, ok := errors.AsType[Problems](err)
	switch {
	case err == nil:
		return "", nil
	case !ok:
		return "", err
	}
	rejecting := c.Rejecting(problems) // these keep Junction from starting, and come first
	for _, p := range problems {
		if !slices.Contains(rejecting, p) {
			rejecting = append(rejecting, p)
		}
	}
	return First(file, rejecting), nil
}

// blockedBy returns the upstream that a mistake blocks when the program starts. ok is false if the
// mistake rejects the whole file.
func (c *Config) blockedBy(p Problem) (name string, ok bool) {
	name, within := strings.CutPrefix(entry(p.Path), "upstreams.")
	_, there := c.Upstreams[name]
	return name, within && there && !strings.Contains(p.Text, plaintextKey)
}

// keyWithin returns the key of an entry to which a path leads; "" for the entry itself.
func keyWithin(path string) string {
	below := strings.TrimPrefix(strings.TrimPrefix(path, entry(path)), ".")
	if end := strings.IndexAny(below, ".["); end >= 0 {
		below = below[:end]
	}
	return below
}

// Rejecting returns the mistakes that reject the whole file when the program starts. The others
// block one upstream each.
func (c *Config) Rejecting(problems Problems) (rejecting Problems) {
	for _, p := range problems {
		if _, one := c.blockedBy(p); !one {
			rejecting = append(rejecting, p)
		}
	}
	return rejecting
}

// disabled reports whether n is the entry of a disabled upstream, in which a reference that cannot
// be resolved is no mistake.
func disabled(path string, n *yaml.Node) bool {
	section, name, _ := strings.Cut(path, ".")
	if section != "upstreams" || name == "" || strings.ContainsAny(name, ".[") || n.Kind != yaml.MappingNode {
		return false
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if k, v := n.Content[i], n.Content[i+1]; k.Value == "enabled" && v.Kind == yaml.ScalarNode &&
			v.Value == "false" {
			return true
		}
	}
	return false
}
