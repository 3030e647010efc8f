package setup

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/desk/call"
	"junction/cmd/junction/desk/clients"
	"junction/cmd/junction/desk/service"
	"junction/upstream/files"
)

// typedKey is the API key that a person has typed. Several clients share it: the person is asked once.
type typedKey struct {
	hidden func(question string) (string, error) // asks at a terminal
	asked  bool
	key    string
}

// credential decides how the client gets the API key, and sets what the entry needs for that in the target.
func (c *connector) credential(ctx context.Context) error {
	t := &c.target
	c.way = c.client.KeyWay(c.place.Scope)
	if err := call.CheckURL(t.URL, false); err != nil {
		return err
	}
	if c.elsewhere() && c.keyFile == "" {
		t.Key = c.asksForKey(ctx)
	}
	if t.Bridged = c.client.Bridges(*t, c.place, c.home); t.Bridged && c.place.Scope == clients.User {
		c.way = clients.ByFile // not all clients pass the variable on to a command
	}
	switch {
	case c.keyFile != "":
		if err := c.givenKeyFile(); err != nil {
			return err
		}
	case t.Key && c.way == clients.ByFile:
		if err := c.ownKeyFile(); err != nil {
			return err
		}
	}
	if !c.client.Commanded(*t) {
		return nil
	}
	return c.bridge()
}

// bridge sets what an entry needs that starts junction stdio.
func (c *connector) bridge() (err error) {
	t := &c.target
	if t.Key {
		if err := call.CheckURL(t.URL, true); err != nil { // junction stdio does not send it there
			return err
		}
	}
	if c.place.Scope == clients.Project { // others have the program elsewhere
		return nil
	}
	t.Env = c.outfit.Trust(c.place, *t)
	t.Program, err = service.Program() // the process of a client has another PATH and another folder than a shell
	return err
}

// givenKeyFile uses the file of --key-file.
func (c *connector) givenKeyFile() (err error) {
	if c.place.Scope == clients.Project {
		return cli.Usagef("--key-file is a file of yours, and the file of a project is for all who have the project; " +
			"leave out --key-file or --project")
	}
	if c.target.KeyFile, err = filepath.Abs(c.keyFile); err != nil {
		return err
	}
	text, err := revision.Read(c.keyFile)
	if err != nil {
		return fmt.Errorf("cannot read --key-file %s: %w; write the key into it first", c.keyFile, files.Reason(err))
	}
	if err := c.checkKey(text); err != nil {
		return fmt.Errorf("--key-file %s: %w", c.keyFile, err)
	}
	c.target.Key, c.way = true, clients.ByFile
	return nil
}

// ownKeyFile uses a file of Junction's, and the key that Connect writes there.
func (c *connector) ownKeyFile() (err error) {
	t := &c.target
	t.KeyFile = c.outfit.Records.KeyFile(c.client, t.URL)
	if t.Secret, err = c.secret(); err != nil {
		return err
	}
	if _, lacks := os.Stat(t.KeyFile); lacks != nil && t.Secret == "" && c.typed == nil {
		return fmt.Errorf("%s needs an API key of Junction, and there is no terminal to ask for it; run this "+
			"command again with the key in %s: %s; %s; nothing was changed", c.client.Name, clients.KeyVariable,
			c.command("connect"), c.toMakeKey())
	}
	if text, err := revision.Read(t.KeyFile); err == nil && t.Secret == "" && c.checkKey(text) != nil {
		return fmt.Errorf("the key in %s is not accepted by Junction: %w; run this command again with the new key "+
			"in %s: %s; nothing was changed", c.home.Short(t.KeyFile), c.checkKey(text), clients.KeyVariable,
			c.command("connect"))
	}
	return nil
}

// checkKey returns an error unless the content of a file is an API key that Junction accepts.
func (c *connector) checkKey(text []byte) error {
	return call.CheckKey(c.known(), strings.TrimSpace(string(text)))
}

// known returns the configuration, if it has the keys of the endpoint; nil for a Junction elsewhere.
func (c *connector) known() *config.Config {
	if c.elsewhere() {
		return nil
	}
	return c.config
}

// elsewhere reports whether the URL may be that of another Junction than the one of the configuration: that of a
// colleague, whose address may be the default one.
func (c *connector) elsewhere() bool {
	return c.url != "" && (len(c.config.Auth.APIKeys) == 0 || !slices.Contains(ownURLs(c.config, c.file), c.url))
}

// secret returns the API key that Connect writes to a file: that of the environment, that in the client's own
// entry, or the one that a person types. "" means that there is none, or that the file has one already.
func (c *connector) secret() (string, error) {
	if key := strings.TrimSpace(os.Getenv(clients.KeyVariable)); key != "" {
		if err := call.CheckKey(c.known(), key); err != nil {
			return "", fmt.Errorf("%s: %w", clients.KeyVariable, err)
		}
		return key, nil
	}
	has := c.target
	if c.known() == nil { // the key of another Junction is not for this URL
		has.Own = []string{has.URL}
	}
	if key := c.outfit.LiteralKey(c.place, has); key != "" && call.CheckKey(c.known(), key) == nil {
		return key, nil
	}
	if text, err := revision.Read(c.target.KeyFile); err == nil && c.checkKey(text) == nil {
		return "", nil
	}
	if c.typed == nil || c.typed.asked {
		return c.typedBefore(), nil
	}
	c.typed.asked = true
	for {
		key, err := c.typed.hidden(c.client.Name + " starts from the desktop, where a program does not see the " +
			"variables of a shell.\nThe API key of Junction for it; Enter leaves it for later:")
		if err != nil || key == "" {
			return "", err
		}
		if err := call.CheckKey(c.known(), key); err != nil {
			cli.Tellf(c.stderr, "%v\n", err)
			continue
		}
		c.typed.key = key
		return key, nil
	}
}

