package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"junction/cmd/junction/cli"
	"junction/cmd/junction/clients"
	"junction/cmd/junction/config"
	"junction/cmd/junction/entries"
	"junction/cmd/junction/prose"
	"junction/cmd/junction/runfile"
)

// importCommand is `junction import`, which reads the servers in the files of other clients.
func importCommand(stdout, stderr io.Writer, file *string) *cobra.Command {
	i := importer{stdout: stdout, stderr: stderr}
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Import servers from the configuration files of MCP clients",
		Long: `Import servers from the configuration files of Claude Code, Claude Desktop, Cursor, VS Code, Codex,
Gemini CLI, Copilot CLI, opencode, Windsurf and Zed.

The command lists each server, the place where it was found, and the result. With --write it adds
the new servers to the configuration file, which keeps its comments and order, and makes a backup of the
old file. Secrets go to files in the folder secrets beside the configuration file. The files of the
clients stay as they are.

Without --config, the file is junction/config.yaml in the user's folder for configurations.`,
		Example: `  junction import
  junction import --write
  junction import --from cursor --from vscode
  junction import --from team/mcp.json`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			i.file = *file
			return i.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&i.from, "from", nil,
		"a `client` or a file; may be given several times (default: all clients)")
	flags.StringVar(&i.project, "project", "", "the `folder` whose project files are read (default: the current one)")
	flags.BoolVar(&i.add, "write", false, "add the new servers to the configuration file")
	flags.BoolVar(&i.json, "json", false, "print JSON")
	return cmd
}

// importer is one run of the command.
type importer struct {
	stdout, stderr io.Writer
	from           []string
	project        string
	json           bool
	add            bool
	file           string // the configuration file

	home     clients.Home
	editor   *entries.Editor // of file
	outcomes []clients.Outcome
	others   []otherProject
	failures []error // for single files
	written  bool
	backup   string // of the old configuration file; "" if there was none
	next     string // the next step for the user
}

func (i *importer) run(ctx context.Context) error {
	var err error
	if i.home, err = clients.HomeOf(i.project); err != nil {
		return err
	}
	if i.editor, err = entries.Read(i.stdout, i.file, i.json); err != nil {
		return err
	}
	i.file = i.editor.Path()
	places, err := i.places()
	if err != nil {
		return err
	}
	servers, failures := i.home.Read(places)
	i.failures = failures
	c := i.editor.Config()
	merge := clients.Merge{Existing: knownOf(c), Own: ownURLs(c), Getenv: entries.Lookup, Origin: i.origin}
	comments := i.editor.Comments()
	for n := range merge.Existing {
		merge.Existing[n].From = comments[merge.Existing[n].Name]
	}
	i.outcomes = merge.Plan(servers)
	i.others = i.elsewhere(merge, places)
	if i.add {
		if err := i.write(); err != nil {
			return err
		}
		if i.written {
			s := entries.Follow(ctx, i.file)
			if i.next = s.Next; s.Reload != "" {
				i.next = s.Refused()
			}
		}
	}
	if i.json {
		err = i.printJSON()
	} else {
		err = i.print()
	}
	if len(i.from) > 0 && len(failures) > 0 {
		return errors.Join(err, fmt.Errorf("%s could not be read", prose.Count(len(failures), "file")))
	}
	return err
}

// places returns the lists of servers to read.
func (i *importer) places() ([]clients.Place, error) {
	if len(i.from) == 0 {
		return i.home.Places(), nil
	}
	var list []clients.Place
	for _, from := range i.from {
		c, err := clients.Lookup(from)
		if err == nil {
			list = append(list, i.home.Of(c)...)
			continue
		}
		if _, statErr := os.Stat(from); statErr != nil {
			return nil, cli.Usagef("--from: %w, and no file of that name", err)
		}
		of, err := i.home.PlacesOf(from)
		if err != nil {
			return nil, &clients.FileError{File: from, Err: err}
		}
		if len(of) == 0 {
			return nil, fmt.Errorf("%s has no servers in a form that a client uses", from)
		}
		list = append(list, of...)
	}
	return list, nil
}

