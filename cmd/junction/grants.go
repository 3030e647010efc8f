package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"junction/auth"
	"junction/auth/store"
	"junction/proxy"
)

const (
	byOperator = "revoked_by_operator" // why something has ended
	noticed    = "A running proxy notices within ten seconds."
	shortest   = 4  // characters of an id that a person may leave it at
	shown      = 8  // characters of an id in a table
	shownText  = 40 // characters of a text that others wrote
)

// label is what a person is called in tables and messages.
func label(u store.User) string {
	switch {
	case u.Email != "":
		return u.Email
	case u.Subject != "":
		return u.Subject
	}
	return u.ID
}

// person returns the one whom an operator means: by the id that the list shows, by the principal of logs, or by the e-mail address or subject if only one has that.
func (s *storage) person(who string) (store.User, error) {
	var found []store.User
	var names []string
	for _, u := range s.people {
		if u.ID == who || auth.UserID(u.Issuer, u.Subject) == who {
			return u, nil
		}
		if u.Email != "" && strings.EqualFold(u.Email, who) || u.Subject == who {
			found = append(found, u)
		}
		names = append(names, label(u))
	}
	slices.Sort(names)
	switch {
	case len(found) == 0:
		near := closest(names, who)
		if len(near) > 0 {
			return store.User{}, fmt.Errorf("nobody called %s has signed in here; did you mean %s?", show(who), proxy.Visible(strings.Join(near, " or ")))
		}
		return store.User{}, fmt.Errorf("nobody called %s has signed in here", show(who))
	case len(found) > 1:
		var all []string
		for _, u := range found {
			all = append(all, fmt.Sprintf("%s (%s at %s)", u.ID, proxy.Visible(u.Subject), proxy.Visible(u.Issuer)))
		}
		slices.Sort(all)
		return store.User{}, fmt.Errorf("%s may be any of %d people; give the id of one to --user: %s", show(who), len(found), strings.Join(all, ", "))
	}
	return found[0], nil
}

// only returns the one of ids that a person has written the beginning of.
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
		return "", fmt.Errorf("%s may be any of %d %ss; write more of the one that you mean: %s", show(word), len(found), thing, strings.Join(found, ", "))
	case len(word) < shortest:
		return "", fmt.Errorf("%s is no id of a %s: write at least %d characters of it", show(word), thing, shortest)
	}
	return "", fmt.Errorf("there is no %s %s", thing, show(word))
}

// grants returns those of a person, or of all if user is "", and of an app, which is named by its id or by what it calls itself; or of all if app is "".
func (s *storage) grants(ctx context.Context, user, app string, standing bool) ([]store.Grant, error) {
	all, err := s.Grants(ctx, store.GrantFilter{User: user, Standing: standing})
	if err != nil || app == "" {
		return all, err
	}
	var names []string
	for _, g := range all {
		names = append(names, g.ClientName)
	}
	all = slices.DeleteFunc(all, func(g store.Grant) bool { return g.ClientID != app && g.ClientName != app })
	if near := closest(slices.Compact(slices.Sorted(slices.Values(names))), app); len(all) == 0 && len(near) > 0 {
		return nil, fmt.Errorf("no app with the id or the name %s was let in; did you mean %s?", show(app), proxy.Visible(strings.Join(near, " or ")))
	} else if len(all) == 0 {
		return nil, fmt.Errorf("no app with the id or the name %s was let in", show(app))
	}
	return all, nil
}

// end revokes grants one by one, and returns those that stood until then.
func (s *storage) end(ctx context.Context, grants []store.Grant) (ids []string, err error) {
	for _, g := range grants {
		stood, err := s.RevokeGrant(ctx, g.ID, byOperator)
		if err != nil {
			return ids, err
		}
		if stood {
			ids = append(ids, g.ID)
			err = s.Audit(ctx, store.Event{Event: "grant_revoked", Principal: g.User, ClientID: g.ClientID, Detail: byTheOperator})
		}
		if err != nil {
			return ids, err
		}
	}
	return ids, nil
}

