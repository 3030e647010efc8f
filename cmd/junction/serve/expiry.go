package serve

import (
	"context"
	"time"

	"junction/auth"
)

// checkExpiry is how often the expiry of API keys is looked at.
const checkExpiry = 10 * time.Minute

// Run logs API keys that expire soon, and those that have expired, until ctx ends. Those of the
// start are among the warnings about the file.
func (r *inForce) Run(ctx context.Context) error {
	tick := time.NewTicker(checkExpiry)
	defer tick.Stop()
	for before := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			r.logExpiry(before, now)
			before = now
		}
	}
}

// logExpiry logs the keys whose notice has begun, or that have expired, between two times.
func (r *inForce) logExpiry(before, now time.Time) {
	for _, k := range r.reach.Load().config.Auth.APIKeys {
		between := func(t time.Time) bool { return !k.Expires.IsZero() && t.After(before) && !t.After(now) }
		switch {
		case between(k.Expires.Time):
			r.log.Warn("an API key has expired, and is refused", "key", k.Name, "expires", k.Expires)
		case between(k.Expires.Add(-auth.ExpiryNotice)), between(k.Expires.Add(-24 * time.Hour)):
			r.log.Warn("an API key expires soon; create another key of that name, and hand it out", "key", k.Name,
				"expires", k.Expires)
		}
	}
}

// expiring returns the API keys that expire soon.
func (r *inForce) expiring(now time.Time) (list []auth.Key) {
	for _, k := range r.reach.Load().config.Auth.APIKeys {
		if k.Expiring(now) {
			list = append(list, k)
		}
	}
	return list
}
