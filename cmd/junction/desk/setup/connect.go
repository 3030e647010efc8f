package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/desk/call"
	"junction/cmd/junction/desk/clients"
	"junction/cmd/junction/desk/entries"
	"junction/cmd/junction/ops/admin"
	"junction/upstream/prose"
	"junction/upstream/sandbox"
)

// connector is one run of `junction connect` or `junction disconnect`.
type connector struct {
	stdout  io.Writer
	file    string // the configuration file
	project string
	name    string
	url     string
	keyFile string
	replace bool
	all     bool
	guided  bool // the caller says what a person does next
	json    bool
	stderr  io.Writer
	typed   *typedKey // nil without a terminal
	probes  *probes   // shared by the clients of a run; nil begins a new one

	home     clients.Home
	config   *config.Config
	mistakes error // of the configuration
	member   bool  // --url names the Junction of others: the user is a member of a team
	client   *clients.Client
	place    clients.Place
	target   clients.Target
	outfit   clients.Outfit
	way      clients.KeyWay
	key      string // the API key that the client will send; "" if it is not known here
	answer   call.Answer
}

// connectCommand is `junction connect`, which adds Junction to the configuration file of a client.
func connectCommand(stdout io.Writer, file *string) *cobra.Command {
	c := connector{stdout: stdout}
	cmd := &cobra.Command{
		Use:   "connect CLIENT",
		Short: "Add Junction to the configuration file of an MCP client",
		Long: `Add Junction to the configuration file of an MCP client. CLIENT is ` + allClients() + `.
With --all, the command connects each client that it finds on this machine.

The command keeps every other byte of the file, makes a backup, and records its changes, so that
junction disconnect can undo them. For Claude Code it runs claude mcp add if that program is installed.
Claude Desktop gets junction stdio.

Before it writes, the command asks the URL as the client will. If Junction rejects the API key, or if another
service answers, it changes nothing and ends with exit code 1. If nothing answers, it writes the entry.

If Junction requires an API key, a client that starts in a shell reads the key from the environment variable
JUNCTION_KEY. VS Code asks for the key. The other clients start from the desktop, where a program does not see
the variables of a shell: they get junction stdio, which reads the key from a file that only you can read. The
command writes this file: it takes the key from JUNCTION_KEY, or asks for it at a terminal. The files of the
clients never contain the key.`,
		Example: `  junction connect cursor
  junction connect vscode --replace
  junction connect --all
  junction connect claude-code --project .
  junction connect zed --url https://mcp.example.com/mcp`,
		Args: c.clients("connect"), ValidArgsFunction: completeClients,
		RunE: func(cmd *cobra.Command, args []string) error {
			c.file, c.stderr, c.probes = *file, cmd.ErrOrStderr(), newProbes()
			if cli.CanAsk(cmd) && !c.json {
				c.typed = &typedKey{hidden: cli.QuestionsOf(cmd).Hidden}
			}
			return c.each(args, func(one *connector, id string) (*connectJSON, string, error) {
				return one.connect(cmd.Context(), id)
			}, c.afterConnect(cmd.Context()))
		},
	}
	c.flags(cmd)
	cmd.Flags().StringVar(&c.url, "url", "", "the `URL` of Junction (default: that of the configuration)")
	cmd.Flags().StringVar(&c.keyFile, "key-file", "", "your `file` with the API key; the client starts junction stdio")
	cmd.Flags().BoolVar(&c.replace, "replace", false, "remove the servers that work in Junction from the client's file")
	return cmd
}

// disconnectCommand is `junction disconnect`.
func disconnectCommand(stdout io.Writer, file *string) *cobra.Command {
	c := connector{stdout: stdout}
	cmd := &cobra.Command{
		Use:   "disconnect CLIENT",
		Short: "Undo junction connect",
		Long: `Undo junction connect. CLIENT is ` + allClients() + `.

If nothing else has changed in the file, it becomes byte for byte what it was. Otherwise the command
removes the entry of Junction and puts back the servers that --replace removed.`,
		Example: `  junction disconnect cursor`,
		Args:    c.clients("disconnect"),

		ValidArgsFunction: completeClients,
		RunE: func(_ *cobra.Command, args []string) error {
			c.file = *file
			return c.each(args, (*connector).disconnect, func(t total) []string {
				return restart(t.changed, "")
			})
		},
	}
	c.flags(cmd)
	return cmd
}

