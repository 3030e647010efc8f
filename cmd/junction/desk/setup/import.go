package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/desk/clients"
	"junction/cmd/junction/desk/entries"
	"junction/upstream/prose"
)

// importCommand is `junction import`, which reads the servers in the files of other clients.
func importCommand(stdout, stderr io.Writer, file *string) *cobra.Command {
	i := importer{stdout: stdout, stderr: stderr}
	cmd := &cobra.Command{
		Use:   "import [NAME ...]",
		Short: "Import servers from the configuration files of MCP clients",
		Long: `Import servers from the configuration files of Claude Code, Claude Desktop, Cursor, VS Code, Codex,
Gemini CLI, Copilot CLI, opencode, Windsurf, Zed and Goose.

The command lists each server, the place where it was found, and the result. Then it shows what each
new server would run, send and read. With --write it asks, and adds the new servers to the
configuration file, which keeps its comments and order. The old file becomes a backup. Secrets go to
files in the folder secrets beside the configuration file. The files of the clients stay as they are.

With NAMEs, the command considers the servers of these names only. A server that you have removed from the
configuration is not added again unless you name it.

Servers in the files of a project, such as .mcp.json of a cloned repository, are imported only with
--project FOLDER: others may have written them. Without it, those of the current folder are listed.

Without --config, the file is junction/config.yaml in the user's folder for configurations.`,
		Example: `  junction import
  junction import --write
  junction import --write notes
  junction import --from cursor --from vscode
  junction import --project . --write
  junction import --from team/mcp.json`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			i.file, i.names = *file, args
			return i.run(cmd)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&i.from, "from", nil,
		"a `client` or a file; may be given several times (default: all clients)")
	flags.StringVar(&i.project, "project", "", "import the servers of the project in this `folder`, too")
	flags.BoolVar(&i.add, "write", false, "add the new servers to the configuration file")
	flags.BoolVar(&i.json, "json", false, "print JSON")
	cli.YesFlag(cmd, &i.yes)
	return cmd
}

// importer is one run of the command.
type importer struct {
	stdout, stderr io.Writer
	names          []string // of the servers to import; none means all
	from           []string
	project        string
	json           bool
	add            bool
	yes            bool   // do not ask
	asks           bool   // for values that servers lack
	brief          bool   // the table leaves out the new servers, because their looks follow
	file           string // the configuration file
	called         string // how a command line calls junction; "" is by its name

	home      clients.Home
	here      clients.Home    // home with a project: that of --project, or the current folder
	editor    *entries.Editor // of file
	outcomes  []clients.Outcome
	looks     map[*clients.Server]*clients.Look // of the new servers
	others    []otherProject
	asked     []*entries.New // the new servers, after a person has confirmed them
	failures  []error        // for single files
	written   bool
	backup    string                  // of the old configuration file; "" if there was none
	secrets   []string                // the new files with secrets
	note      func(file string) error // see clients.SecretFiles; may be nil
	next      string                  // the next step for the user
	permits   []string                // the sentence about the folders that clients may name
	folders   []string                // that clients may name now
	permitted []string                // the folders of the answer of entries.Permitting
	agreed    []string                // the folders of projects that get an endpoint
	added     []string                // the names of these endpoints, after the file has them
	sequel    entries.Sequel          // has the states of the new servers
	follows   bool                    // it has the states of the new servers
}

// read reads the configuration and the files of the clients, and plans what is added.
func (i *importer) read() (err error) {
	if i.home, err = clients.HomeOf(i.project); err != nil {
		return err
	}
	if i.here, err = clients.HomeOf(cmp.Or(i.project, ".")); err != nil {
		return err
	}
	if i.editor, err = entries.Read(i.stdout, i.file, i.json); err != nil {
		return err
	}
	if i.add {
		if err := i.editor.OnlyFile(i.file); err != nil {
			return err
		}
	}
	i.file = i.editor.Path()
	places, held, err := i.places()
	if err != nil {
		return err
	}
	i.plan(places, held)
	i.outcomes, err = only(i.names, i.outcomes)
	return err
}

// command returns a command line about the file.
func (i *importer) command(words ...string) string {
	return config.CommandOf(cmp.Or(i.called, "junction"), i.file, words...)
}

func (i *importer) run(cmd *cobra.Command) error {
	err := i.read()
	if err != nil {
		return err
	}
	if !i.json {
		if err := i.print(); err != nil {
			return err
		}
	}
	if err = i.confirm(cmd); err == nil && i.add {
		if err = i.ask(cmd); err == nil {
			err = i.offer(cmd)
		}
		if err == nil {
			err = i.write(cmd.Context())
		}
	}
	if i.json {
		err = errors.Join(err, i.printJSON())
	} else if err == nil {
		err = cli.Tell(i.stdout, i.summary(cmd.Context()))
		i.sequel.Show(cmd.Context(), i.stdout, cli.EnterOf(cmd))
	}
	if len(i.from) > 0 && len(i.failures) > 0 {
		return errors.Join(err, fmt.Errorf("%s could not be read", prose.Count(len(i.failures), "file")))
	}
	return err
}

