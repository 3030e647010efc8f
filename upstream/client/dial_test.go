package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/stdio"
	"junction/upstream/transport"
	"junction/upstream/upstreamtest"
)

// target is the server that a test dials, and how.
type target struct {
	URL            string
	Command        []string
	Env            stdio.Environment
	Transport      Transport
	Era            Era
	ConnectTimeout time.Duration
}

func testDialer(t testing.TB, to target, rt *transport.Pool) *Dialer {
	return NewDialer(Options{URL: to.URL, Command: to.Command, Env: to.Env, Pool: rt, Transport: to.Transport,
		Era: to.Era, ConnectTimeout: cmp.Or(to.ConnectTimeout, 20*time.Second), Version: "0", MessageLimit: 1 << 20,
		Depth: raw.DefaultDepth, Log: authtest.Log(t)})
}

// dialed opens a conn, closes it, and returns its era or the error in short.
func dialed(ctx context.Context, d *Dialer) (string, error) {
	c, err := d.Dial(ctx, Profile{}, Hooks{Changed: func() {}})
	if err != nil {
		return "", err
	}
	info := c.Info()
	got := string(info.Era) + " " + info.Version
	return got, c.Close()
}

// mustDial is dialed where either an era, or an error with this text, is wanted.
func mustDial(t *testing.T, d *Dialer, want string) {
	t.Helper()
	got, err := dialed(t.Context(), d)
	if err != nil {
		got = err.Error()
	}
	if got != want && (err == nil || want == "" || !strings.Contains(got, want)) {
		t.Errorf("dial = %q, want %q", got, want)
	}
}

const (
	isLegacy = "legacy 2025-11-25"
	isModern = "modern 2026-07-28"
)

// eraTests are what a server may answer to the question who it is, and what follows from it.
var eraTests = []struct {
	script      upstreamtest.Script
	http, stdio string // the era, or what the error contains
}{
	{upstreamtest.Script{}, isModern, isModern},
	{upstreamtest.Script{Era: "modern"}, isModern, isModern},
	{upstreamtest.Script{Era: "legacy"}, isLegacy, isLegacy},
	{upstreamtest.Script{Era: "legacy", NoSession: true}, isLegacy, isLegacy},
	{upstreamtest.Script{Era: "legacy", Versions: []string{"2025-06-18"}}, "legacy 2025-06-18", "legacy 2025-06-18"},
	{upstreamtest.Script{Era: "legacy", DiscoverFails: "404"}, isLegacy, isLegacy},
	{upstreamtest.Script{Era: "legacy", DiscoverFails: "400"}, isLegacy, isLegacy},
	{upstreamtest.Script{Era: "legacy", DiscoverFails: "unsupported"}, isLegacy, isLegacy},
	{upstreamtest.Script{Era: "legacy", DiscoverFails: "32601"}, isLegacy, isLegacy},
	{upstreamtest.Script{Era: "legacy", DiscoverFails: "code0"}, isLegacy, isLegacy},
	{upstreamtest.Script{Era: "legacy", DiscoverFails: "listsLegacy"}, isLegacy, isLegacy},
	{upstreamtest.Script{Era: "legacy", DiscoverFails: "silence"}, isLegacy, isLegacy},
	// over HTTP these prove nothing, and over stdio they are errors like any other
	{upstreamtest.Script{Era: "legacy", DiscoverFails: "exit"}, isLegacy, isLegacy},
	{upstreamtest.Script{Era: "legacy", DiscoverFails: "401"}, isLegacy, isLegacy},
	{upstreamtest.Script{Era: "legacy", DiscoverFails: "403"}, isLegacy, isLegacy},
	{upstreamtest.Script{Era: "legacy", DiscoverFails: "500"}, isLegacy, isLegacy},
	{upstreamtest.Script{Rules: []upstreamtest.Rule{upstreamtest.UnsupportedVersion("server/discover", "2025-11-25")}}, isLegacy, isLegacy},
	{upstreamtest.Script{Rules: []upstreamtest.Rule{upstreamtest.UnsupportedVersion("server/discover", "2027-01-01")}},
		"Unsupported protocol version", "Unsupported protocol version"},
	{upstreamtest.Script{Rules: []upstreamtest.Rule{upstreamtest.HeaderMismatch("server/discover")}}, "Header mismatch", "Header mismatch"},
	{upstreamtest.Script{Era: "legacy", DiscoverFails: "32601", Rules: []upstreamtest.Rule{{Method: "initialize", Result: []byte(`{"protocolVersion":"2023-01-01"}`)}}},
		`"2023-01-01", which Junction does not support`, `"2023-01-01", which Junction does not support`},
}

