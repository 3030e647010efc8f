package setup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/desk/clients"
	"junction/cmd/junction/desk/entries"
	"junction/cmd/junction/desk/service"
	"junction/cmd/junction/ops/admin"
	"junction/upstream"
	"junction/upstream/prose"
)

// values asks for the values that the new servers lack. An empty answer leaves the variable.
func (g *guide) values(i *importer) error {
	given := map[string]string{}
	for n := range i.outcomes {
		o := &i.outcomes[n]
		if o.Result != clients.New || o.Server.Entry.Off {
			continue
		}
		for _, m := range o.Server.Entry.Missing(os.LookupEnv) {
			value, asked := given[m.Name]
			if !asked && !g.yes {
				var err error
				if value, err = g.value(o.Name, m); err != nil {
					return err
				}
				given[m.Name] = value
			}
			if value == "" {
				g.leave(o.Name, m.Name)
			} else {
				o.Server.Entry.Fill(m.Name, value)
			}
		}
	}
	return nil
}

// describe keeps what the files of clients say of variables without a value: an entry of the configuration has only
// their names. A server without its value stays in the file of its client.
func (g *guide) describe(outcomes []clients.Outcome) {
	for _, o := range outcomes {
		if o.Server == nil || o.Server.Entry == nil {
			continue
		}
		for _, m := range o.Server.Entry.Missing(os.LookupEnv) {
			if m.About != "" {
				g.described = append(g.described, m)
			}
		}
	}
}

// missing returns a variable without a value, as the file of a client describes it, or else by its name alone.
func (g *guide) missing(variable string) clients.Missing {
	named := func(m clients.Missing) bool { return m.Name == variable }
	if at := slices.IndexFunc(g.described, named); at >= 0 {
		return g.described[at]
	}
	return clients.MissingVariable(variable)
}

func (g *guide) value(server string, m clients.Missing) (string, error) {
	question := fmt.Sprintf("%s needs %s", server, m.Name)
	if m.About != "" {
		question += " (" + prose.Flat(m.About) + ")"
	}
	ask := cli.QuestionsOf(g.cmd).Hidden
	if m.Open {
		ask = cli.QuestionsOf(g.cmd).Line
	}
	return ask(question + "; Enter leaves it for later:")
}

// leave notes a value that was left for later.
func (g *guide) leave(server, variable string) {
	if !g.yes {
		g.left = append(g.left, fmt.Sprintf("%s of %s", variable, server))
	}
}

// earlier asks again for the values that an earlier setup was not given: those of variables that block
// an entry of the configuration.
func (g *guide) earlier(ctx context.Context) error {
	e, err := entries.Read(g.stdout, g.file, false)
	if g.yes || err != nil {
		return nil // a later step reports a mistake
	}
	states := admin.States(ctx, g.file)
	own, err := config.Environment(g.file) // of the service, which setup starts
	if err != nil {
		return err
	}
	now, _, err := config.LoadServing(g.file, func(name string) (string, bool) {
		if value, ok := own[name]; ok {
			return value, true
		}
		return os.LookupEnv(name)
	}, false)
	if err != nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(now.Upstreams)) {
		state, known := states[name]
		works := known && state != upstream.StateBlocked.String() // with the variables of its process
		if works || now.Upstreams[name].Blocked == "" {
			continue
		}
		for _, variable := range e.Unset(name) {
			left := fmt.Sprintf("%s of %s", variable, name)
			if own[variable] != "" || slices.Contains(g.left, left) { // this setup has asked
				continue
			}
			value, err := g.value(name, g.missing(variable))
			if err != nil {
				return err
			}
			if value == "" {
				g.left = append(g.left, left)
			} else if e, err = g.keep(ctx, e, name, variable, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// keep writes a value to a file, which the entry of an upstream refers to instead of the variable. It
// returns an editor of the new file.
func (g *guide) keep(ctx context.Context, e *entries.Editor, name, variable, value string) (*entries.Editor, error) {
	before, err := revision.Read(g.file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", g.short(), err)
	}
	g.record.begin(g.file, before)
	if err := g.record.save(); err != nil { // nothing was changed yet
		return nil, err
	}
	i := importer{}
	secret, isNew, backup, err := e.Keep(name, variable, value)
	if err != nil {
		return nil, err
	}
	if i.backup = backup; isNew {
		i.secrets = []string{secret}
	}
	g.record.wrote(&i, nil)
	g.say("Kept %s of %s in %s.", variable, name, prose.OneLine(g.home.Short(secret)))
	if err := g.record.save(); err != nil {
		return nil, err
	}
	entries.Follow(ctx, g.file, name) // the result is printed later
	return entries.Read(g.stdout, g.file, false)
}

// lose returns what decides whether a restart may end servers: the person, and with --yes nobody.
func (g *guide) lose(s *service.Service) func([]service.LeftOut) error {
	return func(lost []service.LeftOut) error {
		if g.yes {
			return s.Refuse(lost)
		}
		return s.Ask(g.cmd, lost)
	}
}

// restart offers to start the running Junction again, if that unblocks servers: the running process
// lacks variables that this shell has.
func (g *guide) restart(ctx context.Context) error {
	names := g.blocked(ctx)
	if len(names) == 0 || len(service.Lacking(g.file)) == 0 {
		return nil
	}
	h, err := service.ThisHost()
	if err != nil {
		return err
	}
	s, err := h.Of(g.file)
	if err != nil {
		return err
	}
	why := "This shell has the variables that the running Junction lacks for: " + strings.Join(names, ", ") + "."
	if _, background := runfile.InBackground(g.file); !background && !s.Installed() {
		g.say("%s\nEnd that process, and start it again from this shell: %s", why, g.command())
		return nil
	}
	g.say("%s", why)
	if kept, err := g.keepVariables(); err != nil || !kept {
		return err
	}
	agreed, err := g.agree("Start Junction again now?")
	if err != nil || !agreed {
		return err
	}
	return g.startAgain(ctx, s)
}

// blocked returns the servers that the running Junction does not start, and a process of this shell does: only
// the variables differ.
func (g *guide) blocked(ctx context.Context) (names []string) {
	c, _, err := config.LoadServing(g.file, os.LookupEnv, false)
	if err != nil {
		return nil // a later step reports it
	}
	for _, u := range admin.AwaitTried(ctx, g.file, slices.Sorted(maps.Keys(c.Upstreams)), 0) {
		if u.Invalid && c.Upstreams[u.Name].Blocked == "" && !c.HasProgram(u.Name) {
			names = append(names, u.Name)
		}
	}
	return names
}

// startAgain starts the running Junction again, and notes its new process.
func (g *guide) startAgain(ctx context.Context, s *service.Service) error {
	s.Agree = g.lose(s)
	p, err := s.Restart(ctx)
	if errors.Is(err, service.ErrDeclined) { // the servers that it has go on
		return nil
	} else if err != nil {
		return err
	}
	g.say("Started Junction again at %s (process %d).", p.URL, p.PID)
	if g.record.PID > 0 && !s.Installed() {
		g.record.PID = p.PID
		return g.record.save()
	}
	return nil
}
