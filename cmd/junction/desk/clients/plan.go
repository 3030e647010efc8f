package clients

import (
	"fmt"
	"slices"
	"strings"
)

// Plan decides what becomes of each server. It changes the entry of a server that another client has,
// too: it is enabled if one client has it enabled, has the longest time limits of all these clients, and
// offers only tools that all of them offer.
func (m *Merge) Plan(servers []*Server) []Outcome {
	p := plan{Merge: m, servers: servers, taken: map[string]bool{}, off: map[*Server]bool{}}
	for _, k := range m.Existing {
		p.taken[strings.ToLower(k.Name)] = true
	}
	for _, s := range servers {
		p.out = append(p.out, p.outcome(s))
	}
	for i := range p.out {
		if o := &p.out[i]; p.off[o.Server] && !o.first(p.out).Server.Entry.Off {
			o.Notes = append(o.Notes, fmt.Sprintf("%s has it disabled, and gets its tools through Junction",
				o.Server.Client.Name))
		}
	}
	return p.out
}

// A plan has the outcomes of the first servers, and what the others need of them.
type plan struct {
	*Merge
	servers []*Server
	out     []Outcome
	news    []added
	taken   map[string]bool  // the names of entries, in lower case
	off     map[*Server]bool // of equal servers, those that their client has disabled
}

// An added server is one with a new entry.
type added struct {
	known *Known
	at    int // of its outcome
}

// outcome decides what becomes of the next server.
func (p *plan) outcome(s *Server) Outcome {
	o := Outcome{Server: s, Result: New}
	if s.Entry == nil {
		o.Result, o.Notes = Skipped, []string{s.Err.Error()}
		return o
	}
	k := s.Entry.known(p.Getenv)
	k.Name = NameOf(s.Name)
	same := slices.IndexFunc(p.news, func(n added) bool { return n.known.equal(k) })
	as := k
	present, differs := p.present(s, k, p.servers)
	if present == "" && s.Entry.command != nil { // a person may have added the command
		as = s.Entry.command.known(p.Getenv)
		as.Name = k.Name
		present, differs = p.present(s, as, p.servers)
	}
	name := free(k.Name, p.taken)
	switch {
	case p.isOwn(k), p.Wrote != nil && p.Wrote(s):
		o.Result, o.Own, o.Notes = Skipped, true, []string{"it is Junction itself"}
	case present != "":
		p.keep(&o, present, as, differs)
	case same >= 0:
		p.join(&o, &p.out[p.news[same].at])
	case p.Withdrawn != nil && p.Withdrawn(s, k, name):
		o.Result, o.Name = Withdrawn, name
	default:
		p.add(&o, k, name)
	}
	return o
}

// keep has the configuration keep the entry of a name. k is what the client runs.
func (p *plan) keep(o *Outcome, name string, k *Known, differs bool) {
	o.Result, o.Name = Present, name
	o.Conflicts = differs && p.is(name, k, (*Known).conflicts)
	o.Differs = differs && !p.is(name, k, (*Known).alike)
	if o.Wider = p.wider(o.Server.Entry, name); o.Wider != "" {
		o.Notes = append(o.Notes, "offers tools that the client hides: "+o.Wider)
	}
	if differs {
		o.Notes = append(o.Notes, "differs from the client's; the configuration keeps its own; "+
			"to take the client's: "+p.instead(name, o.Server))
	}
}

// join gives a server the new entry of the first one that is equal.
func (p *plan) join(o, first *Outcome) {
	entry, to := o.Server.Entry, first.Server.Entry
	o.Result, o.Name = Same, first.Name
	p.off[o.Server], p.off[first.Server] = entry.Off, p.off[first.Server] || to.Off
	to.Off = to.Off && entry.Off
	to.patient(entry)
	if !to.sameTools(entry) {
		to.narrow(entry)
		o.Notes = append(o.Notes, "a tool that one of the two clients hides is hidden for all")
	}
}

// add gives a server a new entry of a free name.
func (p *plan) add(o *Outcome, k *Known, name string) {
	o.Name = name
	p.taken[strings.ToLower(name)] = true
	if name != k.Name {
		o.Notes = append(o.Notes, fmt.Sprintf("another server is called %s", k.Name))
	}
	o.Notes = append(o.Notes, o.Server.Entry.Notes...)
	p.news = append(p.news, added{k, len(p.out)})
}
