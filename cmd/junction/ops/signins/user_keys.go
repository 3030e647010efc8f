package signins

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"junction/auth"
	"junction/auth/credentials"
	"junction/auth/store"
	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/upstream/prose"
	"junction/upstream/shell"
)

// maxInput bounds the key that is read, which is checked after that.
const maxInput = 8 << 10

// keyOf is `junction users key`.
func (x *signIns) keyOf(stdin io.Reader) *cobra.Command {
	var list, drop bool
	cmd := &cobra.Command{
		Use:   "key {NAME UPSTREAM | --delete NAME UPSTREAM | --list}",
		Short: "Set the key of a caller for an upstream",
		Long: `Set the key with which a caller uses an upstream that has the mode ` + keyMode() + `. The key is read
from standard input, and stored encrypted. Users can also give it on the account page; for API keys, this command
is the only way.

NAME is the name of an API key in the configuration file, or a user: an e-mail address, a subject, or an id of users
list. key:NAME is always an API key.`,
		Example: `  junction users key ci linear --config config.yaml < key.txt
  junction users key --list --config config.yaml
  junction users key --delete ci linear --config config.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case list && drop:
				return cli.Usagef("--list and --delete exclude each other")
			case list && len(args) > 0:
				return cli.Usagef("users key --list takes no arguments")
			case !list && (len(args) != 2 || slices.Contains(args, "")):
				return cli.Usagef("users key needs the name of an API key or a user, and the name of an upstream")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.CheckOutput(x.output); err != nil {
				return err
			}
			c, err := storingConfig("users key", *x.file)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), StorageLimit)
			defer cancel()
			s, err := openStored(ctx, c)
			if err != nil {
				return err
			}
			switch {
			case list:
				err = x.listKeys(ctx, c, s)
			case drop:
				err = x.deleteKey(ctx, s, args[0], args[1])
			default:
				err = x.setKey(ctx, c, s, stdin, args[0], args[1])
			}
			return errors.Join(err, s.Close())
		},
	}
	cmd.Flags().BoolVar(&list, "list", false, "list who has a key, without the keys")
	cmd.Flags().BoolVar(&drop, "delete", false, "delete the key")
	cli.OutputFlag(cmd, &x.output)
	return cmd
}

// keyMode returns the word of the mode in which callers have keys of their own.
func keyMode() string { return credentials.KeyMode.String() }

// holder returns the user and the principal that a name means.
func (s *storage) holder(ctx context.Context, c *config.Config, name string) (
	u store.User, principal string, err error,
) {
	bare, isKey := strings.CutPrefix(name, "key:")
	known := slices.ContainsFunc(c.Auth.APIKeys, func(k auth.Key) bool { return k.Name == bare })
	person, noPerson := s.person(name)
	switch {
	case isKey && !known:
		return u, "", fmt.Errorf("the file has no API key called %s", prose.Quote(bare))
	case known && !isKey && noPerson == nil:
		return u, "", fmt.Errorf("%s is an API key and a user; write key:%[1]s, or the id of the user", name)
	case known:
		u, err = s.Holder(ctx, "key:"+bare)
		return u, "key:" + bare, err
	case noPerson != nil:
		return u, "", fmt.Errorf("the file has no API key called %s, and %w", prose.Quote(name), noPerson)
	}
	return person, auth.UserID(person.Issuer, person.Subject), nil
}

type givenKeyJSON struct {
	Principal string `json:"principal"`
	Name      string `json:"name"`
	Upstream  string `json:"upstream"`
	At        string `json:"at"` // the origin or the program that gets the key
	Since     string `json:"since"`
	Note      string `json:"note,omitempty"` // why it is not used
}

// setKey stores the key that standard input has.
func (x *signIns) setKey(
	ctx context.Context, c *config.Config, s *storage, stdin io.Reader, name, upstream string,
) error {
	entry, there := c.Upstreams[upstream]
	origin := credentials.KeyOrigin(entry)
	switch {
	case !there:
		return fmt.Errorf("the file has no upstream %s", prose.Quote(upstream))
	case origin == "":
		return fmt.Errorf("callers have no keys of their own for %s; set upstreams.%[1]s.auth.mode: %s", upstream,
			keyMode())
	}
	u, principal, err := s.holder(ctx, c, name)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(stdin, maxInput))
	if err != nil {
		return fmt.Errorf("read the key from standard input: %w", err)
	}
	key, err := credentials.CheckKey(string(text))
	if err != nil {
		return fmt.Errorf("the key on standard input is not stored: %w", err)
	}
	k := credentials.Connection(upstream, origin, key, u.ID, principal)
	err = s.PutConnection(ctx, k)
	if errors.Is(err, store.ErrRevoked) {
		return fmt.Errorf("%s is disabled", name)
	}
	if err == nil {
		err = s.Audit(ctx, store.Event{Event: "upstream_connected", Principal: u.ID,
			Detail: keyDetail(upstream, principal)})
	}
	if err != nil {
		return err
	}
	return x.print(givenKeyJSON{Principal: principal, Name: s.nameOf(k), Upstream: upstream, At: keyAt(origin)},
		fmt.Sprintf("Stored: the key of %s for %s, which %s gets. The next call uses it.\n", shell.Visible(name),
			upstream, shell.Visible(keyAt(origin))))
}

// keyAt returns what gets a key with that Resource: an origin, or a program.
func keyAt(resource string) string {
	if program, runs := store.KeyPlace(resource); runs {
		return program
	}
	return resource
}

// keyDetail is the detail of an event about a key.
func keyDetail(upstream, principal string) []byte {
	return fmt.Appendf(nil, `{"detail":%q}`, upstream+", the key of "+principal+", by the operator")
}

// nameOf returns who has a key, for people.
func (s *storage) nameOf(k store.Connection) string {
	if u, person := s.people[k.User]; person {
		return label(u)
	}
	return strings.TrimPrefix(k.Principal, "key:")
}

// deleteKey deletes a key, also one whose upstream or API key is no longer in the file.
func (x *signIns) deleteKey(ctx context.Context, s *storage, name, upstream string) error {
	all, err := s.GivenKeys(ctx)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(k store.Connection) bool { return k.Upstream != upstream })
	fits := func(k store.Connection) (exactly, partly bool) {
		return k.Principal == name, k.Principal == "key:"+name || s.nameOf(k) == name || k.User == name
	}
	k, found, err := choose(all, name, "keys; give the principal of one", fits,
		func(k store.Connection) string { return k.Principal })
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("%s has no key for %s; list the keys with junction users key --list", prose.Quote(name),
			upstream)
	}
	if _, err = s.DeleteConnection(ctx, upstream, k.User); err == nil {
		err = s.Audit(ctx, store.Event{Event: "upstream_disconnected", Principal: k.User,
			Detail: keyDetail(upstream, k.Principal)})
	}
	if err != nil {
		return err
	}
	deleted := givenKeyJSON{k.Principal, s.nameOf(k), upstream, keyAt(k.Resource), stamp(k.Created), ""}
	return x.print(deleted, fmt.Sprintf("Deleted: the key of %s for %s. No further call uses it.\n",
		shell.Visible(s.nameOf(k)), upstream))
}

// listKeys lists who has a key.
func (x *signIns) listKeys(ctx context.Context, c *config.Config, s *storage) error {
	all, err := s.GivenKeys(ctx)
	if err != nil {
		return err
	}
	var list []givenKeyJSON
	for _, k := range all {
		j := givenKeyJSON{k.Principal, s.nameOf(k), k.Upstream, keyAt(k.Resource), stamp(k.Created), ""}
		bare, isKey := strings.CutPrefix(k.Principal, "key:")
		switch entry, there := c.Upstreams[k.Upstream]; {
		case !there:
			j.Note = "the file has no such upstream"
			if !k.Expires.IsZero() {
				j.Note += "; Junction deletes the key on " + k.Expires.UTC().Format(time.DateOnly)
			}
		case credentials.KeyOrigin(entry) != k.Resource:
			j.Note = "not used: the url, the command or the mode of the upstream has changed"
		case isKey && !slices.ContainsFunc(c.Auth.APIKeys, func(a auth.Key) bool { return a.Name == bare }):
			j.Note = "the file has no such API key"
		}
		list = append(list, j)
	}
	return cli.List[givenKeyJSON]{
		Name: "keys", Of: list, None: "no caller has a key for an upstream",
		Head: []any{"NAME", "UPSTREAM", "AT", "SINCE", "NOTE"},
		Cells: func(k givenKeyJSON) []any {
			return []any{column(k.Name), column(k.Upstream), column(k.At), k.Since, k.Note}
		},
	}.Print(x.stdout, x.asJSON())
}
