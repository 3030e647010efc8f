package setup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/desk/clients"
	"junction/cmd/junction/desk/entries"
	"junction/cmd/junction/desk/service"
	"junction/cmd/junction/ops/admin"
	"junction/upstream/prose"
)

// total is what a command did with all clients.
type total struct {
	changed []*clients.Client // clients with changed files
	removed bool              // a client has lost a server
	again   bool              // a client keeps servers that do not work in Junction yet
}

// replaceLater returns the line about the servers that the clients keep because they do not work yet. command
// makes the command lines of it.
func replaceLater(command func(words ...string) string) string {
	return fmt.Sprintf("Clients keep the servers that do not work in Junction yet; %s shows why. When they work, "+
		"remove them from the clients with: %s", command("status"), command("connect", "--all", "--replace"))
}

// each runs a command for one client, or with --all for each client that is found. A failure concerns
// one client, and does not prevent the others. after returns the last lines of --all.
func (c *connector) each(args []string, do func(*connector, string) (*connectJSON, string, error),
	after func(total) []string) error {
	if !c.all {
		result, text, err := do(c, args[0])
		if err != nil {
			return err
		}
		return errors.Join(cli.Print(c.stdout, c.json, result, text), result.incomplete())
	}
	found, err := foundClients()
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return errors.New("found no MCP client on this machine; name one of " + allClients())
	}
	results := []*connectJSON{}
	var failures []error
	var failed clientErrors
	var t total
	for _, client := range found {
		one := *c
		result, text, err := do(&one, client.ID)
		if err != nil {
			failed.add(client, err)
			continue
		}
		results = append(results, result)
		c.target, c.answer, c.key = one.target, one.answer, one.key
		if result.Changed {
			t.changed, t.removed = append(t.changed, client), t.removed || len(result.Servers) > 0
		}
		t.again = t.again || result.again
		failures = append(failures, result.incomplete())
		if !c.json {
			failures = append(failures, cli.Tell(c.stdout, text))
		}
	}
	if c.json {
		failures = append(failures, cli.PrintValue(c.stdout, results))
	} else if lines := after(t); len(lines) > 0 {
		failures = append(failures, cli.Tell(c.stdout, "\n"+entries.Lines(lines...)))
	}
	return errors.Join(append(failures, failed.errors()...)...)
}

// clientErrors are the errors of clients. One that several clients have, such as that of the URL, is shown once.
type clientErrors struct {
	texts   []string // in their order
	clients map[string][]*clients.Client
	first   map[string]error
}

func (e *clientErrors) add(c *clients.Client, err error) {
	text := err.Error()
	if e.first == nil {
		e.clients, e.first = map[string][]*clients.Client{}, map[string]error{}
	}
	if e.first[text] == nil {
		e.texts, e.first[text] = append(e.texts, text), err
	}
	e.clients[text] = append(e.clients[text], c)
}

func (e *clientErrors) errors() (all []error) {
	for _, text := range e.texts {
		all = append(all, fmt.Errorf("%s: %w", names(e.clients[text]), e.first[text]))
	}
	return all
}

// afterConnect returns the last lines of connect --all.
func (c *connector) afterConnect(ctx context.Context) func(total) []string {
	return func(t total) (lines []string) {
		if c.target.URL == "" { // no client was connected
			return nil
		}
		switch text, ok := c.answered(); {
		case !ok:
			lines = append(lines, text)
		case len(t.changed) == 0:
			lines = append(lines, "Junction answers at "+c.target.URL+".")
		}
		if t.removed {
			c.client = &clients.Client{Name: "a connected client"}
			lines = append(lines, c.afterReboot(ctx)...)
		}
		if t.again {
			lines = append(lines, replaceLater(func(words ...string) string {
				return config.Command(c.file, words...)
			}))
		}
		return append(lines, restart(t.changed, c.name)...)
	}
}

// restart returns the lines about the programs to restart, and where they list the entry of a name. For
// "" there is no entry.
func restart(changed []*clients.Client, name string) []string {
	if len(changed) == 0 {
		return nil
	}
	lines := []string{"Restart these programs: " + names(changed) + "."}
	if name != "" {
		lines = append(lines, "They then list "+name+" here:")
		for _, c := range changed {
			lines = append(lines, fmt.Sprintf("  %s: %s", c.Name, c.Seen()))
		}
	}
	return lines
}

// incomplete returns an error if a server could not be restored. The output has the reason.
func (r *connectJSON) incomplete() error {
	if len(r.Lost) == 0 {
		return nil
	}
	return fmt.Errorf("could not put all servers back into %s: %s", prose.OneLine(r.File), strings.Join(r.Lost, ", "))
}

// foundClients returns the clients that this machine seems to have.
func foundClients() (list []*clients.Client, err error) {
	home, err := clients.HomeOf("")
	if err != nil {
		return nil, err
	}
	exists := func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	}
	for _, p := range home.Found(exists) {
		list = append(list, p.Client)
	}
	return list, nil
}

// afterReboot returns the sentence about a client whose servers Junction has now, if nothing starts
// Junction again.
func (c *connector) afterReboot(ctx context.Context) []string {
	how := afterReboot(ctx, c.file, func(words ...string) string { return config.Command(c.file, words...) })
	if how == "" {
		return nil
	}
	return []string{fmt.Sprintf("After a reboot, %s has no servers of Junction until Junction runs; %s", c.client.Name,
		how)}
}

// afterReboot says how Junction runs after a reboot; "" if a service starts it. command returns a command line
// of junction about the file.
func afterReboot(ctx context.Context, flag string, command func(words ...string) string) string {
	h, err := service.ThisHost()
	if err != nil {
		return ""
	}
	file, err := config.File(flag)
	if err != nil {
		return ""
	}
	s, err := h.Of(file)
	if err != nil {
		return ""
	}
	if served, serves := admin.ServedAt(ctx, file); serves && served.Other() { // its user decides that
		return ""
	}
	return s.Reboot(ctx, command)
}

// cron returns the line with which cron starts Junction after a reboot; "" if it is not needed, or not possible.
func (g *guide) cron(ctx context.Context) string {
	h, err := service.ThisHost()
	if err != nil {
		return ""
	}
	s, err := h.Of(g.file)
	if err != nil {
		return ""
	}
	return s.Cron(ctx)
}

// names joins names for a sentence.
func names(list []*clients.Client) string {
	var all []string
	for _, c := range list {
		all = append(all, prose.OneLine(c.Name))
	}
	return strings.Join(all, ", ")
}

// quiet reports whether another text has the sentences that several clients have in common.
func (c *connector) quiet() bool { return c.guided || c.all && !c.json }

// check returns the sentence about how a person sees that a client is connected.
func (c *connector) check() string {
	return fmt.Sprintf("Restart %s. It then lists %s here: %s", c.client.Name, c.name, c.client.Seen())
}
