package entries

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/base/yamledit"
	"junction/cmd/junction/desk/clients"
	"junction/upstream"
	"junction/upstream/prose"
)

// Editor changes the upstreams of one configuration file.
type Editor struct {
	*file
	Stdout io.Writer
	JSON   bool
	More   any           // the pack, for the output of --json
	Look   *clients.Look // what the upstream would do, for the output of --json
	Enter  func() bool   // ends the waiting for an upstream that starts: see cli.Waiting
	// Permits are folders that clients may name with the next Add, if its entry works in the folders of clients.
	Permits []string
}

// Edit reads the configuration file of a command. flag is the value of --config. With create, the
// file need not exist.
func Edit(stdout io.Writer, flag string, asJSON, create bool) (*Editor, error) {
	find := readExisting
	if create {
		find = read
	}
	f, err := find(flag)
	if err != nil {
		return nil, err
	}
	return &Editor{file: f, Stdout: stdout, JSON: asJSON}, nil
}

// Read is Edit for a command that needs a file without mistakes, and adds upstreams to it if it has
// none. The file need not exist.
func Read(stdout io.Writer, flag string, asJSON bool) (*Editor, error) {
	e, err := Edit(stdout, flag, asJSON, true)
	if err == nil {
		err = e.Usable()
	}
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Usable returns an error if the file has mistakes, other than that it has no upstreams.
func (e *Editor) Usable() error {
	ps := e.problems
	if len(ps) > 1 || len(ps) == 1 && (ps[0].Path != section || len(e.config.Upstreams) > 0) {
		return runfile.Unchanged(e.path, ps)
	}
	return nil
}

// Config returns the configuration in the file, or the defaults if there is no file.
func (e *Editor) Config() *config.Config { return e.config }

// Exists reports whether there is a configuration file.
func (e *Editor) Exists() bool { return e.text != nil }

// Adding returns the text of the file with new upstreams, and an editor of it. The error is config.Problems if
// the new text has mistakes.
func (e *Editor) Adding(list []yamledit.Entry) ([]byte, *Editor, error) {
	text, err := e.adding(list...)
	if err != nil {
		return nil, nil, err
	}
	c, err := config.Parse(e.path, text, Lookup)
	return text, &Editor{file: &file{path: e.path, home: e.home, text: text, config: c}}, err
}

// WithEndpoint returns a text of the file with a new endpoint.
func (e *Editor) WithEndpoint(text []byte, name string, upstreams []string) ([]byte, error) {
	entry := fmt.Sprintf("%s: { upstreams: [%s] }", name, strings.Join(upstreams, ", "))
	text, err := yamledit.Add(text, "endpoints", []yamledit.Entry{{Block: entry, Flow: entry}})
	if err == nil {
		_, err = config.Parse(e.path, text, Lookup)
	}
	if err != nil {
		return nil, &revision.Error{File: e.Short(), Err: err}
	}
	return text, nil
}

// Unset returns the environment variables without a value and a default that the entry of an upstream
// refers to, in the order of the entry.
func (e *Editor) Unset(name string) (variables []string) {
	lines := e.linesOf(name)
	for _, n := range slices.Sorted(maps.Keys(lines)) {
		text := strings.ReplaceAll(lines[n], "$${", "") // which is no reference
		for _, m := range reference.FindAllStringSubmatch(text, -1) {
			if m[0] != clients.FolderWord && os.Getenv(m[1]) == "" && !slices.Contains(variables, m[1]) {
				variables = append(variables, m[1])
			}
		}
	}
	return variables
}

// reference is a reference to a variable without a default.
var reference = regexp.MustCompile(`\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}`)

// Keep writes a value to a file with a secret, and has the entry of an upstream refer to the file
// instead of the variable. It returns the file, whether it is new, and the backup of the configuration.
func (e *Editor) Keep(name, variable, value string) (secret string, isNew bool, backup string, err error) {
	keep := clients.SecretsOf(e.path)
	defer func() {
		if err != nil {
			keep.Discard(nil)
		}
	}()
	path, err := keep.Store(name, variable, value)
	if err != nil {
		return "", false, "", err
	}
	lines := strings.SplitAfter(string(e.text), "\n")
	for n, line := range e.linesOf(name) {
		for _, form := range []string{"${" + variable + "}", "${env:" + variable + "}"} {
			line = strings.ReplaceAll(line, form, "${file:"+path+"}")
		}
		lines[n] = line
	}
	text := []byte(strings.Join(lines, ""))
	filled := func(asked string) (string, bool) {
		if asked == variable {
			return value, true
		}
		return Lookup(asked)
	}
	want, _ := config.Parse(e.path, e.text, filled)
	is, _ := config.Parse(e.path, text, Lookup)
	if want == nil || is == nil || !sameValues(want.Upstreams[name], is.Upstreams[name]) {
		return "", false, "", fmt.Errorf("cannot put %s into %s: the entry %s would mean something else; set it where "+
			"junction starts", variable, e.Short(), name)
	}
	if backup, err = e.Replace(text, name); err != nil {
		return "", false, "", err
	}
	return filepath.Join(filepath.Dir(e.path), filepath.FromSlash(path)), len(keep.Created()) > 0, backup, nil
}

// sameValues reports whether two upstreams have the same values that may have references.
func sameValues(a, b upstream.Config) bool {
	return slices.Equal(a.Command, b.Command) && a.URL == b.URL && a.Dir == b.Dir && maps.Equal(a.Env, b.Env) &&
		maps.Equal(a.Headers, b.Headers)
}

// linesOf returns the lines with scalars of the entry of an upstream, by their index in the text.
func (e *Editor) linesOf(name string) map[int]string {
	all, lines := map[int]string{}, strings.SplitAfter(string(e.text), "\n")
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		if n.Kind == yaml.ScalarNode && n.Line > 0 && n.Line <= len(lines) {
			all[n.Line-1] = lines[n.Line-1]
		}
		for _, inner := range n.Content {
			walk(inner)
		}
	}
	its := e.section().Content
	for i := 0; i+1 < len(its); i += 2 {
		if its[i].Value == name {
			walk(its[i+1])
		}
	}
	return all
}

