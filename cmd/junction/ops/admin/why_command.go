package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"junction/auth"
	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/ops/diagnose"
	"junction/policy"
	"junction/proxy/search"
	"junction/upstream"
	"junction/upstream/prose"
)

// whyCommand is `junction why`.
func whyCommand(stdout io.Writer, file *string, complete cli.Completion) *cobra.Command {
	var q diagnose.WhyQuery
	var admin, output string
	cmd := &cobra.Command{
		Use:               "why --as WHO NAME",
		ValidArgsFunction: complete,
		Short:             "Explain why a caller can or cannot see a tool",
		Long: `Explain why a caller can or cannot see a tool, a prompt or a resource: its exposed name, the rules that
decide, missing capabilities, the state of its upstream, and what to do. The command asks the admin address
of the running proxy.

WHO is the name of an API key, the e-mail address of a user who has signed in (with the groups of the last
sign-in, unless --group names others), user:NAME (with --group, --scope and so on as far as policies match
them), or local where authentication is not configured. NAME is the exposed name or the upstream's own name.

The exit code is 1 if the caller cannot use the item.`,
		Example: `  junction why --as ci shell__run
  junction why --as jane@example.com search__find
  junction why --as user:jane --group engineering --endpoint /web/mcp search__find
  junction why --as local file:///etc/motd`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usagef("why takes one name of a tool, a prompt or a resource; list the tools with " +
					"junction tools")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			q.Name = args[0]
			if err := cmp.Or(cli.CheckOutput(output), checkAdmin(cmd, admin)); err != nil {
				return err
			}
			if _, err := q.Subject(); err != nil && q.As != "" { // the proxy knows whether there is only one caller
				return cli.Usagef("%w", err)
			}
			address, err := adminAddress(cmd.Context(), admin, *file)
			if err != nil {
				return err
			}
			if address == "" {
				return fmt.Errorf("%w with %s and an admin address; start one: %s", ErrNotRunning, *file,
					runfile.Start(*file))
			}
			var a diagnose.WhyReport
			ask := adminRequest{path: "/why", query: q.Values(), owner: true}
			if err := ask.send(cmd.Context(), address, diagnose.Patience, &a); errors.Is(err, ErrNotRunning) {
				return fmt.Errorf("%w; %s", err, startOne(admin, *file, "or name its admin address with --admin"))
			} else if err != nil {
				return err
			}
			err = cli.Print(stdout, output == "json", a, accountText(cli.NewPage(stdout), &a, time.Now()))
			if err == nil && !usable(&a) {
				err = cli.ErrTool // the report has been printed
			}
			return err
		},
	}
	cmd.Flags().StringVar(&q.As, "as", "", "the caller: `WHO` is the name of a key, an e-mail address, user:NAME, or "+
		"local; not needed without authentication")
	cmd.Flags().StringVar(&q.Endpoint, "endpoint", "/mcp", "`path` of the endpoint")
	cmd.Flags().StringVar(&q.From, "from", "", "`address` that the requests come from")
	cmd.Flags().StringSliceVar(&q.Groups, "group", nil, "`group` of the user; may be repeated")
	cmd.Flags().StringSliceVar(&q.Scopes, "scope", nil, "granted `scope`; may be repeated")
	cmd.Flags().StringVar(&q.Email, "email", "", "verified e-mail `address` of the user")
	cmd.Flags().StringVar(&q.Issuer, "issuer", "", "`URL` of the issuer of the user's tokens")
	cmd.Flags().StringVar(&q.OAuthClient, "oauth-client", "", "client `id` that the user signed in with")
	adminFlag(cmd, &admin)
	cli.OutputFlag(cmd, &output)
	return cmd
}

// Exposes reports whether the running junction of a file has an item of that name, which a policy may hide from the
// caller. as is as in the flag --as. It is false if no junction answers that this user owns.
func Exposes(ctx context.Context, file, as, name string) bool {
	address, err := adminAddress(ctx, "", file)
	if err != nil || address == "" {
		return false
	}
	q := diagnose.WhyQuery{Name: name, As: as, Endpoint: "/mcp"}
	var a diagnose.WhyReport
	ask := adminRequest{path: "/why", query: q.Values(), owner: true}
	return ask.send(ctx, address, ownLimit, &a) == nil && slices.ContainsFunc(a.Items, func(i diagnose.WhyItem) bool {
		return i.Exposed == name
	})
}