var byTheOperator = []byte(`{"detail":"by the operator"}`)

// signIns is what the commands about sign-ins share.
type signIns struct {
	stdout       io.Writer
	file         *string
	output       string
	user, client string
}

// command returns a command that is run with the storage open.
func (x *signIns) command(what, use, short string, run func(ctx context.Context, s *storage, args []string) error) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, RunE: func(cmd *cobra.Command, args []string) error {
		if err := checkOutput(x.output); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), storageLimit)
		defer cancel()
		s, err := openStorage(ctx, what, *x.file)
		if err != nil {
			return err
		}
		return errors.Join(run(ctx, s, args), s.Close())
	}}
	cmd.Flags().StringVarP(&x.output, "output", "o", "text", "text or json")
	return cmd
}

func (x *signIns) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&x.user, "user", "", "only those of this `person`: e-mail address, subject, or id")
	cmd.Flags().StringVar(&x.client, "client", "", "only those of this `app`: its id, or what it calls itself")
}

// print writes a value as JSON, or what text writes.
func (x *signIns) print(v any, text func(w *tabwriter.Writer)) error {
	if x.output == "json" {
		raw, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return printJSON(x.stdout, raw)
	}
	w := tabwriter.NewWriter(x.stdout, 0, 0, 2, ' ', 0)
	text(w)
	return w.Flush()
}

// revoked says what has ended.
func (x *signIns) revoked(ended store.Ended, of string) error {
	if ended.Grants == nil {
		ended.Grants = []string{}
	}
	return x.print(endedJSON{ended.Sessions, ended.Grants}, func(w *tabwriter.Writer) {
		switch {
		case ended.Sessions == 0 && len(ended.Grants) == 0:
			fmt.Fprintf(w, "Nothing to revoke%s.\n", of)
		case ended.Sessions == 0:
			fmt.Fprintf(w, "Ended: %s%s. %s\n", count(len(ended.Grants), "grant"), of, noticed)
		default:
			fmt.Fprintf(w, "Ended: %s and %s%s. %s\n", count(ended.Sessions, "session"), count(len(ended.Grants), "grant"), of, noticed)
		}
	})
}

type endedJSON struct {
	Sessions int      `json:"sessions"`
	Grants   []string `json:"grants"`
}

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

