package replicas

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"junction/auth"
	"junction/upstream/pace"
)

// Run joins, and renews the lease until ctx ends. Then it deletes the row, and other members may
// take over the sessions of this process. So Drain must have returned before ctx ends.
func (m *Member) Run(ctx context.Context) {
	m.tasks.Go(func() { m.sweepRegularly(ctx) })
	m.tasks.Go(func() { m.tendRegularly(ctx) })
	m.tasks.Go(func() { m.probeFrozen(ctx) })
	defer m.tasks.Wait()
	pause := time.Duration(0)
	for {
		conn, err := m.connect(ctx)
		if err == nil {
			pause = 0
			err = m.hold(ctx, conn)
		}
		if ctx.Err() != nil {
			m.release(ctx, conn)
			return
		}
		if conn != nil {
			m.close(ctx, conn)
		}
		m.setReason(refusalOf(err))
		pause = min(max(2*pause, m.o.TTL/100), m.o.TTL/6)
		pace.Sleep(ctx, pause, nil)
	}
}

// refusalOf returns why there is no lease. A database that answers with an error is not one that does not
// answer: the operator looks elsewhere.
func refusalOf(err error) error {
	text := auth.Redact(err.Error())
	answer, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok:
		return fmt.Errorf("the database does not answer: %s", text)
	case answer.Code == readOnly:
		return fmt.Errorf("the database is read-only: %s; storage.dsn must lead to the primary server, and "+
			"default_transaction_read_only must be off there", text)
	}
	return fmt.Errorf("the database rejects the lease of this process: %s", text)
}

// readOnly is the code of Postgres for a statement that a standby, or a read-only server, does not run.
const readOnly = "25006"

// connect opens a connection for the lease alone, because those of Options.DB may all be busy.
func (m *Member) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, m.o.TTL/3)
	defer cancel()
	conn, err := pgx.Connect(ctx, m.o.DSN)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, `LISTEN `+channel); err != nil {
		conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

// release gives the lease back, and closes the connection. There is none if ctx has ended while this
// process connected, and it is closed if ctx has ended within a statement.
func (m *Member) release(ctx context.Context, conn *pgx.Conn) {
	ctx = context.WithoutCancel(ctx)
	closing, cancel := context.WithTimeout(ctx, m.o.TTL/5)
	defer cancel()
	if l := m.lease.Load(); l != nil {
		if err := m.giveAllBack(closing); err != nil {
			m.o.Log.Warn("cannot give back all shares of rates; the requests that they allow come back with the time",
				"error", auth.Redact(err.Error()))
		}
		m.lease.Store(nil)
		var err error
		if conn == nil || conn.IsClosed() {
			conn, err = pgx.Connect(closing, m.o.DSN)
		}
		if err == nil {
			err = leave(closing, conn, l.id, m.numbers.own.Load())
		}
		if err != nil {
			m.o.Log.Warn("cannot give the lease back; the other replicas take over when it expires",
				"error", auth.Redact(err.Error()))
		}
	}
	if conn != nil {
		m.close(ctx, conn)
	}
}

// close closes a connection, which sends a message if it can.
func (m *Member) close(ctx context.Context, conn *pgx.Conn) {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.o.TTL/5)
	defer cancel()
	conn.Close(closing)
}