// usable reports whether an item exists that the caller can use now.
func usable(a *diagnose.WhyReport) bool {
	return a.Refused == "" && slices.ContainsFunc(a.Items, func(i diagnose.WhyItem) bool {
		works := i.State == upstream.StateReady.String() || i.State == upstream.StateClosed.String()
		return i.Visible && !i.NoFolder && works
	})
}

// accountText returns a report as text, on an empty page.
func accountText(b *prose.Page, a *diagnose.WhyReport, now time.Time) string {
	if a.Email != "" {
		groups := "no groups"
		if len(a.Groups) > 0 {
			groups = "the groups " + prose.Flat(strings.Join(a.Groups, ", "))
		}
		b.Wrap("", "", fmt.Sprintf("%s was last seen %s ago, with %s.", prose.Flat(a.Email),
			prose.Age(now.Sub(a.Seen)), groups))
	}
	if a.Refused != "" {
		b.Wrap("", "", fmt.Sprintf("%s rejected: %s", does(a, "is", "are"), prose.Flat(a.Refused)))
		if len(a.Items) == 0 && len(a.Hints) == 0 { // the caller does not exist
			return b.String()
		}
		b.WriteString("With a valid credential:\n\n")
	}
	for i := range a.Items {
		if i > 0 {
			b.WriteByte('\n')
		}
		printItem(b, a, &a.Items[i], now)
	}
	if len(a.Items) == 0 {
		b.Wrap("", "", fmt.Sprintf("No item named %s on %s.", prose.Flat(a.Name), a.Endpoint))
	}
	for _, h := range a.Hints {
		b.Wrap("  → ", "    ", prose.Tilde(prose.Flat(h)))
	}
	return b.String()
}

// caller returns whom the report is about.
func caller(a *diagnose.WhyReport) string {
	if a.As == string(auth.KindLocal) {
		return "You (no sign-in)"
	}
	return prose.Flat(cmp.Or(a.Email, a.As))
}

// does returns the caller and a verb, whose form fits a name or "you".
func does(a *diagnose.WhyReport, name, you string) string {
	if a.As == string(auth.KindLocal) {
		return caller(a) + " " + you
	}
	return caller(a) + " " + name
}

// printItem prints what is known of one item: the sentence, a field for each fact, the reasons, the advice.
func printItem(b *prose.Page, a *diagnose.WhyReport, i *diagnose.WhyItem, now time.Time) {
	b.Wrap("", "", seen(a, i)+".")
	field := func(name, value string) {
		if value != "" {
			b.Wrap(fmt.Sprintf("  %-9s ", name), strings.Repeat(" ", 12), value)
		}
	}
	if i.Exposed != "" && i.Own != i.Exposed {
		field("is", fmt.Sprintf("%s of %s", prose.Flat(i.Own), prose.Flat(i.Upstream)))
	}
	field("calls", callsOf(i))
	field("upstream", prose.Flat(i.Upstream)+" is "+stateOf(i, now))
	field("folder", prose.Flat(i.Folder))
	field("cache", i.Cache)
	field("time", prose.Flat(i.Limits))
	var bounds []string
	for _, l := range i.Bounds {
		if l.From != "" { // the JSON has the built-in ones, too
			bounds = append(bounds, l.String())
		}
	}
	title := "limits"
	if bounds != nil {
		field(title, prose.Flat(strings.Join(bounds, ", ")))
		title = ""
	}
	for _, l := range i.CallLimits {
		field(title, prose.Flat(fmt.Sprintf("%s: %s, by the policy %s, for all calls of the caller together",
			strings.TrimPrefix(l.Key, "limits."), l.Value, l.Policy)))
		title = ""
	}
	field("changed", prose.Flat(i.Changed))
	field("problem", prose.Flat(i.Problem))
	field("held", prose.Flat(i.Held))
	title = "because"
	for _, r := range i.Reasons {
		if i.Visible && r.Rule == "" && r.Missing == "" && r.Scopes == "" {
			continue // layers without a decision matter only if nothing allows the item
		}
		field(title, lineOf(a, i, &r))
		title = ""
	}
	for _, text := range i.Advice {
		b.Wrap("  → ", "    ", prose.Tilde(prose.Flat(text)))
	}
}

