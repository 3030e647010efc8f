package replicas

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"junction/auth/authtest"
	"junction/auth/store"
)

// TestPlaceOfAConfiguration: the configuration with the highest number serves, whoever joins first. A new one gets
// a number when the one before was stopped, and none while its processes may come back.
func TestPlaceOfAConfiguration(t *testing.T) {
	o := (&world{t: t, store: &store.Store{}, key: make([]byte, 32)}).options()
	o.Shared = func([]byte) (string, error) { return "names=#mine", nil }
	for name, tt := range map[string]struct {
		memory  [2]int64 // the number of this process, and the highest that it has seen
		stored  standing
		living  string // "OTHER:5": names of other processes, with their numbers; "mine" has the same configuration
		number  int64
		refused string // in the reason
		waits   bool
	}{
		"the first of all":                         {number: 1},
		"again, alone":                             {stored: standing{own: 3, highest: 3}, number: 3},
		"a new one, after the last was stopped":    {stored: standing{highest: 3, ended: true}, number: 4},
		"a new one, beside the last that stops":    {stored: standing{highest: 3}, living: "other:3:draining", number: 4},
		"an older one, after the last was stopped": {stored: standing{own: 2, highest: 3, ended: true}, number: 4},
		"a new one, while the last may come back":  {stored: standing{highest: 3}, number: 0},
		"an older one, while it may come back":     {stored: standing{own: 2, highest: 3}, number: 2},
		"beside the same":                          {stored: standing{highest: 3}, living: "mine:3", number: 3},
		"beside the same, which others outnumber":  {stored: standing{own: 2, highest: 3}, living: "mine:2", number: 2},
		"the database is from yesterday":           {memory: [2]int64{6, 6}, stored: standing{own: 5, highest: 5}, number: 6},
		"it has seen a higher one, which is lost":  {memory: [2]int64{0, 6}, stored: standing{own: 5, highest: 5, ended: true}, number: 5},
		"the database is another one's":            {memory: [2]int64{6, 6}, stored: standing{highest: 40}, number: 6},
		"beside a newer one": {stored: standing{own: 2, highest: 3}, living: "other:3", number: 2,
			refused: "in names, which all processes must have equal; that process has the configuration number 3, and this " +
				"one the older one with number 2; stop all"},
		"a new one beside another": {stored: standing{highest: 3}, living: "other:3",
			refused: "number 3, and this one one that was not served yet; stop all processes"},
		"beside one without a number": {living: "other:0", refused: "the configuration without a number"},
		"beside an older one": {stored: standing{own: 6, highest: 6}, living: "mine:5 other:5 other:2", number: 6, waits: true,
			refused: "which makes way: that process has the configuration number 5, this one the configuration number 6, " +
				"and they differ in names"},
		"a newer one waits": {stored: standing{own: 2, highest: 3, wanted: 3}, number: 2, refused: "configuration 3, which is about to join"},
	} {
		m, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		m.numbers.own.Store(tt.memory[0])
		m.numbers.highest.Store(tt.memory[1])
		var living []row
		for i, text := range strings.Fields(tt.living) {
			part := strings.Split(text+":", ":")
			r := row{address: fmt.Sprint("10.0.0.", i), fingerprint: m.identity.fingerprint(),
				digest: "names=#" + part[0] + " " + configurationFact + "=" + part[1]}
			if part[2] != "" {
				r.digest += " " + draining
			}
			living = append(living, r)
		}
		number, err := m.place(living, tt.stored)
		reason := fmt.Sprint(err)
		if number != tt.number && (err == nil || tt.waits) || (err != nil) != (tt.refused != "") || !strings.Contains(reason, tt.refused) && err != nil ||
			errors.Is(err, errWaits) != tt.waits || err != nil && !errors.Is(err, errRefused) {
			t.Errorf("%s: %d, %v; want %d, %q, waits %v", name, number, err, tt.number, tt.refused, tt.waits)
		}
	}
	o.Listener.Close()
}

// named returns the options of a member with a value of a hard key.
func (w *world) named(separator string) Options {
	o := w.options()
	o.Shared = func(key []byte) (string, error) { return "~schema=1 names=#" + separator, nil }
	return o
}

// mustWait waits until a member serves with a number.
func (w *world) mustHave(m *running, number int64) {
	w.t.Helper()
	w.until(fmt.Sprint("it serves with the number ", number), func() bool {
		return m.Self() != "" && m.numbers.own.Load() == number
	})
}

// mustRefuse waits until a member does not serve, for a reason.
func (w *world) mustRefuse(m *running, why string) {
	w.t.Helper()
	w.until("it does not serve: "+why, func() bool {
		err := m.Ready(w.t.Context())
		return m.Self() == "" && err != nil && strings.Contains(err.Error(), why)
	})
}

