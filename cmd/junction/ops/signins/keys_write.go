package signins

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"junction/auth"
	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/base/yamledit"
	"junction/cmd/junction/ops/admin"
	"junction/upstream/prose"
)

// keyFile is a configuration file whose keys a command changes.
type keyFile struct {
	path     string
	text     []byte
	config   *config.Config // the readable part
	problems config.Problems
	keys     []keyJSON
}

// readKeyFile reads a file. Mistakes in the file are not errors. what is the command, for messages.
func readKeyFile(what, path string) (*keyFile, error) {
	if path == "" {
		return nil, admin.NeedsFile(what)
	}
	text, err := revision.Read(path)
	if err != nil {
		return nil, &revision.Error{File: path, Err: err}
	}
	return parseKeys(path, text)
}

// mistaken returns why a file with mistakes cannot be edited.
func (f *keyFile) mistaken(wrong config.Problems) error {
	return fmt.Errorf("nothing was changed, because the file has a mistake: %s", config.First(f.path, wrong))
}

func parseKeys(path string, text []byte) (*keyFile, error) {
	c, err := config.Parse(path, text, os.LookupEnv)
	problems, ok := errors.AsType[config.Problems](err)
	if err != nil && !ok {
		return nil, err
	}
	f := &keyFile{path: path, text: text, config: c, problems: problems}
	for _, k := range c.Auth.APIKeys {
		f.keys = append(f.keys, keyJSON{Name: k.Name, ID: k.Hash.ID(), Hash: k.Hash.String()})
	}
	return f, nil
}

// replace writes the new text, if its keys are the wanted ones and nothing else has changed, and if it has no new
// mistakes. Of the old mistakes, only those that block one upstream may remain when a key is added. It returns the
// path of the backup; "" if there was no space for one.
func (f *keyFile) replace(text []byte, want []keyJSON) (backup string, err error) {
	is, err := parseKeys(f.path, text)
	if err != nil {
		return "", err
	}
	mended := func(p config.Problem) bool { return !has(is.problems, p) }
	stay := slices.DeleteFunc(f.config.Rejecting(f.problems), mended)
	if adds := len(want) > len(f.keys); adds && len(stay) > 0 {
		return "", f.mistaken(stay)
	}
	for _, p := range is.problems {
		if !has(f.problems, p) {
			return "", fmt.Errorf("%s was not changed: %s", f.path, strings.TrimPrefix(p.Path+": "+p.Text, ": "))
		}
	}
	inOrder := func(a, b keyJSON) int { return strings.Compare(a.Name+" "+a.Hash, b.Name+" "+b.Hash) }
	same := slices.EqualFunc(slices.SortedFunc(slices.Values(is.keys), inOrder),
		slices.SortedFunc(slices.Values(want), inOrder),
		func(a, b keyJSON) bool { return a.Name == b.Name && a.Hash == b.Hash })
	if !same || !reflect.DeepEqual(withoutKeys(f.config), withoutKeys(is.config)) {
		return "", fmt.Errorf("%s was not changed: the change would affect more than the key; edit the file by "+
			"hand", f.path)
	}
	write := revision.Revise
	if len(want) < len(f.keys) { // what revokes a key does not wait for space
		write = revision.Urge
	}
	if backup, err = write(f.path, f.text, text); err != nil {
		return "", &revision.Error{File: f.path, Err: err}
	}
	return backup, nil
}

// has reports whether a file has a mistake of another content of it.
func has(list config.Problems, p config.Problem) bool {
	return slices.ContainsFunc(list, func(q config.Problem) bool {
		return keyIndex.ReplaceAllString(q.Path, "") == keyIndex.ReplaceAllString(p.Path, "") && q.Text == p.Text
	})
}

// keyIndex matches the place of an entry of auth.api_keys, which is another one after an entry was removed.
var keyIndex = regexp.MustCompile(`^auth\.api_keys\[[0-9]+\]`)

// withoutKeys returns the configuration without what depends on the keys.
func withoutKeys(c *config.Config) config.Config {
	other := c.Stated()
	other.Auth.APIKeys = nil
	other.Upstreams = maps.Clone(c.Upstreams)
	for name, u := range other.Upstreams {
		u.Reserved, u.Separate = nil, false // depend on all references, and on the number of keys
		other.Upstreams[name] = u
	}
	return other
}