func eraName(s upstreamtest.Script) string {
	return fmt.Sprint(s.Era, s.DiscoverFails, s.Versions, s.NoSession, len(s.Rules))
}

func TestEraHTTP(t *testing.T) {
	for _, tt := range eraTests {
		t.Run(eraName(tt.script), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := upstreamtest.New(tt.script)
				t.Cleanup(s.Close)
				_, rt := upstreamtest.NewCable(t, s.Handler())
				d := testDialer(t, target{URL: "http://server/mcp"}, rt)
				start := time.Now()
				mustDial(t, d, tt.http)
				if took := time.Since(start); took > discoverTimeout+modernGrace {
					t.Errorf("it took %v, want at most %v", took, discoverTimeout+modernGrace)
				}
				if known, _, _ := d.known.recall(); tt.http != isLegacy && tt.http != isModern && !strings.HasPrefix(tt.http, "legacy") && known != EraAuto {
					t.Errorf("the era %q was learnt from a failure", known)
				}
			})
		})
	}
}

func TestEraStdio(t *testing.T) {
	for _, tt := range eraTests {
		t.Run(eraName(tt.script), func(t *testing.T) {
			t.Parallel()
			child := upstreamtest.Command(t, tt.script)
			c := target{Command: child.Command, Env: stdio.Environment{Own: child.Env}}
			if tt.script.DiscoverFails == "silence" {
				c.ConnectTimeout = 200 * time.Millisecond // half of it is for the question
			}
			d := testDialer(t, c, nil)
			mustDial(t, d, tt.stdio)
			want := map[bool]int{true: 2, false: 1}[tt.script.DiscoverFails == "exit"]
			count := func(r upstreamtest.Record) bool { return r.Verb == "START" }
			starts := 0
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if _, err := child.Await(ctx, func(r upstreamtest.Record) bool { // a process reports a moment later
				if count(r) {
					starts++
				}
				return starts == want
			}); err != nil {
				t.Errorf("%d processes were started, want %d", starts, want)
			}
			if starts = len(slices.DeleteFunc(child.Received(), func(r upstreamtest.Record) bool { return !count(r) })); starts > want {
				t.Errorf("%d processes were started, want %d", starts, want)
			}
		})
	}
}

// Once known, an era is not asked for again.
func TestEraKnown(t *testing.T) {
	for _, tt := range []struct {
		script  upstreamtest.Script
		config  target
		want    string
		methods []string // of two connections
	}{
		{upstreamtest.Script{Era: "legacy"}, target{}, isLegacy,
			[]string{"server/discover", "initialize", "notifications/initialized", "initialize", "notifications/initialized"}},
		{upstreamtest.Script{Era: "modern"}, target{}, isModern, []string{"server/discover", "server/discover"}},
		{upstreamtest.Script{}, target{Era: EraLegacy}, isLegacy, []string{"initialize", "notifications/initialized", "initialize", "notifications/initialized"}},
		{upstreamtest.Script{}, target{Era: EraModern}, isModern, []string{"server/discover", "server/discover"}},
		{upstreamtest.Script{Era: "legacy"}, target{Era: EraModern}, "the server does not speak 2026-07-28", []string{"server/discover", "server/discover"}},
		{upstreamtest.Script{Era: "modern"}, target{Era: EraLegacy}, "Unsupported protocol version", []string{"initialize", "initialize"}},
	} {
		t.Run(fmt.Sprintf("%s server, %q configured", tt.script.Era, tt.config.Era), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := upstreamtest.New(tt.script)
				t.Cleanup(s.Close)
				_, rt := upstreamtest.NewCable(t, s.Handler())
				tt.config.URL = "http://server/mcp"
				d := testDialer(t, tt.config, rt)
				mustDial(t, d, tt.want)
				mustDial(t, d, tt.want)
				if got := s.Methods(); !slices.Equal(got, tt.methods) {
					t.Errorf("the server was asked %v, want %v", got, tt.methods)
				}
			})
		})
	}
}

