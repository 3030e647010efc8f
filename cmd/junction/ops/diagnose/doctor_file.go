package diagnose

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"slices"

	"junction/auth/credentials"
	"junction/auth/fetch"
	"junction/auth/oauth"
	"junction/cmd/junction/base/config"
	"junction/upstream"
	"junction/upstream/prose"
)

// Progress is told which upstreams are checked, and what becomes of each. Its functions may be called
// concurrently.
type Progress struct {
	Begin func(upstream string)
	End   func(upstream, result string) // result is in one line
}

// File starts and checks the upstreams of a file: those named in only, or all if only is empty.
func File(ctx context.Context, version, file string, c *config.Config, only []string, tell Progress) (Diagnosis,
	error) {
	limits := c.Limits.WithDefaults()
	executable, _ := os.Executable()
	o := upstream.Options{
		Defaults: c.Defaults, MessageLimit: limits.Message, Depth: limits.Nesting, Items: limits.Items,
		Version: version, Self: executable,
		Sandboxes: config.Sandboxes(config.KeyDir(c.Sessions.KeyFile, os.LookupEnv), file),
		Log:       slog.New(slog.DiscardHandler),
	}
	fetcher, err := c.Outbound.Fetcher()
	if err != nil {
		return Diagnosis{}, err
	}
	o.Roots = fetcher.RootCAs
	o.Writable = append(upstream.Writable(c.Upstreams, o.Sandboxes), c.Writable...)
	var set upstream.Set
	sources, done := Unstored(c, fetcher)
	defer done()
	sources.Use(c.Upstreams)
	var all []examinee
	var known, personal []string
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		u := c.Upstreams[name]
		if u.Off() {
			continue
		}
		known = append(known, name)
		if u.Personal() && u.Blocked == "" {
			personal = append(personal, name)
			continue
		}
		if selection(only).has(name) {
			own := o
			if sources.Tries(u.Auth.Mode) || !u.Auth.Mode.Row().Stores {
				own.Credentials = &credentials.Trial{Sources: sources}
			}
			all = append(all, examinee{name: name, config: u,
				check: func(ctx context.Context) upstream.Report {
					r := set.Check(ctx, name, u, own)
					if guard, err := c.FolderGuard(file, os.LookupEnv); err == nil && r.Waits != nil {
						if f := upstream.FirstPermitted(ctx, guard.Beside(name), ""); f != nil {
							if in := set.CheckIn(ctx, name, u, own, f); in.Err == nil && in.Waits == nil {
								return in // else a folder in it may do, such as a repository
							}
						}
					}
					return r
				}})
		}
	}
	if err := unknownUpstream(only, known); err != nil {
		return Diagnosis{}, err
	}
	for _, e := range all {
		tell.Begin(e.name)
	}
	d := examine(ctx, version, c.Names, all, nil, func(name string, r *upstream.Report) { tell.End(name, resultOf(r)) })
	d.Config = file
	d.nameFile()
	if len(only) == 0 {
		d.compareRules(c, file)
		_, warnings, _ := config.Load(file, os.LookupEnv)
		d.addWarnings(warnings)
	}
	d.leave(c, personal, only)
	d.addProbes(ctx, c, sources, only)
	d.addSends(c, only)
	return d, nil
}

// Unstored returns the sources of credentials without the database, which a proxy may use. done closes them.
func Unstored(c *config.Config, fetcher *fetch.Fetcher) (sources *credentials.Sources, done func()) {
	transport := config.Trusting(fetcher)
	client := oauth.New(oauth.Options{URL: c.PublicURL, Fetch: fetcher, HTTP: transport})
	sources = credentials.New(credentials.Options{OAuth: func() *oauth.Client { return client }})
	return sources, func() {
		sources.Close()
		client.Close()
		transport.CloseIdleConnections()
	}
}

// addProbes asks for the credentials of Junction itself, and adds what was found.
func (d *Diagnosis) addProbes(ctx context.Context, c *config.Config, sources *credentials.Sources, only selection) {
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		u := c.Upstreams[name]
		if u.Auth.Mode.Row().Owner != upstream.OwnerJunction || u.Off() || u.Blocked != "" || !only.has(name) {
			continue
		}
		for _, f := range sources.Probe(ctx, name) {
			found := Finding{Grave: f.Level == credentials.Wrong, Text: f.Text, Advice: f.Remedy}
			if f.Level == credentials.Good || f.Level == credentials.Note {
				found.Kind = KindNote
			}
			d.find(name, found)
		}
	}
}

// addSends adds what requests have beside the credential.
func (d *Diagnosis) addSends(c *config.Config, only selection) {
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		u := c.Upstreams[name]
		if u.Off() || !only.has(name) {
			continue
		}
		for _, text := range u.Sends() {
			d.find(name, Finding{Kind: KindNote, Text: text})
		}
	}
}

// resultOf returns the result of a check in one line.
func resultOf(r *upstream.Report) string {
	switch {
	case r.Waits != nil:
		return upstream.StateWaiting.String()
	case r.Err == nil:
		return "ok"
	}
	return "failed: " + prose.Flat(r.Err.Error())
}