// TestAdoptTakesOver: processes with another value of a hard key wait. When the operator adopts their file, those
// that serve make way at once and say for what, and the way back is the same command.
func TestAdoptTakesOver(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	o := w.named("old")
	a, b := w.mustStart(o, nil), w.mustStart(w.named("old"), nil)
	w.mustHave(a, 1)
	w.mustHave(b, 1)
	n := w.named("new")
	c := w.mustStart(n, nil)
	w.mustRefuse(c, "that process has the configuration number 1, and this one one that was not served yet")
	adopt := func(o Options, number int64, changed bool, makeWay int) {
		t.Helper()
		got, err := Adopt(t.Context(), w.dsn, o.Key, o.Shared)
		if err != nil || got.Number != number || got.Changed != changed || len(got.MakeWay) != makeWay {
			t.Errorf("Adopt = %+v, %v; want %d, %v, %d", got, err, number, changed, makeWay)
		}
	}
	adopt(n, 2, true, 2)
	w.mustHave(c, 2)
	for _, m := range []*running{a, b} {
		w.mustRefuse(m, "configuration number 2, and this one the older one with number 1")
	}
	adopt(n, 2, false, 0)
	adopt(o, 3, true, 1)
	w.mustHave(a, 3)
	w.mustHave(b, 3)
	w.mustRefuse(c, "number 3, and this one the older one with number 2")
	c.stop()
	a.stop() // b serves on: the number is not given up
	adopt(n, 4, true, 1)
	adopt(n, 4, false, 1)
	if b.Self() == "" {
		t.Error("it makes way although no process waits")
	}
}

// TestTheHighestNumberSurvivesTheDatabase: the rows are lost, and a process with an older file is the first that
// joins. Those with the newer one write their number back and take over.
func TestTheHighestNumberSurvivesTheDatabase(t *testing.T) {
	t.Parallel()
	for name, restored := range map[string]string{
		"yesterday's": `DELETE FROM configurations WHERE number = 2; DELETE FROM members`,
		"another one's": `UPDATE configurations SET number = number + 40, digest = 'x' || digest; DELETE FROM members;
			INSERT INTO members VALUES ('never', '10.0.0.7:8422', (SELECT 'f'), '', '', 0, ` + now + ` + 86400000000)`,
		"an empty one": `DELETE FROM configurations; DELETE FROM members`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := mustWorld(t)
			w.t = t
			first := w.mustStart(w.named("old"), nil)
			w.mustHave(first, 1)
			first.stop()
			gate, o := authtest.MustGate(t, w.dsn), w.named("new")
			o.DSN = gate.DSN
			a := w.mustStart(o, nil)
			w.mustHave(a, 2)
			if name == "another one's" { // a row with another key ends after a lease
				restored = strings.ReplaceAll(restored, `(SELECT 'f')`, "'"+a.identity.fingerprint()+"'")
			}
			late := w.mustStart(w.named("old"), nil)
			w.mustRefuse(late, "the older one with number 1")
			gate.Close()
			conn, err := pgx.Connect(t.Context(), w.dsn)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(t.Context())
			if _, err := conn.Exec(t.Context(), restored+`; NOTIFY `+channel); err != nil {
				t.Fatal(err)
			}
			w.mustHave(late, 1)
			w.until("the newer one serves no more", func() bool { return a.Self() == "" })
			gate.MustOpen(t)
			w.mustHave(a, 2)
			w.mustRefuse(late, "number 2")
		})
	}
}

// TestALostConfigurationIsReplaced: a process that serves because those with a higher number are lost says so.
// It makes way when one of them comes back, and has the highest number when none does.
func TestALostConfigurationIsReplaced(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	a := w.mustStart(w.named("old"), nil)
	w.mustHave(a, 1)
	lost := func(number int64) {
		t.Helper()
		if _, err := w.store.Database().Exec(`INSERT INTO configurations VALUES ('lost', $1, 0, 0, 0)`, number); err != nil {
			t.Fatal(err)
		}
	}
	a.stop()
	lost(7)
	b := w.mustStart(w.named("new"), nil)
	w.mustHave(b, 0)
	if err := b.Warning(); err == nil || !strings.Contains(err.Error(), "serves the configuration without a number, and the "+
		"configuration number 7 was in force before") {
		t.Errorf("Warning = %v", err)
	}
	conn, err := pgx.Connect(t.Context(), w.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := b.renumber(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	w.mustHave(b, 8)
	if err := b.Warning(); err != nil {
		t.Error(err)
	}
	c := w.mustStart(w.named("old"), nil)
	w.mustRefuse(c, "number 8")
}