// otherProject is a folder with servers that this import does not read.
type otherProject struct {
	Folder  string `json:"folder"`
	Servers int    `json:"servers"` // that are new
}

// elsewhere returns the other projects with new servers, if the import reads the files of Claude
// Code: that client keeps the servers of each project in the user's file.
func (i *importer) elsewhere(merge clients.Merge, places []clients.Place) []otherProject {
	reads := slices.ContainsFunc(places, func(p clients.Place) bool { return p.Scope == clients.Local })
	others := i.home.OtherProjects()
	if !reads || len(others) == 0 {
		return nil
	}
	here, _ := i.home.Read(places) // again: a plan changes the entries of its servers
	there, _ := i.home.Read(others)
	var list []otherProject
	for _, o := range merge.Plan(append(here, there...))[len(here):] {
		if o.Result != clients.New {
			continue
		}
		folder := o.Server.Folder()
		n := slices.IndexFunc(list, func(p otherProject) bool { return p.Folder == folder })
		if n < 0 {
			n, list = len(list), append(list, otherProject{Folder: folder})
		}
		list[n].Servers++
	}
	return list
}

// knownOf returns the upstreams of a configuration for comparison with the servers of clients.
func knownOf(c *config.Config) []clients.Known {
	var list []clients.Known
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		u := c.Upstreams[name]
		list = append(list, clients.Known{
			Name: name, Command: u.Command, Env: u.Env, Dir: u.Dir, URL: u.URL, Headers: u.Headers,
		})
	}
	return list
}

// ownURLs returns the URLs of the default endpoint. The first one is for clients.
func ownURLs(c *config.Config) []string {
	var list []string
	if c.PublicURL != "" {
		list = append(list, c.PublicURL+"/mcp")
	}
	if own := runfile.URL(c.Listen); own != "" {
		list = append(list, own)
	}
	return list
}

// print writes a line for each server and the summary.
func (i *importer) print() error {
	err := cli.Table(i.stdout, func(row func(...any)) {
		if len(i.outcomes) > 0 {
			row("SERVER", "FOUND IN", "RESULT")
		}
		for _, o := range i.outcomes {
			s := o.Server
			place := fmt.Sprintf("%s, %s:%d", s.Client.Name, prose.OneLine(i.home.Short(s.File)), s.Line)
			row(prose.OneLine(s.Name), place, prose.OneLine(i.result(o)))
		}
	})
	if err != nil {
		return err
	}
	for _, err := range i.failures {
		fmt.Fprintf(i.stderr, "warning: %s\n", prose.OneLine(err.Error()))
	}
	_, err = io.WriteString(i.stdout, i.summary())
	return err
}

// otherProjects returns the line about the servers of other projects, or "".
func (i *importer) otherProjects() string {
	const most = 5
	var folders []string
	servers := 0
	for _, p := range i.others {
		servers += p.Servers
		folders = append(folders, fmt.Sprintf("%s (%d)", prose.OneLine(i.home.Short(p.Folder)), p.Servers))
	}
	if servers == 0 {
		return ""
	}
	if more := len(folders) - most; more > 0 {
		folders = append(folders[:most], fmt.Sprintf("%d more", more))
	}
	verb := "belong"
	if servers == 1 {
		verb = "belongs"
	}
	return fmt.Sprintf("%s %s to other projects of Claude Code: %s. Import them with --project FOLDER.\n",
		prose.Count(servers, "server"), verb, strings.Join(folders, ", "))
}

