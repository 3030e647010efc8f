package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
	"junction/upstream/client"
	"junction/upstream/raw"
	"junction/upstream/transport"
	"junction/upstream/upstreamtest"
)

// patterned returns the definition of a tool whose schemas have some patterns, each another one.
func patterned(name string, patterns int) json.RawMessage {
	var properties strings.Builder
	for i := range patterns {
		fmt.Fprintf(&properties, `,"p%d":{"type":"string","pattern":"^[a-z]%d\\pL$"}`, i, i)
	}
	schema := `{"type":"object","properties":{"first":{}` + properties.String() + `}}`
	return fmt.Appendf(nil, `{"name":%q,"inputSchema":%s,"outputSchema":%s}`, name, schema, schema)
}

// reads a list as a reading of a server does.
func (c *checks) read(era client.Era, list ...json.RawMessage) (cat *Catalog, steps int) {
	k := c.begin()
	cat = &Catalog{Era: era, checking: k}
	cat.index[PartTools] = map[string]int{}
	for _, text := range list {
		cat.add(PartTools, text, 0)
	}
	cat.endChecking()
	return cat, k.done
}

// offered returns the names of the tools of a catalog, and why others are left out.
func offered(c *Catalog) string {
	var names []string
	for _, t := range c.Tools {
		names = append(names, t.Name)
	}
	for _, l := range c.Left {
		reason := l.Reason
		switch reason {
		case reasonLater:
			reason = "later"
		case reasonCostly:
			reason = "costly"
		}
		names = append(names, l.Name+":"+reason)
	}
	return strings.Join(names, " ")
}

// sizeOf returns the bytes of definitions.
func sizeOf(list []json.RawMessage) (n int) {
	for _, text := range list {
		n += len(text)
	}
	return n
}

// TestUnchangedDefinitionsAreNotCheckedAgain reads a list several times: only a definition that has changed,
// or that another era has sent, takes more steps than its bytes. The outcome is the same.
func TestUnchangedDefinitionsAreNotCheckedAgain(t *testing.T) {
	odd := json.RawMessage(`{"name":"odd","inputSchema":{"type":"object","properties":{"a":{"type":"text","pattern":"("}}},"title":7}`)
	list := []json.RawMessage{patterned("a", 20), odd, patterned("b", 20), []byte(`{"name":"bad","inputSchema":7}`)}
	c := newChecks(1 << 20)
	first, steps := c.read(client.EraModern, list...)
	least := byteSteps * sizeOf(list)
	if steps < least+20*8000 || len(first.Tools) != 3 || len(first.Mended) != 1 || len(first.Left) != 1 {
		t.Fatalf("the first reading takes %d steps, and offers %s with %v", steps, offered(first), first.Mended)
	}
	again, steps := c.read(client.EraModern, list...)
	if steps != least {
		t.Errorf("a reading without a change takes %d steps, want %d", steps, least)
	}
	if !again.equal(first) || fmt.Sprint(again.Mended) != fmt.Sprint(first.Mended) ||
		fmt.Sprint(again.Tools) != fmt.Sprint(first.Tools) {
		t.Errorf("the outcome of the second reading is\n%+v %v\nwant\n%+v %v", again.Tools, again.Mended, first.Tools, first.Mended)
	}
	changed := patterned("b", 21)
	_, alone := newChecks(1<<20).read(client.EraModern, changed)
	list[2] = changed
	if _, steps = c.read(client.EraModern, list...); steps != byteSteps*(sizeOf(list)-len(changed))+alone {
		t.Errorf("a reading with one change takes %d steps, and the change alone %d", steps, alone)
	}
	if _, steps = c.read(client.EraLegacy, list...); steps < least+20*8000 {
		t.Errorf("the list of a server of the other era takes %d steps: it is not checked", steps)
	}
}

