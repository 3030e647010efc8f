// Package signins has the commands that manage access: for the API keys of the configuration file
// (keys.go), and for the sessions, grants, clients, users and master keys in the storage of
// sign-ins. operator.go has the common parts of these commands; storage.go opens the storage beside
// a running proxy.
package signins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"junction/auth"
	"junction/auth/store"
	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/ops/admin"
	"junction/upstream/prose"
	"junction/upstream/shell"
)

const (
	byOperator = "revoked_by_operator" // the stored reason
	shortest   = 4                     // the fewest characters of an id that an operator may write
	shown      = 8                     // characters of an id in a table
	shownText  = 40                    // characters of foreign text in a table
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
		usersCommand(stdin, stdout, file),
		storageCommand(stdout, file),
	}
}

// signIns are the flags and the output of a command about sign-ins.
type signIns struct {
	stdout       io.Writer
	file         *string
	output       string
	user, client string
	inForce      string // where the change is in force; see effect
}

// effect has the running proxy apply what this command has revoked, and returns a sentence about it. The
// proxy is asked once, so call effect after the last change.
func (x *signIns) effect(ctx context.Context) string {
	if x.inForce == "" {
		x.inForce = admin.EndRevoked(ctx, *x.file)
	}
	return x.inForce
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

// asJSON reports whether the output is JSON.
func (x *signIns) asJSON() bool { return x.output == "json" }

// print prints v as JSON, or the text.
func (x *signIns) print(v any, text string) error {
	return cli.Print(x.stdout, x.asJSON(), v, text)
}

// each applies change to the chosen things one after the other, until one change fails. It prints
// the changes that were made, also if one fails: as JSON in a member called name, or a sentence for
// each. It makes the sentences after the last change.
func each[T, J any](x *signIns, name string, chosen []T, change func(T) (J, error),
	sentence func(T, J) string) (err error) {
	done, text := []J{}, ""
	for _, one := range chosen {
		var j J
		if j, err = change(one); err != nil {
			break
		}
		done = append(done, j)
	}
	for i, j := range done {
		text += sentence(chosen[i], j) + "\n"
	}
	return errors.Join(x.print(map[string][]J{name: done}, text), err)
}

// lookUp finds a thing for each word. So a command can find all of them before it changes the first
// one.
func lookUp[T any](words []string, find func(word string) (T, error)) (all []T, err error) {
	for _, word := range words {
		one, err := find(word)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// choose returns the thing that a word fits exactly, or else the only one that it fits in part. ok
// is false if there is none. The error lists several; what is their plural, and how to choose.
func choose[T any](all []T, word, what string, fits func(T) (exactly, partly bool), name func(T) string) (
	one T, ok bool, err error) {
	var found []T
	var names []string
	for _, t := range all {
		exactly, partly := fits(t)
		if exactly {
			return t, true, nil
		}
		if partly {
			found, names = append(found, t), append(names, name(t))
		}
	}
	switch len(found) {
	case 0:
		return one, false, nil
	case 1:
		return found[0], true, nil
	}
	return one, false, fmt.Errorf("%s matches %d %s: %s", prose.Quote(word), len(found), what,
		strings.Join(names, ", "))
}

// revoked prints the ended sessions and grants, after the running proxy has applied the change.
func (x *signIns) revoked(ctx context.Context, ended store.Ended, suffix string) error {
	if ended.Grants == nil {
		ended.Grants = []string{}
	}
	grants := prose.Count(len(ended.Grants), "grant")
	var text string
	switch {
	case ended.Sessions == 0 && len(ended.Grants) == 0:
		text = fmt.Sprintf("Nothing to revoke%s.\n", suffix)
	case ended.Sessions == 0:
		text = fmt.Sprintf("Ended: %s%s. %s\n", grants, suffix, x.effect(ctx))
	default:
		text = fmt.Sprintf("Ended: %s and %s%s. %s\n", prose.Count(ended.Sessions, "session"), grants, suffix,
			x.effect(ctx))
	}
	return x.print(endedJSON{ended.Sessions, ended.Grants}, text)
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

// cells returns the short id and the name for tables.
func (p *personJSON) cells() (id, name string) {
	return p.ID[:min(len(p.ID), shown)], column(cmp.Or(p.Email, p.Subject, p.ID))
}

// person finds a user by id, by principal, or by a unique beginning of the id, e-mail address or
// subject.
func (s *storage) person(who string) (store.User, error) {
	all := slices.SortedFunc(maps.Values(s.people), func(a, b store.User) int { return cmp.Compare(a.ID, b.ID) })
	u, ok, err := choose(all, who, "users; give the id of one", func(u store.User) (exactly, partly bool) {
		return u.ID == who || auth.UserID(u.Issuer, u.Subject) == who,
			u.Email != "" && strings.EqualFold(u.Email, who) || u.Subject == who ||
				len(who) >= shortest && strings.HasPrefix(u.ID, who)
	}, func(u store.User) string {
		return fmt.Sprintf("%s (%s at %s)", u.ID, shell.Visible(u.Subject), shell.Visible(u.Issuer))
	})
	if ok || err != nil {
		return u, err
	}
	var names []string
	for _, u := range all {
		names = append(names, label(u))
	}
	slices.Sort(names)
	return u, fmt.Errorf("no user %s has signed in; %s", prose.Quote(who),
		shell.Visible(prose.DidYouMean(slices.Compact(names), who, "list the users with junction users list")))
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
	id, ok, err := choose(ids, word, thing+"s; write more characters", func(id string) (exactly, partly bool) {
		return id == word, len(word) >= shortest && strings.HasPrefix(id, word)
	}, func(id string) string { return id })
	switch {
	case ok || err != nil:
		return id, err
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
func column(s string) string { return prose.Cut(shell.Visible(s), shownText) }