// createdJSON is the output of keys create with --json.
type createdJSON struct {
	Name   string `json:"name"`
	Key    string `json:"key"`
	Hash   string `json:"hash"`
	Entry  string `json:"entry"` // for auth.api_keys
	Config string `json:"config,omitempty"`
	Backup string `json:"backup,omitempty"`
}

// create makes a key. With write it adds the entry to the file before it prints the key.
func (k *newKey) create(ctx context.Context, stdout, stderr io.Writer, file string, made createdJSON) (err error) {
	var others []keyJSON // that have this name
	leftOut := ""        // what to do if no policy gives the key anything
	if k.write {
		var f *keyFile
		err := revision.Insist(func() (err error) {
			if f, err = readKeyFile("keys create --write", file); err == nil {
				made.Backup, err = f.add(&made)
			}
			return err
		})
		if err != nil {
			return err
		}
		made.Config = file
		for _, old := range f.keys {
			if old.Name == made.Name {
				others = append(others, old)
			}
		}
		if len(f.config.Policies.LeftOut([]string{made.Name}, f.config.Known())) > 0 {
			leftOut = fmt.Sprintf("\n# No policy gives %s a tool: name it in match.key of a policy.", made.Name) +
				joinable(file)
		}
		for _, s := range f.config.Policies.Spreads([]string{made.Name}, f.config.Known()) {
			leftOut += fmt.Sprintf("\n# %s gets %s only by the ask of the policy %s: after its own approval.\n"+
				"# To give it to fewer callers: %s", made.Name, s.Items, s.Policy, config.Command(file, "check"))
		}
	}
	if k.json {
		return cli.PrintValue(stdout, made)
	}
	if _, err := fmt.Fprintln(stdout, made.Key); err != nil {
		return fmt.Errorf("writing the key: %w", err)
	}
	said := "# The key is shown this once. Its entry, for the list\n# auth.api_keys of the configuration:\n" +
		made.Entry + "\n# Or run it again with --write: it makes another key, and\n# adds the entry to the file."
	if k.write {
		said = fmt.Sprintf("# The key is shown this once. Its entry was added to %s. Backup: %s. %s",
			prose.Tilde(file), prose.Tilde(made.Backup), admin.AwaitAdded(ctx, file, made.Hash)) + leftOut
		if len(others) > 0 {
			revoke := config.Command(file, "keys", "revoke", made.Name, "--hash", others[0].ID)
			said += fmt.Sprintf("\n# The file has %s called %s, too. When its clients have the new one, run: %s",
				prose.Count(len(others), "older key"), made.Name, revoke)
		}
	}
	_, err = io.WriteString(stderr, comments(cli.NewPage(stderr), said+"\n"))
	return err
}

// add adds a new key to the file.
func (f *keyFile) add(made *createdJSON) (backup string, err error) {
	text, err := yamledit.Append(f.text, "auth", "api_keys", strings.TrimPrefix(made.Entry, "- "))
	if err != nil {
		return "", fmt.Errorf("%s: %w", f.path, err)
	}
	return f.replace(text, append(slices.Clip(f.keys), keyJSON{Name: made.Name, Hash: made.Hash}))
}

// joinable returns a comment for each policy of a file that names API keys, with its line: a new key can join it.
func joinable(file string) string {
	text := ""
	for _, p := range config.NamingPolicies(file, os.LookupEnv) {
		text += fmt.Sprintf("\n#   %s:%d: %s", prose.Tilde(p.File), p.Line, p.Text)
	}
	return text
}

// comments returns a text for a page. On a terminal, comments of YAML are broken into several comments.
func comments(b *prose.Page, text string) string {
	for line := range strings.Lines(text) {
		if comment, ok := strings.CutPrefix(line, "# "); ok && b.Terminal > 0 {
			b.Wrap("# ", "# ", comment)
		} else {
			b.WriteString(line)
		}
	}
	return b.String()
}

