package front

import (
	"context"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/proxy"
	"junction/proxy/budget"
	"junction/upstream/client"
)

// largeMessage is the size from which on a message waits for its turn.
const largeMessage = 64 << 10

// busyTurns takes all turns, as long checks of other callers do.
func busyTurns(t *testing.T, s *Server) (end func()) {
	t.Helper()
	var ends []func()
	for i := range max(1, runtime.GOMAXPROCS(0)/2) {
		x := &proxy.Exchange{Size: largeMessage}
		x.Grant.Account = budget.Account{Principal: string(rune('a' + i))}
		one, err := s.Turn(t.Context(), x)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, one)
	}
	return func() {
		for _, one := range ends {
			one()
		}
	}
}

// TestLargeMessagesAreReadInTurns: a large message is not scanned while others use the turns; a small
// one of the same caller is not affected, and a client that hangs up ends its wait.
func TestLargeMessagesAreReadInTurns(t *testing.T) {
	eachFairEra(t, func(t *testing.T, era client.Era) {
		w := newTown(t, proxy.Limits{}, 10, nil, nil)
		v := w.visitor(era, "user0")
		large := func(ctx context.Context) func() *httptest.ResponseRecorder {
			return func() *httptest.ResponseRecorder {
				return v.ask(ctx, "tools/call", `"name":"up__tool1","arguments":{"text":"`+strings.Repeat("x", largeMessage)+`"}`)
			}
		}
		end := busyTurns(t, w.Server)
		ctx, hangUp := context.WithCancel(t.Context())
		now, later := several(2, large(t.Context()))
		gone, answers := several(1, large(ctx))
		if len(now)+len(gone) != 0 {
			t.Fatalf("%d large messages were read while all turns are taken", len(now)+len(gone))
		}
		succeeded(t, "a small call", v.call(t.Context(), 1))
		hangUp()
		if a := answers()[0]; strings.Contains(a.Body.String(), `"result"`) {
			t.Errorf("a call whose client has hung up before it was read is answered %s", a.Body)
		}
		end()
		for _, a := range later() {
			succeeded(t, "a large call after the others", a)
		}
		w.unused()
	})
}

// TestLargeBatchesAreReadInTurns: a batch counts with all its bytes, however small its messages are.
func TestLargeBatchesAreReadInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, proxy.Limits{}, 10, nil, nil)
		v := w.visitor(client.EraLegacy, "user0")
		v.begin(mcp.ProtocolVersion20250326)
		var list []string
		for range 40 {
			list = append(list, `{"jsonrpc":"2.0","id":`+requestID()+`,"method":"ping","params":{"text":"`+strings.Repeat("x", largeMessage/40)+`"}}`)
		}
		end := busyTurns(t, w.Server)
		now, later := several(1, func() *httptest.ResponseRecorder {
			return v.post(t.Context(), "["+strings.Join(list, ",")+"]", nil)
		})
		if len(now) != 0 {
			t.Errorf("a batch of %d bytes was read while all turns are taken", largeMessage)
		}
		end()
		for _, a := range append(now, later()...) {
			if n := strings.Count(a.Body.String(), `"result"`); n != len(list) {
				t.Errorf("%d of %d messages were answered: %.300s", n, len(list), a.Body)
			}
		}
		w.unused()
	})
}