// One odd answer of a server whose era is known does not change it; denialsToForget in a row do.
func TestEraFlaps(t *testing.T) {
	denied := []byte(`{"code":-32601,"message":"Method not found"}`)
	for _, tt := range []struct {
		name   string
		script upstreamtest.Script
		want   []string // of one dial after the other
	}{
		{"modern, denied once at a time", upstreamtest.Script{Rules: []upstreamtest.Rule{
			{Method: "server/discover", Skip: 1, Times: 1, Error: denied}, {Method: "server/discover", Skip: 2, Times: 1, Error: denied}}},
			[]string{isModern, "denies it now", isModern, "denies it now", isModern}},
		{"modern, denied twice", upstreamtest.Script{Rules: []upstreamtest.Rule{{Method: "server/discover", Skip: 1, Error: denied}}},
			[]string{isModern, "denies it now", isLegacy, isLegacy}},
		{"legacy, denied once", upstreamtest.Script{DiscoverFails: "32601", Rules: []upstreamtest.Rule{{Method: "initialize", Skip: 1, Times: 1, Error: denied}}},
			[]string{isLegacy, "Method not found", isLegacy}},
		{"legacy, denied twice", upstreamtest.Script{Rules: []upstreamtest.Rule{
			{Method: "server/discover", Times: 1, Error: denied}, {Method: "initialize", Skip: 1, Error: denied}}},
			[]string{isLegacy, "Method not found", isModern, isModern}},
		{"legacy, away", upstreamtest.Script{DiscoverFails: "32601", Rules: []upstreamtest.Rule{{Method: "initialize", Status: 503, Body: "Service Unavailable"}}}, []string{"503", "503", "503"}},
		{"modern, away and refused", upstreamtest.Script{Rules: []upstreamtest.Rule{
			{Method: "server/discover", Skip: 1, Times: 2, Status: 503}, {Method: "server/discover", Skip: 1, Times: 2, Status: 401}}},
			[]string{isModern, "503", "503", "401", "401", isModern}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := upstreamtest.New(tt.script)
				t.Cleanup(s.Close)
				_, rt := upstreamtest.NewCable(t, s.Handler())
				d := testDialer(t, target{URL: "http://server/mcp"}, rt)
				for _, want := range tt.want {
					mustDial(t, d, want)
				}
			})
		})
	}
}

