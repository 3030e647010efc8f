package replicas

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/auth/seal"
	"junction/auth/store"
)

// world is a database with members. Connections to it go through a gate, so that a test can stop
// it.
type world struct {
	t     testing.TB
	store *store.Store
	dsn   string
	key   []byte
	ttl   time.Duration
}

func mustWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, dsn: authtest.Schema(t), key: make([]byte, seal.SecretSize), ttl: 2 * time.Second}
	ring := seal.RingOf("a", [seal.SecretSize]byte{1})
	var err error
	w.store, err = store.Open(t.Context(), store.Config{Driver: store.Postgres, DSN: w.dsn, Keys: ring, Log: authtest.Log(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.store.Close() })
	return w
}

// running is a member that runs until stop.
type running struct {
	*Member
	stop func()
}

// options returns the options of a member with a listener of its own.
func (w *world) options() Options {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	key, err := seal.NewKey(w.key)
	if err != nil {
		w.t.Fatal(err)
	}
	return Options{DSN: w.dsn, DB: w.store.Database(), Key: key, MasterKeys: []string{"a:00"}, MayJoin: w.store.MayJoin,
		Listener: l, Advertise: "127.0.0.1:0", Version: "test",
		Shared:  func([]byte) (string, error) { return "~schema=1 auth=#00", nil },
		Changed: func() {}, Log: authtest.Log(w.t), TTL: w.ttl, MaxHeader: 64 << 10, WriteTimeout: time.Minute}
}

// mustStart starts a member that answers forwarded requests with handler.
func (w *world) mustStart(o Options, handler http.Handler) *running {
	w.t.Helper()
	m, err := New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	if handler == nil {
		handler = http.NotFoundHandler()
	}
	ctx, cancel := context.WithCancel(context.Background())
	serving, stopServing := context.WithCancel(context.Background())
	var tasks, server sync.WaitGroup
	server.Go(func() {
		background := func(net.Listener) context.Context { return context.Background() }
		if err := m.Serve(serving, handler, background); err != nil {
			w.t.Error(err)
		}
	})
	tasks.Go(func() { m.Run(ctx) })
	stop := sync.OnceFunc(func() {
		draining, end := context.WithTimeout(ctx, 10*time.Second)
		m.Drain(draining)
		end()
		cancel()
		tasks.Wait()
		stopServing()
		server.Wait()
	})
	w.t.Cleanup(stop)
	return &running{m, stop}
}

// mustJoin starts a member and waits until it has joined.
func (w *world) mustJoin(handler http.Handler) *running {
	w.t.Helper()
	m := w.mustStart(w.options(), handler)
	w.until("the member has joined", func() bool { return m.Self() != "" })
	return m
}

// until waits until something holds.
func (w *world) until(what string, holds func() bool) {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(30 * time.Second)
	for !holds() {
		select {
		case <-tick.C:
		case <-limit:
			w.t.Fatalf("not after 30s: %s", what)
		}
	}
}

// mustAnnounce has all members read the table.
func (w *world) mustAnnounce() {
	w.t.Helper()
	if _, err := w.store.Database().Exec(`NOTIFY ` + channel); err != nil {
		w.t.Fatal(err)
	}
}

// TestJoinAndLeave: members find each other at once, and one that leaves is gone at once.
func TestJoinAndLeave(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	a, b := w.mustJoin(nil), w.mustJoin(nil)
	w.until("each knows the other", func() bool { return a.Alive(b.Self()) && b.Alive(a.Self()) })
	if list := a.Members(); len(list) != 2 || !list[0].Self || list[1].ID != b.Self() || list[1].Address != b.address {
		t.Errorf("Members = %+v", list)
	}
	id := b.Self()
	b.stop()
	if b.Self() != "" {
		t.Error("a member that has left is one")
	}
	w.until("the other one has noticed", func() bool { return !a.Alive(id) && len(a.Members()) == 1 })
}