// Comments returns the last line of the comment above each upstream, by the name of the upstream.
func (e *Editor) Comments() map[string]string {
	all, its := map[string]string{}, e.section().Content
	for i := 0; i+1 < len(its); i += 2 {
		comment := its[i].HeadComment
		line := comment[strings.LastIndexByte(comment, '\n')+1:]
		all[its[i].Value] = strings.TrimSpace(strings.TrimPrefix(line, "#"))
	}
	return all
}

// Path returns the path of the file.
func (e *Editor) Path() string { return e.path }

// A PackEntry is an upstream with a pack.
type PackEntry struct {
	Name, Pack string // Pack is an absolute path
	Enabled    bool
	Mistakes   []string // of the entry
}

// Packs returns the upstreams with a pack, in the order of the file.
func (e *Editor) Packs() (all []PackEntry) {
	for _, l := range e.list() {
		if pack := e.config.Packs[l.Name]; pack != "" {
			all = append(all, PackEntry{l.Name, pack, l.Enabled, l.Mistakes})
		}
	}
	return all
}

// Command returns a command line of junction about the file.
func (e *Editor) Command(words ...string) string { return config.Command(e.path, words...) }

// Free returns an error if the file has an upstream of that name.
func (e *Editor) Free(name string) error {
	if _, taken := e.config.Upstreams[name]; taken {
		return fmt.Errorf("%s has an upstream %s already; choose another name, or run first: %s",
			e.Short(), name, e.Command("remove", name))
	}
	return nil
}

// Add adds an upstream, and prints the outcome. about describes the entry in a word or two; next is
// the next step for the user, or "".
func (e *Editor) Add(ctx context.Context, name string, entry *clients.Entry, about string, notes []string,
	next string) (err error) {
	keep := clients.SecretsOf(e.path)
	defer func() {
		if err != nil {
			keep.Discard(e.text) // the file may have the entry, and the output failed
		}
	}()
	o := outcome{Upstreams: []string{name}, Changed: true, Notes: notes, Next: next}
	err = e.again(func() error {
		if err := e.Free(name); err != nil {
			return err
		}
		text, err := e.with(name, entry, keep)
		if err == nil {
			o.Backup, err = e.Replace(text, name)
		}
		return err
	})
	if err != nil {
		return err
	}
	o.Secrets = keep.Created()
	o.Notes = append(o.Notes, leftOut(e.config, name)...)
	o.Notes = append(o.Notes, e.warned(name)...)
	if _, text := Permit(ctx, e.config, e.path, &e.home, e.Permits, entry); text != "" {
		o.Notes = append(o.Notes, text)
	}
	for _, variable := range entry.Variables() {
		if os.Getenv(variable) == "" {
			o.Variables = append(o.Variables, variable)
		}
	}
	said := fmt.Sprintf("Added %s to %s: %s", name, e.Short(), about)
	if entry.Off {
		said += ", disabled"
	}
	return e.print(ctx, &o, said+".")
}

