package replicas

import (
	"context"
	"math/rand/v2"
	"time"

	"junction/auth"
	"junction/upstream/pace"
)

const (
	sweepEvery = 10 * time.Minute
	sweepBatch = 1000 // rows per statement, to keep statements short
)

// sweeps lists the tables whose rows expire, with their key and the SQL expression of the time when
// a row expires, by the clock of the database.
var sweeps = []struct{ table, key, time string }{
	{"session_owners", "session_hash", "expires_at"},
	{"deleted_sessions", "session_hash", "expires_at"},
	{"used_ids", "id_hash", "expires_at"},
	{"limit_shares", "limit_hash", "full_at"},
}

// sweepRegularly deletes expired rows until ctx ends. The pauses are random, so that the members do
// not sweep at the same time.
func (m *Member) sweepRegularly(ctx context.Context) {
	for pace.Sleep(ctx, sweepEvery/2+rand.N(sweepEvery), nil) {
		if err := m.sweep(ctx); err != nil && ctx.Err() == nil {
			m.o.Log.Warn("cannot delete expired rows of the replicas", "error", auth.Redact(err.Error()))
		}
	}
}

func (m *Member) sweep(ctx context.Context) error {
	if err := m.renewStates(ctx); err != nil {
		return err
	}
	for _, s := range sweeps {
		// SKIP LOCKED: a row that another statement is changing is left for the next sweep.
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
