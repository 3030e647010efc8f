package auth_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
)

// inventing has each of n connections of an address send invented tokens, one after the other, until
// end is called.
func inventing(t *testing.T, verify func(token string, from netip.Addr) error, n int, from func(i int) netip.Addr) (end func()) {
	t.Helper()
	var stopped atomic.Bool
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for k := 0; !stopped.Load(); k++ {
				_ = verify(fmt.Sprintf("invented-%d-%d-%v", i, k, from(i)), from(i))
				time.Sleep(100 * time.Millisecond) // the clock of the bubble
			}
		})
	}
	return func() { stopped.Store(true); all.Wait() }
}

// slow answers each introspection after a second.
func slow(s *authtest.Server) {
	s.Answer(authtest.Introspect, func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(time.Second)
		if token := r.FormValue("token"); len(token) > 5 && token[:5] == "valid" {
			w.Write([]byte(`{"active":true,"aud":"` + resource + `","sub":"` + token + `"}`))
			return
		}
		w.Write([]byte(`{"active":false}`))
	})
}

// TestInventedTokensKeepNoValidOneOut: while strangers with invented tokens use all that they get, each
// valid token that is not known yet is accepted: after a restart, and an hour later, when the tokens are
// new. The strangers are one address, a /64, and a /48.
func TestInventedTokensKeepNoValidOneOut(t *testing.T) {
	s := authtest.New(t)
	slow(s)
	for name, from := range map[string]func(i int) netip.Addr{
		"one address": func(int) netip.Addr { return netip.MustParseAddr("203.0.113.9") },
		"a /64":       func(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("2001:db8:1:2::%x", i+1)) },
		"a /48":       func(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("2001:db8:1:%x::1", i+1)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := signIn(t, s, introspects(s))
				verify := func(token string, from netip.Addr) error {
					_, err := g.Verifier.Verify(context.Background(), token, from)
					return err
				}
				for hour := range 2 {
					end := inventing(t, verify, 200, from)
					synctest.Wait()
					var all sync.WaitGroup
					for i := range 40 {
						all.Go(func() {
							token := fmt.Sprintf("valid-%d-%d", hour, i)
							if err := verify(token, netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})); err != nil {
								t.Errorf("hour %d, address %d: %v", hour, i, err)
							}
						})
					}
					all.Wait()
					end()
					time.Sleep(time.Hour)
				}
			})
		})
	}
}

// TestKnownAddressesKeepTheirRoom: many addresses with invented tokens do not delay an address that had
// a valid token lately by more than its own queries.
func TestKnownAddressesKeepTheirRoom(t *testing.T) {
	s := authtest.New(t)
	slow(s)
	synctest.Test(t, func(t *testing.T) {
		g := signIn(t, s, introspects(s))
		verify := func(token string, from netip.Addr) error {
			_, err := g.Verifier.Verify(context.Background(), token, from)
			return err
		}
		known := netip.MustParseAddr("198.51.100.1")
		if err := verify("valid-first", known); err != nil {
			t.Fatal(err)
		}
		end := inventing(t, verify, 300, func(i int) netip.Addr { return netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}) })
		defer end()
		synctest.Wait()
		for i := range 5 {
			began := time.Now()
			if err := verify(fmt.Sprintf("valid-%d", i), known); err != nil || time.Since(began) > 2*time.Second {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		}
	})
}

// TestQueriesOfOneAddressWait: a single address, such as that of many users behind one NAT, waits
// instead of failing, within the bound of its queue, and gets an error after the limit.
func TestQueriesOfOneAddressWait(t *testing.T) {
	s := authtest.New(t)
	slow(s)
	synctest.Test(t, func(t *testing.T) {
		g := signIn(t, s, introspects(s))
		from := netip.MustParseAddr("198.51.100.1")
		var all sync.WaitGroup
		var failed atomic.Int32
		began := time.Now()
		for i := range 60 {
			all.Go(func() {
				if _, err := g.Verifier.Verify(t.Context(), fmt.Sprintf("valid-%d", i), from); err != nil {
					failed.Add(1)
				}
			})
		}
		all.Wait()
		if failed.Load() > 0 || time.Since(began) > 6*time.Second {
			t.Errorf("%d of 60 tokens of one address fail, after %v", failed.Load(), time.Since(began))
		}
		for i := range 300 { // more than the queue has
			all.Go(func() {
				if _, err := g.Verifier.Verify(t.Context(), fmt.Sprintf("valid-more-%d", i), from); err != nil {
					failed.Add(1)
				}
			})
		}
		began = time.Now()
		all.Wait()
		if n := failed.Load(); n < 200 || n > 300-12 || time.Since(began) > 7*time.Second {
			t.Errorf("%d of 300 tokens fail, after %v", n, time.Since(began))
		}
	})
}
