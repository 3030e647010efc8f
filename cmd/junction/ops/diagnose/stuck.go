package diagnose

import (
	"fmt"
	"time"

	"junction/cmd/junction/base/config"
	"junction/policy"
	"junction/upstream"
	"junction/upstream/prose"
)

// This file shows the connections of callers that do not work, beside the one whose state is that of
// the upstream.

// StuckConnection is a connection over which the server does not work.
type StuckConnection struct {
	PID    int       `json:"pid,omitempty"`    // of its process
	Caller string    `json:"caller,omitempty"` // as in CommandProcess
	Since  time.Time `json:"since,omitzero"`   // when a ping got no answer for the first time
	Error  string    `json:"error"`
}

// mostStuck is the most connections of one upstream that are shown.
const mostStuck = 5

// stuckOf returns the connections of an upstream that do not work, and the number of those that are left out.
func stuckOf(all []upstream.Stuck) (list []StuckConnection, more int) {
	for _, c := range all[:min(len(all), mostStuck)] {
		list = append(list, StuckConnection{PID: c.PID, Caller: c.User, Since: c.Since, Error: c.Err})
	}
	return list, len(all) - len(list)
}

// String returns a sentence without a full stop.
func (c StuckConnection) String() string {
	what, silent := "a connection", "had no answer"
	if c.PID != 0 {
		what, silent = fmt.Sprintf("process %d", c.PID), "answered nothing"
	}
	if c.Caller != "" {
		what += " of " + prose.Flat(c.Caller)
	}
	if c.Since.IsZero() {
		return what + " does not work: " + prose.Flat(c.Error)
	}
	return fmt.Sprintf("%s has %s since %s", what, silent, c.Since.UTC().Format("15:04:05 UTC"))
}

// Stuck says how many connections of users do not work, to be added to Works; "" if all do.
func Stuck(n int) string {
	if n <= 0 {
		return ""
	}
	return ", and " + silent(n)
}

// stuckCount returns how many connections of users do not work.
func (u *UpstreamStatus) stuckCount() int {
	if u.State == upstream.StateDegraded.String() {
		return u.Degraded - 1
	}
	return u.Degraded
}

// silent returns how many connections of users do not work; "" if all do.
func silent(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%s of users %s not work", prose.Count(n, "connection"), plural(n, "does", "do"))
}

// awaited returns that a server has not answered a ping, and when it is degraded; "" if no ping is awaited for long.
func awaited(a *upstream.Awaited) string {
	if a.Since.IsZero() {
		return ""
	}
	return fmt.Sprintf("the server has not answered a ping since %s; it is degraded at %s, unless it answers: until "+
		"then it may work on a call that its client has cancelled", a.Since.UTC().Format(timeUTC),
		a.Until.UTC().Format(timeUTC))
}

const timeUTC = "15:04:05 UTC"

// stuckAdvice is the remedy: no command ends the connection of one caller alone.
func stuckAdvice(file, name string) string {
	return config.Command(file, "reconnect", name) + " ends all processes and connections of the server, with the " +
		"calls on them, and the next call starts another one"
}

// stuck returns a finding for each connection of a caller that does not work.
func (e *examinee) stuck() (list []Finding) {
	if e.status == nil {
		return nil
	}
	few, more := stuckOf(e.status.Stuck)
	for _, c := range few {
		f := Finding{Grave: true, Text: c.String()}
		if !c.Since.IsZero() { // else Text has the reason
			f.Detail = prose.Flat(c.Error)
		}
		list = append(list, f)
	}
	if more > 0 {
		list = append(list, Finding{Grave: true, Text: prose.Count(more, "more connection") + " of users " +
			plural(more, "does", "do") + " not work"})
	}
	for i := range list {
		list[i].Advice = stuckAdvice("", e.name)
	}
	return list
}

// stateFor returns the status of an upstream for one caller: if a connection that takes the calls of this caller
// does not work, the upstream is degraded.
func (p *Proxy) stateFor(s upstream.Status, who *policy.Subject) upstream.Status {
	if s.State != upstream.StateReady && s.State != upstream.StateClosed {
		return s
	}
	for _, c := range s.Stuck {
		if c.Principal != "" && c.Principal != who.ID {
			continue
		}
		shown := StuckConnection{PID: c.PID, Caller: c.User, Since: c.Since, Error: c.Err}
		s.State, s.Err, s.Advice = upstream.StateDegraded, shown.String(), stuckAdvice(p.File, s.Name)
		if !c.Since.IsZero() {
			s.Since = c.Since
		}
		return s
	}
	return s
}