// TestAListIsCheckedWithinABudget reads a list that takes three budgets, and then one tool more than a budget.
// The tools appear in the order of the list, as the time comes back. What was not checked is left out.
func TestAListIsCheckedWithinABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := []json.RawMessage{patterned("a", 10), patterned("b", 10), patterned("huge", 60), patterned("c", 10), patterned("d", 10)}
		_, one := newChecks(1<<20).read(client.EraModern, list[0])
		c := newChecks(1 << 20)
		c.steps = one*5/2 - 1
		for _, tt := range []struct {
			rests     bool // until the time has come back
			want      string
			unchecked bool
		}{
			{true, "a b huge:later c:later d:later", true},
			{false, "a b huge:later c:later d:later", true}, // nothing has come back yet
			{true, "a b huge:costly c:later d:later", true},
			{true, "a b c d huge:costly", false},
			{false, "a b c d huge:costly", false},
		} {
			if tt.rests {
				time.Sleep(max(0, c.wait()))
			}
			cat, steps := c.read(client.EraModern, list...)
			if got := offered(cat); got != tt.want || cat.Unchecked != tt.unchecked {
				t.Errorf("the reading offers %s, unchecked: %t; want %s, %t", got, cat.Unchecked, tt.want, tt.unchecked)
			}
			if most := byteSteps*sizeOf(list) + c.steps; steps > most {
				t.Errorf("the reading takes %d steps, want at most %d", steps, most)
			}
		}
		// After half of the time, half of the budget is there.
		time.Sleep(max(0, c.wait()))
		c.rests = time.Now().Add(c.spent(c.steps) / 2)
		next := []json.RawMessage{patterned("e", 10), patterned("f", 10)}
		if cat, _ := c.read(client.EraModern, next...); offered(cat) != "e f:later" {
			t.Errorf("with half of the budget the reading offers %s, want e and f later", offered(cat))
		}
	})
}

// TestOutcomesTakeTheMemoryOfALittleMoreThanALists: a server that always lists new definitions does not fill
// the memory with outcomes, also if each definition is changed.
func TestOutcomesTakeTheMemoryOfALittleMoreThanALists(t *testing.T) {
	c := newChecks(3 << 20)
	for i := range 40 {
		var list []json.RawMessage
		for k := range 10 {
			list = append(list, fmt.Appendf(nil, `{"name":"t%d","title":7,"inputSchema":{"type":"object"},"description":"%d%s"}`, k, i,
				strings.Repeat("x", 50<<10)))
		}
		c.rests = time.Time{}
		c.read(client.EraModern, list...)
		if used := c.kept.Room.Used; used > 5<<19 {
			t.Fatalf("after %d readings of %d bytes the outcomes take %d bytes", i+1, sizeOf(list), used)
		}
	}
	if most := c.kept.Room.Max; most > 3<<20 {
		t.Errorf("outcomes may take %d bytes", most)
	}
}

// TestCostlyListsAreReadSeldom: a server announces changes all the time, and callers ask for readings. Each
// reading takes a second by its steps. Readings take a twentieth of the time, and go on.
func TestCostlyListsAreReadSeldom(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				at := func(i int) []json.RawMessage { return []json.RawMessage{patterned(fmt.Sprintf("t%04d", i), 5)} }
				_, steps := newChecks(1<<20).read(client.Era(era), at(0)...)
				c := newChecks(1 << 20)
				c.step = time.Second / time.Duration(steps)
				r := newRig(t, upstreamtest.Script{Era: era, Tools: at(0)}, Config{}, func(o *Options) { o.checks = c })
				synctest.Wait()
				first, end := r.reads(), time.Now().Add(10*time.Minute)
				for range 20 {
					go func() {
						for time.Now().Before(end) {
							r.reread()
						}
					}()
				}
				for i := 1; time.Now().Before(end); i++ {
					r.server.SetTools(at(i))
					settle(100 * time.Millisecond)
				}
				settle(askedPatience)
				if n := r.reads() - first; n > 10*60/19+2 || n < 10*60/25 {
					t.Errorf("%d readings of a second in ten minutes, want about %d", n, 10*60/20)
				}
			})
		})
	}
}

