package setup

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/desk/service"
	"junction/upstream/files"
	"junction/upstream/prose"
)

// This file takes the lines of the setup, and those of junction service install --keep-env, out of the file with the
// variables of the service. The lines of a person stay.

// variables returns what an undo leaves of the file with the variables of the service, and the variables that the
// undo takes out. rest is nil if nothing is left.
func (r *record) variables() (rest []byte, names []string, err error) {
	text, err := revision.Read(config.EnvironmentOf(r.Config))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	byService := service.WroteLine(r.Config)
	if r.serviceStays() {
		byService = func(string) bool { return false }
	}
	rest, names = service.WithoutLines(text, func(line string) bool {
		return slices.Contains(r.Variables, sum([]byte(line))) || byService(line)
	})
	return rest, names, err
}

// serviceStays reports whether a service that setup has not installed serves the configuration: it needs the
// variables that its install has kept.
func (r *record) serviceStays() bool {
	h, err := service.ThisHost()
	if err != nil || r.Service {
		return false
	}
	s, err := h.Of(r.Config)
	return err == nil && s.Installed()
}

// forgetting says what an undo does with the variables of the service; "" if it does nothing.
func (r *record) forgetting(short string) string {
	rest, names, err := r.variables()
	file := short + config.EnvironmentEnd
	switch {
	case err != nil || len(names) == 0: // a step that fails says so itself
		return ""
	case rest == nil:
		return "delete " + file + ", which has only what Junction has kept: " + strings.Join(names, ", ")
	}
	return "remove " + strings.Join(names, ", ") + " from " + file + ", and keep its other lines"
}

// removeVariables takes the lines of the setup out of the file with the variables of the service.
func (g *guide) removeVariables() error {
	name, file := config.EnvironmentOf(g.record.Config), g.short()+config.EnvironmentEnd
	rest, names, err := g.record.variables()
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", file, files.Reason(err))
	case len(names) == 0:
		return nil
	case rest == nil:
		if err := os.Remove(name); err != nil {
			return fmt.Errorf("cannot remove %s: %w", name, files.Reason(err))
		}
		g.say("Removed %s.", file)
	default:
		if err := files.Write(name, rest); err != nil {
			return fmt.Errorf("cannot write %s: %w", name, files.Reason(err))
		}
		g.say("Removed %s from %s.", strings.Join(names, ", "), file)
	}
	g.record.Variables = nil
	if !g.record.serviceStays() {
		service.ForgetLines(g.record.Config)
	}
	return nil
}

// sayVariables names the file with the variables of the service, if it stays.
func (g *guide) sayVariables() {
	if _, err := os.Lstat(config.EnvironmentOf(g.record.Config)); err != nil {
		return
	}
	text := g.short() + config.EnvironmentEnd + " stays"
	if all, err := config.Environment(g.record.Config); err == nil && len(all) > 0 {
		text += ", with what was not of this setup: " + strings.Join(slices.Sorted(maps.Keys(all)), ", ")
	}
	g.say("%s.", prose.OneLine(text))
}