// warned returns the warnings of junction check about an upstream, without those that its state shows.
func (e *Editor) warned(name string) (notes []string) {
	_, warnings, _ := config.Load(e.path, Lookup) // Replace has refused a file with new mistakes
	lasting, _ := config.Lasting(warnings)
	at := section + "." + name
	for _, p := range lasting {
		if p.Path == at || strings.HasPrefix(p.Path, at+".") {
			notes = append(notes, "Warning: "+p.Text+".")
		}
	}
	return notes
}

// Remove removes upstreams in one step, and prints the outcome.
func (e *Editor) Remove(ctx context.Context, names ...string) (err error) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	var removed []clients.Known
	var before config.Problems
	o := outcome{Upstreams: names, Changed: true}
	err = e.again(func() (err error) {
		text := e.text
		removed, o.Unused = nil, nil
		for _, name := range names {
			if err := e.Has(name); err != nil {
				return err
			}
			if text, err = yamledit.Remove(text, section, name); err != nil {
				return &revision.Error{File: e.Short(), Err: err}
			}
			removed = append(removed, e.known(name, e.Comments()[name]))
		}
		for _, name := range names {
			for _, file := range e.unused(name, text) {
				if !slices.Contains(o.Unused, file) {
					o.Unused = append(o.Unused, file)
				}
			}
		}
		before = config.Unmatched(e.path, os.LookupEnv)
		o.Backup, err = e.Replace(text, names...)
		return err
	})
	if err != nil {
		return err
	}
	o.Notes = append(o.Notes, stillNamed(before, config.Unmatched(e.path, os.LookupEnv))...)
	if w, err := Withdrawals(e.path); err == nil {
		for i := range removed {
			_ = w.Add(&removed[i]) // else import and setup offer it again
		}
	}
	return e.print(ctx, &o, fmt.Sprintf("Removed %s from %s.", strings.Join(names, ", "), e.Short()))
}

// stillNamed returns a sentence for the places of policies and endpoints that have had an effect before upstreams
// were removed, and have none now.
func stillNamed(before, now config.Problems) []string {
	text := ""
	for _, p := range now {
		old := func(b config.Problem) bool { return b.Path == p.Path && b.Text == p.Text }
		if !slices.ContainsFunc(before, old) {
			text += "\n  " + prose.Tilde(p.String())
		}
	}
	if text == "" {
		return nil
	}
	return []string{"These lines of the file have lost their effect; correct or remove them:" + text}
}

// Switch enables or disables upstreams in one step, and prints the outcome.
func (e *Editor) Switch(ctx context.Context, on bool, names ...string) (err error) {
	verb := "disable"
	if on {
		verb = "enable"
	}
	var switched, already []string
	var backup string
	err = e.again(func() (err error) {
		text := e.text
		switched, already = nil, nil
		for _, name := range names {
			switch err := e.Has(name); {
			case err != nil:
				return err
			case slices.Contains(switched, name) || slices.Contains(already, name):
			case e.config.Upstreams[name].Off() == !on:
				already = append(already, name)
			default:
				if text, err = e.switched(text, name, on); err != nil {
					return &revision.Error{File: e.Short(), Err: err}
				}
				switched = append(switched, name)
			}
		}
		if len(switched) > 0 {
			backup, err = e.Replace(text, switched...)
		}
		return err
	})
	if err != nil {
		return err
	}
	var said []string
	o := outcome{Upstreams: append(slices.Clone(switched), already...), Changed: len(switched) > 0, Backup: backup}
	if o.Changed {
		said = append(said, fmt.Sprintf("%s%sd %s in %s.", strings.ToUpper(verb[:1]), verb[1:],
			strings.Join(switched, ", "), e.Short()))
	}
	for _, name := range already {
		said = append(said, fmt.Sprintf("%s is already %sd in %s.", name, verb, e.Short()))
	}
	return e.print(ctx, &o, strings.Join(said, " "))
}

