package signins

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"junction/auth/store"
	"junction/cmd/junction/cli"
	"junction/cmd/junction/prose"
	"junction/proxy/visible"
)

const whoIs = "WHO is an e-mail address, a subject, or an id of the list or the beginning of an id."

// usersCommand is `junction users`.
func usersCommand(stdout io.Writer, file *string) *cobra.Command {
	x := &signIns{stdout: stdout, file: file}
	cmd := &cobra.Command{
		Use: "users", Short: "List the users or disable one", Args: cli.NoArguments,
		Long: `List the users who have ever signed in, or disable one, regardless of the identity provider.

` + whoIs + `
API keys and tokens of other authorization servers stay valid.

These commands edit the database directly. A running proxy applies the change within ten seconds.`,
		Example: `  junction users list --config config.yaml
  junction users disable ann@example.com --config config.yaml
  junction users enable ann@example.com --config config.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	list := x.command("users list", "list", "List the users, last seen first",
		func(ctx context.Context, s *storage, _ []string) error { return x.listUsers(ctx, s) })
	list.Args = cli.NoArguments
	disable := x.command("users disable", "disable WHO ...", "Disable users",
		func(ctx context.Context, s *storage, args []string) error { return x.disableUsers(ctx, s, args) })
	disable.Long = "Disable users: their sessions and grants end, their connections to upstreams are deleted, and " +
		"they cannot sign\n" +
		`in again. A sign-in at another identity provider is another user, even with the same e-mail address.

` + whoIs
	enable := x.command("users enable", "enable WHO ...", "Enable disabled users",
		func(ctx context.Context, s *storage, args []string) error {
			return x.enableUsers(ctx, s, args)
		})
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
	cmd.AddCommand(list, disable, enable)
	return cmd
}

type userJSON struct {
	personJSON
	Since    string `json:"since"`
	Seen     string `json:"seen"`
	Disabled string `json:"disabled,omitempty"` // since when
}

func (x *signIns) listUsers(ctx context.Context, s *storage) error {
	users, err := s.Users(ctx, "")
	if err != nil {
		return err
	}
	list := []userJSON{}
	for _, u := range users {
		list = append(list, userJSON{personOf(u), stamp(u.Created), stamp(u.Seen), stamp(u.Disabled)})
	}
	return x.print(struct {
		Users []userJSON `json:"users"`
	}{list}, func(w *tabwriter.Writer) {
		if len(list) == 0 {
			fmt.Fprintln(w, "no user has ever signed in")
			return
		}
		fmt.Fprintln(w, "ID\tPERSON\tSUBJECT\tISSUER\tSEEN\tDISABLED")
		for i, u := range list {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", u.ID[:min(len(u.ID), shown)], column(label(users[i])),
				column(u.Subject), column(u.Issuer), u.Seen, u.Disabled)
		}
	})
}

// chosenUsers returns the users that words identify.
func (s *storage) chosenUsers(words []string) (all []store.User, err error) {
	for _, word := range words {
		u, err := s.person(word)
		if err != nil {
			return nil, err
		}
		all = append(all, u)
	}
	return all, nil
}

type disabledJSON struct {
	personJSON
	endedJSON
}

// disableUsers disables users. It looks all of them up before it disables the first one.
func (x *signIns) disableUsers(ctx context.Context, s *storage, words []string) error {
	chosen, err := s.chosenUsers(words)
	if err != nil {
		return err
	}
	done := []disabledJSON{}
	for _, u := range chosen {
		var ended store.Ended
		if ended, err = s.DisableUser(ctx, u.ID, "user_disabled"); err == nil {
			err = s.Audit(ctx, store.Event{Event: "user_disabled", Principal: u.ID, Detail: byTheOperator})
		}
		if err != nil {
			break
		}
		done = append(done, disabledJSON{personOf(u), endedJSON{ended.Sessions, append([]string{}, ended.Grants...)}})
	}
	return errors.Join(x.print(struct {
		Disabled []disabledJSON `json:"disabled"`
	}{done}, func(w *tabwriter.Writer) {
		for i, d := range done {
			if d.Sessions == 0 && len(d.Grants) == 0 {
				fmt.Fprintf(w, "Disabled: %s. There were no sessions and no grants.\n", visible.Text(label(chosen[i])))
				continue
			}
			fmt.Fprintf(w, "Disabled: %s. Ended: %s and %s. %s\n", visible.Text(label(chosen[i])),
				prose.Count(d.Sessions, "session"), prose.Count(len(d.Grants), "grant"), noticed)
		}
	}), err)
}

// enableUsers enables users. It looks all of them up before it enables the first one.
func (x *signIns) enableUsers(ctx context.Context, s *storage, words []string) error {
	chosen, err := s.chosenUsers(words)
	if err != nil {
		return err
	}
	for _, u := range chosen {
		if u.Disabled.IsZero() {
			return fmt.Errorf("%s is not disabled", visible.Text(label(u)))
		}
	}
	done := []personJSON{}
	for _, u := range chosen {
		// another command was faster
		if err = s.EnableUser(ctx, u.ID); err == nil || errors.Is(err, store.ErrNotFound) {
			err = s.Audit(ctx, store.Event{Event: "user_enabled", Principal: u.ID, Detail: byTheOperator})
		}
		if err != nil {
			break
		}
		done = append(done, personOf(u))
	}
	return errors.Join(x.print(struct {
		Enabled []personJSON `json:"enabled"`
	}{done}, func(w *tabwriter.Writer) {
		for i := range done {
			fmt.Fprintf(w, "Enabled: %s. The user has to sign in again.\n", visible.Text(label(chosen[i])))
		}
	}), err)
}
