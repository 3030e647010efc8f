package setup

import (
	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/desk/clients"
)

// importJSON is the output of --json.
type importJSON struct {
	Config   string         `json:"config"`
	Written  bool           `json:"written"`
	Backup   string         `json:"backup,omitempty"`
	Servers  []importedJSON `json:"servers"`
	Folders  []string       `json:"permitted_folders,omitempty"` // that clients may name from now on
	Others   []otherProject `json:"other_projects,omitempty"`
	Failures []string       `json:"failures"`
}

type importedJSON struct {
	Server   string         `json:"server"`
	Client   string         `json:"client"`
	Scope    clients.Scope  `json:"scope"`
	File     string         `json:"file"`
	Line     int            `json:"line"`
	Result   clients.Result `json:"result"`
	Upstream string         `json:"upstream,omitempty"`
	Summary  string         `json:"summary,omitempty"`
	Disabled bool           `json:"disabled,omitempty"`
	Auth     string         `json:"auth,omitempty"`    // auth.mode, after the server was asked
	Secrets  []string       `json:"secrets,omitempty"` // the fields that contain secrets
	Notes    []string       `json:"notes,omitempty"`
	Look     *clients.Look  `json:"look,omitempty"` // what a new server would do
}

func (i *importer) printJSON() error {
	out := importJSON{Config: i.file, Written: i.written, Backup: i.backup, Others: i.others,
		Folders: i.folders}
	out.Servers, out.Failures = []importedJSON{}, []string{}
	for _, o := range i.outcomes {
		s := o.Server
		j := importedJSON{Server: s.Name, Client: s.Client.ID, Scope: s.Scope, File: s.File, Line: s.Line,
			Result: o.Result, Upstream: o.Name, Notes: o.Notes, Look: i.looks[s]}
		if s.Entry != nil {
			j.Summary, j.Disabled, j.Secrets = s.Entry.Summary(), s.Entry.Off, s.Entry.Secrets()
			j.Auth = s.Entry.Auth
		}
		out.Servers = append(out.Servers, j)
	}
	for _, err := range i.failures {
		out.Failures = append(out.Failures, err.Error())
	}
	return cli.PrintValue(i.stdout, out)
}
