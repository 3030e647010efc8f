package setup

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/desk/clients"
	"junction/cmd/junction/desk/entries"
	"junction/cmd/junction/ops/admin"
	"junction/upstream"
)

// keptServers are the servers of the client's file that --replace keeps, by the reason.
type keptServers struct {
	unknown   []string // the configuration does not have them
	removed   []string // nor these, because a person has removed them
	differ    []string // Junction has another command or URL for this name
	skipped   []string // with the reason why Junction cannot have them
	disabled  []string // names of upstreams
	conflicts []string // Junction has another server of this name
	wider     []string // with the tools that Junction offers and the client hides
	broken    []string // with the state of the upstream
	untested  []string // no junction runs that could tell whether they work
	shell     []string // see ofShell
	folders   []string // see worksInFolders
}

// replaceable returns the servers in the client's file that Junction has and serves, and the others.
func (c *connector) replaceable(ctx context.Context) (remove []string, kept keptServers, err error) {
	servers, failures := c.home.Read([]clients.Place{c.place})
	if len(failures) > 0 {
		return nil, kept, failures[0]
	}
	if c.member {
		for _, s := range servers {
			if s.Name != c.name {
				kept.unknown = append(kept.unknown, s.Name)
			}
		}
		return nil, kept, nil
	}
	e, err := entries.Read(io.Discard, c.file, false)
	if err != nil {
		return nil, kept, err
	}
	merge := mergeOf(e, &c.home, c.target.Own, nil)
	var others []clients.Place
	for _, p := range c.home.Places() {
		if p.File != c.place.File || p.Client.ID != c.place.Client.ID {
			others = append(others, p)
		}
	}
	theirs, _ := c.home.Read(others) // they tell which entry is that of another client
	now := running{admin.States(ctx, c.file), ofShell(c.file)}
	for _, o := range merge.Plan(slices.Concat(servers, theirs))[:len(servers)] {
		corrected := slices.ContainsFunc(merge.Existing, func(k clients.Known) bool { // after its import
			return k.Name == o.Name && k.From == originIn(&c.home, o.Server)
		})
		if o.Server.Name != c.name && !kept.other(&o, corrected) && !kept.failing(c, &o, now) {
			remove = append(remove, o.Server.Name)
		}
	}
	return remove, kept, nil
}

// running is what is known of the upstreams while Junction runs.
type running struct {
	states map[string]string // nil if no Junction runs
	shell  []string          // see ofShell
}

// other keeps a server if Junction does not have it, or has another one, and reports whether it does. corrected
// means that the entry was changed after its import.
func (k *keptServers) other(o *clients.Outcome, corrected bool) bool {
	name := o.Server.Name
	switch {
	case o.Result == clients.Skipped:
		k.skipped = append(k.skipped, fmt.Sprintf("%s (%s)", name, strings.Join(o.Notes, "; ")))
	case o.Result == clients.Withdrawn:
		k.removed = append(k.removed, o.Name)
	case o.Result != clients.Present:
		k.unknown = append(k.unknown, name)
	case o.Differs:
		k.differ = append(k.differ, o.Name)
	case o.Conflicts && !corrected:
		k.conflicts = append(k.conflicts, name)
	case o.Wider != "":
		k.wider = append(k.wider, fmt.Sprintf("%s (%s)", name, o.Wider))
	default:
		return false
	}
	return true
}

// failing keeps a server that does not work in Junction for this client, and reports whether it does.
func (k *keptServers) failing(c *connector, o *clients.Outcome, now running) bool {
	name, u := o.Server.Name, c.config.Upstreams[o.Name]
	state, known := now.states[o.Name]
	switch {
	case u.Off() && o.Server.Entry.Off: // neither runs it
	case u.Off():
		k.disabled = append(k.disabled, o.Name)
	case now.states == nil:
		k.untested = append(k.untested, name)
	case known && state != upstream.StateReady.String() && state != upstream.StateClosed.String():
		k.broken = append(k.broken, fmt.Sprintf("%s (%s)", name, state))
	case u.Isolation == upstream.IsolationFolder && !c.worksInFolders(o.Name):
		k.folders = append(k.folders, name)
	case slices.Contains(now.shell, o.Name):
		k.shell = append(k.shell, name)
	default:
		return false
	}
	return true
}