// TestStopWithinAStatement: the lease is given back also if the stop interrupts a statement, which closes
// the connection.
func TestStopWithinAStatement(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	w.ttl = time.Minute
	a, b := w.mustJoin(nil), w.mustJoin(nil)
	id := b.Self()
	w.until("they know each other", func() bool { return len(a.Members()) == 2 && len(b.Members()) == 2 })
	tx, err := w.store.Database().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(`LOCK TABLE members IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	waits := func(statement string) bool {
		n := 0
		err := w.store.Database().QueryRow(`SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
			WHERE NOT l.granted AND l.relation = 'members'::regclass AND a.query LIKE $1`, statement+"%").Scan(&n)
		return err == nil && n > 0
	}
	w.mustAnnounce()
	w.until("it reads the table", func() bool { return waits("SELECT") })
	stopped := make(chan struct{})
	go func() {
		b.stop()
		close(stopped)
	}()
	w.until("it deletes its row", func() bool { return waits("DELETE") })
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	<-stopped
	w.until("the other one has noticed", func() bool { return !a.Alive(id) })
}

// TestWaitingRequestsShareReadings: the table is read once in a fifteenth of a lease for all requests that
// wait for a member, however many they are, and however quickly they come one after the other.
func TestWaitingRequestsShareReadings(t *testing.T) { // alone: members of other tests announce changes to all
	w := mustWorld(t)
	m := w.mustJoin(nil)
	if _, err := w.store.Database().Exec(`INSERT INTO members VALUES ('silent', '127.0.0.1:1', '', '', '', 0, ` + now +
		` + 60000000)`); err != nil {
		t.Fatal(err)
	}
	w.mustAnnounce()
	w.until("it knows the silent member", func() bool { return m.Alive("silent") })
	began, readings := time.Now(), 0
	for readings < 20 {
		next := m.read.begin()
		ctx, leave := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		for range 10 {
			waiting.Go(func() { _ = m.Await(ctx, "silent") })
		}
		<-next
		leave()
		waiting.Wait()
		m.read.end()
		readings++
	}
	took := time.Since(began)
	if most := int(took/(w.ttl/15)) + int(took/(w.ttl/3)) + 2; readings > most {
		t.Errorf("the table was read %d times in %v, want at most %d", readings, took, most)
	}
}

// TestReadOnlyDatabaseIsNamed: a database that rejects the lease is not reported as one that does not answer.
func TestReadOnlyDatabaseIsNamed(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	o := w.options()
	o.DSN += "&default_transaction_read_only=on"
	err := w.mustStart(o, nil).Ready(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "the database is read-only: ") ||
		!strings.Contains(err.Error(), "storage.dsn must lead to the primary server") {
		t.Errorf("Ready = %v", err)
	}
	o = w.options()
	o.DSN += "&search_path=pg_catalog" // without the tables
	if err := w.mustStart(o, nil).Ready(t.Context()); err == nil ||
		!strings.HasPrefix(err.Error(), "the database rejects the lease of this process: ") {
		t.Errorf("Ready without the table = %v", err)
	}
}

// TestRefused: a process with another key or another configuration does not join, names both sides,
// and joins once the others are gone.
func TestRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]struct {
		with func(w *world, o *Options)
		want []string
	}{
		"key": {func(w *world, o *Options) { o.Key, _ = seal.NewKey(append([]byte{1}, w.key[1:]...)) },
			[]string{"fingerprint of sessions.key_file"}},
		"first key": {func(w *world, o *Options) { o.Key = w.mustKey(1, 0) },
			[]string{"the first key of sessions.key_file here", "which the process at 127.0.0.1:"}},
		"master key": {func(_ *world, o *Options) { o.MasterKeys = []string{"next:00", "a:00"} },
			[]string{"the first key of the master keys (storage.key_file or JUNCTION_MASTER_KEYS) here has the fingerprint next:00"}},
		"configuration": {func(_ *world, o *Options) {
			o.Shared = func([]byte) (string, error) { return "~schema=1 auth=#11 names.separator=#22", nil }
		}, []string{" in auth and names.separator, which all"}},
		"schema": {func(_ *world, o *Options) {
			o.Shared = func([]byte) (string, error) { return "~schema=3 auth=#00", nil }
		}, []string{"made for the schema 3 of the database", "for 1; upgrade to the versions in between first"}},
		"address": {func(w *world, o *Options) { o.Advertise = w.mustAddress() },
			[]string{errAddress.Error()}},
		"unreachable": {func(_ *world, o *Options) { o.Advertise = "127.0.0.1:1" }, []string{"cannot connect to its own address (127.0.0.1:1)"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := mustWorld(t)
			a := w.mustJoin(nil)
			o := w.options()
			change.with(w, &o)
			b := w.mustStart(o, nil)
			err := b.Ready(t.Context())
			if err == nil || b.Self() != "" {
				t.Fatalf("it has joined: %v", b.Members())
			}
			if name == "key" {
				change.want = append(change.want, a.identity.fingerprint(), b.identity.fingerprint())
			}
			for _, want := range change.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the reason is %q; want %q in it", err, want)
				}
			}
			if a.Self() == "" {
				t.Error("the first member is none any more")
			}
			a.stop()
			if name != "address" && name != "unreachable" {
				w.until("the other one has joined", func() bool { return b.Self() != "" })
			}
		})
	}
}

// mustKey returns the key of the secrets 1, 2 and so on, each many times the same byte.
func (w *world) mustKey(secrets ...byte) *seal.Key {
	w.t.Helper()
	var all [][]byte
	for _, b := range secrets {
		all = append(all, bytes.Repeat([]byte{b}, seal.SecretSize))
	}
	key, err := seal.NewKey(all[0], all[1:]...)
	if err != nil {
		w.t.Fatal(err)
	}
	return key
}

// TestKeysOfMembers: two processes meet if each accepts the first key of the other one. The reason of a
// refusal says in which process a key is missing.
func TestKeysOfMembers(t *testing.T) {
	const there, here, none = "add the key there as the last one", "add that key here as the last one",
		"give all processes the same keys"
	for _, tt := range []struct{ living, joining, refused string }{
		{"a", "a", ""}, {"a", "a b", ""}, {"a b", "a", ""}, {"a b", "b a", ""}, {"b a", "a b", ""},
		{"b a", "b", ""}, {"b", "b a", ""},
		{"a", "b a", there}, {"b", "a b", there}, {"b a", "a", here}, {"a b", "b", here},
		{"a", "b", none}, {"a c", "b c", none},
	} {
		err := meet("sessions.key_file", "10.0.0.7:8422", strings.Fields(tt.joining), strings.Fields(tt.living))
		switch {
		case tt.refused == "" && err != nil:
			t.Errorf("%s beside %s: %v", tt.joining, tt.living, err)
		case tt.refused != "" && (!errors.Is(err, errRefused) || !strings.Contains(err.Error(), tt.refused) ||
			!strings.Contains(err.Error(), "10.0.0.7:8422")):
			t.Errorf("%s beside %s: %v, want %q and the address", tt.joining, tt.living, err, tt.refused)
		}
	}
}

// TestDigestsSurviveAnotherKey: members with other first keys compare their configurations, and name what
// differs, and nothing else.
func TestDigestsSurviveAnotherKey(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	shared := func(name string) func(key []byte) (string, error) {
		return func(key []byte) (string, error) {
			return fmt.Sprintf("~schema=1 auth=#%x ~policies=#%s", key[:4], name), nil
		}
	}
	o := w.options()
	o.Key, o.Shared = w.mustKey(1, 2), shared("one")
	a := w.mustStart(o, nil)
	w.until("the first one has joined", func() bool { return a.Self() != "" })
	o = w.options()
	o.Key, o.Shared = w.mustKey(2, 1), shared("two")
	b := w.mustStart(o, nil)
	if err := b.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.until("each knows the other", func() bool { return len(a.Members()) == 2 && len(b.Members()) == 2 })
	one, two := a.identity.fingerprints()[0], a.identity.fingerprints()[1]
	for _, m := range []*running{a, b} {
		first, second := one, two
		if m == b {
			first, second = two, one
		}
		want := fmt.Sprintf("policies and session_keys (%s,%s here, %[2]s,%[1]s there)", first, second)
		for _, s := range m.Members() {
			if got := keysOf(s.Differs); !s.Self && got != want {
				t.Errorf("it differs in %q, want %q", got, want)
			}
		}
	}
}

// TestRowOfAVersionWithoutKeys: a row that does not say which keys its process has is that of a process
// with one key of sessions, and with master keys that cannot be compared.
func TestRowOfAVersionWithoutKeys(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	older, err := newIdentity(w.mustKey(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Database().Exec(`INSERT INTO members VALUES ('older', '10.0.0.7:8422', $1, '~schema=1 auth=#00',
		'test', 0, `+now+` + 3600000000)`, older.fingerprint()); err != nil {
		t.Fatal(err)
	}
	o := w.options()
	o.Key, o.MasterKeys = w.mustKey(2, 1), []string{"b:00"}
	if err := w.mustStart(o, nil).Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "add the key there") {
		t.Errorf("another first key: %v", err)
	}
	o = w.options()
	o.Key, o.MasterKeys = w.mustKey(1, 2), []string{"b:00"}
	if err := w.mustStart(o, nil).Ready(t.Context()); err != nil {
		t.Errorf("the same first key: %v", err)
	}
}

// TestJoinReadsTheStoreAgain: a process that was started before a migration, or before a rotation of the
// master key, and joins after it, does not join if it does not know the result.
func TestJoinReadsTheStoreAgain(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(w *world, tx *sql.Tx) error
		want   string
		undo   string
	}{
		"migration": {func(_ *world, tx *sql.Tx) error {
			_, err := tx.Exec(`INSERT INTO schema_migrations VALUES ($1, 0), ($2, 0)`, store.Latest()+1, store.Latest()+2)
			return err
		}, fmt.Sprintf("its schema is %d", store.Latest()+2), `DELETE FROM schema_migrations WHERE at = 0`},
		"rotation": {func(w *world, tx *sql.Tx) error {
			if _, err := tx.Exec(`CREATE TABLE before AS SELECT secret_enc FROM canary`); err != nil {
				return err
			}
			next := seal.RingOf("next", [seal.SecretSize]byte{2}).Vault("vault")
			_, err := tx.Exec(`UPDATE canary SET secret_enc = $1`, next.Seal([]byte("any"), "any"))
			return err
		}, `no master key "next"`, `UPDATE canary SET secret_enc = (SELECT secret_enc FROM before)`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := mustWorld(t)
			w.ttl = 3 * time.Second
			db := w.store.Database()
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			if _, err := tx.Exec(`SELECT pg_advisory_xact_lock($1 + 'members'::regclass::oid::bigint)`,
				int64(store.JoinLock)); err != nil {
				t.Fatal(err)
			}
			b := w.mustStart(w.options(), nil)
			w.until("it waits for the lock", func() (waits bool) {
				err := db.QueryRow(`SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'advisory'
					AND (classid::bigint << 32) + objid::bigint = $1 + 'members'::regclass::oid::bigint)`,
					int64(store.JoinLock)).Scan(&waits)
				return err == nil && waits
			})
			if err := errors.Join(tt.change(w, tx), tx.Commit()); err != nil {
				t.Fatal(err)
			}
			w.until("it has been refused", func() bool { return b.refused.Load() || b.Self() != "" })
			if err := b.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the reason is %v, want %q in it", err, tt.want)
			}
			if _, err := db.Exec(tt.undo); err != nil {
				t.Fatal(err)
			}
			w.until("it joins when it may", func() bool { return b.Self() != "" })
		})
	}
}

// mustAddress returns the address of the only member.
func (w *world) mustAddress() (address string) {
	w.t.Helper()
	if err := w.store.Database().QueryRow(`SELECT address FROM members`).Scan(&address); err != nil {
		w.t.Fatal(err)
	}
	return address
}

// TestSameAddress: a process that was killed and started again has the address of the dead one, and
// does not wait for the end of its lease.
func TestSameAddress(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	w.ttl = time.Hour
	o := w.options()
	if _, err := w.store.Database().Exec(`INSERT INTO members VALUES ('dead', $1, $2, '~schema=1 auth=#00', 'test', 0, `+now+` + 3600000000)`,
		o.Listener.Addr().String(), mustFingerprint(t, o.Key)); err != nil {
		t.Fatal(err)
	}
	b := w.mustStart(o, nil)
	w.until("it has joined", func() bool { return b.Self() != "" })
	if list := b.Members(); len(list) != 1 {
		t.Errorf("Members = %+v", list)
	}
}

func mustFingerprint(t *testing.T, key *seal.Key) string {
	t.Helper()
	i, err := newIdentity(key)
	if err != nil {
		t.Fatal(err)
	}
	return i.fingerprint()
}

// TestOutage: without the database a process stops to be a member by its own clock. Afterwards it
// is the same member again, unless another one has taken its place.
func TestOutage(t *testing.T) {
	t.Parallel()
	for name, buried := range map[string]bool{"untouched": false, "buried": true} {
		t.Run(name, func(t *testing.T) {
			w := mustWorld(t)
			g := authtest.MustGate(t, w.dsn)
			o := w.options()
			o.DSN = g.DSN
			changes := make(chan string, 10)
			o.Changed = func() { changes <- "changed" }
			a := w.mustStart(o, nil)
			w.until("it has joined", func() bool { return a.Self() != "" })
			<-changes
			id := a.Self()
			g.Close()
			w.until("its lease has ended", func() bool { return a.Self() == "" })
			if err := a.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "database") {
				t.Errorf("Ready = %v", err)
			}
			if buried {
				if _, err := w.store.Database().Exec(`DELETE FROM members`); err != nil {
					t.Fatal(err)
				}
			}
			g.MustOpen(t)
			w.until("it is a member again", func() bool { return a.Self() != "" })
			if same := a.Self() == id; same == buried {
				t.Errorf("the ID is the same: %v, want %v", same, !buried)
			}
			if (len(changes) == 1) != buried {
				t.Errorf("%d changes of the ID were reported", len(changes))
			}
		})
	}
}

// TestDifferencesOfARollout: parts that may differ for a while keep no process from joining. The list
// of members names them, and after a time a warning does.
func TestDifferencesOfARollout(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	a := w.mustJoin(nil)
	o := w.options()
	o.Shared = func([]byte) (string, error) { return "~schema=2 auth=#00 ~policies=#22", nil }
	b := w.mustStart(o, nil)
	w.until("it has joined, and knows the other", func() bool { return b.Self() != "" && len(b.Members()) == 2 })
	list := b.Members()
	if got := keysOf(append(list[0].Differs, list[1].Differs...)); got != "policies and schema (2 here, 1 there)" {
		t.Errorf("it differs in %q", got)
	}
	if n := b.Figures().Differing; len(n) != 2 || n["policies"] != 1 {
		t.Errorf("the figures are %v", n)
	}
	if err := b.Warning(); err != nil {
		t.Errorf("during a rollout: %v", err)
	}
	since := time.Now().Add(-2 * driftTime)
	b.drift.mu.Lock()
	for i := range b.drift.found[a.Self()] {
		b.drift.found[a.Self()][i].Since = since
	}
	b.drift.mu.Unlock()
	b.compare() // keeps the times
	want := "policies differs from " + a.address + " since " + since.Format(time.RFC3339)
	if err := b.Warning(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("after it: %v, want %q", err, want)
	}
	if err := b.Reload(func([]byte) (string, error) { return "~schema=1 auth=#00", nil }); err != nil {
		t.Fatal(err)
	}
	if err := b.Warning(); err != nil {
		t.Errorf("with the old configuration: %v", err)
	}
}

// TestDiffering: a difference names the key. Hard are those that no mark excepts, in an entry only if both
// members have the entry; an entry that one of them lacks is one difference.
func TestDiffering(t *testing.T) {
	for _, tt := range []struct{ here, there, want string }{
		{"a=#1 ~b=#2", "~b=#2 a=#1", ""},
		{"a=#1", "a=#2", "a!"},
		{"a=#1", "", "a!"},
		{"", "a=#1", "a!"},
		{"~a.b=#1", "~a.b=#2", "a.b"},
		{"~p.sso=#1 ?p.sso.issuer=#1 ~p.sso.secret=#1", "~p.sso=#1 ?p.sso.issuer=#1 ~p.sso.secret=#2", "p.sso.secret"},
		{"~p.sso=#1 ?p.sso.issuer=#1", "~p.sso=#1 ?p.sso.issuer=#2", "p.sso.issuer!"},
		{"~p.sso=#1 ?p.sso.issuer=#1 ~p.sso2=#1 ~p.sso.secret=#1", "~p.sso2=#2", "p.sso p.sso2"},
		{"~p.a=#1 ~p.a-b=#1 ~p.a.c=#1", "", "p.a p.a-b"},
		{"~s.a%3Db+c=#1", "", "s.a=b c"},
		{"~schema=1 ~state=draining", "~schema=2", "schema (1 here, 2 there)"},
		{"", "~keys=a,b", "keys (none here, a,b there)"},
	} {
		var got []string
		for _, d := range differing(tt.here, tt.there) {
			text := d.String()
			if d.Hard {
				text += "!"
			}
			got = append(got, text)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%q and %q differ in %q, want %q", tt.here, tt.there, got, tt.want)
		}
	}
}

// TestARefusedProcessJoinsAtOnce: a process that waits because of a hard key joins as soon as the last one
// with the other value has left, not with its next attempt.
func TestARefusedProcessJoinsAtOnce(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	o := w.options()
	o.TTL = time.Hour // attempts are 20 minutes apart
	old := w.mustStart(o, nil)
	w.until("the old one has joined", func() bool { return old.Self() != "" })
	o = w.options()
	o.TTL, o.Shared = time.Hour, func([]byte) (string, error) { return "~schema=1 auth=#11", nil }
	next := w.mustStart(o, nil)
	if err := next.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), " in auth, which all") {
		t.Fatalf("beside the old one: %v", err)
	}
	old.stop()
	w.until("the new one has joined", func() bool { return next.Self() != "" })
}

// TestAReloadIsToldAtOnce: a member that has read another configuration has the others know without waiting
// for its next renewal.
func TestAReloadIsToldAtOnce(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	o := w.options()
	o.TTL = time.Hour // renewals are 20 minutes apart
	a := w.mustStart(o, nil)
	w.until("the first one has joined", func() bool { return a.Self() != "" })
	o = w.options()
	o.TTL = time.Hour
	b := w.mustStart(o, nil)
	w.until("each knows the other", func() bool { return len(a.Members()) == 2 && len(b.Members()) == 2 })
	if err := b.Reload(func([]byte) (string, error) { return "~schema=1 auth=#00 ~limits=#1", nil }); err != nil {
		t.Fatal(err)
	}
	w.until("the other one knows", func() bool { return a.Figures().Differing["limits"] == 1 })
}