// plan reads the files, and decides what becomes of each server. The servers of held places are not
// imported, and decide nothing about the others.
func (i *importer) plan(places, held []clients.Place) {
	servers, failures := i.home.Read(places)
	merge := mergeOf(i.editor, &i.home, ownURLs(i.editor.Config(), i.file), i.names)
	i.outcomes = merge.Plan(servers)
	i.looks = map[*clients.Server]*clients.Look{}
	for n := range i.outcomes {
		o := &i.outcomes[n]
		if o.Result != clients.New {
			continue
		}
		program := o.Server.Entry.Lacks(entries.Lookup)
		if program != "" {
			o.Note(clients.NotInstalled(program))
		} else if note := o.Server.Entry.Relative(); note != "" {
			o.Note(note)
		}
		if i.asks {
			o.Server.Entry.Unnote()
			o.Notes = clients.WithoutVariables(o.Notes)
		}
		look, err := o.Server.Entry.Look(o.Name, i.place(o.Server))
		if err != nil {
			o.Result, o.Notes = clients.Skipped, []string{err.Error()}
			continue
		}
		look.Lacks = program
		i.looks[o.Server] = look
	}
	theirs, more := i.here.Read(held)
	again, _ := i.home.Read(places) // a plan changes the entries of its servers
	for _, o := range merge.Plan(append(again, theirs...))[len(again):] {
		if o.Result == clients.New {
			o.Result, o.Name = clients.Held, ""
		}
		i.outcomes = append(i.outcomes, o)
	}
	for _, err := range append(failures, more...) { // one file may have several lists of servers
		same := func(other error) bool { return other.Error() == err.Error() }
		if !slices.ContainsFunc(i.failures, same) {
			i.failures = append(i.failures, err)
		}
	}
	if len(i.names) == 0 {
		i.others = i.elsewhere(merge, places, held)
	}
}

// places returns the lists of servers to import, and those of the current project, which are held
// unless a person names the project or the file.
func (i *importer) places() (places, held []clients.Place, err error) {
	add := func(list []clients.Place) {
		for _, p := range list {
			if p.Scope == clients.User || i.project != "" {
				places = append(places, p)
			} else {
				held = append(held, p)
			}
		}
	}
	if len(i.from) == 0 {
		add(i.here.Places())
	}
	for _, from := range i.from {
		c, err := clients.Lookup(from)
		if err == nil {
			add(i.here.Of(c))
			continue
		}
		if _, statErr := os.Stat(from); statErr != nil {
			return nil, nil, cli.Usagef("--from: there is no file %s, and %w; for another client, give its file", from,
				err)
		}
		found, err := i.here.PlacesOf(from)
		if err != nil {
			return nil, nil, &revision.Error{File: from, Err: err}
		}
		if len(found) == 0 {
			return nil, nil, fmt.Errorf("%s has no servers in a form that a client uses; for a configuration of "+
				"Junction, run: %s", from, config.Start(from))
		}
		for _, p := range found {
			if p.Scope == clients.Project {
				places = append(places, p)
			} else {
				add([]clients.Place{p})
			}
		}
	}
	return places, held, nil
}

// otherProject is a folder with servers that this import does not read.
type otherProject struct {
	Folder  string `json:"folder"`
	Servers int    `json:"servers"` // that are new
}

