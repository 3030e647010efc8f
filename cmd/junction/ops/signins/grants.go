package signins

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"junction/auth/store"
	"junction/cmd/junction/base/cli"
	"junction/upstream/prose"
)

// grants returns the grants of a user and of an app; "" means all users or all apps. An app is
// named by its client_id, by a word that listedAs accepts, or by its name, which may match several
// apps.
func (s *storage) grants(ctx context.Context, user, app string, standing bool) ([]store.Grant, error) {
	all, err := s.Grants(ctx, store.GrantFilter{User: user, Standing: standing})
	if err != nil || app == "" {
		return all, err
	}
	meant, byID := map[string]bool{}, false // client_ids, and whether app is a short id of one, as in lists
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
		return nil, noApp(names, app, "has a grant", appsListed)
	case byID && len(meant) > 1:
		return nil, fmt.Errorf("%s matches %d apps; write more characters of the id; list the apps with junction "+
			"clients list --ended", prose.Quote(app), len(meant))
	}
	return slices.DeleteFunc(all, func(g store.Grant) bool { return !meant[g.ClientID] }), nil
}

// end revokes grants and returns the ids of those that were active.
func (s *storage) end(ctx context.Context, grants []store.Grant) (ids []string, err error) {
	for _, g := range grants {
		stood, err := s.RevokeGrant(ctx, g.ID, byOperator)
		if err != nil {
			return ids, err
		}
		if stood {
			ids = append(ids, g.ID)
			err = s.Audit(ctx, store.Event{Event: "grant_revoked", Principal: g.User, ClientID: g.ClientID,
				Detail: byTheOperator})
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
		Use: "grants", Short: "List the grants of apps or revoke them", Args: cli.NoArguments,
		Long: "List the grants of apps or revoke them. A grant is the access that a user has approved for an app; " +
			"after it is\n" +
			`revoked, the user has to approve the app again.

These commands edit the database directly, and the running proxy on this machine applies the change at once.
A proxy that they do not reach applies it within ten seconds.`,
		Example: `  junction grants list --config config.yaml
  junction grants list --user ann@example.com --output json --config config.yaml
  junction grants revoke q3hT0aXb --config config.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	ended := false
	list := x.command("grants list", "list", "List the grants, last used first",
		func(ctx context.Context, s *storage, _ []string) error {
			return x.listGrants(ctx, s, ended)
		})
	list.Args = cli.NoArguments
	x.flags(list)
	list.Flags().BoolVar(&ended, "ended", false, "include ended grants that are still stored")
	revoke := x.command("grants revoke", "revoke ID ...", "Revoke grants by their ids", x.revokeGrants)
	revoke.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cli.Usagef("grants revoke needs the ids of grants; list them with junction grants list")
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
	var list []grantJSON
	for _, g := range grants {
		j := grantJSON{g.ID, personOf(s.people[g.User]), g.ClientID, g.ClientName, g.ClientKind, g.RedirectHost,
			g.Resource, g.Scope, stamp(g.Created), stamp(g.Used),
			stamp(g.Expires), stamp(g.Revoked), g.Reason}
		if g.Revoked.IsZero() && !time.Now().Before(g.Expires) {
			j.Ended, j.Reason = j.Expires, "expired"
		}
		list = append(list, j)
	}
	head := []any{"ID", "PERSON", "APP", "KNOWN BY", "ENDPOINT", "SCOPE", "USED", "EXPIRES", "ENDED"}
	columns := len(head)
	if !ended {
		columns--
	}
	return cli.List[grantJSON]{
		Name: "grants", Of: list, None: "no app has a grant", Head: head[:columns],
		Cells: func(g grantJSON) []any {
			_, name := g.Person.cells()
			cells := []any{g.ID[:min(len(g.ID), shown)], name, column(g.ClientName), knownBy(g.ClientID),
				pathOf(g.Resource), column(g.Scope), g.Used, g.Expires, strings.TrimSpace(g.Ended + " " + g.Reason)}
			return cells[:columns]
		},
	}.Print(x.stdout, x.asJSON())
}

const (
	byItself = "self-registered (unverified)"
	byFile   = "the file"
)

// knownBy returns how the identity of an app is verified.
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

// revokeGrants ends grants by their ids. It looks all of them up before it ends the first one.
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
	chosen, err := lookUp(words, func(word string) (store.Grant, error) {
		id, err := only(known, word, "grant")
		return byID[id], err
	})
	if err != nil {
		return err
	}
	ids, err := s.end(ctx, chosen)
	suffix := ""
	if g := chosen[0]; len(ids) == 0 && err == nil && len(chosen) == 1 && !g.Revoked.IsZero() {
		suffix = fmt.Sprintf(": the grant ended at %s (%s)", stamp(g.Revoked), g.Reason)
	}
	return errors.Join(x.revoked(ctx, store.Ended{Grants: ids}, suffix), err)
}