func (c *connector) typedBefore() string {
	if c.typed == nil {
		return ""
	}
	return c.typed.key
}

// asksForKey reports whether the endpoint rejects a request without an API key, and offers no sign-in. The
// request has no credential. If nothing answers, the configuration and the environment decide.
func (c *connector) asksForKey(ctx context.Context) bool {
	a := c.ask(ctx, "")
	if a.Verdict == call.Unreached {
		return c.target.Key || os.Getenv(clients.KeyVariable) != ""
	}
	return a.Verdict == call.NeedsKey
}

// keyNotes returns the sentences about the way of the API key, and why it is that way.
func (c *connector) keyNotes(done *clients.Done) (notes []string) {
	if !c.target.Key {
		return nil
	}
	name, variable := c.client.Name, clients.KeyVariable
	file := c.home.Short(c.target.KeyFile)
	switch {
	case c.way == clients.ByInput:
		notes = append(notes, "API key: "+name+" asks for it when it starts the server, and keeps it encrypted. "+
			"Its file has no key. A program of the desktop does not see "+variable+" of a shell.")
		if c.key == "" {
			notes = append(notes, "The key was not checked: with the key in "+variable+", this command checks it: "+
				c.command("connect"))
		}
	case c.keyFile != "":
		notes = append(notes, "API key: "+name+" starts junction stdio, which reads the key from "+file+".")
		if files.Readable(c.target.KeyFile) {
			notes = append(notes, "Other users of this machine can read the key; run: chmod 600 "+file)
		}
	case c.way == clients.ByFile:
		notes = append(notes, "API key: "+name+" starts junction stdio, which reads the key from "+file+
			". A program of the desktop does not see "+variable+" of a shell.")
		if _, err := os.Stat(c.target.KeyFile); done.Stored {
			notes = append(notes, "The key was written to that file, which only you can read.")
		} else if err != nil {
			notes = append(notes, "That file does not exist yet. Run this command again with the key in "+variable+
				", and it writes the file: "+c.command("connect")+"; "+c.toMakeKey())
		}
	case c.place.Scope == clients.Project:
		notes = append(notes, "API key: each user of the project sets the variable "+variable+" where "+name+
			" starts. The file of a project may be committed, so it has no key.")
	default:
		notes = append(notes, "API key: "+name+" starts in a shell, and reads it from the variable "+variable+
			". Its file has no key.")
		set := "Set " + variable + " in the profile of your shell to your key"
		if os.Getenv(variable) == "" {
			set += "; " + c.toMakeKey()
		}
		notes = append(notes, set)
	}
	if err := call.CheckURL(c.target.URL, true); err != nil {
		notes = append(notes, "The URL is not https: the key crosses the network in plain text.")
	}
	return notes
}

// toMakeKey says how a person gets an API key.
func (c *connector) toMakeKey() string {
	if c.known() == nil {
		return "ask the operator of Junction for a key"
	}
	return "to make a key: " + config.Command(c.file, "keys", "create", "NAME", "--write")
}

// trustNotes returns the sentences about the certificates that the client will trust.
func (c *connector) trustNotes() (notes []string) {
	for _, name := range slices.Sorted(maps.Keys(c.target.Env)) {
		notes = append(notes, fmt.Sprintf("The entry sets %s to %s, because a command that a client starts does not "+
			"see all variables of a shell.", name, c.home.Short(c.target.Env[name])))
	}
	return append(notes, c.client.TrustNotes(c.target, os.LookupEnv)...)
}

// command returns a command line of junction about the client.
func (c *connector) command(what string) string {
	words := []string{what, c.client.ID}
	if c.url != "" {
		words = append(words, "--url", c.url)
	}
	if c.project != "" {
		words = append(words, "--project", c.project)
	}
	return config.Command(c.file, words...)
}

// keyPlan returns the lines, for a person who chooses clients, about how each of them gets the API key.
func keyPlan(found []*clients.Client) (lines []string) {
	reasons := map[clients.KeyWay]string{
		clients.ByVariable: "from the variable " + clients.KeyVariable + " of a shell",
		clients.ByInput:    "by a question of the client, which keeps the answer encrypted",
		clients.ByFile: "by junction stdio from a file that only you can read, because a program of the desktop does " +
			"not see the variables of a shell",
	}
	for _, way := range []clients.KeyWay{clients.ByVariable, clients.ByInput, clients.ByFile} {
		var of []*clients.Client
		for _, c := range found {
			if c.KeyWay(clients.User) == way {
				of = append(of, c)
			}
		}
		if len(of) > 0 {
			lines = append(lines, "  "+names(of)+": "+reasons[way])
		}
	}
	return lines
}
