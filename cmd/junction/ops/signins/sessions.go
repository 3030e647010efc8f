package signins

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"junction/auth/store"
	"junction/cmd/junction/base/cli"
	"junction/upstream/shell"
)

// sessionsCommand is `junction sessions`.
func sessionsCommand(stdout io.Writer, file *string) *cobra.Command {
	x := &signIns{stdout: stdout, file: file}
	cmd := &cobra.Command{
		Use: "sessions", Short: "List the signed-in users or sign them out", Args: cli.NoArguments,
		Long: `List the signed-in users or sign them out.

A session is one sign-in of a user at an identity provider, with the browser that was used. The apps that the
user approves get grants that belong to the session: see junction grants.

These commands edit the database directly, and the running proxy on this machine applies the change at once.
A proxy that they do not reach applies it within ten seconds.`,
		Example: `  junction sessions list --config config.yaml
  junction sessions revoke --user ann@example.com --config config.yaml
  junction sessions revoke --client "Claude Code (junction)" --config config.yaml
  junction sessions revoke --all --yes --config config.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	list := x.command("sessions list", "list", "List the active sessions", x.listSessions)
	list.Args = cli.NoArguments
	list.Flags().StringVar(&x.user, "user", "", "only those of this `user`: e-mail address, subject, or id")
	all, yes := false, false
	revoke := x.command("sessions revoke", "revoke {ID ... | --user WHO | --client APP | --all}",
		"End sessions and their grants",
		func(ctx context.Context, s *storage, args []string) error { return x.revokeSessions(ctx, s, args, all) })
	revoke.Long = "End sessions and their grants: the users are signed out in their browsers, and their apps lose " +
		"access. The\n" +
		`users may sign in again.

--client ends all grants of one app, of all users; the users stay signed in.`
	revoke.Args = func(cmd *cobra.Command, args []string) error {
		given := 0
		for _, name := range []string{"user", "client", "all"} {
			if cmd.Flags().Changed(name) {
				given++
			}
		}
		if len(args) > 0 {
			given++
		}
		// an empty value must never mean all users
		if given != 1 || len(args) == 0 && x.user == "" && x.client == "" && !all {
			return cli.Usagef("sessions revoke needs exactly one of: ids, --user WHO, --client APP, --all; list the " +
				"sessions with junction sessions list")
		}
		return nil
	}
	run := revoke.RunE
	revoke.RunE = func(cmd *cobra.Command, args []string) error {
		if all {
			if err := cli.Confirm(cmd, yes, "End the sessions and grants of all users?"); err != nil {
				return err
			}
		}
		return run(cmd, args)
	}
	x.flags(revoke)
	revoke.Flags().BoolVar(&all, "all", false, "end all sessions")
	cli.YesFlag(revoke, &yes)
	cmd.AddCommand(list, revoke)
	return cmd
}

type sessionJSON struct {
	ID       string     `json:"id"`
	Person   personJSON `json:"person"`
	Provider string     `json:"provider"`
	Since    string     `json:"since"`
	Checked  string     `json:"checked"` // when the provider last confirmed it
	Grants   int        `json:"grants"`  // active grants that depend on it
	Browsers int        `json:"browsers"`
}

// sessions returns the active sessions that still have a browser or a grant.
func (s *storage) sessions(ctx context.Context, user string) ([]sessionJSON, error) {
	all, err := s.IDPSessions(ctx, user)
	if err != nil {
		return nil, err
	}
	apps, windows, err := s.SessionUses(ctx, user)
	if err != nil {
		return nil, err
	}
	var list []sessionJSON
	for _, i := range all {
		if apps[i.ID]+windows[i.ID] > 0 {
			list = append(list, sessionJSON{i.ID, personOf(s.people[i.User]), i.IDP, stamp(i.Created), stamp(i.Checked),
				apps[i.ID], windows[i.ID]})
		}
	}
	return list, nil
}

func (x *signIns) listSessions(ctx context.Context, s *storage, _ []string) error {
	user, err := x.chosen(s)
	if err != nil {
		return err
	}
	list, err := s.sessions(ctx, user)
	if err != nil {
		return err
	}
	return cli.List[sessionJSON]{
		Name: "sessions", Of: list, None: "no user is signed in",
		Head: []any{"ID", "PERSON", "PROVIDER", "SINCE", "CONFIRMED", "GRANTS", "BROWSERS"},
		Cells: func(i sessionJSON) []any {
			_, name := i.Person.cells()
			return []any{i.ID[:min(len(i.ID), shown)], name, i.Provider, i.Since, i.Checked, i.Grants, i.Browsers}
		},
	}.Print(x.stdout, x.asJSON())
}

func (x *signIns) revokeSessions(ctx context.Context, s *storage, ids []string, all bool) error {
	switch {
	case x.client != "":
		grants, err := s.grants(ctx, "", x.client, false)
		if err != nil {
			return err
		}
		grants = slices.DeleteFunc(grants, func(g store.Grant) bool { return !stands(g) })
		ended, err := s.end(ctx, grants)
		return errors.Join(x.revoked(ctx, store.Ended{Grants: ended}, " of "+shell.Visible(x.client)), err)
	case x.user != "":
		u, err := s.person(x.user)
		if err != nil {
			return err
		}
		ended, err := s.signOut(ctx, []store.User{u})
		return errors.Join(x.revoked(ctx, ended, " of "+shell.Visible(label(u))), err)
	case len(ids) > 0:
		return x.revokeByID(ctx, s, ids)
	case all:
		ended, err := s.signOut(ctx, slices.Collect(maps.Values(s.people)))
		return errors.Join(x.revoked(ctx, ended, ""), err)
	}
	return nil
}

// signOut ends all sessions and grants of these users.
func (s *storage) signOut(ctx context.Context, people []store.User) (total store.Ended, err error) {
	for _, u := range people {
		ended, err := s.SignOut(ctx, u.ID, byOperator)
		if err != nil {
			return total, err
		}
		total.Sessions += ended.Sessions
		total.Grants = append(total.Grants, ended.Grants...)
		if ended.Sessions > 0 || len(ended.Grants) > 0 {
			if err := s.Audit(ctx, store.Event{Event: "signed_out", Principal: u.ID,
				Detail: byTheOperator}); err != nil {
				return total, err
			}
		}
	}
	return total, nil
}

// revokeByID ends sessions by their ids. It looks all of them up before it ends the first one.
func (x *signIns) revokeByID(ctx context.Context, s *storage, words []string) error {
	all, err := s.IDPSessions(ctx, "")
	if err != nil {
		return err
	}
	var known []string
	users := map[string]string{}
	for _, i := range all {
		known, users[i.ID] = append(known, i.ID), i.User
	}
	ids, err := lookUp(words, func(word string) (string, error) { return only(known, word, "session") })
	if err != nil {
		return err
	}
	var ended store.Ended
	for _, id := range ids {
		grants, err := s.EndIDPSession(ctx, id, byOperator)
		if err == nil {
			ended.Sessions++
			ended.Grants = append(ended.Grants, grants...)
			err = s.Audit(ctx, store.Event{Event: "signed_out", Principal: users[id], Detail: byTheOperator})
		}
		if err != nil {
			return errors.Join(x.revoked(ctx, ended, ""), err)
		}
	}
	return x.revoked(ctx, ended, "")
}