func (c *connector) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.name, "name", "junction", "the `name` of the entry")
	const project = "the `folder` of a project, whose file is changed (default: the user's)"
	cmd.Flags().StringVar(&c.project, "project", "", project)
	cmd.Flags().BoolVar(&c.all, "all", false, "all clients that are found on this machine")
	cli.JSONFlag(cmd, &c.json)
}

func allClients() string {
	ids := clients.IDs()
	return strings.Join(ids[:len(ids)-1], ", ") + " or " + ids[len(ids)-1]
}

// completeClients proposes the clients.
func completeClients(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return cli.Matching(clients.IDs(), nil, word), cobra.ShellCompDirectiveNoFileComp
}

// clients rejects arguments other than one client, or none with --all.
func (c *connector) clients(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case c.all && len(args) > 0:
			return cli.Usagef("%s takes a client or --all, not both", what)
		case c.all && c.project != "":
			return cli.Usagef("%s takes --project or --all, not both: a project needs a client", what)
		case !c.all && len(args) != 1:
			return cli.Usagef("%s needs one client, or --all: %s", what, allClients())
		}
		return nil
	}
}

// prepare finds the file of the client and the values of the entry. With lenient, mistakes in the
// configuration are no errors: a disconnect needs only the URLs, for an entry that connect has not written.
func (c *connector) prepare(id string, lenient bool) (err error) {
	if c.client, err = clients.Lookup(id); err != nil {
		return cli.Usagef("%w%s", err, c.byHand())
	}
	if c.home, err = clients.HomeOf(c.project); err != nil {
		return err
	}
	e, err := entries.Edit(c.stdout, c.file, c.json, true)
	if err != nil {
		return err
	}
	if c.mistakes = e.Usable(); c.mistakes != nil && !lenient {
		return c.mistakes
	}
	c.config = e.Config()
	scope, ok := clients.User, false
	if c.project != "" {
		scope = clients.Project
	}
	if c.place, ok = c.home.Place(c.client, scope); !ok {
		return fmt.Errorf("%s has no such file on this system", c.client.Name)
	}
	own := ownURLs(c.config, c.file)
	given := c.url != "" && !slices.Contains(own, c.url)
	c.member = given || c.url != "" && !e.Exists()
	if c.url != "" {
		own = append([]string{c.url}, own...)
	}
	c.target = clients.Target{Name: c.name, URL: cmp.Or(own...), Own: own, // none if listen has a mistake
		Key: keysOnly(c.config), Given: given}
	if c.target.Config, err = filepath.Abs(e.Path()); err != nil {
		return err
	}
	records, err := records()
	if err != nil {
		return err
	}
	c.outfit = clients.Outfit{Home: c.home, Run: runClient, Records: records}
	return nil
}

// keysOnly reports whether a client needs an API key, because it cannot sign in.
func keysOnly(c *config.Config) bool { return len(c.Auth.APIKeys) > 0 && !c.Auth.SignsIn() }

// byHand returns the end of an error about an unknown client: any client can have the URL.
func (c *connector) byHand() string {
	const by = "; add this URL to another client by hand: "
	if c.url != "" {
		return by + c.url
	}
	e, err := entries.Read(io.Discard, c.file, false)
	if err != nil {
		return ""
	}
	own := ownURLs(e.Config(), c.file)
	if len(own) == 0 {
		return ""
	}
	return by + own[0]
}

// records returns what connect remembers.
func records() (*clients.Records, error) {
	state, err := config.StateDir(os.LookupEnv)
	if err != nil {
		return nil, fmt.Errorf("cannot find the folder for state: %w; set XDG_STATE_HOME", err)
	}
	return &clients.Records{File: filepath.Join(state, "junction", "connections.json")}, nil
}

// attempts is how often a file is changed that its client writes at the same time.
const attempts = 3

