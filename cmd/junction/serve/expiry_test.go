package serve

import (
	"strings"
	"testing"
	"time"

	"junction/auth"
	"junction/cmd/junction/base/config"
)

// TestExpiryIsAnnouncedTwice follows a key through its last days.
func TestExpiryIsAnnouncedTwice(t *testing.T) {
	end := time.Date(2030, 3, 1, 0, 0, 0, 0, time.UTC)
	r := mustServe(t, "upstreams: { a: { command: [x] } }\n")
	c := &config.Config{}
	c.Auth.APIKeys = []auth.Key{{Name: "ci", Expires: auth.Moment{Time: end}}, {Name: "ever"}}
	r.inForce.reach.Store(&reach{nil, c})
	for days, want := range map[int]int{-20: 0, -13: 1, -5: 0, 0: 1, 3: 0} {
		before := strings.Count(r.stderr.String(), "msg=\"an API key")
		at := end.AddDate(0, 0, days)
		r.inForce.logExpiry(at.AddDate(0, 0, -2), at)
		if got := strings.Count(r.stderr.String(), "msg=\"an API key") - before; got != want {
			t.Errorf("%d days from the end: %d lines, want %d", days, got, want)
		}
		if got := len(r.inForce.expiring(at)); (got == 1) != (days >= -14 && days < 0) {
			t.Errorf("%d days from the end, %d keys are expiring", days, got)
		}
	}
}