// seen returns the sentence about whether the caller sees an item.
func seen(a *diagnose.WhyReport, i *diagnose.WhyItem) string {
	switch {
	case i.Exposed == "":
		return fmt.Sprintf("The %s %s of %s is not offered at %s", i.Kind, prose.Flat(i.Own), prose.Flat(i.Upstream),
			a.Endpoint)
	case !i.Visible:
		return fmt.Sprintf("%s not see the %s %s at %s", does(a, "does", "do"), i.Kind, prose.Flat(i.Exposed),
			a.Endpoint)
	case !i.Listed && i.Kind == upstream.PartTools.String():
		return fmt.Sprintf("%s may call the tool %s at %s; its list does not contain it (catalog: search), "+
			"and %s finds it", caller(a), prose.Flat(i.Exposed), a.Endpoint, search.ToolName)
	case !i.Listed:
		return fmt.Sprintf("%s may read %s at %s; no list contains it", caller(a), prose.Flat(i.Exposed), a.Endpoint)
	}
	return fmt.Sprintf("%s the %s %s at %s", does(a, "sees", "see"), i.Kind, prose.Flat(i.Exposed), a.Endpoint)
}

// callsOf returns the verdict of calls; "" if the item has none to show.
func callsOf(i *diagnose.WhyItem) string {
	call := map[string]string{"allow": "allowed", "ask": "allowed after approval by the user",
		"deny": "denied"}[i.Verdict]
	switch {
	case i.Exposed == "":
		return ""
	case i.NoFolder && i.Visible && i.Verdict != "deny":
		return "fail from a folder: clients may name none"
	case i.Reads:
		return "depend on the arguments; without arguments: " + call
	case i.Visible && i.Kind == upstream.PartTools.String():
		return call
	}
	return ""
}

// stateOf returns the state of the item's upstream, with its time and error.
func stateOf(i *diagnose.WhyItem, now time.Time) string {
	state := i.State
	if since, err := time.Parse(time.RFC3339, i.Since); err == nil {
		state += fmt.Sprintf(" for %s, since %s", prose.Age(now.Sub(since)), since.Local().Format(time.DateTime))
	}
	if i.Error != "" {
		state += ": " + prose.Tilde(prose.Flat(i.Error))
	}
	return state
}

// lineOf returns a reason about an item as text. It tells the two files apart that decide after a reload
// that was refused in part.
func lineOf(a *diagnose.WhyReport, i *diagnose.WhyItem, r *diagnose.WhyReason) string {
	if r.Newer {
		return "by the new file, " + lineOfOne(a, i, r)
	}
	return lineOfOne(a, i, r)
}

// lineOfOne is lineOf for a reason of one file.
func lineOfOne(a *diagnose.WhyReport, i *diagnose.WhyItem, r *diagnose.WhyReason) string {
	switch {
	case r.Missing != "":
		return "the capability " + prose.Flat(r.Missing) + " is missing"
	case r.Scopes != "":
		return "the token lacks a scope; needed are: " + prose.Flat(r.Scopes)
	case r.Policy == "" && r.Rule == "" && r.Note == policy.NoPolicy:
		return map[string]string{"own": "the caller has no policy of its own",
			"surface": "the endpoint has no policy of its own", "global": "no policy applies to everybody"}[r.Layer]
	case r.Policy == "" && r.Rule == "":
		return prose.Flat(cmp.Or(r.Note, "no reason given") + layerOf(r.Layer))
	case r.Rule == "" && r.Note == policy.NoRule:
		return prose.Flat(fmt.Sprintf("the policy %s has no rule for this %s", r.Policy, i.Kind))
	case r.Rule == "":
		return prose.Flat(fmt.Sprintf("%s: %s%s", r.Policy, r.Note, layerOf(r.Layer)))
	}
	text := fmt.Sprintf("%s %s: %s", r.Policy, r.Rule, r.Verdict)
	if r.Unmet != "" {
		text = fmt.Sprintf("%s %s does not match: %s; it would %s", r.Policy, r.Rule, r.Unmet, r.Verdict)
	}
	if r.Where != "" {
		text += " where " + r.Where
	}
	if r.Annotations != "" {
		text += " by its " + r.Annotations
	}
	text += layerOf(r.Layer)
	if v, ok := policy.VerdictOf(r.Verdict); r.Enforced && !(ok && v.Allows()) {
		text = strings.TrimSuffix(text, ")") + ", enforced)"
	}
	if r.Note != "" {
		text += "; but " + r.Note
	}
	if r.Place != "" {
		text += " [" + prose.Tilde(r.Place) + "]"
	}
	return prose.Flat(text)
}

// layerOf returns the layer of a policy as text.
func layerOf(layer string) string {
	switch layer {
	case "own":
		return " (of the caller's own policies)"
	case "surface":
		return " (of the endpoint's surface)"
	case "global":
		return " (of the global policies)"
	}
	return ""
}
