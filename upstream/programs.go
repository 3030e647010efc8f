package upstream

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// This file shares the processes of folders among programs. Without authentication Junction tells callers apart by
// their User-Agent, which a program can change with each call. So names alone give no program more room: the programs
// with the oldest processes count one by one, and all later ones together. Each of these shares has some room that
// the others cannot take.

// knownPrograms is how many programs count one by one.
const knownPrograms = 3

// leastOfPrograms is the room of each share that the others cannot take, in processes.
func (p *pool) leastOfPrograms() int { return p.connConfig.MaxLinks / (2 * (knownPrograms + 1)) }

// ofProgram reports whether the link is of a program in a folder, because its calls have no principal.
func (k linkKey) ofProgram() bool {
	return strings.HasPrefix(k.holder, windowPrefix) && strings.HasSuffix(k.holder, " ")
}

// programs are the shares of programs in the processes of a pool.
type programs struct {
	names  []string               // of the programs with processes, first the one with the oldest
	counts [knownPrograms + 1]int // processes, by share
}

// programs returns the shares now; p.mu is held.
func (p *pool) programs() (s programs) {
	oldest := map[string]time.Time{}
	for key, l := range p.links {
		if born, known := oldest[key.user]; key.ofProgram() && (!known || l.born.Before(born)) {
			oldest[key.user] = l.born
		}
	}
	for name := range oldest {
		s.names = append(s.names, name)
	}
	slices.SortFunc(s.names, func(a, b string) int {
		return cmp.Or(oldest[a].Compare(oldest[b]), strings.Compare(a, b))
	})
	for key := range p.links {
		if key.ofProgram() {
			s.counts[s.of(key.user)]++
		}
	}
	return s
}

// of returns the number of the share of a program.
func (s *programs) of(name string) int {
	i := slices.Index(s.names, name)
	if i < 0 {
		i = len(s.names)
	}
	return min(i, knownPrograms)
}

// full reports whether a program has its maximum number of processes: half of all, or what is left beside the room of
// the other shares. all is the number of links.
func (s *programs) full(p *pool, name string, all int) bool {
	least, own := p.leastOfPrograms(), s.of(name)
	if s.counts[own] < least {
		return false
	}
	kept := 0
	for share, n := range s.counts {
		if share != own {
			kept += max(0, least-n)
		}
	}
	return s.counts[own] >= p.share() || kept > 0 && all+kept >= p.connConfig.MaxLinks
}

// sameShare returns what reports whether a link counts for the callers of key; p.mu is held.
func (p *pool) sameShare(key linkKey) func(other linkKey) bool {
	if !key.ofProgram() {
		return func(other linkKey) bool { return other.user == key.user }
	}
	s := p.programs()
	own := s.of(key.user)
	return func(other linkKey) bool { return other.ofProgram() && s.of(other.user) == own }
}

// mayYield returns what reports whether a link could make room for one with that key: if the callers of key have
// their maximum, only their own. p.mu is held.
func (p *pool) mayYield(key linkKey) func(other linkKey) bool {
	if !p.full(key) {
		return func(linkKey) bool { return true }
	}
	return p.sameShare(key)
}