// hold renews the lease until ctx ends or the connection fails.
func (m *Member) hold(ctx context.Context, conn *pgx.Conn) error {
	for {
		next := time.Now().Add(m.o.TTL / 3)
		if err := m.renewOrJoin(ctx, conn); err != nil && !errors.Is(err, errRefused) {
			return err
		}
		for asked := false; ctx.Err() == nil && time.Now().Before(next) && !m.told.Load(); {
			// Requests that wait for a member see its renewal, or its end, only in the table. However many
			// they are, they have it read once in this time.
			until, look := next, m.looked.Add(m.o.TTL/15)
			if asked = asked || m.read.waits(); asked && look.Before(next) {
				until = look
			}
			changed, woken, err := m.await(ctx, conn, until)
			if err != nil {
				return err
			}
			if changed && m.refused.Load() {
				break // the process that kept this one out may have left
			}
			asked = asked || woken
			if changed || asked && !time.Now().Before(look) {
				if err := m.readTable(ctx, conn); err != nil {
					return err
				}
				asked = false
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// await waits until another process reports a change of the table, m.wake is signalled (woken), or a time
// is reached. It may report a change although there was none.
func (m *Member) await(ctx context.Context, conn *pgx.Conn, until time.Time) (changed, woken bool, err error) {
	waiting, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-m.wake:
			woken = true
			cancel()
		case <-done:
		}
	}()
	_, err = conn.WaitForNotification(waiting)
	close(done)
	<-ended
	if err != nil && waiting.Err() != nil && !conn.IsClosed() {
		return false, woken, nil
	}
	return err == nil, woken, err
}

// renewOrJoin renews the lease. If there is none, or another member has deleted it, this process
// joins with a new ID. Then it reads the table.
func (m *Member) renewOrJoin(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, m.o.TTL/3)
	defer cancel()
	before := m.lease.Load()
	begun, there, id, kept := time.Now(), int64(0), "", false
	told := m.told.Swap(false)
	if before != nil {
		var err error
		id = before.id
		if there, kept, err = m.renew(ctx, conn, id); err != nil {
			return err
		}
	}
	if !kept {
		if before != nil {
			m.o.Log.Warn("this process has lost its lease; the other replicas may have taken its sessions", "was", id)
			m.lease.Store(nil)
		}
		m.readPlace(ctx, conn)
		id = m.newID()
		var err error
		if there, err = m.join(ctx, conn, id); err != nil {
			if errors.Is(err, errRefused) {
				m.refused.Store(true)
				m.setReason(err)
				return errors.Join(err, m.readTable(ctx, conn))
			}
			return err
		}
	}
	// The lease is counted from before the statement. It is counted shorter than it lasts, so that
	// a request that begins at its end can finish within it.
	held := &lease{id: id, begun: begun, until: begun.Add(m.o.TTL * 4 / 5), renewed: begun, there: there,
		took: time.Since(begun)}
	if kept {
		held.begun = before.begun
	}
	m.lease.Store(held)
	m.refused.Store(false)
	m.foreign.joined.CompareAndSwap(0, time.Now().Unix())
	m.reason.Store(new(""))
	defer m.once.Do(func() { close(m.tried) })
	if !kept {
		m.o.Changed()
		pace.Wake(m.rejoined)
		m.o.Log.Info("joined the replicas", "id", id, "address", m.address)
	} else if late := begun.Sub(before.renewed); late > m.o.TTL/2 {
		m.owners.renewedLate(begun, m.o.TTL/5)
		if begun.After(before.until) {
			m.o.Log.Warn("renewed the lease after it had expired; no session was taken", "id", id)
			told = true
		}
	}
	if kept && m.outnumbered() && time.Since(held.begun) > driftTime {
		if err := m.renumber(ctx, conn); err != nil {
			return err
		}
	}
	if kept && told {
		digest := m.shared.Load().digests(m.identity)[0]
		if err := storeNumber(ctx, conn, digest, m.numbers.own.Load(), false); err != nil {
			return err
		}
		if err := announce(ctx, conn); err != nil {
			return err
		}
	}
	return m.readTable(ctx, conn)
}

// readTable reads the table members.
func (m *Member) readTable(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, m.o.TTL/3)
	defer cancel()
	asked := time.Now()
	m.looked = asked
	rows, s, err := list(ctx, conn, m.shared.Load().digests(m.identity), m.o.TTL)
	if err != nil {
		return err
	}
	self := ""
	if l := m.lease.Load(); l != nil {
		self = l.id
	}
	m.setOthers(rows, self, asked)
	if why := m.seen(rows, s); why != nil && self != "" {
		return m.makeWay(ctx, conn, why)
	}
	for _, r := range rows {
		if r.left < -m.o.TTL && self != "" && m.owners.expiredHaveEnded() {
			return m.deleteLongExpired(ctx, conn, self)
		}
	}
	return nil
}
