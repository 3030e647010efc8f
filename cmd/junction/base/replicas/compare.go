package replicas

import (
	"cmp"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"junction/auth"
)

// This file compares this process with the other members: by the keys of their configurations, and by facts
// about their programs and keys.

// A Difference is a key of the configuration, or a fact, in which another member differs from this process.
type Difference struct {
	Key string `json:"key"`
	// Hard means that no process with the other value can join.
	Hard bool `json:"hard,omitempty"`
	// Here and There are the values of a fact. The values of a key of the configuration are not shown.
	Here  string `json:"here,omitempty"`
	There string `json:"there,omitempty"`
	// Since is when this process has noticed it.
	Since time.Time `json:"since"`

	lacks, lacked bool // the other member does not have the key; this one does not
}

// String returns the key, and the values of a fact.
func (d Difference) String() string {
	if d.Here == "" && d.There == "" {
		return d.Key
	}
	return d.Key + " (" + cmp.Or(d.Here, "none") + " here, " + cmp.Or(d.There, "none") + " there)"
}

// keysOf returns the differences as a part of a sentence.
func keysOf(list []Difference) string {
	var texts []string
	for _, d := range list {
		texts = append(texts, d.String())
	}
	if n := len(texts); n > 1 {
		return strings.Join(texts[:n-1], ", ") + " and " + texts[n-1]
	}
	return strings.Join(texts, "")
}

// draining is the part of a description that says that its process takes no new clients.
const draining = "~state=draining"

// draining reports whether the process of a row takes no new clients, and stays for its sessions until their
// calls have ended.
func (r row) draining() bool { return strings.HasSuffix(r.digest, draining) }

// parts returns the parts of Shared, by name: for each its mark (~, ? or none) and its value.
func parts(shared string) map[string][2]string {
	all := map[string][2]string{}
	for part := range strings.FieldsSeq(shared) {
		name, value, _ := strings.Cut(part, "=")
		if part == draining || name == configurationFact {
			continue
		}
		plain := strings.TrimLeft(name, "~?")
		mark := name[:len(name)-len(plain)]
		if readable, err := url.QueryUnescape(plain); err == nil {
			plain = readable
		}
		all[plain] = [2]string{mark, value}
	}
	return all
}

// differing returns the differences between two descriptions, by key. Of an entry that one of them lacks, it
// returns the entry without its keys.
func differing(here, there string) (list []Difference) {
	if here == there {
		return nil
	}
	a, b := parts(here), parts(there)
	both := maps.Clone(a)
	maps.Copy(both, b)
	var entries []string // that one of them lacks
	for _, name := range slices.Sorted(maps.Keys(both)) {
		mine, have := a[name]
		theirs, has := b[name]
		if have && has && mine[1] == theirs[1] ||
			slices.ContainsFunc(entries, func(entry string) bool { return strings.HasPrefix(name, entry) }) {
			continue
		}
		d := Difference{Key: name, lacks: !has, lacked: !have}
		marks := mine[0] + theirs[0]
		d.Hard = !strings.Contains(marks, "~") && (!strings.Contains(marks, "?") || have && has)
		if !have || !has {
			entries = append(entries, name+".")
		}
		if !strings.HasPrefix(mine[1]+theirs[1], "#") { // no digest
			d.Here, d.There = mine[1], theirs[1]
		}
		list = append(list, d)
	}
	return list
}

// drift has what differs in the other members, by their ID.
type drift struct {
	mu    sync.Mutex
	found map[string][]Difference
}

// differs returns the differences of a row to this process.
func (m *Member) differs(r row) []Difference {
	here, known := m.shared.Load().under[r.fingerprint]
	if !known { // all digests differ, whatever they are of
		return differing(sessionKeys+"="+strings.Join(m.identity.fingerprints(), ","),
			sessionKeys+"="+strings.Join(r.keys(), ","))
	}
	return differing(here, r.digest)
}

// compare finds out what differs in the other members, and logs what has changed.
func (m *Member) compare() {
	m.drift.mu.Lock()
	defer m.drift.mu.Unlock()
	next, now := map[string][]Difference{}, time.Now().UTC().Truncate(time.Second)
	for id, p := range *m.others.Load() {
		before, list := m.drift.found[id], m.differs(p.row)
		had := func(list []Difference, key string) int {
			return slices.IndexFunc(list, func(d Difference) bool { return d.Key == key })
		}
		var begun, ended []string
		for i := range list {
			if k := had(before, list[i].Key); k >= 0 {
				list[i].Since = before[k].Since
			} else {
				list[i].Since, begun = now, append(begun, list[i].String())
			}
		}
		for _, d := range before {
			if had(list, d.Key) < 0 {
				ended = append(ended, d.Key)
			}
		}
		tell(m.o.Log, "the configuration differs from that of another replica", p.address, begun)
		tell(m.o.Log, "the configuration no longer differs from that of another replica", p.address, ended)
		if len(list) > 0 {
			next[id] = list
		}
	}
	agreed := false
	for id, before := range m.drift.found {
		agreed = agreed || slices.ContainsFunc(before, decides) && !slices.ContainsFunc(next[id], decides)
	}
	m.drift.found = next
	if agreed && m.o.Agreed != nil {
		m.o.Agreed()
	}
}

// decides reports whether members that differ so judge forwarded requests by the policies of both.
func decides(d Difference) bool {
	return d.Key == "policies" || d.Key == "auth.scope_capabilities" ||
		strings.HasPrefix(d.Key, "auth.scope_capabilities.")
}

func tell(log *slog.Logger, what, address string, keys []string) {
	if len(keys) > 0 {
		log.Info(what, "address", address, "keys", keys)
	}
}

// eachDifference calls f for each difference of a member whose lease has not ended.
func (m *Member) eachDifference(f func(p *otherMember, d Difference)) {
	m.drift.mu.Lock()
	defer m.drift.mu.Unlock()
	for id, list := range m.drift.found {
		if p := m.living(id); p != nil {
			for _, d := range list {
				f(p, d)
			}
		}
	}
}

// differencesOf returns what differs in a member.
func (m *Member) differencesOf(id string) []Difference {
	m.drift.mu.Lock()
	defer m.drift.mu.Unlock()
	return slices.Clone(m.drift.found[id])
}

// Differs implements auth.Others.
func (m *Member) Differs(key string) (found bool) {
	m.eachDifference(func(_ *otherMember, d Difference) {
		found = found || d.Key == key || strings.HasPrefix(d.Key, key+".") ||
			d.entry() && strings.HasPrefix(key, d.Key+".")
	})
	return found
}

// Lacks implements auth.Others.
func (m *Member) Lacks(entry string) (found bool) {
	m.eachDifference(func(_ *otherMember, d Difference) { found = found || d.lacks && d.Key == entry })
	return found
}

// entry reports whether the difference can be that one of the two lacks an entry.
func (d *Difference) entry() bool { return d.lacks || d.lacked }

var _ auth.Others = (*Member)(nil)
