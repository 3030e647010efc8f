package failure

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/proxy"
	"junction/proxy/budget"
	"junction/upstream"
	"junction/upstream/upstreamtest"
)

// servers runs f for servers of each era over each wire.
func servers(t *testing.T, f func(*testing.T, harness.Pair)) {
	for _, up := range harness.Eras {
		harness.EachTransport(t, up, up, f)
	}
}

// TestServersOfLargeAnswers: the answers of a server to Junction's own requests count for this server
// in limits.bodies, before they are in memory. A server beyond its share is not connected, its status
// and the limits in /readyz tell why, and another server has its own share.
func TestServersOfLargeAnswers(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "reads the callers and upstreams that are over their share")
	const mib = 1 << 20
	for _, tt := range []struct {
		name  string
		pad   map[string]int
		wants []string // one of them is in the error; none if the server is ready
	}{
		{"a list", map[string]int{"tools/list": 6 * mib}, []string{"limits.bodies"}},
		{"a list within the share", map[string]int{"tools/list": 1 * mib}, nil},
		{"a handshake", map[string]int{"initialize": 6 * mib, "server/discover": 6 * mib},
			[]string{"limits.bodies", "the handshake has more than 1 MiB"}},
		{"a handshake within the share", map[string]int{"initialize": 1100 << 10, "server/discover": 1100 << 10},
			[]string{"the handshake has more than 1 MiB"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			servers(t, func(t *testing.T, p harness.Pair) {
				large := p.Serve(t, upstreamtest.Script{Pad: tt.pad})
				small := p.Serve(t, upstreamtest.Script{})
				large.Config.Era, small.Config.Era = p.Upstream, p.Upstream
				j := harness.Start(t, p, harness.Setup{Members: 1, Limits: proxy.Limits{Body: mib, Bodies: 8 * mib},
					Upstreams: map[string]upstream.Config{"large": large.Config, "small": small.Config}})
				j.Offers(t, "small")
				j.Until(t, "the large server to be tried", func() bool {
					s := j.Status("large")
					return s.State == upstream.StateReady || s.Err != ""
				})
				s := j.Status("large")
				told := slices.ContainsFunc(tt.wants, func(want string) bool { return strings.Contains(s.Err, want) })
				if tt.wants == nil && s.State != upstream.StateReady || tt.wants != nil && (s.State != upstream.StateRetrying || !told) {
					t.Errorf("the large server is %s: %q; want one of %q", s.State, s.Err, tt.wants)
				}
				overused := fmt.Sprint(j.Server.Overused())
				if shown := strings.Contains(overused, "{upstream large limits.bodies"); shown != strings.Contains(s.Err, "limits.bodies") ||
					strings.Contains(overused, "small") {
					t.Errorf("overused are %s, and the error is %q", overused, s.Err)
				}
				j.Talk(t).Succeed(t, "small__echo", `{}`)
			})
		})
	}
}

// TestStdioAnswerBeyondTheShare: a command's answer to a call is read before it is known whose it is.
// Beyond the share of the command it is dropped, the caller gets the reason, and the connection stays.
func TestStdioAnswerBeyondTheShare(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "the connection of one process must stay")
	const mib = 1 << 20
	for _, up := range harness.Eras {
		harness.RunPair(t, up, up, "stdio", func(t *testing.T, p harness.Pair) {
			s := p.Serve(t, upstreamtest.Script{})
			j := harness.Start(t, p, harness.Setup{Members: 1, Limits: proxy.Limits{Body: mib, Bodies: 8 * mib},
				Upstreams: map[string]upstream.Config{"up": s.Config}})
			j.Offers(t, "up")
			c := j.Talk(t)
			m := c.Call(t, "up__big", `{"n":6000000}`)
			if m.Error == nil || !strings.Contains(m.Error.Message, "the answer is dropped: the server needs") ||
				!strings.Contains(m.Error.Message, "limits.bodies") {
				t.Errorf("the call is answered %.300s", m.Append(nil))
			}
			c.Succeed(t, "up__echo", `{}`)
			if st := j.Status("up"); st.State != upstream.StateReady || st.Err != "" {
				t.Errorf("the connection did not stay: %+v", st)
			}
		})
	}
}