// insist runs a step again while the client writes its file.
func insist(step func() (*connectJSON, string, error)) (result *connectJSON, text string, err error) {
	for range attempts {
		if result, text, err = step(); !errors.Is(err, revision.ErrChanged) {
			break
		}
	}
	return result, text, err
}

func (c *connector) connect(ctx context.Context, id string) (*connectJSON, string, error) {
	return insist(func() (*connectJSON, string, error) { return c.attempt(ctx, id) })
}

// attempt connects a client. It fails with revision.ErrChanged if the client writes its file meanwhile.
func (c *connector) attempt(ctx context.Context, id string) (*connectJSON, string, error) {
	if err := c.ready(ctx, id); err != nil {
		return nil, "", err
	}
	var remove []string
	var kept keptServers
	if c.replace {
		var err error
		if remove, kept, err = c.replaceable(ctx); err != nil {
			return nil, "", err
		}
	}
	done, err := c.outfit.Connect(ctx, c.place, c.target, remove)
	if err != nil {
		return nil, "", err
	}
	c.note(ctx, done, kept)
	answer := c.next(done)
	result, text := c.result(done, c.connected(done, answer))
	if c.target.Key {
		result.Key, result.KeyFile = c.way.String(), c.target.KeyFile
	}
	result.again = len(kept.broken) > 0 || c.client.NamesFolders() && len(kept.folders) > 0
	return result, text, nil
}

// ready finds the values of the entry, and asks the URL with them.
func (c *connector) ready(ctx context.Context, id string) error {
	if err := c.prepare(id, false); err != nil {
		return err
	}
	if strings.HasSuffix(c.target.URL, ":0/mcp") {
		return fmt.Errorf("the port of Junction is not known (listen: %s); start Junction, or give --url",
			c.config.Listen)
	}
	if c.url == "" && c.config.PublicURL == "" {
		if err := checkOwn(ctx, c.file, c.config, "give --url "+c.target.URL); err != nil {
			return err
		}
	}
	if err := c.outfit.Ready(c.place); err != nil { // before a person types the key in vain
		return err
	}
	if err := c.credential(ctx); err != nil {
		return err
	}
	return c.verify(ctx)
}

// note adds the notes about a connected client.
func (c *connector) note(ctx context.Context, done *clients.Done, kept keptServers) {
	done.Notes = append(done.Notes, kept.notes(c)...)
	if !c.replace && !c.guided {
		done.Notes = append(done.Notes, c.twice(ctx)...)
	}
	if len(done.Removed) > 0 && !c.quiet() {
		done.Notes = append(done.Notes, c.afterReboot(ctx)...)
	}
	done.Notes = slices.Concat(done.Notes, c.keyNotes(done), c.folderNotes(), c.trustNotes(), c.accepted(ctx))
	if c.file == "" && c.url == "" && !c.guided {
		if text := admin.Whose(ctx, c.config); text != "" && (c.probes == nil || !c.probes.said[text]) {
			done.Notes = append(done.Notes, text)
			c.probes.say(text)
		}
	}
	if c.project != "" && done.Changed {
		done.Notes = append(done.Notes, "The file is the project's: if you commit it, others get the entry, too.")
	}
}

// next adds the notes about what a person does next, and returns the sentence about a URL that answers; "" if
// it does not answer, or if another text has these sentences.
func (c *connector) next(done *clients.Done) (answers string) {
	if c.quiet() {
		return ""
	}
	answer, ok := c.answered()
	if !ok {
		done.Notes = append(done.Notes, answer)
		answer = ""
	}
	if done.Changed {
		done.Notes = append(done.Notes, c.check())
	}
	return answer
}

// connected returns the sentences about a connected client. answer is the sentence about the URL, or "".
func (c *connector) connected(done *clients.Done, answer string) string {
	said := fmt.Sprintf("%s is connected to %s already, in %s.", c.client.Name, c.target.URL, c.home.Short(done.File))
	if done.Changed {
		said = fmt.Sprintf("Connected %s to %s in %s.", c.client.Name, c.target.URL, c.home.Short(done.File))
	} else if answer != "" {
		said += " " + answer
	}
	if len(done.Removed) > 0 {
		said += " Removed from it: " + strings.Join(done.Removed, ", ") + "."
	}
	return said
}

