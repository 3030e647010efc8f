package upstream

import (
	"cmp"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// silent returns the script of a server that declares that it announces changes, and does not.
func silent(era string) upstreamtest.Script {
	return upstreamtest.Script{Era: era, NoListChanged: true, Tools: tools("old"),
		Capabilities: []byte(`{"tools":{"listChanged":true}}`)}
}

// reads returns how often the list of tools was read.
func (r *rig) reads() int { return r.count("tools/list") }

// reread has the lists read again for a caller, and returns how long that took.
func (r *rig) reread() (bool, time.Duration) {
	begun := time.Now()
	return r.Reread(r.t.Context(), client.Everything(), "", ""), time.Since(begun)
}

// TestListsAreReadAgainUnasked has servers that announce changes, that only say so, and that state a
// TTL of any kind.
func TestListsAreReadAgainUnasked(t *testing.T) {
	declares := func(era string, ttl int) upstreamtest.Script {
		s := silent(era)
		s.TTLMs = ttl
		return s
	}
	sparse := upstreamtest.Script{Era: "legacy", NoListChanged: true, Tools: tools("old"), NoSession: true}
	for _, tt := range []struct {
		name   string
		script upstreamtest.Script
		want   time.Duration
	}{
		{"legacy, declares no changes", upstreamtest.Script{Era: "legacy", NoListChanged: true, Tools: tools("old")}, 5 * time.Minute},
		{"legacy, without sessions", sparse, 5 * time.Minute},
		{"legacy, declares changes", silent("legacy"), 10 * time.Minute},
		{"modern, declares no changes", upstreamtest.Script{Era: "modern", NoListChanged: true, Tools: tools("old")}, 5 * time.Minute},
		{"modern, declares changes", silent("modern"), 10 * time.Minute},
		{"modern, a TTL of a minute", declares("modern", 60_000), time.Minute},
		{"modern, a TTL of a millisecond", declares("modern", 1), minRefresh},
		{"modern, a TTL of -1", declares("modern", -1), 10 * time.Minute},
		{"modern, a TTL of 10^18", declares("modern", 1e18), 10 * time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, tt.script, Config{})
				synctest.Wait()
				if got := r.Catalog().Interval; got != tt.want {
					t.Errorf("Interval = %v, want %v", got, tt.want)
				}
				first := r.reads()
				r.server.SetTools(tools("new"))
				settle(tt.want - tt.want/8 - time.Second)
				if n := r.reads(); n != first {
					t.Errorf("%d readings before the time, want none", n-first)
				}
				settle(tt.want/8 + 2*time.Second)
				if n := r.reads(); n == first || r.Catalog().Tool("new") == nil {
					t.Errorf("%d readings after %v, the new tool is missing: %t", n-first, tt.want, r.Catalog().Tool("new") == nil)
				}
			})
		})
	}
}

// TestCallersOfMissingToolsHaveTheListRead has a tool that nothing announced.
func TestCallersOfMissingToolsHaveTheListRead(t *testing.T) {
	for name, script := range map[string]upstreamtest.Script{
		"legacy": silent("legacy"), "modern": silent("modern"),
		"legacy, without sessions": {Era: "legacy", NoListChanged: true, NoSession: true, Tools: tools("old")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, script, Config{})
				synctest.Wait()
				before := r.Catalog()
				if read, took := r.reread(); !read || took >= askedPause || !before.Same(r.Catalog()) {
					t.Errorf("Reread = %t after %v, the same list: %t", read, took, before.Same(r.Catalog()))
				}
				r.server.SetTools(tools("old", "new"))
				if read, _ := r.reread(); !read || r.Catalog().Tool("new") == nil || before.Same(r.Catalog()) {
					t.Errorf("Reread = %t, tools %v, the same list: %t", read, r.Catalog().Tools, before.Same(r.Catalog()))
				}
			})
		})
	}
}

// TestAnnouncedChangesAreAwaited has a caller that names a tool right after its announcement.
func TestAnnouncedChangesAreAwaited(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, upstreamtest.Script{Era: era, Tools: tools("old")}, Config{})
				settle(time.Second)
				for _, name := range []string{"a", "b"} { // the second one within the pause after the first
					r.server.SetTools(tools("old", name))
					if read, took := r.reread(); !read || r.Catalog().Tool(name) == nil || took > askedPause {
						t.Errorf("Reread = %t after %v, want the list with %s", read, took, name)
					}
				}
			})
		})
	}
}

// TestManyCallersOfMissingTools has 200 callers that name missing tools for ten minutes.
func TestManyCallersOfMissingTools(t *testing.T) {
	const lasts = 10 * time.Minute
	for _, tt := range []struct {
		name    string
		changes bool          // the list is another one at each reading
		slow    time.Duration // how long a reading takes
		most    int
	}{
		{"the list stays", false, 0, int(lasts/askedPause) + 2},
		{"the list changes all the time", true, 0, int(lasts/minRefresh) + maxRereads + 3},
		{"the server is slow", false, 3 * time.Second, int(lasts/(3*time.Second*askedShare)) + 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, silent("modern"), Config{ConnectTimeout: cmp.Or(tt.slow, 20*time.Second)})
				synctest.Wait()
				if tt.slow > 0 {
					r.server.AddRules(upstreamtest.Rule{Method: "tools/list", Hang: true})
				}
				first, end := r.reads(), time.Now().Add(lasts)
				for range 200 {
					go func() {
						for time.Now().Before(end) {
							r.reread()
						}
					}()
				}
				for n := 1; time.Now().Before(end); n++ {
					if tt.changes {
						r.server.SetTools(tools(strings.Repeat("x", n%50+1)))
					}
					settle(100 * time.Millisecond)
				}
				settle(askedPatience)
				if n := r.reads() - first; n > tt.most || n < tt.most/2 {
					t.Errorf("%d readings in %v, want about %d", n, lasts, tt.most)
				}
			})
		})
	}
}

// TestMissingToolsOfALostServer has a caller wait for nothing if the server is away.
func TestMissingToolsOfALostServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, silent("legacy"), Config{})
		synctest.Wait()
		r.Plug(false)
		<-begun(r.Upstream, toolCall("echo", `{}`)) // finds it lost
		settle(10 * time.Second)
		if read, took := r.reread(); read || took > 0 {
			t.Errorf("Reread = %t after %v of a server that is away", read, took)
		}
		r.Plug(true)
		r.Upstream.Close()
		if read, took := r.reread(); read || took > 0 {
			t.Errorf("Reread = %t after %v of a server that is closed", read, took)
		}
	})
}

// TestMissingToolsOfAConnectionThatOpens has a session whose own connection is being opened: it reads
// the list that counts. If it fails, the shared list is read.
func TestMissingToolsOfAConnectionThatOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, silent("legacy"), Config{Isolation: IsolationSession, ConnectTimeout: 3 * time.Second})
		synctest.Wait()
		r.server.SetTools(tools("old", "new"))
		r.server.AddRules(upstreamtest.Rule{Method: "initialize", Hang: true, Times: 1})
		hasty, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r.Prepare(hasty, client.Everything(), "s", "one")
		begun := time.Now()
		read := r.Reread(t.Context(), client.Everything(), "s", "one")
		if took := time.Since(begun); !read || took < 2*time.Second || r.Catalog().Tool("new") == nil {
			t.Errorf("Reread = %t after %v, want the shared list when the attempt has failed", read, took)
		}
	})
}
