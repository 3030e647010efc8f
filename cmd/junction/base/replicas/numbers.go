package replicas

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"junction/auth/seal"
	"junction/auth/store"
)

// This file has the numbers of configurations. Of two configurations that differ in a hard key, that with the
// higher number serves: the processes with the lower one make way. The database gives a configuration a number
// when it is served first, without processes that have another one. Files that may serve together share it.

// configurationFact is the name of the fact of a row that has the number; it is missing for 0, which is none.
const configurationFact = "~configuration"

// keptNumbers is how many configurations the database knows, the last ones.
const keptNumbers = 100

// numbers are what this process knows. Only Run changes them.
type numbers struct {
	own     atomic.Int64 // of the configuration of this process
	highest atomic.Int64 // that this process has seen
}

// number returns the number of the configuration of a member.
func (r row) number() (n int64) {
	if values := store.Fact(r.digest, configurationFact); len(values) == 1 {
		n, _ = strconv.ParseInt(values[0], 10, 64)
	}
	return n
}

// digests returns what the database calls the configuration of this process, by the key of sessions with which
// a process may have stored it. The own one is first.
func (d *described) digests(i *identity) (all []string) {
	for _, fingerprint := range i.fingerprints() {
		hard := []string{fingerprint}
		for part := range strings.FieldsSeq(d.under[fingerprint]) {
			if !strings.HasPrefix(part, "~") {
				hard = append(hard, part)
			}
		}
		sum := sha256.Sum256([]byte(strings.Join(hard, " ")))
		all = append(all, hex.EncodeToString(sum[:]))
	}
	return all
}

// standing is what the database knows of the numbers, for one configuration.
type standing struct {
	own     int64 // of the configuration
	highest int64
	given   time.Time // when the highest one was given
	ended   bool      // the last process with the highest one was stopped
	wanted  int64     // the highest one of another configuration with which a process waits
}

// standingOf reads the standing of a configuration with these digests. ttl is how long a process waits after it
// has said so.
func standingOf(ctx context.Context, db database, digests []string, ttl time.Duration) (s standing, err error) {
	found, err := db.Query(ctx, `SELECT digest, number, given_at, ended_at > 0, wanted_at > `+now+` - $1
		FROM configurations ORDER BY number`, ttl.Microseconds())
	if err != nil {
		return s, err
	}
	var digest string
	var number, given int64
	var ended, wanted bool
	_, err = pgx.ForEachRow(found, []any{&digest, &number, &given, &ended, &wanted}, func() error {
		mine := slices.Contains(digests, digest)
		if mine {
			s.own = number
		}
		if number > s.highest {
			s.highest, s.given, s.ended = number, time.UnixMicro(given).UTC(), true
		}
		s.ended = s.ended && ended
		if wanted && !mine {
			s.wanted = number
		}
		return nil
	})
	return s, err
}

// storeNumber stores the number of a configuration. wanted reports that its process waits for others.
func storeNumber(ctx context.Context, db database, digest string, number int64, wanted bool) error {
	if number == 0 {
		return nil
	}
	_, err := db.Exec(ctx, `INSERT INTO configurations AS c (digest, number, given_at, wanted_at, ended_at)
		VALUES ($1, $2, `+now+`, CASE WHEN $3 THEN `+now+` ELSE 0 END, 0)
		ON CONFLICT (digest) DO UPDATE SET number = greatest(c.number, excluded.number),
			wanted_at = excluded.wanted_at, ended_at = 0,
			given_at = CASE WHEN c.number >= excluded.number THEN c.given_at ELSE excluded.given_at END`,
		digest, number, wanted)
	if err != nil {
		return err
	}
	_, err = db.Exec(ctx, `DELETE FROM configurations WHERE number <= $1`, number-keptNumbers)
	return err
}

// errWaits means that processes with a lower number are to make way for this process.
var errWaits = errors.New("waits")

