package signins

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"junction/auth/store"
	"junction/cmd/junction/base/cli"
	"junction/upstream/prose"
	"junction/upstream/shell"
)

const whoIs = "WHO is an e-mail address, a subject, or an id of the list or the beginning of an id."

// usersCommand is `junction users`.
func usersCommand(stdin io.Reader, stdout io.Writer, file *string) *cobra.Command {
	x := &signIns{stdout: stdout, file: file}
	cmd := &cobra.Command{
		Use: "users", Short: "List the users, disable one, or set a key of one", Args: cli.NoArguments,
		Long: `List the users who have ever signed in, or disable one, regardless of the identity provider.

` + whoIs + `
API keys stay valid. A token of another authorization server is refused if its issuer and its subject are those
of a disabled user; the tokens of other issuers stay valid.

These commands edit the database directly, and the running proxy on this machine applies the change at once.
A proxy that they do not reach applies it within ten seconds.`,
		Example: `  junction users list --config config.yaml
  junction users disable ann@example.com --config config.yaml
  junction users enable ann@example.com --config config.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	list := x.command("users list", "list", "List the users, last seen first", x.listUsers)
	list.Args = cli.NoArguments
	disable := x.command("users disable", "disable WHO ...", "Disable users", x.disableUsers)
	disable.Long = "Disable users: their sessions and grants end, their connections to upstreams are deleted, and " +
		"they cannot sign\n" +
		`in again. A sign-in at another identity provider is another user, even with the same e-mail address.

` + whoIs
	enable := x.command("users enable", "enable WHO ...", "Enable disabled users", x.enableUsers)
	enable.Long = "Enable disabled users. They have to sign in and connect their upstreams again.\n\n" + whoIs
	for _, sub := range []*cobra.Command{disable, enable} {
		sub.Args = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || slices.Contains(args, "") {
				return cli.Usagef("users %s needs e-mail addresses, subjects or ids; list them with junction users "+
					"list", cmd.Name())
			}
			return nil
		}
	}
	cmd.AddCommand(list, disable, enable, x.keyOf(stdin))
	return cmd
}

type userJSON struct {
	personJSON
	Since    string `json:"since"`
	Seen     string `json:"seen"`
	Disabled string `json:"disabled,omitempty"` // since when
}

func (x *signIns) listUsers(ctx context.Context, s *storage, _ []string) error {
	users, err := s.Users(ctx, "")
	if err != nil {
		return err
	}
	var list []userJSON
	for _, u := range users {
		list = append(list, userJSON{personOf(u), stamp(u.Created), stamp(u.Seen), stamp(u.Disabled)})
	}
	return cli.List[userJSON]{
		Name: "users", Of: list, None: "no user has ever signed in",
		Head: []any{"ID", "PERSON", "SUBJECT", "ISSUER", "SEEN", "DISABLED"},
		Cells: func(u userJSON) []any {
			id, name := u.cells()
			return []any{id, name, column(u.Subject), column(u.Issuer), u.Seen, u.Disabled}
		},
	}.Print(x.stdout, x.asJSON())
}

type disabledJSON struct {
	personJSON
	endedJSON
}

// disableUsers disables users. It looks all of them up before it disables the first one.
func (x *signIns) disableUsers(ctx context.Context, s *storage, words []string) error {
	chosen, err := lookUp(words, s.person)
	if err != nil {
		return err
	}
	return each(x, "disabled", chosen, func(u store.User) (disabledJSON, error) {
		ended, err := s.DisableUser(ctx, u.ID, "user_disabled")
		if err == nil {
			err = s.Audit(ctx, store.Event{Event: "user_disabled", Principal: u.ID, Detail: byTheOperator})
		}
		return disabledJSON{personOf(u), endedJSON{ended.Sessions, append([]string{}, ended.Grants...)}}, err
	}, func(u store.User, d disabledJSON) string {
		if d.Sessions == 0 && len(d.Grants) == 0 {
			return fmt.Sprintf("Disabled: %s. There were no sessions and no grants.", shell.Visible(label(u)))
		}
		return fmt.Sprintf("Disabled: %s. Ended: %s and %s. %s", shell.Visible(label(u)),
			prose.Count(d.Sessions, "session"), prose.Count(len(d.Grants), "grant"), x.effect(ctx))
	})
}

// enableUsers enables users. It looks all of them up before it enables the first one.
func (x *signIns) enableUsers(ctx context.Context, s *storage, words []string) error {
	chosen, err := lookUp(words, s.person)
	if err != nil {
		return err
	}
	for _, u := range chosen {
		if u.Disabled.IsZero() {
			return fmt.Errorf("%s is not disabled", shell.Visible(label(u)))
		}
	}
	return each(x, "enabled", chosen, func(u store.User) (personJSON, error) {
		err := s.EnableUser(ctx, u.ID)
		if err == nil || errors.Is(err, store.ErrNotFound) { // another command was faster
			err = s.Audit(ctx, store.Event{Event: "user_enabled", Principal: u.ID, Detail: byTheOperator})
		}
		return personOf(u), err
	}, func(u store.User, _ personJSON) string {
		return fmt.Sprintf("Enabled: %s. The user has to sign in again.", shell.Visible(label(u)))
	})
}
