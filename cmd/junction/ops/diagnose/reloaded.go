package diagnose

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"junction/cmd/junction/base/config"
	"junction/upstream/prose"
)

// Reloads are the last reloads that have changed something, the newest first. They are not changed.
type Reloads []Reloaded

// With returns the reloads with a newer one.
func (list Reloads) With(r *Reloaded) Reloads {
	return append(Reloads{*r}, list[:min(len(list), mostReloads-1)]...)
}

// Lately returns the reloads of the hour before now.
func (list Reloads) Lately(now time.Time) Reloads {
	for i := range list {
		if now.Sub(list[i].Time) >= reloadedFor {
			return list[:i]
		}
	}
	return list
}

// Removed returns when an upstream was removed; false if no reload has removed it.
func (list Reloads) Removed(name string) (time.Time, bool) {
	for i := range list {
		if slices.Contains(list[i].Removed, name) {
			return list[i].Time, true
		}
	}
	return time.Time{}, false
}

// Reloaded is a reload that has changed upstreams, policies or API keys. The lists have names; those of keys
// also have the ID, because several keys may have one name.
type Reloaded struct {
	Time     time.Time `json:"time"`
	Added    []string  `json:"added,omitempty"`
	Changed  []string  `json:"changed,omitempty"`
	Removed  []string  `json:"removed,omitempty"`
	Disabled []string  `json:"disabled,omitempty"`

	AddedPolicies   []string `json:"added_policies,omitempty"`
	ChangedPolicies []string `json:"changed_policies,omitempty"`
	RemovedPolicies []string `json:"removed_policies,omitempty"`
	AddedKeys       []string `json:"added_keys,omitempty"`
	RevokedKeys     []string `json:"revoked_keys,omitempty"`

	More int `json:"more,omitempty"` // names that the lists leave out
	// why the file is not in force, except that its API keys are revoked; "" if it is
	Rejected string `json:"rejected,omitempty"`
}

const (
	reloadedFor  = time.Hour // how long a reload is shown
	mostReloaded = 20        // names of each list
	mostReloads  = 5         // reloads that are kept
	mostReason   = 100       // characters of Rejected, for people
)

// NewReloaded returns what a change does to upstreams, policies and API keys; nil if it does nothing to them. rejected
// is why the rest of the file is not in force.
func NewReloaded(change *config.Change, rejected string, now time.Time) *Reloaded {
	r := &Reloaded{Time: now, Rejected: rejected, Added: change.Added, Changed: change.Changed,
		AddedKeys: config.KeyNames(change.AddedKeys), RevokedKeys: config.KeyNames(change.RevokedKeys)}
	for _, name := range change.Removed {
		if _, there := change.Config.Upstreams[name]; there {
			r.Disabled = append(r.Disabled, name)
		} else {
			r.Removed = append(r.Removed, name)
		}
	}
	for _, p := range change.PolicyChanges {
		list := map[string]*[]string{"added": &r.AddedPolicies, "changed": &r.ChangedPolicies,
			"removed": &r.RemovedPolicies}[p.How]
		*list = append(*list, p.Name)
	}
	if len(r.parts()) == 0 {
		return nil
	}
	for _, list := range []*[]string{&r.Added, &r.Changed, &r.Removed, &r.Disabled, &r.AddedPolicies,
		&r.ChangedPolicies, &r.RemovedPolicies, &r.AddedKeys, &r.RevokedKeys} {
		if more := len(*list) - mostReloaded; more > 0 {
			*list, r.More = (*list)[:mostReloaded:mostReloaded], r.More+more
		}
	}
	return r
}

// String names what has changed, such as "added notes; removed files; changed the policy staff".
func (r *Reloaded) String() string {
	parts := r.parts()
	if r.More > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", r.More))
	}
	if r.Rejected != "" {
		why := prose.Cut(prose.Flat(r.Rejected), mostReason)
		parts = append(parts, "the rest of the file was not put in force: "+why)
	}
	return strings.Join(parts, "; ")
}

func (r *Reloaded) parts() (parts []string) {
	for _, list := range []struct {
		verb  string
		names []string
	}{{"added", r.Added}, {"changed", r.Changed}, {"removed", r.Removed}, {"disabled", r.Disabled},
		{"added the policy", r.AddedPolicies}, {"changed the policy", r.ChangedPolicies},
		{"removed the policy", r.RemovedPolicies}, {"added the key", r.AddedKeys},
		{"revoked the key", r.RevokedKeys}} {
		if verb := list.verb; len(list.names) > 0 {
			if len(list.names) > 1 {
				verb = strings.NewReplacer("policy", "policies", "key", "keys").Replace(verb)
			}
			parts = append(parts, verb+" "+strings.Join(list.names, ", "))
		}
	}
	return parts
}