type grantJSON struct {
	ID           string     `json:"id"`
	Person       personJSON `json:"person"`
	ClientID     string     `json:"client_id"`
	ClientName   string     `json:"client_name"`
	ClientKind   string     `json:"client_kind"`
	RedirectHost string     `json:"redirect_host"`
	Resource     string     `json:"resource"`
	Scope        string     `json:"scope"`
	Since        string     `json:"since"`
	Used         string     `json:"used"`
	Expires      string     `json:"expires"`
	Ended        string     `json:"ended,omitempty"`
	Reason       string     `json:"reason,omitempty"`
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// column is a text that others wrote, for a table.
func column(s string) string { return cut(proxy.Visible(s), shownText) }

// chosen returns the id of the person whom --user means, "" without it.
func (x *signIns) chosen(s *storage) (string, error) {
	if x.user == "" {
		return "", nil
	}
	u, err := s.person(x.user)
	return u.ID, err
}

// grantsCommand is `junction grants`.
func grantsCommand(stdout io.Writer, file *string) *cobra.Command {
	x := &signIns{stdout: stdout, file: file}
	cmd := &cobra.Command{
		Use: "grants", Short: "list the apps that people have let in, or take that back", Args: none,
		Long: `List the apps that people have let in, or take that back: an app that loses its grant has to be let in again by its person.

The storage of the file is looked into, whether a proxy runs or not.`,
		Example: `  junction grants list --config config.yaml
  junction grants list --user ann@example.com --output json --config config.yaml
  junction grants revoke q3hT0aXb --config config.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	ended := false
	list := x.command("grants list", "list", "list the grants, the one used last first", func(ctx context.Context, s *storage, _ []string) error {
		return x.listGrants(ctx, s, ended)
	})
	list.Args = none
	x.flags(list)
	list.Flags().BoolVar(&ended, "ended", false, "also those that are over, as long as they are kept")
	revoke := x.command("grants revoke", "revoke ID ...", "end grants, by the beginning of their ids", func(ctx context.Context, s *storage, args []string) error {
		return x.revokeGrants(ctx, s, args)
	})
	revoke.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("grants revoke needs the ids of grants; junction grants list shows them")
		}
		return nil
	}
	cmd.AddCommand(list, revoke)
	return cmd
}

func (x *signIns) listGrants(ctx context.Context, s *storage, ended bool) error {
	user, err := x.chosen(s)
	if err != nil {
		return err
	}
	grants, err := s.grants(ctx, user, x.client, !ended)
	if err != nil {
		return err
	}
	list := []grantJSON{}
	for _, g := range grants {
		j := grantJSON{g.ID, personOf(s.people[g.User]), g.ClientID, g.ClientName, g.ClientKind, g.RedirectHost, g.Resource, g.Scope, stamp(g.Created), stamp(g.Used),
			stamp(g.Expires), stamp(g.Revoked), g.Reason}
		if g.Revoked.IsZero() && !time.Now().Before(g.Expires) {
			j.Ended, j.Reason = j.Expires, "expired"
		}
		list = append(list, j)
	}
	return x.print(struct {
		Grants []grantJSON `json:"grants"`
	}{list}, func(w *tabwriter.Writer) {
		if len(list) == 0 {
			fmt.Fprintln(w, "no app is let in")
			return
		}
		head := "ID\tPERSON\tAPP\tKNOWN BY\tENDPOINT\tSCOPE\tUSED\tEXPIRES"
		if ended {
			head += "\tENDED"
		}
		fmt.Fprintln(w, head)
		for i, g := range list {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", g.ID[:min(len(g.ID), shown)], column(label(s.people[g.Person.ID])), column(g.ClientName), knownBy(grants[i]), pathOf(g.Resource),
				column(g.Scope), g.Used, g.Expires)
			if ended {
				fmt.Fprintf(w, "\t%s", strings.TrimSpace(g.Ended+" "+g.Reason))
			}
			fmt.Fprintln(w)
		}
	})
}

// knownBy says why an app may be who it says it is.
func knownBy(g store.Grant) string {
	if u, err := url.Parse(g.ClientID); err == nil && u.Scheme == "https" {
		return column(u.Host)
	}
	if g.ClientKind == "registered" {
		return "its own word"
	}
	return "the file"
}

func pathOf(resource string) string {
	if u, err := url.Parse(resource); err == nil {
		return u.Path
	}
	return resource
}

// revokeGrants ends grants by their ids, all of which are looked up before the first one ends.
func (x *signIns) revokeGrants(ctx context.Context, s *storage, words []string) error {
	all, err := s.Grants(ctx, store.GrantFilter{})
	if err != nil {
		return err
	}
	var known []string
	byID := map[string]store.Grant{}
	for _, g := range all {
		known, byID[g.ID] = append(known, g.ID), g
	}
	var chosen []store.Grant
	for _, word := range words {
		id, err := only(known, word, "grant")
		if err != nil {
			return err
		}
		chosen = append(chosen, byID[id])
	}
	ids, err := s.end(ctx, chosen)
	of := ""
	if g := chosen[0]; len(ids) == 0 && err == nil && len(chosen) == 1 && !g.Revoked.IsZero() {
		of = fmt.Sprintf(": it has ended at %s (%s)", stamp(g.Revoked), g.Reason)
	}
	return errors.Join(x.revoked(store.Ended{Grants: ids}, of), err)
}