// SetPack replaces the pack of an upstream, and prints the outcome after the sentence said.
func (e *Editor) SetPack(ctx context.Context, name, pack, said string) error {
	text, err := yamledit.Set(e.text, section, name, "pack", pack)
	if err != nil {
		return &revision.Error{File: e.Short(), Err: err}
	}
	return e.changed(ctx, name, text, said)
}

// A Change is a change of one upstream that was checked, and is not written yet.
type Change struct {
	file *file
	name string
	text []byte
	said string
}

// SetAuth returns the change that sets auth of an upstream without it.
func SetAuth(flag, name string, mode upstream.AuthMode) (*Change, error) {
	f, err := readExisting(flag)
	if err != nil {
		return nil, err
	}
	value := "{ mode: " + string(mode) + " }"
	text, err := yamledit.Set(f.text, section, name, "auth", value)
	if err != nil {
		return nil, &revision.Error{File: f.Short(), Err: err}
	}
	if _, _, err := f.check(text, []string{name}); err != nil {
		return nil, err
	}
	return &Change{f, name, text, fmt.Sprintf("Added auth: %s to %s in %s.", value, name, f.Short())}, nil
}

// Make writes the change, and returns the sentences about it.
func (c *Change) Make(ctx context.Context) (string, error) {
	backup, err := c.file.Replace(c.text, c.name)
	if err != nil {
		return "", err
	}
	s := Follow(ctx, c.file.path, c.name)
	if s.Reload != "" {
		s.Next = s.Refused()
	} else if text := s.Results(ctx); text != "" {
		s.Next += "\n" + text
	}
	return Lines(c.said+" Backup: "+c.file.home.Short(backup)+".", s.Next), nil
}

// changed replaces the text of the file, and prints the outcome after the sentence said.
func (e *Editor) changed(ctx context.Context, name string, text []byte, said string) (err error) {
	o := outcome{Upstreams: []string{name}, Changed: true}
	if o.Backup, err = e.Replace(text, name); err != nil {
		return err
	}
	return e.print(ctx, &o, said)
}

func (e *Editor) print(ctx context.Context, o *outcome, said string) error {
	o.Pack, o.Look, o.enter = e.More, e.Look, e.Enter
	return o.print(ctx, e.Stdout, e.file, e.JSON, said)
}

// UseEnv reads values of --env into an entry: NAME=VALUE, or NAME for a variable of Junction.
func UseEnv(g *clients.Given, pairs []string) error {
	g.Env = map[string]string{}
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			value = "${" + name + "}"
		}
		if name == "" {
			return cli.Usagef("--env needs NAME=VALUE, or NAME for a variable of Junction")
		}
		g.Env[name] = value
	}
	return nil
}

// Review shows a person what would run, and asks the question, unless yes is true. Without a terminal
// and without yes it returns an error. Together with JSON, the text goes to standard error.
func Review(cmd *cobra.Command, stdout io.Writer, asJSON, yes bool, text, question string) error {
	out := stdout
	if asJSON || !yes && cli.CanAsk(cmd) && !cli.IsTerminal(stdout) { // the person has to see it
		out = cmd.ErrOrStderr()
	}
	if !asJSON || !yes && cli.CanAsk(cmd) {
		if err := cli.Tell(out, text); err != nil {
			return err
		}
	}
	return Confirm(cmd, yes, question)
}

// Confirm asks whether to do what was shown. Without a terminal and without yes it returns an error.
func Confirm(cmd *cobra.Command, yes bool, question string) error {
	if !yes && !cli.CanAsk(cmd) {
		return errors.New("nothing was written: the question needs a terminal; look at what would run, and give " +
			"--yes to the same command")
	}
	return cli.Confirm(cmd, yes, question)
}

// Entry returns an entry for the values that a user has given.
func (e *Editor) Entry(g clients.Given) (*clients.Entry, error) { return g.Entry(e.home, e.path) }
