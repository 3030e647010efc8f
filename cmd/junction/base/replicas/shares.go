package replicas

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"junction/policy"
	"junction/proxy/budget"
	"junction/proxy/members"
)

// A limit of a principal is divided into shares, which its row in the table limit_shares gives to
// members. The shares of all members together are never more than the limit. For calls in flight, each
// share is one call. For a rate, each share is a part of the rate and of the burst.

// maxShares is the number of shares of a rate. It can be divided by two, three, four and six members.
const maxShares = 12

// limit is what the members share.
type limit struct {
	shares      int
	rate, burst float64 // of all shares: requests a second, and at once; 0 for calls in flight
}

func rateLimit(rate policy.Rate, burst int) limit {
	return limit{shares: min(burst, maxShares), rate: float64(rate), burst: float64(burst)}
}

// gain returns how many requests some shares allow after a time.
func (l limit) gain(shares int, requests float64, after time.Duration) float64 {
	part := float64(max(0, shares)) / float64(max(1, l.shares))
	return min(l.burst*part, requests+max(0, after.Seconds())*l.rate*part)
}

func (l limit) refusal() error {
	if l.rate > 0 {
		return budget.ErrTooFast
	}
	return budget.ErrTooMany
}

// pause is the time between two attempts to get shares that fail. A call waits for its attempt; a
// request beyond a rate does not, because the shares of this process gain requests meanwhile.
func (l limit) pause() time.Duration {
	if l.rate == 0 {
		return 20 * time.Millisecond
	}
	return min(time.Second, max(time.Millisecond, time.Duration(10/l.rate*float64(time.Second))))
}

// shareRow is the row of a limit.
type shareRow struct {
	Held map[string]int `json:"held"`           // shares, by the ID of their member
	Free float64        `json:"free,omitempty"` // requests that the other shares allow, if the limit is a rate
	At   int64          `json:"at"`             // when Free was right, in microseconds
}

// sharesFree returns the number of shares that no member has.
func (r *shareRow) sharesFree(l limit) int {
	n := l.shares
	for _, held := range r.Held {
		n -= held
	}
	return max(0, n)
}

// A change returns how many shares a member should have. mine is what it has and used what it uses;
// fair is its part if all members have equal ones.
type change func(h *holding, fair int) int

// more takes a fair part first, and then half as much again.
func more(h *holding, fair int) int { return max(fair, max(h.shares, h.used)+max(1, h.shares/2)) }

// fewer gives back calls that are not in flight. Of a rate, it gives back half of what is in use.
func fewer(h *holding, _ int) int {
	if h.limit.rate > 0 && time.Since(h.lastUsed) < time.Second {
		return h.shares / 2
	}
	return 0
}

func same(h *holding, _ int) int { return h.shares }

func none(*holding, int) int { return 0 }

// settle changes the shares of this process in the row, and returns the other members that have shares.
// This process uses fewer shares before it writes that, and more only afterwards: after a statement that failed,
// it has fewer shares until the next one, which also gives back the requests that the failed one would have.
func (m *Member) settle(ctx context.Context, h *holding, l limit, to change) (holders []string, err error) {
	if err := lock(ctx, h.table); err != nil {
		return nil, err
	}
	defer unlock(h.table)
	for range shareAttempts {
		row, text, there, err := m.readShares(ctx, h.digest, l)
		if err != nil {
			return nil, err
		}
		s := m.plan(h, l, row, to)
		holders = s.holders
		if !s.changed {
			s.apply(h)
			return holders, nil
		}
		next, err := json.Marshal(row)
		if err != nil {
			return nil, err
		}
		full := there + int64(l.fillTime().Microseconds())
		if len(row.Held) > 0 {
			full += int64(2 * shareSweep / time.Microsecond)
		}
		written, err := m.writeShares(ctx, h.digest, text, string(next), full)
		if err != nil {
			h.mu.Lock()
			h.unsure = &s
			h.mu.Unlock()
			return nil, err
		}
		if written {
			s.apply(h)
			return holders, nil
		}
	}
	return nil, fmt.Errorf("%w: other processes change the same limit all the time", members.ErrAlone)
}

// shareAttempts bounds how often a change is repeated because another member has changed the row at the same
// time. Each time, one of them succeeds.
const shareAttempts = 50

// shareSweep is how long a row with holders is kept at least, without being written again.
const shareSweep = 24 * time.Hour

// fillTime is the time in which a rate gains its burst.
func (l limit) fillTime() time.Duration {
	if l.rate == 0 {
		return 0
	}
	return time.Duration(min(l.burst/l.rate*float64(time.Second), math.MaxInt64/4))
}

// plan is a change of shares that is to be written.
type plan struct {
	self    string
	limit   limit
	before  int // shares, by the row
	shares  int
	gained  float64 // requests of the new shares
	holders []string
	changed bool // the row
}