// keysRevokeCommand is `junction keys revoke`.
func keysRevokeCommand(stdout io.Writer, file *string) *cobra.Command {
	var hash string
	var all, asJSON bool
	cmd := &cobra.Command{
		Use: "revoke NAME", Short: "Delete a key from the configuration file",
		Long: "Delete a key from the configuration file. Comments and order stay, and the old file becomes a " +
			"backup. A\n" +
			`revocation needs no space on a full disk: then there is no backup, and older backups of the file may go. A
running proxy ends the sessions of the key, also if the file has a mistake elsewhere. The command asks the
running proxy on this machine whether it still accepts the key. It fails if the proxy accepts the key or does not
answer. It prints the lines of the file that still name the key, such as those of policies, with what to remove.

If several keys have the same NAME, choose one with --hash, or delete them with --all.`,
		Example: `  junction keys revoke ci --config config.yaml
  junction keys revoke ci --hash 3f2a8c1e --config config.yaml`,
		ValidArgsFunction: completeKeys(file),
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 1 && auth.HoldsKey(args[0]):
				return cli.Usagef("keys revoke takes the name of the key in the file, not the key itself")
			case len(args) != 1:
				return cli.Usagef("keys revoke needs the name of one key; junction keys list shows them")
			case all && hash != "":
				return cli.Usagef("give --hash or --all, not both")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := deletion{*file, args[0], hash, all}.make(cmd.Context())
			switch {
			case asJSON && r != nil:
				return errors.Join(err, cli.PrintValue(stdout, r))
			case err != nil:
				return err
			}
			return cli.Tellf(stdout, "%s\n", r)
		},
	}
	cmd.Flags().StringVar(&hash, "hash", "", "the beginning of the `hash` of one of several keys: the ID in junction "+
		"keys list")
	cmd.Flags().BoolVar(&all, "all", false, "all keys of this name")
	cli.JSONFlag(cmd, &asJSON)
	return cmd
}

// A revocation is the result of junction keys revoke.
type revocation struct {
	Name    string   `json:"name"`
	Revoked []string `json:"revoked"` // hashes
	Config  string   `json:"config"`
	Backup  string   `json:"backup"`  // "" if the disk is full
	Running bool     `json:"running"` // a junction on this machine serves the file
	Refused bool     `json:"refused"` // and does not accept the keys any more
	// sentences about what of the file is not in force
	Unfollowed []string `json:"unfollowed,omitempty"`
	// the places of the file that still name the key, with what to remove
	Named config.Problems `json:"named,omitempty"`
}

// A deletion says which keys junction keys revoke deletes.
type deletion struct {
	file, name, hash string
	all              bool
}

// make deletes the keys from the file, and waits for a running junction. If that still accepts a key or does not
// answer, make returns the result and an error. The result is nil if the file is as it was.
func (d deletion) make(ctx context.Context) (*revocation, error) {
	r := &revocation{Name: d.name, Config: d.file}
	err := revision.Insist(func() error {
		f, err := readKeyFile("keys revoke", d.file)
		if err != nil {
			return err
		}
		chosen, err := d.choose(f)
		if err != nil {
			return err
		}
		r.Revoked = []string{}
		for _, i := range chosen {
			r.Revoked = append(r.Revoked, f.keys[i].Hash)
		}
		r.Backup, err = f.remove(chosen)
		return err
	})
	if err != nil {
		return nil, err
	}
	r.Named = config.NamingKey(d.file, d.name, os.LookupEnv)
	r.Running, r.Unfollowed, err = admin.AwaitRevoked(ctx, d.file, r.Revoked)
	r.Refused = r.Running && err == nil
	if _, _, left, unread := config.LoadKeys(d.file); unread == nil && !r.Running && len(left) > 0 {
		r.Unfollowed = append(r.Unfollowed, "The file has a mistake, and Junction does not start with it: "+
			config.First(d.file, left))
	}
	if err != nil {
		err = fmt.Errorf("%s of %s was deleted from %s (%s), but %w", prose.Count(len(r.Revoked), "key"), d.name,
			d.file, r.kept(), err)
	}
	return r, err
}