// TestUncheckedToolsAppearWithoutAnAnnouncement: a list that takes several budgets is read again by itself until
// all of its tools are offered.
func TestUncheckedToolsAppearWithoutAnAnnouncement(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				list := []json.RawMessage{patterned("a", 10), patterned("b", 10), patterned("c", 10)}
				_, steps := newChecks(1<<20).read(client.Era(era), list[0])
				c := newChecks(1 << 20)
				c.steps, c.step = steps+steps/2, time.Second/time.Duration(steps)
				script := silent(era)
				script.Tools = list
				r := newRig(t, script, Config{}, func(o *Options) { o.checks = c })
				settle(time.Second)
				if got := offered(r.Catalog()); got != "a b:later c:later" {
					t.Errorf("at first the list is %s", got)
				}
				if r.Catalog().Tool("b") != nil {
					t.Error("a tool that is not checked can be called")
				}
				settle(2 * time.Minute)
				if got := offered(r.Catalog()); got != "a b c" || r.reads() > 6 {
					t.Errorf("after two minutes and %d readings the list is %s", r.reads(), got)
				}
			})
		})
	}
}

// TestUsersShareTheChecksOfAServer: the outcomes and the time of a server at which each user signs in are
// those of all users, and a changed entry keeps those of its server.
func TestUsersShareTheChecksOfAServer(t *testing.T) {
	p := &people{configs: map[string]resolved{"up": {}, "other": {}}, options: Options{MessageLimit: 1 << 20, Log: authtest.Log(t)}.withDefaults()}
	ann, bob, other := p.start("up", "ann"), p.start("up", "bob"), p.start("other", "ann")
	next := ann.adapt(resolved{Config: Config{URL: ann.config.URL, ConnectTimeout: time.Minute}}, p.options)
	for _, u := range []*Upstream{ann, bob, other, next} {
		t.Cleanup(u.Close)
	}
	if ann.lists.checks != bob.lists.checks || ann.lists.checks == other.lists.checks || next.lists.checks != ann.lists.checks || next.pool == ann.pool {
		t.Errorf("ann and bob share their checks: %t; two servers do: %t; a changed entry keeps them: %t",
			ann.lists.checks == bob.lists.checks, ann.lists.checks == other.lists.checks, next.lists.checks == ann.lists.checks)
	}
}

// pages is a connection whose lists are these results, one after the other; the last one stays.
type pages struct {
	client.Conn
	results []string
	asked   int
}

func (p *pages) List(context.Context, string, []byte, *transport.Lease) (raw.Object, error) {
	result := p.results[min(p.asked, len(p.results)-1)]
	p.asked++
	return raw.Parse([]byte(result))
}

// TestCursorsThatComeAgainEndTheList: a server that names two cursors in turn has ended its list at the second
// time, and so has one with too many pages. An item of two pages is offered once, and the reason is told.
func TestCursorsThatComeAgainEndTheList(t *testing.T) {
	page := func(name, cursor string) string {
		return fmt.Sprintf(`{"tools":[{"name":"a","inputSchema":{}},{"name":%q,"inputSchema":{}}],"nextCursor":%q}`, name, cursor)
	}
	turns := []string{page("b", "x"), page("c", "y"), page("d", "x"), page("never", "z")}
	var many []string
	for i := range maxPages + 1 {
		many = append(many, page("b", fmt.Sprint(i)))
	}
	for _, tt := range []struct {
		results       []string
		want, because string
		asked         int
	}{
		{turns, "a b c d :", "the list never ends, page 3 has the cursor of an earlier one", 3},
		{many, "a b :", "more than 1000 pages", maxPages},
	} {
		for _, era := range []client.Era{client.EraLegacy, client.EraModern} {
			from := &pages{results: tt.results}
			cat := &Catalog{Era: era, checking: newChecks(1 << 20).begin(), leases: new(leases)}
			err := cat.read(t.Context(), from, PartTools, 1000)
			got := offered(cat)
			if err != nil || !strings.HasPrefix(got, tt.want) || !strings.Contains(got, tt.because) {
				t.Errorf("%s: it offers %q (%v), want %q because %s", era, got, err, tt.want, tt.because)
			}
			if from.asked != tt.asked {
				t.Errorf("%d pages were asked for, want %d", from.asked, tt.asked)
			}
		}
	}
}
