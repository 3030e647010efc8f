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

const whoIs = "WHO is an e-mail address, a subject, or an id of the list or the beginning of it."

// usersCommand is `junction users`.
func usersCommand(stdout io.Writer, file *string) *cobra.Command {
	x := &signIns{stdout: stdout, file: file}
	cmd := &cobra.Command{
		Use: "users", Short: "list who has ever signed in, or shut somebody out", Args: cli.NoArguments,
		Long: `List who has ever signed in, or shut somebody out, whatever their identity provider says.

` + whoIs + ` Keys of the file and tokens of other authorization servers are not about these people, and stay good.
The storage of the file is looked into, whether a proxy runs or not.`,
		Example: `  junction users list --config config.yaml
  junction users disable ann@example.com --config config.yaml
  junction users enable ann@example.com --config config.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	list := x.command("users list", "list", "list who has ever signed in, the one seen last first", func(ctx context.Context, s *storage, _ []string) error { return x.listUsers(ctx, s) })
	list.Args = cli.NoArguments
	disable := x.command("users disable", "disable WHO ...", "shut people out", func(ctx context.Context, s *storage, args []string) error { return x.disableUsers(ctx, s, args) })
	disable.Long = `Shut people out: they are signed out in their browsers, every app that they let in gets no further, what they have connected is forgotten, and they cannot
sign in again. Who signs in at another identity provider is somebody else here, also with the same e-mail address.

` + whoIs
	enable := x.command("users enable", "enable WHO ...", "let people in again, who then sign in anew", func(ctx context.Context, s *storage, args []string) error {
		return x.enableUsers(ctx, s, args)
	})
	enable.Long = "Let people in again, who then sign in anew and connect anew.\n\n" + whoIs
	for _, sub := range []*cobra.Command{disable, enable} {
		sub.Args = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || slices.Contains(args, "") {
				return cli.Usagef("users %s needs e-mail addresses, subjects or ids; junction users list shows them", cmd.Name())
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
			fmt.Fprintln(w, "nobody has ever signed in")
			return
		}
		fmt.Fprintln(w, "ID\tPERSON\tSUBJECT\tISSUER\tSEEN\tDISABLED")
		for i, u := range list {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", u.ID[:min(len(u.ID), shown)], column(label(users[i])), column(u.Subject), column(u.Issuer), u.Seen, u.Disabled)
		}
	})
}

// chosenUsers returns those whom words mean.
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

// disableUsers shuts people out, all of whom are looked up before the first one is.
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
				fmt.Fprintf(w, "Disabled: %s. There was nothing to end.\n", visible.Text(label(chosen[i])))
				continue
			}
			fmt.Fprintf(w, "Disabled: %s. Ended: %s and %s. %s\n", visible.Text(label(chosen[i])), prose.Count(d.Sessions, "session"), prose.Count(len(d.Grants), "grant"), noticed)
		}
	}), err)
}

// enableUsers lets people in again, all of whom are looked up before the first one is.
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
		if err = s.EnableUser(ctx, u.ID); err == nil || errors.Is(err, store.ErrNotFound) { // somebody else was faster
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
			fmt.Fprintf(w, "No longer disabled: %s, who has to sign in anew.\n", visible.Text(label(chosen[i])))
		}
	}), err)
}
