package health

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
)

// TestMonitor has a database and an identity provider fail and come back: the database makes the
// program unready each time, the provider only degrades it.
func TestMonitor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var fails, unused, hangs atomic.Bool
		fails.Store(true)
		check := func(ctx context.Context) error {
			switch {
			case hangs.Load():
				<-ctx.Done()
				return ctx.Err()
			case fails.Load():
				return errors.New("connection refused")
			}
			return nil
		}
		used := func() bool { return !unused.Load() }
		m := NewMonitor(authtest.Log(t, &log), Part{Name: "storage", InUse: used, Check: check, Every: 2 * time.Second},
			Part{Name: "provider", InUse: used, Check: check, Every: time.Minute,
				Degrades: func() bool { return true }})
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		want := func(what string, ok, storage, provider bool) {
			t.Helper()
			time.Sleep(2*time.Minute + time.Millisecond)
			synctest.Wait()
			s := m.States()
			if len(s) != 2 || s[0].OK != ok || s[1].OK != ok || s[0].Ready != storage || s[1].Ready != provider ||
				ok != (s[0].Error == "") {
				t.Errorf("%s: %+v", what, s)
			}
		}
		if s := m.States(); len(s) != 2 || s[0].Ready || s[1].Ready {
			t.Errorf("before the first check: %+v", s)
		}
		go m.Run(ctx)
		want("down from the start", false, false, true)
		fails.Store(false)
		want("up", true, true, true)
		fails.Store(true)
		want("down", false, false, true)
		fails.Store(false)
		want("up again", true, true, true)
		hangs.Store(true)
		want("no answer", false, false, true)
		unused.Store(true)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if s := m.States(); len(s) != 0 {
			t.Errorf("without any: %+v", s)
		}
		if n := strings.Count(log.String(), "\n"); n != 2*3+2*2 {
			t.Errorf("%d changes are logged, want one line for each:\n%s", n, log.String())
		}
	})
}

// TestChangedPartIsCheckedAtOnce: a part that tells of a change is not shown as it was before.
func TestChangedPartIsCheckedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var works atomic.Bool
		changed := make(chan struct{}, 1)
		m := NewMonitor(authtest.Log(t, new(bytes.Buffer)), Part{Name: "certificate", InUse: func() bool { return true },
			Every: time.Hour, Changed: changed, Check: func(context.Context) error {
				if works.Load() {
					return nil
				}
				return errors.New("there is none yet")
			}})
		go m.Run(t.Context())
		synctest.Wait()
		works.Store(true)
		changed <- struct{}{}
		synctest.Wait()
		if s := m.States(); len(s) != 1 || !s[0].OK {
			t.Errorf("after the change: %+v", s)
		}
	})
}
