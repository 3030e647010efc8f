package diagnose

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"junction/auth"
	"junction/cmd/junction/base/config"
	"junction/policy"
	"junction/upstream"
	"junction/upstream/prose"
)

// This file lists the processes of commands, with the folders of clients in which they work. Every user of the
// machine can read the admin address. So with authentication only the owner sees these folders and the callers, and a
// report about one caller has the folders of that caller alone.

// CommandProcess is a running process of a command.
type CommandProcess struct {
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	Caller  string    `json:"caller,omitempty"` // whose calls alone it takes: a principal, or a program
	Folder  string    `json:"folder,omitempty"` // of a client (isolation: folder)
	// it works in the folder of a client, and Folder is left out, because the reader may be another user
	Hidden bool  `json:"folder_hidden,omitempty"`
	Lists  bool  `json:"lists,omitempty"` // it reads the lists
	Memory int64 `json:"memory_bytes,omitempty"`
}

// For returns what the process does, without a comma before it.
func (c CommandProcess) For() string { return strings.TrimPrefix(c.Use(), ", ") }

// Use returns what the process does, with a comma before it; "" if it takes the calls of all callers.
func (c CommandProcess) Use() (text string) {
	switch {
	case c.Folder != "":
		text = ", in " + prose.Flat(c.Folder)
	case c.Hidden:
		text = ", in the folder of a client"
	case c.Lists:
		text = ", reads the lists"
	}
	if c.Caller != "" {
		text += ", for " + prose.Flat(c.Caller)
	}
	return text
}

// mostProcesses is the most processes of one command that a person sees; --json has all.
const mostProcesses = 5

// FewProcesses returns the processes for people, and the number of those that are left out. It returns none for a
// command with one process.
func (u *UpstreamStatus) FewProcesses() (list []CommandProcess, more int) {
	if len(u.Running) < 2 {
		return nil, 0
	}
	list = u.Running[:min(len(u.Running), mostProcesses)]
	return list, len(u.Running) - len(list)
}

// ShowsPeople reports whether everybody who can read the admin address may see who calls, and the folders of
// clients: without authentication, callers are programs of this machine, which may call everything anyhow.
func (p *Proxy) ShowsPeople() bool { return p.Config().Auth.Open() }

// showsPeople reports whether the reader of an answer may see who calls, and the folders of clients.
func (p *Proxy) showsPeople(r *http.Request) bool { return p.ShowsPeople() || p.Owner.sentBy(r) }

// forPeople answers a request with next if its reader may see who calls.
func (p *Proxy) forPeople(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if p.ShowsPeople() || p.Owner.check(w, r) {
			next(w, r)
		}
	}
}

// ListProcesses adds the processes of commands, and the connections that do not work, to a report. Without people,
// the report names no caller, and no folder of a client.
func (p *Proxy) ListProcesses(report *Report, people bool) {
	for i := range report.Upstreams {
		u := &report.Upstreams[i]
		u.Stuck, u.MoreStuck = stuckOf(u.stuck)
		for _, of := range u.running {
			c := CommandProcess{PID: of.PID, Started: of.Started, Caller: of.User, Folder: of.Folder, Lists: of.Lists}
			if of.Folder != "" && !people {
				c.Folder, c.Hidden = "", true
			}
			u.Running = append(u.Running, c)
		}
	}
	if !people {
		report.withoutPeople()
	}
}

// withoutPeople removes the names of callers from a report, and those of keys, except in warnings of the file.
func (r *Report) withoutPeople() {
	for i := range r.Upstreams {
		u := &r.Upstreams[i]
		for n := range u.Running {
			u.Running[n].Caller = ""
		}
		for n := range u.Stuck {
			u.Stuck[n].Caller = ""
		}
	}
	r.Revoked = nil
	r.Reloaded = slices.Clone(r.Reloaded)
	for i := range r.Reloaded {
		r.Reloaded[i].AddedKeys, r.Reloaded[i].RevokedKeys = nil, nil
	}
	for i := range r.Overuse { // the report has its own list
		r.Overuse[i].Principal = ""
	}
}

// noFolder reports whether an upstream works in the folders of clients, and clients may name none.
func (p *Proxy) noFolder(name string) bool {
	return p.byFolder(name) && len(p.Config().MayName(p.File, os.LookupEnv)) == 0
}

func (p *Proxy) byFolder(name string) bool {
	return p.Config().Upstreams[name].Isolation == upstream.IsolationFolder
}

const noFolderText = "clients may name no folder, so that calls from a folder fail"

// permitAdvice returns how a person permits a folder.
func (p *Proxy) permitAdvice() string {
	return "permit the folders in which you work: " + config.Command(p.File, "folders", "allow", "FOLDER")
}

// permitted returns which folders the clients of an upstream may name; "" if it does not work in such folders. Every
// user of the machine can read the admin address, so that with authentication it has the number only.
func (p *Proxy) permitted(name string) string {
	if !p.byFolder(name) {
		return ""
	}
	roots := p.Config().MayName(p.File, os.LookupEnv)
	var list []string
	for _, r := range roots {
		list = append(list, prose.Flat(r.Name))
	}
	switch more := len(list) - mostFolders; {
	case len(list) == 0:
		return noFolderText
	case !p.Config().Auth.Open():
		return "clients may name " + prose.Count(len(list), "folder") + "; " +
			config.Command(p.File, "folders", "list") + " shows them"
	case more > 0:
		list = append(list[:mostFolders], fmt.Sprintf("and %d more", more))
	}
	return "clients may name " + strings.Join(list, ", ")
}

// mostFolders is the most folders that a text about one caller has.
const mostFolders = 3

// foldersOf returns in which folders the calls of an item work; "" without isolation: folder. It names the
// folders of the caller only.
func (p *Proxy) foldersOf(s *upstream.Status, who *policy.Subject) string {
	if !p.byFolder(s.Name) {
		return ""
	}
	const text = "each call works in the folder of its client (isolation: folder)"
	if p.noFolder(s.Name) {
		return text + "; " + noFolderText
	}
	principal := who.ID
	if who.Kind == string(auth.KindLocal) {
		principal = ""
	}
	var list []string
	for _, of := range s.Processes {
		if of.Folder != "" && of.Principal == principal && !slices.Contains(list, of.Folder) {
			list = append(list, of.Folder)
		}
	}
	switch more := len(list) - mostFolders; {
	case len(list) == 0:
		return text + "; no process runs for this caller"
	case more > 0:
		list = append(list[:mostFolders], fmt.Sprintf("%d more", more))
	}
	return text + "; processes of this caller run in " + strings.Join(list, ", ")
}