// place decides whether this process may join beside the living members, and returns the number of its
// configuration then: 0 if it has none while another one is the highest. The error matches errRefused, and
// errWaits, too, if this process only waits.
func (m *Member) place(living []row, s standing) (number int64, err error) {
	number = max(s.own, m.numbers.own.Load())
	highest := max(s.highest, m.numbers.highest.Load(), number)
	ended, beside := s.ended && highest == s.highest, false
	var first row // of those that differ, the one with the highest number
	var keys []Difference
	for _, r := range living {
		switch hard := m.hard(r); {
		case r.draining():
			ended = ended || r.number() == highest
		case len(hard) == 0:
			beside, number = true, max(number, r.number())
		case len(keys) == 0 || r.number() > first.number():
			first, keys = r, hard
		}
	}
	switch {
	case m.leaving.Load(): // it takes no new clients, and another one may replace it
	case len(keys) > 0 && number > first.number():
		return number, fmt.Errorf("%w: it %w for the process at %s, which makes way: that process has the "+
			"configuration %s, this one the configuration %s, and they differ in %s", errRefused, errWaits,
			first.address, numeral(first.number()), numeral(number), keysOf(keys))
	case len(keys) > 0:
		return number, fmt.Errorf("%w: the configuration differs from that of the process at %s in %s, which all "+
			"processes must have equal; that process has the configuration %s, and this one %s; stop all processes "+
			"that have the other values, and this one joins at once, or run %s with the file of this one, and they "+
			"make way", errRefused, first.address, keysOf(keys), numeral(first.number()), older(number), adopt)
	case s.wanted > number:
		return number, fmt.Errorf("%w: this process, with the configuration %s, makes way for a process with the "+
			"configuration %d, which is about to join", errRefused, numeral(number), s.wanted)
	case beside || number == highest && number > 0:
	case ended || highest == 0:
		number = highest + 1
	}
	return number, nil
}

// adopt is the command that gives a configuration the highest number.
const adopt = "junction replicas adopt"

func numeral(number int64) string {
	if number == 0 {
		return "without a number"
	}
	return "number " + strconv.FormatInt(number, 10)
}

func older(number int64) string {
	if number == 0 {
		return "one that was not served yet"
	}
	return "the older one with number " + strconv.FormatInt(number, 10)
}

// hard returns the hard keys in which a member differs.
func (m *Member) hard(r row) []Difference {
	list := differing(m.shared.Load().under[r.fingerprint], r.digest)
	return slices.DeleteFunc(list, func(d Difference) bool { return !d.Hard })
}

// seen takes over the numbers of living members, and what Adopt has stored. It returns why this process has to
// make way; nil if not.
func (m *Member) seen(rows []row, s standing) (why error) {
	m.setNumber(max(s.own, m.numbers.own.Load()))
	own := m.numbers.own.Load()
	for _, r := range rows {
		number := r.number()
		m.numbers.highest.Store(max(m.numbers.highest.Load(), number))
		if _, known := m.shared.Load().under[r.fingerprint]; r.left <= 0 || r.draining() || number <= own || !known {
			continue
		}
		if hard := m.hard(r); len(hard) > 0 {
			why = fmt.Errorf("the process at %s has the configuration number %d, and this one %s; they differ in %s",
				r.address, number, older(own), keysOf(hard))
		} else {
			m.setNumber(number)
		}
	}
	if own = m.numbers.own.Load(); why == nil && s.wanted > own {
		why = fmt.Errorf("a process waits with the configuration number %d, and this process has %s", s.wanted,
			older(own))
	}
	if why == nil || m.leaving.Load() {
		return nil
	}
	return fmt.Errorf("this process makes way: %w; give it the file that is in force, or, to go back, run %s with its "+
		"own file", why, adopt)
}

// setNumber changes the number of the configuration of this process, and has its row written.
func (m *Member) setNumber(number int64) {
	m.numbers.highest.Store(max(m.numbers.highest.Load(), number))
	if m.numbers.own.Swap(number) != number {
		m.o.Log.Info("the configuration has another number", "number", number)
		m.tell()
	}
}