// choose returns the indexes of the keys to delete. Mistakes elsewhere in the file do not count.
func (d deletion) choose(f *keyFile) ([]int, error) {
	chosen, err := f.choose(d.name, d.hash, d.all)
	named := func(k keyJSON) bool { return k.Name == d.name }
	unread := func(i int) bool { return f.keys[i].Hash == auth.Hash{}.String() } // which key it is, is not known
	wrong := f.config.Rejecting(f.problems)
	if len(wrong) > 0 && (!slices.ContainsFunc(f.keys, named) || slices.ContainsFunc(chosen, unread)) {
		return nil, fmt.Errorf("%w; Junction still accepts the keys of %s", f.mistaken(wrong), d.name)
	}
	return chosen, err
}

// kept says where the old file is.
func (r *revocation) kept() string {
	if r.Backup == "" {
		return "There is no backup, because the disk is full"
	}
	return "Backup: " + prose.Tilde(r.Backup)
}

func (r *revocation) String() string {
	text := fmt.Sprintf("Revoked: %s of %s in %s. %s. ", prose.Count(len(r.Revoked), "key"), r.Name,
		prose.Tilde(r.Config), r.kept())
	if r.Running {
		text += "The running junction does not accept it any more."
	} else {
		text += admin.Elsewhere
	}
	for _, line := range r.Unfollowed {
		text += "\n" + line
	}
	if len(r.Named) > 0 {
		text += fmt.Sprintf("\nThe file still names %s. If %[1]s gets a new key, leave these lines, and run: %s\n"+
			"If %[1]s leaves:", r.Name, config.Command(r.Config, "keys", "create", r.Name, "--write"))
	}
	for _, p := range r.Named {
		text += "\n  " + prose.Tilde(p.String())
	}
	return text
}

// choose returns the indexes of the keys to revoke.
func (f *keyFile) choose(name, hash string, all bool) ([]int, error) {
	const hashed = "sha256:"
	digits := strings.ToLower(strings.TrimPrefix(hash, hashed))
	var names, shown []string
	var found []int
	for i, k := range f.keys {
		if names = append(names, k.Name); k.Name != name {
			continue
		}
		if shown = append(shown, k.ID); strings.HasPrefix(strings.TrimPrefix(k.Hash, hashed), digits) {
			found = append(found, i)
		}
	}
	switch {
	case len(shown) == 0:
		if near := prose.Closest(names, name); len(near) > 0 {
			return nil, fmt.Errorf("%s has no key called %s; did you mean %s?", f.path, prose.Quote(name), near[0])
		}
		return nil, fmt.Errorf("%s has no key called %s", f.path, prose.Quote(name))
	case len(found) == 0:
		return nil, fmt.Errorf("%s has no key %s with this hash; it has %s", f.path, prose.Quote(name),
			strings.Join(shown, ", "))
	case len(found) > 1 && !all:
		return nil, fmt.Errorf("%s has %d keys called %s: %s; choose one with --hash, or use --all", f.path, len(found),
			prose.Quote(name), strings.Join(shown, ", "))
	case len(found) == len(f.keys) && !f.config.Auth.SignsIn():
		return nil, fmt.Errorf("%s would have no key left, and every user of this machine could use Junction; "+
			"create another key first: %s", f.path, config.Command(f.path, "keys", "create", "NAME", "--write"))
	}
	return found, nil
}

// remove deletes keys from the file.
func (f *keyFile) remove(chosen []int) (backup string, err error) {
	text, left := f.text, slices.Clone(f.keys)
	for _, i := range slices.Backward(chosen) { // the indexes of the others stay
		if text, err = yamledit.RemoveElement(text, "auth", "api_keys", i); err != nil {
			return "", fmt.Errorf("%s: %w", f.path, err)
		}
		left = slices.Delete(left, i, i+1)
	}
	return f.replace(text, left)
}

// completeKeys proposes the names of keys.
func completeKeys(file *string) cli.Completion {
	return func(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		var names []string
		if f, err := readKeyFile("", *file); err == nil && len(args) == 0 {
			for _, k := range f.keys {
				if strings.HasPrefix(k.Name, word) && !slices.Contains(names, k.Name) {
					names = append(names, k.Name)
				}
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