// summary returns the result and the next step.
func (i *importer) summary() string {
	news, secrets := 0, 0
	var variables []string
	for _, o := range i.outcomes {
		if o.Result != clients.New {
			continue
		}
		news++
		secrets += len(o.Server.Entry.Secrets())
		for _, name := range o.Server.Entry.Variables() {
			if value, _ := os.LookupEnv(name); value == "" && !slices.Contains(variables, name) {
				variables = append(variables, name)
			}
		}
	}
	file := prose.OneLine(i.home.Short(i.file))
	var b strings.Builder
	switch {
	case len(i.outcomes) == 0:
		return "No servers found.\n" + i.otherProjects()
	case news == 0:
		return "Nothing to add to " + file + ".\n" + i.otherProjects()
	case !i.written:
		return fmt.Sprintf("\nNothing was written. junction import --write adds %s to %s.\n%s",
			prose.Count(news, "server"), file, i.otherProjects())
	}
	fmt.Fprintf(&b, "\nAdded %s to %s.", prose.Count(news, "server"), file)
	if i.backup != "" {
		fmt.Fprintf(&b, " Backup: %s.", prose.OneLine(i.home.Short(i.backup)))
	}
	if secrets > 0 {
		dir := filepath.Join(filepath.Dir(i.file), "secrets")
		fmt.Fprintf(&b, "\nThe secrets are in %s.", prose.OneLine(i.home.Short(dir)))
	}
	if len(variables) > 0 {
		b.WriteString("\n" + entries.SetVariables(variables))
	}
	if names := i.signIns(); len(names) > 0 {
		fmt.Fprintf(&b, "\nThese servers may require a sign-in: %s. junction status shows which, and what to do.",
			strings.Join(names, ", "))
	}
	fmt.Fprintf(&b, "\n%s%s\n", i.otherProjects(), prose.OneLine(i.next))
	return b.String()
}

// result describes the result for a server.
func (i *importer) result(o clients.Outcome) string {
	said := ""
	switch o.Result {
	case clients.New:
		said = fmt.Sprintf("new: %s, %s", o.Name, o.Server.Entry.Summary())
		if o.Server.Entry.Off {
			said += ", disabled"
		}
		if secrets := o.Server.Entry.Secrets(); len(secrets) > 0 {
			said += ", " + prose.Count(len(secrets), "secret") + " to a file"
		}
	case clients.Same:
		return "same as " + o.Name
	case clients.Present:
		said = "present: " + o.Name
	case clients.Skipped:
		said = "skipped"
	}
	if len(o.Notes) > 0 {
		said += "; " + strings.Join(o.Notes, "; ")
	}
	return said
}

// signIns returns the new servers that may need a sign-in: those with a URL and without a header
// that has a credential.
func (i *importer) signIns() []string {
	var names []string
	for _, o := range i.outcomes {
		if o.Result == clients.New && !o.Server.Entry.Off && o.Server.Entry.Anonymous() {
			names = append(names, o.Name)
		}
	}
	return names
}

// importJSON is the output of --json.
type importJSON struct {
	Config   string         `json:"config"`
	Written  bool           `json:"written"`
	Backup   string         `json:"backup,omitempty"`
	Servers  []importedJSON `json:"servers"`
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
	Secrets  []string       `json:"secrets,omitempty"` // the fields that contain secrets
	Notes    []string       `json:"notes,omitempty"`
}

func (i *importer) printJSON() error {
	out := importJSON{Config: i.file, Written: i.written, Backup: i.backup, Others: i.others}
	out.Servers, out.Failures = []importedJSON{}, []string{}
	for _, o := range i.outcomes {
		s := o.Server
		j := importedJSON{Server: s.Name, Client: s.Client.ID, Scope: s.Scope, File: s.File, Line: s.Line,
			Result: o.Result, Upstream: o.Name, Notes: o.Notes}
		if s.Entry != nil {
			j.Summary, j.Disabled, j.Secrets = s.Entry.Summary(), s.Entry.Off, s.Entry.Secrets()
		}
		out.Servers = append(out.Servers, j)
	}
	for _, err := range i.failures {
		out.Failures = append(out.Failures, err.Error())
	}
	return cli.PrintValue(i.stdout, out)
}