// HTTP+SSE is tried where Streamable HTTP is not there, and remembered.
func TestOlderTransport(t *testing.T) {
	for _, tt := range []struct {
		status int
		config target
		want   string
	}{
		{400, target{}, isLegacy},
		{404, target{}, isLegacy},
		{405, target{}, isLegacy},
		{405, target{Era: EraLegacy}, isLegacy},
		{405, target{Transport: TransportSSE}, isLegacy},
		{405, target{Transport: TransportHTTP}, "405 Method Not Allowed"},
		{401, target{}, "401"},
		{403, target{}, "403"},
		{410, target{}, "410"},
		{500, target{}, "500"},
	} {
		t.Run(fmt.Sprintf("%d %q %q", tt.status, tt.config.Transport, tt.config.Era), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := upstreamtest.New(upstreamtest.Script{Era: "legacy"})
				t.Cleanup(s.Close)
				refused, gets := 0, 0
				sse := s.SSEHandler()
				_, rt := upstreamtest.NewCable(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					switch {
					case r.Method == "POST" && r.URL.Path == "/sse":
						refused++
						http.Error(w, "no", tt.status)
						return
					case r.Method == "GET":
						gets++
					}
					sse.ServeHTTP(w, r)
				}))
				tt.config.URL = "http://server/sse"
				d := testDialer(t, tt.config, rt)
				mustDial(t, d, tt.want)
				before := refused
				mustDial(t, d, tt.want)
				if tt.want == isLegacy && (refused != before || gets != 2) {
					t.Errorf("the second time: %d refused requests and %d streams in all, want none and 2", refused-before, gets)
				}
				if tt.want != isLegacy && gets != 0 {
					t.Errorf("HTTP+SSE was tried %d times after %d", gets, tt.status)
				}
			})
		})
	}
}

// A server that answers neither question costs the time that connecting may take, and no more.
func TestProbeSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := upstreamtest.New(upstreamtest.Script{Rules: []upstreamtest.Rule{{Method: "*", Hang: true}}})
		t.Cleanup(s.Close)
		_, rt := upstreamtest.NewCable(t, s.Handler())
		d := testDialer(t, target{URL: "http://server/mcp"}, rt)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		start := time.Now()
		if got, err := dialed(ctx, d); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 20*time.Second {
			t.Errorf("dial = %q, %v after %v; want the end of the context after 20s", got, err, time.Since(start))
		}
		if got := s.Methods(); !slices.Contains(got, "initialize") || !slices.Contains(got, "server/discover") {
			t.Errorf("the server was asked %v, want both questions", got)
		}
	})
}

// The answer of a slow modern server counts, also after the legacy question was asked.
func TestProbeLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := upstreamtest.New(upstreamtest.Script{Rules: []upstreamtest.Rule{{Method: "initialize", Hang: true}}})
		t.Cleanup(s.Close)
		_, rt := upstreamtest.NewCable(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get(transport.HeaderMethod) != "" {
				time.Sleep(discoverTimeout + 3*time.Second)
			}
			s.Handler().ServeHTTP(w, r)
		}))
		d := testDialer(t, target{URL: "http://server/mcp"}, rt)
		mustDial(t, d, isModern)
	})
}

// TestVerdictNeedsEvidence: only a definite answer to server/discover proves an era.
func TestVerdictNeedsEvidence(t *testing.T) {
	for _, code := range []int{200, 202, 301, 307, 401, 403, 407, 408, 429, 500, 502, 503, 504} {
		if got := verdictOf(&transport.StatusError{Status: code}); got != provesNothing {
			t.Errorf("the verdict of %d is %d, want that it proves nothing", code, got)
		}
	}
	for _, code := range []int{400, 404, 405, 406, 410, 415} {
		if got := verdictOf(&transport.StatusError{Status: code}); got != provesLegacy {
			t.Errorf("the verdict of %d is %d, want the legacy era", code, got)
		}
	}
	if got := verdictOf(transport.NotSent(errors.New("no route to host"))); got != notAsked {
		t.Errorf("the verdict of a failed connection is %d, want that nothing was asked", got)
	}
}