// elsewhere returns the other projects with new servers, if the import reads the files of Claude
// Code: that client keeps the servers of each project in the user's file.
func (i *importer) elsewhere(merge clients.Merge, places, held []clients.Place) []otherProject {
	ofOne := func(p clients.Place) bool { return p.Scope == clients.Local }
	reads := slices.ContainsFunc(places, ofOne) || slices.ContainsFunc(held, ofOne)
	others := i.here.OtherProjects()
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

// ownURLs returns the URLs of the default endpoint. The first one is for clients: public_url, or the
// URL of the running junction, whose port may be another than that of the file.
func ownURLs(c *config.Config, file string) []string {
	var list []string
	if c.PublicURL != "" {
		list = append(list, c.PublicURL+"/mcp")
	}
	if place, ok := runfile.Find(file); ok {
		list = append(list, place.URL)
	}
	if own := runfile.URL(c.Listen); own != "" {
		list = append(list, own)
	}
	return list
}

// rows returns the servers of the table.
func (i *importer) rows() []clients.Outcome {
	looked := func(o clients.Outcome) bool {
		return o.Own || i.brief && (i.looks[o.Server] != nil || o.Result == clients.Withdrawn)
	}
	return slices.DeleteFunc(slices.Clone(i.outcomes), looked)
}

// print writes a line for each server and the summary.
func (i *importer) print() error {
	err := cli.Table(i.stdout, func(row func(...any)) {
		shown := i.rows()
		if len(shown) > 0 {
			row("SERVER", "FOUND IN", "RESULT")
		}
		for _, o := range shown {
			row(prose.OneLine(o.Server.Name), i.place(o.Server), prose.OneLine(i.result(o)))
		}
	})
	if err == nil {
		err = cli.Tell(i.stdout, entries.Lines(i.left()...))
	}
	for _, err := range i.failures {
		_ = cli.Tell(i.stderr, fmt.Sprintf("warning: %s\n", prose.OneLine(err.Error())))
	}
	return err
}

// place returns where a server was found.
func (i *importer) place(s *clients.Server) string {
	return fmt.Sprintf("%s, %s:%d", s.Client.Name, prose.OneLine(i.home.Short(s.File)), s.Line)
}

// held returns the line about the servers of the current project, or "".
func (i *importer) held() string {
	servers := 0
	for _, o := range i.outcomes {
		if o.Result == clients.Held {
			servers++
		}
	}
	if servers == 0 {
		return ""
	}
	verb, them := "were", "them"
	if servers == 1 {
		verb, them = "was", "it"
	}
	return fmt.Sprintf("%s of the project in %s %s not imported, because others may have written its files. Your "+
		"clients start %s as before. To look at %s, and to import %s if you agree: %s\n",
		prose.Count(servers, "server"), prose.OneLine(i.home.Short(i.here.Project)), verb, them, them, them,
		i.command("import", "--project", ".", "--write"))
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
	return fmt.Sprintf("%s %s to other projects of Claude Code: %s. Import them with: %s\n",
		prose.Count(servers, "server"), verb, strings.Join(folders, ", "),
		i.command("import", "--project", "FOLDER", "--write"))
}

// summary returns the result and the next step.
func (i *importer) summary(ctx context.Context) string {
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
		return i.none() + i.otherProjects()
	case news == 0:
		return i.skipped() + "Nothing to add to " + file + ".\n" + i.held() + i.otherProjects()
	case !i.written:
		return fmt.Sprintf("\nNothing was written. %s adds %s to %s.\n%s%s", i.writing(),
			prose.Count(news, "server"), file, i.held(), i.otherProjects())
	}
	b.WriteString(i.skipped())
	fmt.Fprintf(&b, "\nAdded %s to %s.", prose.Count(news, "server"), file)
	if i.backup != "" {
		fmt.Fprintf(&b, " Backup: %s.", prose.OneLine(i.home.Short(i.backup)))
	}
	if secrets > 0 {
		dir := filepath.Join(filepath.Dir(i.file), "secrets")
		fmt.Fprintf(&b, "\nThe secrets are in %s.", prose.OneLine(i.home.Short(dir)))
	}
	if len(variables) > 0 && !i.asks {
		b.WriteString("\n" + entries.SetVariables(ctx, i.file, variables))
	}
	for _, line := range i.signIns() {
		b.WriteString("\n" + prose.OneLine(line))
	}
	fmt.Fprintf(&b, "\n%s%s%s%s%s", i.fixed(), entries.Lines(i.permits...), i.held(), i.otherProjects(),
		entries.Lines(i.next))
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
		said = "same as " + o.Name
	case clients.Present:
		said = "present: " + o.Name
	case clients.Skipped:
		said = "skipped"
	case clients.Withdrawn:
		return "removed before; to add it again: " + i.command(i.again(o)...)
	case clients.Held:
		return "not imported, because it is of a project: " + o.Server.Entry.Summary()
	}
	for _, note := range o.Notes {
		if look := i.looks[o.Server]; look == nil || note != clients.NotInstalled(look.Lacks) { // Looks has it
			said += "; " + note
		}
	}
	return said
}

// signIns returns the lines about the sign-ins of the new servers, and about the servers whose answer
// leaves a question.
func (i *importer) signIns() []string {
	var added []*entries.New
	var lines, unknown []string
	for _, n := range i.asked {
		if i.isNew(n) {
			if !n.Asked && !n.Entry.Off && n.Entry.Anonymous() { // its URL has a reference
				unknown = append(unknown, n.Name)
			}
			added = append(added, n)
			if n.Note != "" && !(n.Unreached && i.follows) {
				lines = append(lines, n.Note+".")
			}
		}
	}
	lines = append(lines, entries.Silent(i.file, added)...)
	if len(unknown) > 0 {
		lines = append(lines, fmt.Sprintf("These servers may require a sign-in: %s. %s shows which, and "+
			"what to do.", strings.Join(unknown, ", "), i.command("status")))
	}
	return append(entries.SignIns(i.file, added), lines...)
}

// isNew reports whether the server was not skipped after it was asked.
func (i *importer) isNew(n *entries.New) bool {
	return slices.ContainsFunc(i.outcomes, func(o clients.Outcome) bool {
		return o.Server.Entry == n.Entry && o.Result == clients.New
	})
}
