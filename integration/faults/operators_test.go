//go:build linux

package faults

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"

	"junction/integration/harness"
	"junction/upstream/client"
)

// operator runs a command again and again, and notes what it prints.
type operator struct {
	*testing.T
	stop <-chan struct{}
	runs sync.WaitGroup

	mu      sync.Mutex
	printed []string
}

// refusal is what a command prints that has changed nothing, halfway what one does between whose steps the schema has
// changed.
var (
	refusal = regexp.MustCompile("; nothing was changed|; run junction storage migrate first, with this version")
	halfway = "; all that is stored can be read, with the keys as they are now; run this again"
)

// repeats begins to run a command until stop is closed, and at least once. A command that fails must say that it has
// changed nothing, or what to do first.
func (o *operator) repeats(program string, args ...string) {
	o.runs.Go(func() {
		for {
			out, err := exec.Command(program, args...).CombinedOutput()
			if err != nil && !refusal.Match(out) && !strings.Contains(string(out), halfway) {
				o.Errorf("junction %s: %v\n%s", strings.Join(args, " "), err, out)
			}
			o.mu.Lock()
			o.printed = append(o.printed, string(out))
			o.mu.Unlock()
			select {
			case <-o.stop:
				return
			default:
			}
		}
	})
}

// count returns how many runs have printed a text, and how many runs there were.
func (o *operator) count(text string) (n, of int) {
	o.runs.Wait()
	for _, out := range o.printed {
		if strings.Contains(out, text) {
			n++
		}
	}
	return n, len(o.printed)
}

// TestFaultOperatorsAtOnce has two operators migrate to the schema of an invented next version, two encrypt
// everything with the new master key, one of them with the old version, and one roll out another file, all at once
// and again and again, while calls are made. The schema changes once, and everything is encrypted anew once. The old
// version refuses to do that beside the new schema, and changes nothing; if the schema changes while it does that, it
// says that it is to be run again. Then the new master key alone is rolled out,
// and the next version, which is taken back. No call is lost, and no session ends.
func TestFaultOperatorsAtOnce(t *testing.T) {
	harness.Waits(t)
	harness.WithoutShort(t)
	next, now := harness.NextBinary(t), harness.JunctionBinary(t)
	r, calls := mustRotation(t)
	old, master := mustHave(t, r.all[0], masterKeys), "b:"+newKey()
	r.mustRoll(t, calls, contents{masterKeys: {old, master}})
	r.mustRoll(t, calls, contents{masterKeys: {master, old}})
	session := harness.Talk(t, r.all[0].URL, client.EraLegacy)
	stop := make(chan struct{})
	migrating, rotating := &operator{T: t, stop: stop}, &operator{T: t, stop: stop}
	for i, p := range r.all[1:] {
		migrating.repeats(next, "storage", "migrate", "--config", p.File())
		rotating.repeats([]string{next, now}[i], "storage", "rotate", "--config", p.File())
	}
	for _, p := range r.all {
		text, err := os.ReadFile(p.File())
		if err != nil {
			t.Fatal(err)
		}
		p.MustWrite(t, string(text)+"shutdown_grace: 9s\n")
	}
	r.mustRoll(t, calls, nil)
	close(stop)
	const migrated, sealed = "The schema is now 4, and was 3.", "Sealed anew with b: 1 value."
	if n, runs := migrating.count(migrated); n != 1 {
		t.Errorf("%d of %d commands print %q:\n%s", n, runs, migrated, strings.Join(migrating.printed, ""))
	}
	n, runs := rotating.count(sealed)
	if half, _ := rotating.count(halfway); n+half != 1 {
		t.Errorf("%d of %d commands print %q, %d that they stand halfway:\n%s", n, runs, sealed, half,
			strings.Join(rotating.printed, ""))
	}
	r.mustRoll(t, calls, contents{masterKeys: {master}})
	for _, program := range []string{next, now} {
		for _, p := range r.all {
			p.From = program
		}
		r.mustRoll(t, calls, nil)
	}
	session.Succeed(t, "up__echo", `{}`)
	calls.Stop()
	mustLoseNothing(t, calls)
}
