package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/desk/clients"
	"junction/cmd/junction/desk/entries"
)

// connect connects the clients that are found, and returns those whose files were changed.
func (g *guide) connect(ctx context.Context, running bool) (changed []*clients.Client, err error) {
	found, err := foundClients()
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		g.say("\nFound no MCP client on this machine. To connect one later, run: %s\nCLIENT is %s.\n"+
			"Every other client connects to the URL of Junction.",
			g.command("connect", "CLIENT"), allClients())
		return nil, nil
	}
	chosen, err := g.chooseClients(found)
	if err != nil || len(chosen) == 0 {
		return nil, err
	}
	replace := running
	if running {
		if replace, err = g.agree("Remove from their files the servers that work in Junction?"); err != nil {
			return nil, err
		}
	}
	g.probes = newProbes()
	if !g.yes {
		g.typed = &typedKey{hidden: cli.QuestionsOf(g.cmd).Hidden}
	}
	return g.connectAll(ctx, chosen, replace)
}

// chooseClients asks which clients are connected. Those whose files have Junction already stay so.
func (g *guide) chooseClients(found []*clients.Client) (chosen []*clients.Client, err error) {
	var all, has, names []string
	for _, c := range found {
		if slices.Contains(g.has, c.ID) {
			has = append(has, c.Name)
		} else {
			all = append(all, c.ID)
		}
	}
	if len(all) == 0 {
		g.say("\nAll clients that were found use Junction: %s.", strings.Join(has, ", "))
		return found, nil
	}
	fmt.Fprintln(g.stdout)
	if e, err := entries.Read(io.Discard, g.file, false); err == nil && keysOnly(e.Config()) {
		g.say("Junction needs an API key. No file of a client gets the key. The clients get it\n%s",
			strings.Join(keyPlan(found), "\n"))
	}
	question := "Which clients should use Junction?"
	if len(has) > 0 {
		question = "Which other clients should use Junction?"
	}
	names, err = g.which(question, all)
	for _, c := range found {
		if err == nil && (slices.Contains(names, c.ID) || slices.Contains(g.has, c.ID)) {
			chosen = append(chosen, c)
		}
	}
	return chosen, err
}

// connectAll connects clients, and returns those whose files were changed. A failure concerns one client. The
// error has the commands for the clients that failed.
func (g *guide) connectAll(ctx context.Context, chosen []*clients.Client, replace bool) (changed []*clients.Client,
	err error) {
	var failed clientErrors
	var later []string
	for _, client := range chosen {
		result, err := g.connectOne(ctx, client, replace)
		if err != nil {
			failed.add(client, err)
			words := []string{"connect", client.ID}
			if replace {
				words = append(words, "--replace")
			}
			later = append(later, g.command(words...))
		} else if result.Changed {
			changed = append(changed, client)
		}
	}
	if len(later) > 0 {
		return changed, fmt.Errorf("%w; correct what is named here, then run: %s", errors.Join(failed.errors()...),
			strings.Join(later, "; "))
	}
	return changed, nil
}

func (g *guide) connectOne(ctx context.Context, client *clients.Client, replace bool) (*connectJSON, error) {
	c := connector{stdout: g.stdout, file: g.file, name: "junction", replace: replace, guided: true,
		stderr: g.stderr, typed: g.typed, probes: g.probes}
	if err := g.begin(&c, client.ID); err != nil {
		return nil, err
	}
	result, text, err := c.connect(ctx, client.ID)
	if err != nil {
		return nil, errors.Join(err, g.forget(&c, client.ID))
	}
	g.say("%s", strings.TrimRight(text, "\n"))
	g.record.connected(client.ID, result)
	g.kept = g.kept || result.again
	return result, g.forget(&c, client.ID)
}

// begin notes a client that is not connected yet, so that an undo disconnects it also if this process ends
// in the middle.
func (g *guide) begin(c *connector, id string) error {
	if err := c.prepare(id, false); err != nil {
		return err
	}
	connected, err := c.outfit.Records.Has(c.place)
	if err != nil || connected || slices.Contains(g.record.Clients, id) {
		return err
	}
	g.record.Clients = append(g.record.Clients, id)
	return g.record.save()
}

// forget removes a client from the record if it was not connected, and saves the record.
func (g *guide) forget(c *connector, id string) error {
	connected, err := c.outfit.Records.Has(c.place)
	if err == nil && !connected {
		g.record.Clients = slices.DeleteFunc(g.record.Clients, func(one string) bool { return one == id })
	}
	return errors.Join(err, g.record.save())
}
