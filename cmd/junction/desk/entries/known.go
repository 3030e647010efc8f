package entries

import (
	"maps"
	"os"
	"path/filepath"
	"slices"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/desk/clients"
	"junction/upstream"
)

// Known returns the upstreams of the file, for comparison with the servers of clients.
func (e *Editor) Known() (list []clients.Known) {
	comments := e.Comments()
	for _, name := range slices.Sorted(maps.Keys(e.config.Upstreams)) {
		list = append(list, e.known(name, comments[name]))
	}
	return list
}

func (e *Editor) known(name, from string) clients.Known {
	u := e.config.Upstreams[name]
	k := clients.Known{
		Name: name, From: from, Command: u.Command, Env: maps.Clone(u.Env), Dir: u.Dir, URL: u.URL,
		Windows: u.Isolation == upstream.IsolationFolder,
		Headers: u.Headers, Unset: e.Unset(name), Enabled: listedTools(&u),
		Offers: func(tool string) bool {
			_, offered := u.Offers(tool)
			return offered
		},
	}
	slices.Sort(k.Unset)
	k.Inherit(u.InheritEnv, Lookup)
	return k
}

// listedTools returns the globs of the only tools that an upstream offers; nil if it offers others, too.
func listedTools(u *upstream.Config) []string {
	if !u.Expose.OnlyNamed() {
		return nil
	}
	globs := []string{}
	for _, rule := range u.Tools {
		globs = append(globs, rule.Glob)
	}
	return globs
}

// Withdrawals returns the file that remembers which servers a person has removed from a configuration file.
func Withdrawals(path string) (*clients.Withdrawals, error) {
	dir, err := config.StateDir(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	return &clients.Withdrawals{File: filepath.Join(dir, "junction", "removed", config.FolderOf(path)+".json")}, nil
}
