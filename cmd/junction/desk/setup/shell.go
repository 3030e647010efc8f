package setup

import (
	"os"
	"slices"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/desk/service"
)

// ofShell returns the upstreams of a configuration that work only with variables of this shell, if a person
// has started the running Junction in a shell: a service and a process in the background would not have these
// variables, so that no client may lose such a server.
func ofShell(file string) (names []string) {
	lacking := service.Lacking(file)
	if _, running := runfile.Find(file); !running || len(lacking) == 0 {
		return nil
	}
	h, err := service.ThisHost()
	if err != nil {
		return nil
	}
	if s, err := h.Of(file); err == nil && s.Installed() {
		return nil // the state of a server says whether it works
	}
	if _, background := runfile.InBackground(file); background {
		return nil
	}
	c, _, err := config.LoadServing(file, func(name string) (string, bool) {
		if slices.Contains(lacking, name) {
			return "", false
		}
		return os.LookupEnv(name)
	}, false)
	if err != nil {
		return nil
	}
	for name, u := range c.Upstreams {
		inherits := func(variable string) bool { return slices.Contains(lacking, variable) }
		if u.Blocked != "" || slices.ContainsFunc(u.InheritEnv, inherits) {
			names = append(names, name)
		}
	}
	return names
}