// TestRaceOfTheEras has a server of both eras answer both handshakes late. The modern era counts if
// its answer comes within modernGrace after the legacy one.
func TestRaceOfTheEras(t *testing.T) {
	for _, tt := range []struct {
		name                 string
		discover, initialize time.Duration // until the answer
		want                 string
		took                 time.Duration
	}{
		{"modern in time", discoverTimeout - time.Second, 0, isModern, discoverTimeout - time.Second},
		{"modern first", discoverTimeout + time.Second, 2 * time.Second, isModern, discoverTimeout + time.Second},
		{"modern soon after legacy", discoverTimeout + time.Second, time.Second - modernGrace/2, isModern, discoverTimeout + time.Second},
		{"modern long after legacy", discoverTimeout + time.Second, 0, isLegacy, discoverTimeout + modernGrace},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := upstreamtest.New(upstreamtest.Script{})
				t.Cleanup(s.Close)
				_, rt := upstreamtest.NewCable(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					wait := time.Duration(0)
					switch {
					case r.Header.Get(transport.HeaderMethod) == "server/discover":
						wait = tt.discover
					case r.Method == http.MethodPost && r.Header.Get("Mcp-Session-Id") == "":
						wait = tt.initialize
					}
					time.Sleep(wait)
					s.Handler().ServeHTTP(w, r)
				}))
				began := time.Now()
				mustDial(t, testDialer(t, target{URL: "http://server/mcp"}, rt), tt.want)
				if took := time.Since(began); took != tt.took {
					t.Errorf("it took %v, want %v", took, tt.took)
				}
				settle(time.Minute) // the handler ends
			})
		})
	}
}

// TestIDsOfConnsBeginAtRandom: over HTTP, two conns have no id in common, as if a server had the
// requests of both, and ids stay small.
func TestIDsOfConnsBeginAtRandom(t *testing.T) {
	for _, era := range []Era{EraLegacy, EraModern} {
		t.Run(string(era), func(t *testing.T) {
			s, url := upstreamtest.Start(t, upstreamtest.Script{Era: string(era)})
			for range 8 {
				mustDial(t, testDialer(t, target{URL: url}, nil), map[Era]string{EraLegacy: isLegacy, EraModern: isModern}[era])
			}
			seen := map[jsonrpc.ID]bool{}
			for _, r := range s.Received() {
				id := r.Message.ID
				if id == "" {
					continue
				}
				if n, err := strconv.ParseUint(string(id), 10, 64); err != nil || n >= 1<<30+1<<20 || seen[id] {
					t.Errorf("the id %s of %s: a number of more than 30 bits, or seen before", id, r.Message.Method)
				}
				seen[id] = true
			}
			if len(seen) < 8 {
				t.Errorf("the server received %d requests", len(seen))
			}
		})
	}
}

// TestErrorsOfBothTransports: if HTTP+SSE fails, too, its error is not lost: a challenge counts first, and
// otherwise it is the other one.
func TestErrorsOfBothTransports(t *testing.T) {
	for _, era := range []Era{EraAuto, EraLegacy} {
		for _, tt := range []struct {
			name             string
			get              int
			challenge        string
			err, method, was string
		}{
			{"no stream", 404, "", "405 Method Not Allowed", "HTTP+SSE", "404 Not Found"},
			{"a broken stream", 500, "", "405 Method Not Allowed", "HTTP+SSE", "500 Internal Server Error"},
			{"a sign-in", 401, `Bearer resource_metadata="http://server/m"`, "401 Unauthorized", "Streamable HTTP", "405 Method Not Allowed"},
		} {
			t.Run(fmt.Sprintf("%s %q", tt.name, era), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					_, rt := upstreamtest.NewCable(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if r.Method == "POST" {
							w.WriteHeader(405)
							return
						}
						if tt.challenge != "" {
							w.Header().Set("WWW-Authenticate", tt.challenge)
						}
						w.WriteHeader(tt.get)
					}))
					d := testDialer(t, target{URL: "http://server/sse", Era: era}, rt)
					_, err := d.Dial(t.Context(), Profile{}, Hooks{})
					both, ok := errors.AsType[*RejectedError](err)
					if !ok || !strings.Contains(err.Error(), tt.err) || both.Method != tt.method || !strings.Contains(both.Other.Error(), tt.was) {
						t.Errorf("Dial = %v, %+v; want %q, and %s: %q", err, both, tt.err, tt.method, tt.was)
					}
				})
			})
		}
	}
}