// checkOwn returns an error if no junction of the user serves the file, and that of another user or file
// answers at its addresses.
func checkOwn(ctx context.Context, file string, c *config.Config, how string) error {
	if _, running := runfile.Find(file); running {
		return nil
	}
	return admin.CheckOwn(ctx, file, c, how)
}

func (c *connector) disconnect(id string) (*connectJSON, string, error) {
	return insist(func() (*connectJSON, string, error) { return c.undo(id) })
}

// undo disconnects a client. It fails with revision.ErrChanged if the client writes its file meanwhile.
func (c *connector) undo(id string) (*connectJSON, string, error) {
	if err := c.prepare(id, true); err != nil {
		return nil, "", err
	}
	for _, p := range c.home.Of(c.client) { // the file that connect has changed, if there are several
		if p.Scope != c.place.Scope {
			continue
		}
		if connected, err := c.outfit.Records.Has(p); err == nil && connected {
			c.place = p
			break
		}
	}
	done, err := c.outfit.Disconnect(c.place, c.target)
	if err != nil {
		return nil, "", err
	}
	said := fmt.Sprintf("%s is not connected; nothing was changed in %s.", c.client.Name, c.home.Short(done.File))
	if done.Changed {
		said = fmt.Sprintf("Removed Junction from %s.", c.home.Short(done.File))
	}
	if len(done.Removed) > 0 {
		said += " Put back: " + strings.Join(done.Removed, ", ") + "."
	}
	if !c.guided {
		done.Notes = append(done.Notes, c.backups(done.Stays)...)
	}
	if done.Changed && !c.quiet() {
		done.Notes = append(done.Notes, "Restart "+c.client.Name+".")
	} else if !done.Changed && c.mistakes != nil {
		done.Notes = append(done.Notes, "An entry that was added by hand may stay: "+c.mistakes.Error()+".")
	}
	result, text := c.result(done, said)
	result.stays = done.Stays
	return result, text, nil
}

// backups returns the sentence about the backups of a file that a disconnect leaves there.
func (c *connector) backups(stay []string) []string {
	switch len(stay) {
	case 0:
		return nil
	case 1:
		return []string{fmt.Sprintf("The file as it was before stays in %s; remove it if you do not "+
			"need it, because it may contain secrets.", c.home.Short(stay[0]))}
	}
	return []string{"These backups of the file stay, and may contain secrets; " + entries.Deletion(stay)}
}

// connectJSON is the output of --json.
type connectJSON struct {
	Client  string   `json:"client"`
	File    string   `json:"file"`
	URL     string   `json:"url"`
	Changed bool     `json:"changed"`
	Command bool     `json:"command"` // the client's own command made the change
	Backup  string   `json:"backup,omitempty"`
	Servers []string `json:"servers,omitempty"`  // removed or restored servers
	Lost    []string `json:"lost,omitempty"`     // servers that could not be restored
	Key     string   `json:"key,omitempty"`      // how the client gets the API key: variable, input or file
	KeyFile string   `json:"key_file,omitempty"` // the file with the key
	Notes   []string `json:"notes,omitempty"`

	stays []string // see clients.Done
	again bool     // servers were kept that do not work in Junction yet
}

func (c *connector) result(done *clients.Done, said string) (*connectJSON, string) {
	if done.Backup != "" {
		said += " Backup: " + c.home.Short(done.Backup) + "."
	}
	text := prose.OneLine(said) + "\n"
	for _, note := range done.Notes {
		for line := range strings.Lines(note) { // a server that is lost has several
			text += prose.OneLine(strings.TrimRight(line, "\r\n")) + "\n"
		}
	}
	r := &connectJSON{Client: c.client.ID, File: done.File, URL: c.target.URL, Changed: done.Changed,
		Command: done.Command, Backup: done.Backup, Servers: done.Removed, Lost: done.Lost, Notes: done.Notes}
	return r, text
}

// runClient runs the command of a client for half a minute at most. Its output may contain secrets of
// the client and is discarded.
func runClient(ctx context.Context, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = sandbox.ForOthers(os.Environ())
	return cmd.Run()
}
