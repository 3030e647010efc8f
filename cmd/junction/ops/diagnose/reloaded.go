package diagnose

import (
	"fmt"
	"strings"
	"time"

	"junction/cmd/junction/base/config"
)

// Reloaded is the last reload that has changed the upstreams. The lists have names.
type Reloaded struct {
	Time     time.Time `json:"time"`
	Added    []string  `json:"added,omitempty"`
	Changed  []string  `json:"changed,omitempty"`
	Removed  []string  `json:"removed,omitempty"`
	Disabled []string  `json:"disabled,omitempty"`
	More     int       `json:"more,omitempty"` // upstreams that the lists leave out
}

const (
	reloadedFor  = time.Hour // how long a reload is shown
	mostReloaded = 20        // names of each list
)

// NewReloaded returns what a change does to the upstreams; nil if it does nothing to them.
func NewReloaded(change *config.Change, now time.Time) *Reloaded {
	r := &Reloaded{Time: now, Added: change.Added, Changed: change.Changed}
	for _, name := range change.Removed {
		if _, there := change.Config.Upstreams[name]; there {
			r.Disabled = append(r.Disabled, name)
		} else {
			r.Removed = append(r.Removed, name)
		}
	}
	if len(r.Added)+len(r.Changed)+len(change.Removed) == 0 {
		return nil
	}
	for _, list := range []*[]string{&r.Added, &r.Changed, &r.Removed, &r.Disabled} {
		if more := len(*list) - mostReloaded; more > 0 {
			*list, r.More = (*list)[:mostReloaded:mostReloaded], r.More+more
		}
	}
	return r
}

// Lately returns r within an hour after the reload, then nil. r may be nil.
func (r *Reloaded) Lately(now time.Time) *Reloaded {
	if r == nil || now.Sub(r.Time) >= reloadedFor {
		return nil
	}
	return r
}

// String names the upstreams, such as "added notes; removed files".
func (r *Reloaded) String() string {
	var parts []string
	for _, list := range []struct {
		verb  string
		names []string
	}{{"added", r.Added}, {"changed", r.Changed}, {"removed", r.Removed}, {"disabled", r.Disabled}} {
		if len(list.names) > 0 {
			parts = append(parts, list.verb+" "+strings.Join(list.names, ", "))
		}
	}
	if r.More > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", r.More))
	}
	return strings.Join(parts, "; ")
}
