package setup

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/desk/clients"
	"junction/cmd/junction/desk/entries"
	"junction/upstream/prose"
)

// connections returns the clients that junction connect has connected to this Junction, and that the record does
// not have: those of later are disconnected by an undo, and those of stay were connected before the setup.
func (r *record) connections() (later, stay []clients.Connection, err error) {
	known, err := records()
	if err != nil {
		return nil, nil, err
	}
	all, err := known.Of(r.Config)
	for _, c := range all {
		switch {
		case c.Project == "" && slices.Contains(r.Clients, c.Client.ID):
		case slices.Contains(r.Earlier, c.File):
			stay = append(stay, c)
		default:
			later = append(later, c)
		}
	}
	return later, stay, err
}

// noteEarlier notes which clients were connected before the setup.
func (r *record) noteEarlier() error {
	later, _, err := r.connections()
	for _, c := range later {
		r.Earlier = append(r.Earlier, c.File)
	}
	return err
}

// disconnect takes the entry of this Junction out of the file of a client. It returns the client if its file has
// changed. One that was connected to another Junction since stays connected.
func (g *guide) disconnect(id, project string) (changed *clients.Client, err error) {
	c := connector{stdout: g.stdout, file: g.file, project: project, name: "junction", guided: true}
	result, text, err := c.disconnect(id)
	if err == nil && result.Changed {
		changed = c.client
		g.record.Stays = append(append(g.record.Stays, result.Backup), result.stays...)
	}
	if text != "" {
		g.say("%s", strings.TrimRight(text, "\n"))
	}
	if _, other := errors.AsType[*clients.OtherError](err); other {
		g.say("%v", err)
		err = nil
	}
	return changed, err
}

// labels names clients for a list.
func (g *guide) labels(list []clients.Connection) (names []string) {
	for _, c := range list {
		name := c.Client.ID
		if c.Project != "" {
			name += " in " + prose.OneLine(g.home.Short(c.Project))
		}
		names = append(names, name)
	}
	return names
}

// stillUse names the clients that an undo leaves connected.
func (g *guide) stillUse(list []clients.Connection) {
	for _, c := range list {
		g.say("%s still uses this Junction, because it was not connected by a setup. To disconnect it, run: %s",
			c.Client.Name, config.Command(g.file, c.Words()...))
	}
}

// sayState says where Junction keeps its state, and how to delete it if no client needs it any more.
func (g *guide) sayState() {
	state := filepath.Dir(filepath.Dir(g.record.name))
	said := fmt.Sprintf("Junction keeps its state in %s: keys, sign-ins, lists of tools, and the servers taken from "+
		"clients.", prose.OneLine(g.home.Short(state)))
	if known, err := records(); err != nil || known.Needed() {
		g.say("%s Do not delete it: junction disconnect needs it for clients that are still connected.", said)
		return
	}
	g.say("%s If no other configuration of yours uses it, %s", said, entries.DeletionOf(state))
}