// makeWay gives the lease back, so that a process with a higher number can join at once.
func (m *Member) makeWay(ctx context.Context, conn *pgx.Conn, why error) error {
	l := m.lease.Load()
	m.o.Log.Error("this process serves no more, because another configuration is in force", "error", why)
	if err := m.giveAllBack(ctx); err != nil {
		return err
	}
	m.lease.Store(nil)
	m.refused.Store(true)
	m.setReason(why)
	if _, err := conn.Exec(ctx, `DELETE FROM members WHERE id = $1`, l.id); err != nil {
		return err
	}
	return announce(ctx, conn)
}

// outnumbered reports whether this process serves although another configuration has a higher number.
func (m *Member) outnumbered() bool { return m.numbers.own.Load() < m.numbers.highest.Load() }

// renumber gives the configuration of this process the highest number, if no process with a higher one has come
// back for driftTime.
func (m *Member) renumber(ctx context.Context, conn *pgx.Conn) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := lockJoin(ctx, tx); err != nil {
			return err
		}
		digests := m.shared.Load().digests(m.identity)
		s, err := standingOf(ctx, tx, digests, m.o.TTL)
		if err != nil {
			return err
		}
		rows, _, err := list(ctx, tx, digests, m.o.TTL)
		if err != nil || m.seen(rows, s) != nil || !m.outnumbered() {
			return err
		}
		m.setNumber(max(s.highest, m.numbers.highest.Load()) + 1)
		return storeNumber(ctx, tx, digests[0], m.numbers.own.Load(), false)
	})
}

// lockJoin has processes join, and commands change what they share, one at a time: of two that differ and
// begin at once, one must see the other.
func lockJoin(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1 + 'members'::regclass::oid::bigint)`, int64(store.JoinLock))
	return err
}

// Adopted is what Adopt has done.
type Adopted struct {
	Number int64 `json:"number"`
	Was    int64 `json:"was"` // 0 if it had none
	// MakeWay are the addresses of processes that differ in a hard key, and Keys are these keys.
	MakeWay []string `json:"make_way"`
	Keys    []string `json:"keys"`
	Changed bool     `json:"changed"` // false if it had the highest number already
}

// Adopt gives a configuration the highest number, so that processes with it replace those that differ in a hard
// key. Those serve until the first process with the configuration wants to join. key and shared are as in
// Options.
func Adopt(ctx context.Context, dsn string, key *seal.Key, shared func(key []byte) (string, error)) (Adopted, error) {
	a := Adopted{MakeWay: []string{}, Keys: []string{}}
	i, err := newIdentity(key)
	if err != nil {
		return a, err
	}
	m := &Member{identity: i, o: Options{TTL: defaultTTL}}
	d, err := m.describe(shared)
	if err != nil {
		return a, err
	}
	m.shared.Store(d)
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return a, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := lockJoin(ctx, tx); err != nil {
			return err
		}
		digests := d.digests(i)
		s, err := standingOf(ctx, tx, digests, defaultTTL)
		if err != nil {
			return err
		}
		rows, _, err := list(ctx, tx, digests, defaultTTL)
		if err != nil {
			return err
		}
		highest, equal := s.highest, false
		for _, r := range rows {
			highest = max(highest, r.number())
			if _, known := d.under[r.fingerprint]; !known && r.left > 0 {
				return fmt.Errorf("the process at %s has other keys of sessions than sessions.key_file here; run the "+
					"command with the keys of that process", r.address)
			}
			if r.left <= 0 || r.draining() {
				continue
			}
			if hard := m.hard(r); len(hard) > 0 {
				a.MakeWay, equal = append(a.MakeWay, r.address), equal || r.number() == highest
				for _, d := range hard {
					a.Keys = append(a.Keys, d.String())
				}
			} else {
				s.own = max(s.own, r.number())
			}
		}
		slices.Sort(a.MakeWay)
		slices.Sort(a.Keys)
		a.Keys, a.Was, a.Number = slices.Compact(a.Keys), s.own, s.own
		if s.own == highest && s.own > 0 && !equal {
			return nil
		}
		a.Number, a.Changed = highest+1, true
		if err := storeNumber(ctx, tx, digests[0], a.Number, false); err != nil {
			return err
		}
		return announce(ctx, tx)
	})
	return a, err
}
