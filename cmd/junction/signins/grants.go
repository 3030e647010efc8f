package signins

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"junction/auth/store"
	"junction/cmd/junction/cli"
	"junction/cmd/junction/prose"
)

// grants returns those of a person, or of all if user is "", and of an app, or of all if app is "".
// An app is named by its client_id, by what listedAs takes, or by what it calls itself, which means
// all that do.
func (s *storage) grants(ctx context.Context, user, app string, standing bool) ([]store.Grant, error) {
	all, err := s.Grants(ctx, store.GrantFilter{User: user, Standing: standing})
	if err != nil || app == "" {
		return all, err
	}
	meant, byID := map[string]bool{}, false // client_ids, and whether one is meant by the id of the list
	var names []string
	for _, g := range all {
		listed := listedAs(g.ClientID, app)
		if listed || g.ClientID == app || g.ClientName == app {
			meant[g.ClientID] = true
		}
		byID, names = byID || listed, append(names, g.ClientName)
	}
	switch {
	case len(meant) == 0:
		return nil, noApp(names, app, "was let in", appsListed)
	case byID && len(meant) > 1:
		return nil, fmt.Errorf("%s may be any of %d apps; give more of the id of one, which junction clients list --ended shows", prose.Quote(app), len(meant))
	}
	return slices.DeleteFunc(all, func(g store.Grant) bool { return !meant[g.ClientID] }), nil
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

// grantsCommand is `junction grants`.
func grantsCommand(stdout io.Writer, file *string) *cobra.Command {
	x := &signIns{stdout: stdout, file: file}
	cmd := &cobra.Command{
		Use: "grants", Short: "list the apps that people have let in, or take that back", Args: cli.NoArguments,
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
	list.Args = cli.NoArguments
	x.flags(list)
	list.Flags().BoolVar(&ended, "ended", false, "also those that are over, as long as they are kept")
	revoke := x.command("grants revoke", "revoke ID ...", "end grants, by the beginning of their ids", func(ctx context.Context, s *storage, args []string) error {
		return x.revokeGrants(ctx, s, args)
	})
	revoke.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cli.Usagef("grants revoke needs the ids of grants; junction grants list shows them")
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
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", g.ID[:min(len(g.ID), shown)], column(label(s.people[g.Person.ID])), column(g.ClientName), knownBy(grants[i].ClientID), pathOf(g.Resource),
				column(g.Scope), g.Used, g.Expires)
			if ended {
				fmt.Fprintf(w, "\t%s", strings.TrimSpace(g.Ended+" "+g.Reason))
			}
			fmt.Fprintln(w)
		}
	})
}

const (
	byItself = "its own word"
	byFile   = "the file"
)

// knownBy says why an app with a client_id may be who it says it is.
func knownBy(id string) string {
	if u, err := url.Parse(id); err == nil && u.Scheme == "https" {
		return column(u.Host)
	}
	if strings.HasPrefix(id, "dcr_") {
		return byItself
	}
	return byFile
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
