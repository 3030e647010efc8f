package diagnose

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"slices"

	"junction/auth/credentials"
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
	sources := credentials.New(credentials.Options{}) // without the database, which a proxy may use
	defer sources.Close()
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
			if !u.Auth.Mode.Row().Stores {
				own.Credentials = sources
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
	return d, nil
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
