package setup

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/base/runfile"
	"junction/upstream/prose"
)

// plan says what an undo does, in its order. short is the path of the configuration for display, and later are
// the clients that junction connect has connected to it.
func (r *record) plan(short string, later []string) string {
	steps := []string{"The undo of this setup does this:"}
	if all := slices.Concat(r.Clients, later); len(all) > 0 {
		steps = append(steps, "disconnect "+strings.Join(all, ", "))
	}
	if step := r.stopping(); step != "" {
		steps = append(steps, step)
	}
	now, step := r.restoring(short)
	if step != "" {
		steps = append(steps, step)
	}
	if len(r.Secrets) > len(r.used(now)) {
		steps = append(steps, "delete the values that it has kept for these servers")
	}
	if step := r.forgetting(short); step != "" {
		steps = append(steps, step)
	}
	for _, l := range r.Links.Files {
		steps = append(steps, "remove the link "+prose.OneLine(l.File))
	}
	if len(steps) == 1 {
		return "Nothing of this setup is left to undo; it is forgotten now."
	}
	return strings.Join(steps, "\n  - ")
}

// stopping says how an undo ends the Junction of the setup; "" if there is none.
func (r *record) stopping() string {
	p, running := runfile.Find(r.Config)
	switch {
	case r.Service && running:
		return fmt.Sprintf("stop Junction (process %d), and remove its service", p.PID)
	case r.Service:
		return "remove the service of Junction"
	case r.PID > 0 && running && p.PID == r.PID:
		return fmt.Sprintf("stop Junction (process %d)", p.PID)
	}
	return ""
}

// restoring returns what an undo makes of the configuration, and says so; "" if it changes nothing.
func (r *record) restoring(short string) (text []byte, step string) {
	now, err := revision.Read(r.Config)
	switch {
	case errors.Is(err, fs.ErrNotExist) || r.unwritten(now):
		return now, ""
	case r.changed(now):
		return r.removal(now, short)
	case r.Created:
		return nil, "delete " + short + schemaOf(r.After) + ", which setup has created"
	case len(r.Upstreams) > 0:
		return r.Before, "remove " + strings.Join(r.Upstreams, ", ") + " from " + short
	}
	return r.Before, "restore " + short
}

// removal returns what an undo makes of a configuration that has changed since, and says so; "" if no
// server of the setup is left.
func (r *record) removal(now []byte, short string) (text []byte, step string) {
	text, removed, err := r.without(now)
	switch {
	case err != nil: // the step will fail
		text, removed = now, r.Upstreams
	case text == nil:
		return nil, "delete " + short + schemaOf(now) + ", which setup has created, and keep a backup, " +
			"because it has changed since"
	case len(removed) == 0:
		return text, ""
	}
	return text, "remove " + strings.Join(removed, ", ") + " from " + short
}

// schemaOf names the schema for editors that goes with a configuration; "" for a text without one.
func schemaOf(text []byte) string {
	if !config.NamesSchema(text) {
		return ""
	}
	return " with its schema for editors"
}

// incomplete is the last line of an undo in which a step failed. later are the clients that stay connected, of those
// that junction connect has connected.
func (g *guide) incomplete(later []string) error {
	r := g.record
	left := slices.Concat(r.Clients, later)
	if r.Service {
		left = append(left, "the service")
	}
	if r.PID > 0 {
		left = append(left, fmt.Sprintf("process %d", r.PID))
	}
	if len(r.Variables) > 0 {
		left = append(left, g.short()+config.EnvironmentEnd)
	}
	for _, l := range r.Links.Files {
		left = append(left, prose.OneLine(g.home.Short(l.File)))
	}
	if r.wroteConfig() {
		left = append(left, g.short())
	}
	return fmt.Errorf("not undone yet: %s; the other steps are done; mend what is named above, then run the same "+
		"command again: %s", strings.Join(left, ", "), g.command("setup", "--undo"))
}
