package replicas

import (
	"context"
	"math/rand/v2"
	"time"

	"junction/auth"
)

const (
	sweepEvery = 10 * time.Minute
	sweepBatch = 1000 // rows per statement, to keep statements short
)

// sweeps are the tables with rows that expire, and their keys and times. The times are those of the
// database.
var sweeps = []struct{ table, key, time string }{
	{"session_owners", "session_hash", "expires_at"},
	{"deleted_sessions", "session_hash", "expires_at"},
	{"used_ids", "id_hash", "expires_at"},
	{"rates", "rate_hash", "full_at"},
	{"calls_in_flight", "principal_hash", "changed_at + 172800000000"}, // no call lasts for two days
}

// sweepNowAndThen deletes expired rows until ctx ends. Members do it at different times.
func (m *Member) sweepNowAndThen(ctx context.Context) {
	for {
		select {
		case <-time.After(sweepEvery/2 + rand.N(sweepEvery)):
		case <-ctx.Done():
			return
		}
		if err := m.sweep(ctx); err != nil && ctx.Err() == nil {
			m.o.Log.Warn("cannot delete expired rows of the replicas", "error", auth.Redact(err.Error()))
		}
	}
}

// settleNowAndThen repeats what could not be written, until ctx ends.
func (m *Member) settleNowAndThen(ctx context.Context) {
	tick := time.NewTicker(m.o.TTL / 3)
	defer tick.Stop()
	for {
		all := false
		select {
		case <-tick.C:
		case <-m.rejoined:
			all = true
		case <-ctx.Done():
			return
		}
		m.settle(ctx, all)
	}
}

// settleAll has settleNowAndThen write all numbers.
func (m *Member) settleAll() {
	select {
	case m.rejoined <- struct{}{}:
	default:
	}
}

func (m *Member) sweep(ctx context.Context) error {
	for _, s := range sweeps {
		// A row that is in use is not deleted, and does not delay the others.
		statement := `DELETE FROM ` + s.table + ` WHERE ` + s.key + ` IN (SELECT ` + s.key + ` FROM ` + s.table +
			` WHERE ` + s.time + ` < ` + now + ` LIMIT $1 FOR UPDATE SKIP LOCKED)`
		for n := int64(sweepBatch); n == sweepBatch; {
			result, err := m.o.DB.ExecContext(ctx, statement, sweepBatch)
			if err != nil {
				return err
			}
			if n, err = result.RowsAffected(); err != nil {
				return err
			}
		}
	}
	return nil
}
