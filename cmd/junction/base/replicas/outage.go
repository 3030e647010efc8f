package replicas

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"junction/auth/store"
	"junction/upstream/http1"
)

// This file finds out what concerns more than this process: an outage that all members have, and
// processes that share a client address with this one, but not its database.

// headerLease is in the answer with headerGone of a process that has a lease.
const headerLease = "Junction-Lease"

// CommonOutage reports whether no other member that this process knows has a lease either, so that it
// is no use to send requests elsewhere. Members that cannot be reached count as members without one. A
// process that was refused has its own mistake.
func (m *Member) CommonOutage(ctx context.Context) bool {
	if m.refused.Load() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var asking sync.WaitGroup
	var leased atomic.Bool
	client := &http1.Client{Dial: m.dial}
	defer client.CloseIdleConnections()
	for _, p := range *m.others.Load() {
		asking.Go(func() {
			if r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+"/", nil); err == nil {
				if resp, err := client.RoundTrip(r); err == nil {
					resp.Body.Close()
					if resp.Header.Get(headerLease) != "" {
						leased.Store(true)
					}
				}
			}
		})
	}
	asking.Wait()
	return !leased.Load()
}

// place identifies the table members among all databases. The IDs of members begin with a digest of
// it, so that a process recognises the members of another database.
const placeSQL = `SELECT (SELECT system_identifier FROM pg_control_system())::text || ' ' ||
	(SELECT oid FROM pg_database WHERE datname = current_database())::text || ' ' || 'members'::regclass::oid::text`

// readPlace reads placeSQL once. Without the permission to read it, foreign members are not noticed.
func (m *Member) readPlace(ctx context.Context, conn *pgx.Conn) {
	var text string
	if m.foreign.place.Load() != nil || conn.QueryRow(ctx, placeSQL).Scan(&text) != nil {
		return
	}
	m.foreign.place.Store(new(digestOf(text)[:8]))
}

// newID returns an ID for this process.
func (m *Member) newID() string {
	if place := m.foreign.place.Load(); place != nil {
		return *place + "." + store.NewID()
	}
	return store.NewID()
}

// foreign has what this process knows of members of another database.
type foreign struct {
	place   atomic.Pointer[string] // the digest of placeSQL; nil until it was read
	joined  atomic.Int64           // Unix seconds of the first join
	noticed atomic.Int64           // Unix seconds
}

// Foreign implements members.Members.
func (m *Member) Foreign(id string, since time.Time) bool {
	place, joined := m.foreign.place.Load(), m.foreign.joined.Load()
	theirs, _, ok := strings.Cut(id, ".")
	if place == nil || joined == 0 || !ok || theirs == *place || since.Unix() <= joined {
		return false
	}
	now := time.Now().Unix()
	if before := m.foreign.noticed.Swap(now); now-before > 60 {
		m.o.Log.Error(errForeign.Error())
	}
	return true
}

var errForeign = errors.New("a client has sent this process a request about a session or a call of a process with " +
	"another database: all processes behind one address must have the same storage.dsn, and the section replicas")

// Warning returns an error if something is wrong with other processes, although this one works.
func (m *Member) Warning() error {
	if at := m.foreign.noticed.Load(); at != 0 && time.Now().Unix()-at < 300 {
		return errForeign
	}
	if own, highest := m.numbers.own.Load(), m.numbers.highest.Load(); own < highest {
		return fmt.Errorf("this process serves the configuration %s, and the configuration number %d was in force "+
			"before, whose processes were not stopped: when one of them comes back, this process makes way; if none "+
			"does for %v, the configuration of this process gets a higher number, or run %s with its file now",
			numeral(own), highest, driftTime, adopt)
	}
	var list []string
	m.eachDifference(func(p *otherMember, d Difference) {
		if time.Since(d.Since) > driftTime {
			list = append(list, fmt.Sprintf("%v differs from %s since %s", d, p.address, d.Since.Format(time.RFC3339)))
		}
	})
	if len(list) > 0 {
		slices.Sort(list)
		return fmt.Errorf("the configuration differs from that of other replicas for longer than %v, so that clients "+
			"meet one or the other: %s; finish the rollout, or take it back", driftTime, strings.Join(list, "; "))
	}
	return nil
}

// driftTime is how long a rollout of another configuration may take.
const driftTime = 10 * time.Minute
