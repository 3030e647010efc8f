package signins

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"junction/auth/authserver"
	"junction/auth/store"
	"junction/cmd/junction/base/cli"
	"junction/upstream/loopback"
	"junction/upstream/prose"
	"junction/upstream/shell"
)

// app is a client that has grants or is blocked.
type app struct {
	store.Block        // only ClientID and ClientName are set unless the app is blocked
	grants, people int // active grants, and the number of their users
	used           time.Time
	hosts          []string // redirect hosts of all stored grants
}

func (a *app) id() string { return appID(a.ClientID) }

// appID returns the short id of an app for lists. A client_id is too long for that, and many begin
// alike.
func appID(clientID string) string {
	sum := sha256.Sum256([]byte(clientID))
	return hex.EncodeToString(sum[:16])
}

// listedAs reports whether word identifies an app: the beginning of its id in lists, or of its
// client_id as the log shortens it ("…"). It needs at least shortest characters.
func listedAs(clientID, word string) bool {
	if logged, ok := strings.CutSuffix(word, "…"); ok {
		return len(logged) >= shortest && strings.HasPrefix(clientID, logged)
	}
	return len(word) >= shortest && strings.HasPrefix(appID(clientID), word)
}

func (a *app) label() string { return cmp.Or(a.ClientName, a.ClientID) }

func (a *app) blocked() bool { return !a.At.IsZero() }

// apps returns all apps that are blocked or have stored grants, blocked ones first, then the last used
// first.
func (s *storage) apps(ctx context.Context) (all []*app, err error) {
	blocks, err := s.Blocks(ctx)
	if err != nil {
		return nil, err
	}
	grants, err := s.Grants(ctx, store.GrantFilter{})
	if err != nil {
		return nil, err
	}
	known := map[string]*app{}
	add := func(b store.Block) *app {
		a := known[b.ClientID]
		if a == nil {
			a = &app{Block: b}
			known[b.ClientID], all = a, append(all, a)
		}
		return a
	}
	for _, b := range blocks {
		add(b)
	}
	people := map[[2]string]bool{}
	for _, g := range grants {
		a := add(store.Block{ClientID: g.ClientID, ClientName: g.ClientName})
		a.ClientName = cmp.Or(a.ClientName, g.ClientName)
		a.used = slices.MaxFunc([]time.Time{a.used, g.Used}, time.Time.Compare)
		if host := withoutPort(g.RedirectHost); !slices.Contains(a.hosts, host) {
			a.hosts = append(a.hosts, host)
		}
		if !stands(g) {
			continue
		}
		if a.grants++; !people[[2]string{g.ClientID, g.User}] {
			people[[2]string{g.ClientID, g.User}] = true
			a.people++
		}
	}
	for _, a := range all {
		slices.Sort(a.hosts)
	}
	return all, nil
}

// withoutPort removes the port of a loopback host, because such apps use a new port each time.
func withoutPort(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil && loopback.Host(name) {
		return name
	}
	return host
}

func stands(g store.Grant) bool { return g.Revoked.IsZero() && time.Now().Before(g.Expires) }

// chooseApp returns the app that word identifies: by its client_id, by listedAs, or by its name,
// which several apps may share. A word in the form of a client_id is not compared with names. The
// result is nil if no app matches.
func chooseApp(all []*app, word string) (*app, error) {
	named := knownBy(word) == byFile
	a, _, err := choose(all, word, "apps; give the id of one", func(a *app) (exactly, partly bool) {
		return a.ClientID == word || a.id() == word, named && a.ClientName == word || listedAs(a.ClientID, word)
	}, func(a *app) string {
		about := shell.Visible(a.label()) + ", " + knownBy(a.ClientID)
		if len(a.hosts) > 0 {
			about += ", returns to " + column(strings.Join(a.hosts, ", "))
		}
		return a.id() + " (" + about + ")"
	})
	return a, err
}

const appsListed = "list the apps with junction clients list --ended"

// noApp returns the error for a word that matches none of the apps with these names. property
// describes these apps. then is the remedy if no name is similar.
func noApp(names []string, word, property, then string) error {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	return fmt.Errorf("no app with the id or the name %s %s; %s", prose.Quote(word), property,
		shell.Visible(prose.DidYouMean(names, word, then)))
}

