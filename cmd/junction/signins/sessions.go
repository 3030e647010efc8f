package signins

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"junction/auth/store"
	"junction/cmd/junction/cli"
	"junction/proxy/visible"
)

// sessionsCommand is `junction sessions`.
func sessionsCommand(stdout io.Writer, file *string) *cobra.Command {
	x := &signIns{stdout: stdout, file: file}
	cmd := &cobra.Command{
		Use: "sessions", Short: "list who is signed in, or sign people out", Args: cli.NoArguments,
		Long: `List who is signed in, or sign people out.

A session is one sign-in of a person at an identity provider, with the browser that it was made in. The apps that they let in then are its grants: junction grants.
The storage of the file is looked into, whether a proxy runs or not.`,
		Example: `  junction sessions list --config config.yaml
  junction sessions revoke --user ann@example.com --config config.yaml
  junction sessions revoke --client "Claude Code (junction)" --config config.yaml
  junction sessions revoke --all --config config.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	list := x.command("sessions list", "list", "list the sessions that go on", func(ctx context.Context, s *storage, _ []string) error { return x.listSessions(ctx, s) })
	list.Args = cli.NoArguments
	list.Flags().StringVar(&x.user, "user", "", "only those of this `person`: e-mail address, subject, or id")
	all := false
	revoke := x.command("sessions revoke", "revoke {ID ... | --user WHO | --client APP | --all}", "end sessions, with all that rests on them",
		func(ctx context.Context, s *storage, args []string) error { return x.revokeSessions(ctx, s, args, all) })
	revoke.Long = `End sessions, with all that rests on them: the people are signed out in their browsers, and every app that they let in gets no further. They may sign in again.

--client ends what that app has, whoever let it in: the people stay signed in otherwise.`
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
		// what is empty by mistake must never mean everybody
		if given != 1 || len(args) == 0 && x.user == "" && x.client == "" && !all {
			return cli.Usagef("sessions revoke needs one of these: ids, --user WHO, --client APP, --all; junction sessions list shows what there is")
		}
		return nil
	}
	x.flags(revoke)
	revoke.Flags().BoolVar(&all, "all", false, "everybody's")
	cmd.AddCommand(list, revoke)
	return cmd
}

type sessionJSON struct {
	ID       string     `json:"id"`
	Person   personJSON `json:"person"`
	Provider string     `json:"provider"`
	Since    string     `json:"since"`
	Checked  string     `json:"checked"` // when the provider last confirmed it
	Grants   int        `json:"grants"`  // that rest on it and stand
	Browsers int        `json:"browsers"`
}

// sessions returns those that go on and are of use to somebody: a browser or an app rests on them.
func (s *storage) sessions(ctx context.Context, user string) ([]sessionJSON, error) {
	all, err := s.IDPSessions(ctx, user)
	if err != nil {
		return nil, err
	}
	grants, err := s.Grants(ctx, store.GrantFilter{User: user, Standing: true})
	if err != nil {
		return nil, err
	}
	browsers, err := s.WebSessions(ctx, user)
	if err != nil {
		return nil, err
	}
	apps, windows := map[string]int{}, map[string]int{}
	for _, g := range grants {
		apps[g.IDPSession]++
	}
	for _, w := range browsers {
		windows[w.IDPSession]++
	}
	list := []sessionJSON{}
	for _, i := range all {
		if apps[i.ID]+windows[i.ID] > 0 {
			list = append(list, sessionJSON{i.ID, personOf(s.people[i.User]), i.IDP, stamp(i.Created), stamp(i.Checked), apps[i.ID], windows[i.ID]})
		}
	}
	return list, nil
}

func (x *signIns) listSessions(ctx context.Context, s *storage) error {
	user, err := x.chosen(s)
	if err != nil {
		return err
	}
	list, err := s.sessions(ctx, user)
	if err != nil {
		return err
	}
	return x.print(struct {
		Sessions []sessionJSON `json:"sessions"`
	}{list}, func(w *tabwriter.Writer) {
		if len(list) == 0 {
			fmt.Fprintln(w, "nobody is signed in")
			return
		}
		fmt.Fprintln(w, "ID\tPERSON\tPROVIDER\tSINCE\tCONFIRMED\tGRANTS\tBROWSERS")
		for _, i := range list {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%d\n", i.ID[:min(len(i.ID), shown)], column(label(s.people[i.Person.ID])), i.Provider, i.Since, i.Checked, i.Grants, i.Browsers)
		}
	})
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
		return errors.Join(x.revoked(store.Ended{Grants: ended}, " of "+visible.Text(x.client)), err)
	case x.user != "":
		u, err := s.person(x.user)
		if err != nil {
			return err
		}
		ended, err := s.signOut(ctx, []store.User{u})
		return errors.Join(x.revoked(ended, " of "+visible.Text(label(u))), err)
	case len(ids) > 0:
		return x.revokeByID(ctx, s, ids)
	case all:
		ended, err := s.signOut(ctx, slices.Collect(maps.Values(s.people)))
		return errors.Join(x.revoked(ended, ""), err)
	}
	return nil
}

// signOut ends everything of these people.
func (s *storage) signOut(ctx context.Context, people []store.User) (total store.Ended, err error) {
	for _, u := range people {
		ended, err := s.SignOut(ctx, u.ID, byOperator)
		if err != nil {
			return total, err
		}
		total.Sessions += ended.Sessions
		total.Grants = append(total.Grants, ended.Grants...)
		if ended.Sessions > 0 || len(ended.Grants) > 0 {
			if err := s.Audit(ctx, store.Event{Event: "signed_out", Principal: u.ID, Detail: byTheOperator}); err != nil {
				return total, err
			}
		}
	}
	return total, nil
}

// revokeByID ends sessions by their ids, all of which are looked up before the first one ends.
func (x *signIns) revokeByID(ctx context.Context, s *storage, words []string) error {
	all, err := s.IDPSessions(ctx, "")
	if err != nil {
		return err
	}
	var known, ids []string
	users := map[string]string{}
	for _, i := range all {
		known, users[i.ID] = append(known, i.ID), i.User
	}
	for _, word := range words {
		id, err := only(known, word, "session")
		if err != nil {
			return err
		}
		ids = append(ids, id)
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
			return errors.Join(x.revoked(ended, ""), err)
		}
	}
	return x.revoked(ended, "")
}