// plan changes the row for this process. It takes back at once what the process will have no more.
func (m *Member) plan(h *holding, l limit, row *shareRow, to change) plan {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := plan{self: m.Self(), limit: l}
	now := time.Now()
	if h.id != p.self { // another member may have taken the shares of the old ID
		h.id, h.shares, h.requests, h.given, h.unsure = p.self, 0, 0, 0, nil
	}
	p.before = row.Held[p.self]
	switch u := h.unsure; { // only this process changes its shares in the row
	case u == nil || u.before != u.shares && u.before == p.before: // not written, and it cannot be after this plan
	case u.before != u.shares && u.shares == p.before:
		u.take(h)
	default: // nothing tells whether it was written
		h.given, h.unsure = 0, nil
	}
	delete(row.Held, p.self)
	free := row.sharesFree(l)
	p.shares = max(h.used, min(to(h, max(1, l.shares/(1+len(*m.others.Load())))), free))
	for id := range row.Held {
		p.holders = append(p.holders, id)
	}
	if h.fill(now); p.shares < h.shares {
		part := h.requests * float64(h.shares-p.shares) / float64(h.shares)
		h.given += part
		h.requests -= part
		h.shares = p.shares
	}
	row.Free = min(l.burst, row.Free+h.given)
	if added := p.shares - h.shares; added > 0 && l.rate > 0 {
		p.gained = min(row.Free, max(1, row.Free*float64(added)/float64(max(1, free-h.shares))))
		row.Free -= p.gained
	}
	if p.shares > 0 {
		row.Held[p.self] = p.shares
	}
	p.changed = p.before != p.shares || h.given > 0 || h.unsure != nil || time.Since(h.settled) > shareTouch
	return p
}

// apply puts a plan in force that was written.
func (p *plan) apply(h *holding) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.take(h)
}

// take is apply; h.mu is held.
func (p *plan) take(h *holding) {
	h.limit, h.shares, h.settled = p.limit, p.shares, time.Now()
	h.requests += p.gained
	h.given, h.unsure = 0, nil
}

// readShares returns the row of a limit without the members that have ended, its text, and the time of
// the database.
func (m *Member) readShares(ctx context.Context, digest string, l limit) (row *shareRow, text string, there int64,
	err error) {
	var ended string
	var member bool
	values := m.asSender(args{"limit": digest})
	if err := m.query(ctx, readSharesSQL, values, &text, &there, &member, &ended); err != nil {
		return nil, "", 0, err
	}
	if !member {
		return nil, "", 0, members.ErrAlone
	}
	row = &shareRow{Held: map[string]int{}, Free: l.burst, At: there}
	if text != "" {
		row.Free = 0
		if err := json.Unmarshal([]byte(text), row); err != nil {
			return nil, "", 0, fmt.Errorf("read the shares of a limit: %w", err)
		}
	}
	row.Free = l.gain(row.sharesFree(l), row.Free, time.Duration(there-row.At)*time.Microsecond)
	row.At = there
	for id := range strings.FieldsSeq(ended) {
		delete(row.Held, id)
	}
	return row, text, there, nil
}

var readSharesSQL = named(`WITH
	` + sender + `,
	known AS (SELECT shares FROM limit_shares WHERE limit_hash = @limit),
	seen AS (SELECT jsonb_object_keys(shares::jsonb->'held') AS id FROM known),
	` + deleteExpired(`SELECT id FROM seen`) + `
	SELECT coalesce((SELECT shares FROM known), '') AS shares, @now AS there,
		EXISTS (SELECT 1 FROM sender) AS member,
		array_to_string(ARRAY(SELECT id FROM seen WHERE id IN (SELECT id FROM gone)
			OR NOT EXISTS (SELECT 1 FROM members WHERE members.id = seen.id)), ' ') AS ended`)

// writeShares replaces the row of a limit if its text is still old.
func (m *Member) writeShares(ctx context.Context, digest, old, next string, full int64) (written bool, err error) {
	values := m.asSender(args{"limit": digest, "old": old, "next": next, "full": full})
	err = m.query(ctx, writeSharesSQL, values, &written)
	return written, err
}

var writeSharesSQL = named(`WITH
	` + sender + `,
	written AS (
		INSERT INTO limit_shares AS s (limit_hash, shares, full_at)
		SELECT @limit, @next, @full::bigint WHERE EXISTS (SELECT 1 FROM sender)
		ON CONFLICT (limit_hash) DO UPDATE SET shares = excluded.shares, full_at = excluded.full_at
		WHERE s.shares = @old
		RETURNING 1)
	SELECT EXISTS (SELECT 1 FROM written) AS written`)