func labels(apps []*app) (names []string) {
	for _, a := range apps {
		names = append(names, a.label())
	}
	return names
}

// toBlock returns the app to block. An app without grants is named by its full client_id.
func (s *storage) toBlock(all []*app, word string) (*app, error) {
	a, err := chooseApp(all, word)
	if a != nil || err != nil {
		return a, err
	}
	switch knownBy(word) {
	case byFile:
		return nil, noApp(labels(all), word, "has a grant", appsListed)
	case byItself:
		name, err := authserver.NameOf(s.keys, word)
		if err != nil {
			return nil, fmt.Errorf("%s is no client_id of this server: a part of it may be missing", prose.Quote(word))
		}
		return &app{Block: store.Block{ClientID: word, ClientName: name}}, nil
	}
	if _, err := authserver.NameOf(s.keys, word); err != nil {
		return nil, fmt.Errorf("%s is no client_id: %w", prose.Quote(word), err)
	}
	return &app{Block: store.Block{ClientID: word}}, nil
}

// clientsCommand is `junction clients`.
func clientsCommand(stdout io.Writer, file *string) *cobra.Command {
	x := &signIns{stdout: stdout, file: file}
	cmd := &cobra.Command{
		Use: "clients", Short: "List the apps with grants or block one", Args: cli.NoArguments,
		Long: `List the apps with grants or block one.

A blocked app loses its grants, and users cannot approve it until it is unblocked. The approval page says so.

These commands edit the database directly, and the running proxy on this machine applies the change at once.
A proxy that they do not reach applies it within ten seconds.`,
		Example: `  junction clients list --config config.yaml
  junction clients block 3f9a01bc --reason "asks for passwords" --config config.yaml
  junction clients block https://app.example.com/oauth/client.json --config config.yaml
  junction clients unblock 3f9a01bc --config config.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	ended := false
	list := x.command("clients list", "list", "List the apps that have grants or are blocked",
		func(ctx context.Context, s *storage, _ []string) error {
			return x.listClients(ctx, s, ended)
		})
	list.Long = `List the apps that have grants or are blocked.

App names are not verified: an app may use the name of another app. RETURNS TO, the host to which sign-ins
return, is verified. KNOWN BY is verified if it is a host or the file.`
	list.Args = cli.NoArguments
	list.Flags().BoolVar(&ended, "ended", false, "include apps whose grants have all ended but are still stored")
	reason := ""
	block := x.command("clients block", "block APP ...", "Block apps and end their grants",
		func(ctx context.Context, s *storage, args []string) error {
			return x.blockClients(ctx, s, args, reason)
		})
	block.Long = "Block apps and end their grants. APP is an id of the list or the beginning of an id, the app's " +
		"name if it is\n" +
		`unique, or its full client_id. URLs and dcr_… ids can be blocked in advance, before anyone has approved them.

A self-registered app (KNOWN BY in the list) can register again, under another name or address or after the
master keys were rotated; the new registration is not blocked. To reject all self-registered apps, set
clients: { dcr: off } in auth.oauth. A host may describe several apps: to accept only apps of some hosts, set
clients: { cimd: { trust: allowlist, hosts: [...] } }.`
	block.Flags().StringVar(&reason, "reason", "", "`reason`, shown only by clients list")
	block.Args = apps("clients block")
	unblock := x.command("clients unblock", "unblock APP ...", "Unblock apps", x.unblockClients)
	unblock.Args = apps("clients unblock")
	cmd.AddCommand(list, block, unblock)
	return cmd
}

// apps requires at least one app.
func apps(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 || slices.Contains(args, "") {
			return cli.Usagef("%s needs the ids of apps; list them with junction clients list", what)
		}
		return nil
	}
}

type clientJSON struct {
	ID       string   `json:"id"`
	ClientID string   `json:"client_id"`
	Name     string   `json:"client_name,omitempty"`
	Hosts    []string `json:"redirect_hosts"`
	People   int      `json:"people"`
	Grants   int      `json:"grants"` // active
	Used     string   `json:"used,omitempty"`
	Blocked  string   `json:"blocked,omitempty"` // since when
	Reason   string   `json:"reason,omitempty"`
}

func (x *signIns) listClients(ctx context.Context, s *storage, ended bool) error {
	all, err := s.apps(ctx)
	if err != nil {
		return err
	}
	var list []clientJSON
	for _, a := range all {
		if ended || a.grants > 0 || a.blocked() {
			list = append(list, clientJSON{a.id(), a.ClientID, a.ClientName, append([]string{}, a.hosts...), a.people,
				a.grants, stamp(a.used), stamp(a.At), a.Reason})
		}
	}
	return cli.List[clientJSON]{
		Name: "clients", Of: list, None: "no app has a grant, and none is blocked",
		Head: []any{"ID", "APP", "KNOWN BY", "RETURNS TO", "PEOPLE", "GRANTS", "USED", "BLOCKED"},
		Cells: func(c clientJSON) []any {
			return []any{c.ID[:shown], column(cmp.Or(c.Name, c.ClientID)), knownBy(c.ClientID),
				column(strings.Join(c.Hosts, ", ")), c.People, c.Grants, cmp.Or(c.Used, "never"),
				strings.TrimSpace(c.Blocked + " " + column(c.Reason))}
		},
	}.Print(x.stdout, x.asJSON())
}

type clientIDs struct {
	ID       string `json:"id"`
	ClientID string `json:"client_id"`
}

type blockedJSON struct {
	clientIDs
	Grants []string `json:"grants"` // revoked by the block
}

// blockClients blocks apps. It looks all of them up before it blocks the first one.
func (x *signIns) blockClients(ctx context.Context, s *storage, words []string, reason string) error {
	all, err := s.apps(ctx)
	if err != nil {
		return err
	}
	chosen, err := lookUp(words, func(word string) (*app, error) { return s.toBlock(all, word) })
	if err != nil {
		return err
	}
	return each(x, "blocked", chosen, func(a *app) (blockedJSON, error) {
		a.Reason = reason
		ended, err := s.BlockClient(ctx, a.Block)
		if err == nil {
			err = s.Audit(ctx, store.Event{Event: "client_blocked", ClientID: a.ClientID, Detail: byTheOperator})
		}
		return blockedJSON{clientIDs{a.id(), a.ClientID}, append([]string{}, ended...)}, err
	}, func(a *app, b blockedJSON) string {
		if len(b.Grants) == 0 {
			return fmt.Sprintf("Blocked: %s. It had no grants.", a)
		}
		return fmt.Sprintf("Blocked: %s. Ended: %s. %s", a, prose.Count(len(b.Grants), "grant"), x.effect(ctx))
	})
}

// String returns the app as messages name it.
func (a *app) String() string {
	return fmt.Sprintf("%s (%s, %s)", shell.Visible(prose.Cut(a.label(), shownText)), a.id()[:shown],
		knownBy(a.ClientID))
}

// unblockClients unblocks apps. It looks all of them up before it unblocks the first one.
func (x *signIns) unblockClients(ctx context.Context, s *storage, words []string) error {
	all, err := s.apps(ctx)
	if err != nil {
		return err
	}
	out := slices.DeleteFunc(slices.Clone(all), func(a *app) bool { return !a.blocked() })
	chosen, err := lookUp(words, func(word string) (*app, error) {
		a, err := chooseApp(out, word)
		if a == nil && err == nil {
			err = noApp(labels(out), word, "is blocked", "list the blocked apps with junction clients list")
		}
		return a, err
	})
	if err != nil {
		return err
	}
	return each(x, "unblocked", chosen, func(a *app) (clientIDs, error) {
		err := s.UnblockClient(ctx, a.ClientID)
		if err == nil || errors.Is(err, store.ErrNotFound) { // another command was faster
			err = s.Audit(ctx, store.Event{Event: "client_unblocked", ClientID: a.ClientID, Detail: byTheOperator})
		}
		return clientIDs{a.id(), a.ClientID}, err
	}, func(a *app, _ clientIDs) string {
		return fmt.Sprintf("No longer blocked: %s. Its grants stay ended: users have to approve it again.", a)
	})
}
