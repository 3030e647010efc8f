package pages

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"junction/proxy/front"
)

// recentData is the data of the page of calls and sessions.
type recentData struct {
	Last     []Call
	Latest   []sessionData
	Sessions int
}

type sessionData struct {
	front.SessionStatus
	By string // the caller, for people
}

// recent builds the page of calls and sessions.
func (s *Site) recent(_ *http.Request, d *pageData) bool {
	c := &recentData{Last: s.Calls.Last()}
	names := map[string]string{} // of users, by their ids
	for _, one := range c.Last {
		names[one.Caller] = one.By()
	}
	latest, total := s.Sessions()
	c.Sessions = total
	for _, one := range latest {
		c.Latest = append(c.Latest, sessionData{one, cmp.Or(names[one.Principal], one.Principal)})
	}
	d.Title, d.Data = "Calls", c
	d.parts["calls"], d.parts["sessions"] = part{"calls", d}, part{"sessions", d}
	return true
}

// Millis returns a duration in whole milliseconds.
func (*pageData) Millis(d time.Duration) string {
	return strconv.FormatInt(d.Round(time.Millisecond).Milliseconds(), 10) + " ms"
}

// recentVersions names the parts of the page of calls.
func (s *Site) recentVersions(now *seen, add adder) {
	add("calls", s.Calls.Added())
	add("sessions", now.sessions, now.total)
}
