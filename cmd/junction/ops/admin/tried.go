package admin

import (
	"context"
	"slices"
	"time"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/ops/diagnose"
	"junction/upstream"
	"junction/upstream/prose"
)

// This file shows the first attempts of upstreams of the running junction.

// WatchTried shows the first attempts of the named upstreams of the running junction that serves a file, as
// how says.
func WatchTried(ctx context.Context, path string, names []string, how *cli.Waiting) {
	var list []diagnose.UpstreamStatus
	how.Doing = "Starting"
	how.Watch(ctx, func() (rows []cli.Row) {
		if now := AwaitTried(ctx, path, names, 0); now != nil || ctx.Err() == nil {
			list = now
		}
		for _, name := range names { // in their order
			if n := slices.IndexFunc(list, func(u diagnose.UpstreamStatus) bool { return u.Name == name }); n >= 0 {
				rows = append(rows, RowOf(path, &list[n]))
			}
		}
		return rows
	})
}

// RowOf returns the row of an upstream of the running junction that serves a file.
func RowOf(path string, u *diagnose.UpstreamStatus) cli.Row {
	starts, later := u.State == upstream.StateStarting.String(), ""
	text := u.Name + ": " + u.State
	if starts {
		text += " for " + prose.Age(time.Since(u.Since))
		later = "; " + config.Command(path, "status") + " shows the result"
	}
	switch {
	case u.Error != "":
		text += ": " + u.Error
		if u.Advice != "" {
			text += "; " + u.Advice
		}
	case u.State == upstream.StateReady.String():
		text += ", " + prose.Count(u.Tools, "tool") // those that clients get
		if u.NoFolder {
			text += ", and " + u.Note
		}
	case u.Note != "":
		text += ": " + u.Note
	}
	return cli.Row{Name: u.Name, Text: prose.Tilde(prose.Flat(text)), Known: !starts, Later: later}
}
