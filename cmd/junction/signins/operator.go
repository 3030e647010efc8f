// Package signins has the commands that manage access: for the API keys of the configuration file
// (keys.go), and for the sessions, grants, clients, users and master keys in the storage of
// sign-ins. operator.go has the common parts of these commands; storage.go opens the storage beside
// a running proxy.
package signins

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"junction/auth"
	"junction/auth/store"
	"junction/cmd/junction/cli"
	"junction/cmd/junction/prose"
	"junction/proxy/visible"
)

const (
	byOperator = "revoked_by_operator" // the stored reason
	noticed    = "A running proxy applies the change within ten seconds."
	shortest   = 4  // the fewest characters of an id that an operator may write
	shown      = 8  // characters of an id in a table
	shownText  = 40 // characters of foreign text in a table
)

var byTheOperator = []byte(`{"detail":"by the operator"}`)

// Commands returns the commands about API keys and the storage of sign-ins. file points to the
// value of --config.
func Commands(stdin io.Reader, stdout, stderr io.Writer, file *string) []*cobra.Command {
	return []*cobra.Command{
		keysCommand(stdin, stdout, stderr, file),
		sessionsCommand(stdout, file),
		grantsCommand(stdout, file),
		clientsCommand(stdout, file),
		usersCommand(stdout, file),
		storageCommand(stdout, file),
	}
}

// signIns are the flags and the output of a command about sign-ins.
type signIns struct {
	stdout       io.Writer
	file         *string
	output       string
	user, client string
}

// command returns a command that opens the storage and calls run.
func (x *signIns) command(what, use, short string,
	run func(ctx context.Context, s *storage, args []string) error) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, RunE: func(cmd *cobra.Command, args []string) error {
		if err := cli.CheckOutput(x.output); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), StorageLimit)
		defer cancel()
		s, err := openStorage(ctx, what, *x.file)
		if err != nil {
			return err
		}
		return errors.Join(run(ctx, s, args), s.Close())
	}}
	cli.OutputFlag(cmd, &x.output)
	return cmd
}

func (x *signIns) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&x.user, "user", "", "only those of this `user`: e-mail address, subject, or id")
	cmd.Flags().StringVar(&x.client, "client", "",
		"only those of this `app`: an id of clients list, a client_id, or a name")
}

// print prints v as JSON, or calls text for a table.
func (x *signIns) print(v any, text func(w *tabwriter.Writer)) error {
	if x.output == "json" {
		raw, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return cli.PrintJSON(x.stdout, raw)
	}
	w := tabwriter.NewWriter(x.stdout, 0, 0, 2, ' ', 0)
	text(w)
	return w.Flush()
}

// revoked prints the ended sessions and grants.
func (x *signIns) revoked(ended store.Ended, of string) error {
	if ended.Grants == nil {
		ended.Grants = []string{}
	}
	return x.print(endedJSON{ended.Sessions, ended.Grants}, func(w *tabwriter.Writer) {
		switch {
		case ended.Sessions == 0 && len(ended.Grants) == 0:
			fmt.Fprintf(w, "Nothing to revoke%s.\n", of)
		case ended.Sessions == 0:
			fmt.Fprintf(w, "Ended: %s%s. %s\n", prose.Count(len(ended.Grants), "grant"), of, noticed)
		default:
			fmt.Fprintf(w, "Ended: %s and %s%s. %s\n", prose.Count(ended.Sessions, "session"),
				prose.Count(len(ended.Grants), "grant"), of, noticed)
		}
	})
}

type endedJSON struct {
	Sessions int      `json:"sessions"`
	Grants   []string `json:"grants"`
}

// label returns the name of a user for tables and messages.
func label(u store.User) string { return cmp.Or(u.Email, u.Subject, u.ID) }

type personJSON struct {
	ID        string `json:"id"`
	Principal string `json:"principal"`
	Email     string `json:"email,omitempty"`
	Issuer    string `json:"issuer"`
	Subject   string `json:"subject"`
}

func personOf(u store.User) personJSON {
	return personJSON{u.ID, auth.UserID(u.Issuer, u.Subject), u.Email, u.Issuer, u.Subject}
}

// person finds a user by id, by principal, or by a unique beginning of the id, e-mail address or
// subject.
func (s *storage) person(who string) (store.User, error) {
	var found []store.User
	var names []string
	for _, u := range s.people {
		if u.ID == who || auth.UserID(u.Issuer, u.Subject) == who {
			return u, nil
		}
		if u.Email != "" && strings.EqualFold(u.Email, who) || u.Subject == who || len(who) >= shortest &&
			strings.HasPrefix(u.ID, who) {
			found = append(found, u)
		}
		names = append(names, label(u))
	}
	slices.Sort(names)
	switch {
	case len(found) == 0:
		near := prose.Closest(slices.Compact(names), who)
		if len(near) > 0 {
			return store.User{}, fmt.Errorf("no user %s has signed in; did you mean %s?", prose.Quote(who),
				visible.Text(strings.Join(near, " or ")))
		}
		return store.User{}, fmt.Errorf("no user %s has signed in; list the users with junction users list",
			prose.Quote(who))
	case len(found) > 1:
		var all []string
		for _, u := range found {
			all = append(all, fmt.Sprintf("%s (%s at %s)", u.ID, visible.Text(u.Subject), visible.Text(u.Issuer)))
		}
		slices.Sort(all)
		return store.User{}, fmt.Errorf("%s matches %d users; give the id of one: %s", prose.Quote(who), len(found),
			strings.Join(all, ", "))
	}
	return found[0], nil
}

// chosen returns the id of the user of --user, or "".
func (x *signIns) chosen(s *storage) (string, error) {
	if x.user == "" {
		return "", nil
	}
	u, err := s.person(x.user)
	return u.ID, err
}

// only returns the id that begins with word, if there is exactly one.
func only(ids []string, word, thing string) (string, error) {
	if slices.Contains(ids, word) {
		return word, nil
	}
	var found []string
	for _, id := range ids {
		if len(word) >= shortest && strings.HasPrefix(id, word) {
			found = append(found, id)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return "", fmt.Errorf("%s matches %d %ss; write more characters: %s", prose.Quote(word), len(found), thing,
			strings.Join(found, ", "))
	case len(word) < shortest:
		return "", fmt.Errorf("%s is no id of a %s: write at least %d characters", prose.Quote(word), thing, shortest)
	}
	return "", fmt.Errorf("there is no %s %s; list them with junction %ss list", thing, prose.Quote(word), thing)
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// column shortens foreign text for a table and escapes control characters.
func column(s string) string { return prose.Cut(visible.Text(s), shownText) }