// TestDroppedAnswersAreNotCalledAgain: the call was made, so its error must not look like one of a
// request that was refused before: load balancers and clients send that again.
func TestDroppedAnswersAreNotCalledAgain(t *testing.T) {
	harness.Waits(t)
	const mib = 1 << 20
	for _, up := range harness.Eras {
		harness.RunPair(t, up, up, "http", func(t *testing.T, p harness.Pair) {
			s := p.Serve(t, upstreamtest.Script{})
			j := harness.Start(t, p, harness.Setup{Limits: proxy.Limits{Body: mib, Bodies: 8 * mib},
				Upstreams: map[string]upstream.Config{"up": s.Config}})
			j.Offers(t, "up")
			a := j.Talk(t).Begin(t, harness.Called("up__big", `{"n":6000000}`))
			m := a.Answer(t)
			if m.Error == nil || !strings.HasPrefix(m.Error.Message, "the call was made, and its answer of ") {
				t.Errorf("the call is answered %.300s", m.Append(nil))
			}
			if again := a.Header.Get("Retry-After"); a.Status != http.StatusOK || again != "" {
				t.Errorf("the status is %d, with Retry-After %q", a.Status, again)
			}
		})
	}
}

// TestDeafClientHoldsNoMoreThanItsShare: a server sends 30 MiB of progress during the call of a client
// whose socket is not read. When the server has answered, the call holds no more than the share of one
// principal. Then the client reads, and gets the newest progress and the answer.
func TestDeafClientHoldsNoMoreThanItsShare(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "reads the bytes that the server holds")
	const mib, steps, size = 1 << 20, 60, 512 << 10
	for _, era := range harness.Eras {
		harness.RunPair(t, era, era, "http", func(t *testing.T, p harness.Pair) {
			s := p.Serve(t, upstreamtest.Script{})
			s.Config.Concurrency = 1
			j := harness.Start(t, p, harness.Setup{Members: 1, Limits: proxy.Limits{Body: mib, Bodies: 16 * mib},
				Upstreams: map[string]upstream.Config{"up": s.Config}})
			j.Offers(t, "up")
			c := j.Talk(t)
			q := harness.Called("up__progress",
				fmt.Sprintf(`{"n":%d,"params":{"pad":"%s"}}`, steps, strings.Repeat("x", size)))
			q.Meta, q.ID = `"progressToken":1`, "99"
			r := c.Request(t, t.Context(), q)
			r.Close = true
			conn, err := net.Dial("tcp", r.URL.Host)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := r.Write(conn); err != nil {
				t.Fatal(err)
			}
			harness.Await(t, s.Journal, "call", func(r upstreamtest.Record) bool { return r.Message.Method == "tools/call" })
			j.Talk(t).Succeed(t, "up__echo", `{}`) // which is received when the first call has its answer
			held := j.Server.Used()[budget.Bytes]
			conn.SetReadDeadline(time.Now().Add(harness.Patience))
			answer, err := io.ReadAll(conn)
			text := string(answer)
			if held > 9*mib { // half of limits.bodies, and the request; nothing if the system has taken the rest
				t.Errorf("the call holds %d bytes, want at most 9 MiB", held)
			}
			if !strings.Contains(text, fmt.Sprintf(`"progress":%d,`, steps)) || !strings.Contains(text, `"result":`) {
				t.Errorf("the client reads %d bytes without the newest progress or the answer, %v", len(text), err)
			}
			if n := strings.Count(text, `"progress":`); n >= steps {
				t.Errorf("the client reads %d notifications, want fewer: its share was never full", n)
			}
		})
	}
}