// worksInFolders reports whether the client can call an upstream that works in the folders of clients. It needs a
// permitted folder among those in which the client was used; without such folders, any permitted one may do.
func (c *connector) worksInFolders(name string) bool {
	if !c.client.NamesFolders() {
		u := c.config.Upstreams[name]
		return !u.NamesFolder() // a server that only asks for roots works without them
	}
	works := c.home.Visited(c.client)
	if folder := c.place.Folder(); folder != "" {
		works = []string{folder}
	}
	check := c.config.Permissible(c.file)
	works = slices.DeleteFunc(works, func(path string) bool { // it is gone, or can never be named
		_, err := check(path)
		return err != nil
	})
	permitted := c.config.MayName(c.file, os.LookupEnv)
	if len(works) == 0 {
		return len(permitted) > 0
	}
	return slices.ContainsFunc(works, func(path string) bool { return entries.Permits(permitted, path) })
}

// twice returns the sentence about the servers that the client has in its file and gets from Junction, too.
func (c *connector) twice(ctx context.Context) []string {
	both, kept, err := c.replaceable(ctx)
	if err != nil {
		return nil // the client is connected, and this is only a hint
	}
	both = slices.Concat(both, kept.untested)
	if len(both) == 0 {
		return nil
	}
	words := []string{"connect", c.client.ID, "--replace"}
	if c.project != "" {
		words = append(words, "--project", c.project)
	}
	return []string{fmt.Sprintf("%s has these servers itself, too: %s. To remove those that work in Junction, run: %s",
		c.client.Name, strings.Join(both, ", "), config.Command(c.file, words...))}
}

// notes returns a sentence for each reason.
func (k *keptServers) notes(c *connector) (notes []string) {
	file, same := c.file, []string{"connect", c.client.ID, "--replace"}
	if c.project != "" {
		same = append(same, "--project", c.project)
	}
	add := func(names []string, why, then string) {
		if len(names) > 0 {
			notes = append(notes, "Kept, because "+why+": "+strings.Join(names, ", ")+". "+then)
		}
	}
	imports := []string{"import", "--write"}
	if c.project != "" {
		imports = append(imports, "--project", c.project)
	}
	if c.member { // an import would make a configuration that the member's Junction does not read
		add(k.unknown, "only the operator of the Junction at "+c.target.URL+" knows whether it has them",
			"Remove by hand those that it has.")
	} else {
		add(k.unknown, "the configuration does not have them", config.Command(file, imports...)+" adds them.")
	}
	var again, take []string
	project := imports[2:]
	for _, name := range k.removed {
		again = append(again, config.Command(file, slices.Concat([]string{"import", "--write", name}, project)...))
	}
	add(k.removed, "you have removed them from the configuration", "To add them again, run: "+strings.Join(again, "; "))
	for _, name := range k.differ {
		take = append(take, config.Command(file, "remove", name)+"; "+
			config.Command(file, slices.Concat([]string{"import", "--write", name}, project)...))
	}
	add(k.differ, "Junction has other commands or URLs for these names", "To take those of this client, run: "+
		strings.Join(take, "; "))
	var enable []string
	for _, name := range k.disabled {
		enable = append(enable, config.Command(file, "enable", name))
	}
	add(k.disabled, "they are disabled in Junction", "Run: "+strings.Join(enable, "; "))
	later := "" // a last line is for all clients
	if !c.quiet() {
		later = config.Command(file, "status") + " shows the reason. When they work, run: " +
			config.Command(file, same...)
	}
	add(k.broken, "they do not work in Junction now", later)
	if c.client.NamesFolders() {
		then := "Permit one: " + config.Command(file, "folders", "allow", "FOLDER")
		if !c.quiet() {
			then += "; then run: " + config.Command(file, same...)
		}
		add(k.folders, "clients may name none of the folders in which this client works", then)
	} else {
		add(k.folders, "they start only in the folder of a client, and this client works in none", "")
	}
	add(k.conflicts, "the servers of these names in Junction have other variables, headers or folders",
		"Add them to Junction with another name, or remove them by hand.")
	add(k.wider, "Junction offers tools of them that this client hides",
		"Disable these tools in the configuration, or remove the servers by hand.")
	add(k.skipped, "Junction cannot replace them", "")
	add(k.shell, "they work only with variables of this shell", "Write the variables into "+
		config.EnvironmentOf(file)+", and run the same command again.")
	add(k.untested, "Junction is not running, so that it cannot check them",
		"Start it, and run the same command again.")
	for i := range notes {
		notes[i] = strings.TrimSpace(notes[i])
	}
	return notes
}
