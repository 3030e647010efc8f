package streams

import (
	"context"
	"slices"
	"testing"

	"junction/auth"
	"junction/auth/authtest"
	"junction/policy"
	"junction/proxy/proxytest"
	"junction/proxy/scope"
	"junction/proxy/view"
)

// world is a snapshot with the listeners to its changes.
type world struct {
	*Listeners
	now  *scope.Snapshot
	made scope.Made
}

// newWorld makes a world of backends, in which the listeners end with the test.
func newWorld(t *testing.T, c scope.Config, backends ...view.Backend) *world {
	w := &world{}
	c.Names = c.Names.WithDefaults()
	w.now = scope.New(c, backends, nil, &w.made)
	ending, end := context.WithCancel(context.Background())
	w.Listeners = New(Options{Snapshot: func() *scope.Snapshot { return w.now }, Queue: 100, Ending: ending, Log: authtest.Log(t)})
	t.Cleanup(func() {
		end()
		w.Close()
	})
	return w
}

// open has backends that everybody may use.
func open(t *testing.T, backends ...view.Backend) *world {
	return newWorld(t, scope.Config{Guard: &auth.Guard{}, Policy: policy.Open()}, backends...)
}

// refresh adopts changed catalogs.
func (w *world) refresh() {
	w.now = scope.New(w.now.Config, w.now.Backends, w.now, &w.made)
	w.Renew(w.now)
}

// caller is a principal at the merged endpoint.
func (w *world) caller(p *auth.Principal) scope.Caller {
	e := w.now.EndpointFor("", p)
	return scope.Caller{Snapshot: w.now, Endpoint: e, Principal: p, Subject: w.now.SubjectViewFor(e, p)}
}

// watchful is a backend that is asked while a sight is made. It counts how often the lock of the
// listeners is held then.
type watchful struct {
	*proxytest.Backend
	listeners     *Listeners // nil: nothing is counted yet
	asked, locked int
}

func (b *watchful) Separates() bool {
	if b.listeners == nil {
		return false
	}
	b.asked++
	if b.listeners.mu.TryLock() {
		b.listeners.mu.Unlock()
	} else {
		b.locked++
	}
	return false
}

// TestListsAreComparedWithoutTheLock: after a change of a catalog, what each caller with a stream
// sees is found out while other streams can come and go.
func TestListsAreComparedWithoutTheLock(t *testing.T) {
	c := proxytest.KeysOfOnePolicy(20, 2, 20)
	backends := c.Backends(t)
	up := &watchful{Backend: backends[0].(*proxytest.Backend)}
	backends[0] = up
	w := newWorld(t, scope.Config{Guard: proxytest.Knowing(t), Policy: proxytest.MustPolicy(t, c.Policies)}, backends...)
	var streams []*Listener
	for _, p := range c.Principals {
		l := NewListener(w.caller(p), nil)
		w.Join(l, func() {})
		streams = append(streams, l)
	}
	changed := *up.Lists
	changed.Tools = append(slices.Clone(changed.Tools), proxytest.MustTool(t, `{"name":"new"}`))
	up.Lists, up.listeners = &changed, w.Listeners
	w.refresh()
	if up.asked < len(streams) || up.locked > 0 {
		t.Errorf("%d times something was found out for %d streams, and %d times under the lock; want never",
			up.asked, len(streams), up.locked)
	}
	for i, l := range streams {
		if got := w.Drain(l); len(got) != 1 {
			t.Errorf("stream %d is told %q, want that the tools have changed", i, got)
		}
	}
}
