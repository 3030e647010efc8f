package authserver

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"junction/auth"
	"junction/auth/authtest"
)

// The tests of this file send unauthenticated requests at any rate.

// open is a limit without effect.
func (g *rateLimit) open() {
	g.near.limit, g.wide.limit = rate.Inf, rate.Inf
	g.all.SetLimit(rate.Inf)
}

// behindProxy is an option of mustStand: requests come from the address of X-Forwarded-For.
func behindProxy(t testing.TB) func(o *Options) {
	guard := &auth.Guard{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Log: authtest.Log(t)}
	return func(o *Options) { o.Address = guard.Address }
}

// newBrowserAt is newBrowser for a person at an address.
func newBrowserAt(t *testing.T, address string) *browser {
	b := newBrowser(t)
	b.header.Set("X-Forwarded-For", address)
	return b
}

// flood sends requests over four connections until the returned function is called. It returns when
// each connection has been rejected once. The requests rotate through the addresses.
func (s *stand) flood(t *testing.T, method, where, body string, addresses ...string) (stop func()) {
	t.Helper()
	var done atomic.Bool
	var flooding sync.WaitGroup
	refused := make(chan struct{}, 4)
	for range 4 {
		flooding.Go(func() {
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			once := sync.OnceFunc(func() { refused <- struct{}{} })
			for i := 0; !done.Load(); i++ {
				r, err := http.NewRequestWithContext(t.Context(), method, where, strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				r.Header.Set("X-Forwarded-For", addresses[i%len(addresses)])
				resp, err := transport.RoundTrip(r)
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
				if resp.StatusCode == http.StatusTooManyRequests {
					once()
				}
			}
		})
	}
	for range 4 {
		<-refused
	}
	return func() {
		done.Store(true)
		flooding.Wait()
	}
}

// TestFloodKeepsNobodyOut floods each path over four connections, from one address and
// from all addresses of one customer, while ten people sign in.
func TestFloodKeepsNobodyOut(t *testing.T) {
	var nets []string
	for i := range 1000 {
		nets = append(nets, fmt.Sprintf("2001:db8:7:%x::%x", i, i))
	}
	people := 10
	if testing.Short() {
		people = 2
	}
	const form = "grant_type=refresh_token&refresh_token=x&client_id="
	for name, flood := range map[string]func(s *stand, a app) func(){
		"authorize":       func(s *stand, a app) func() { return s.flood(t, "GET", a.asks(), "", "198.51.100.7") },
		"authorize, IPv6": func(s *stand, a app) func() { return s.flood(t, "GET", a.asks(), "", nets...) },
		"account": func(s *stand, _ app) func() {
			return s.flood(t, "GET", s.url+"/account", "",
				"198.51.100.7")
		},
		"callback": func(s *stand, _ app) func() {
			return s.flood(t, "GET", s.url+"/oauth/callback/sso?state=x", "", "198.51.100.7")
		},
		"token": func(s *stand, a app) func() {
			return s.flood(t, "POST", s.url+"/oauth/token", form+a.id, "198.51.100.7")
		},
		"the unknown proxy": func(s *stand, a app) func() { return s.flood(t, "GET", a.asks(), "", "unknown") },
	} {
		t.Run(name, func(t *testing.T) {
			s := mustStand(t, behindProxy(t))
			s.clock.stop() // a machine that is slow lets no more through
			a := s.mustApp(t)
			defer flood(s, a)()
			for i := range people {
				b := newBrowserAt(t, fmt.Sprintf("203.0.113.%d", i))
				status, m := a.redeem(t, a.mustCode(t, b))
				if status != http.StatusOK {
					t.Errorf("person %d: %d %v", i, status, m)
				}
			}
		})
	}
}

// TestRateLimitCountsNetworks counts what a rate limit accepts while the clock stands still or moves.
func TestRateLimitCountsNetworks(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	count := func(g *rateLimit, n int, from func(i int) string) (through, others int) {
		for i := range n {
			address, err := netip.ParseAddr(from(i))
			if err != nil {
				address = netip.Addr{}
			}
			switch g.pass(address, now) {
			case withinLimit:
				through++
			case overTotalLimit:
				others++
			}
		}
		return through, others
	}
	for name, row := range map[string]struct {
		from            func(i int) string
		through, others int // of 5,000 at one moment
	}{
		"one address":         {func(int) string { return "198.51.100.7" }, 200, 0},
		"one network of IPv6": {func(i int) string { return fmt.Sprintf("2001:db8:7:1::%x", i+1) }, 200, 0},
		"one site of IPv6":    {func(i int) string { return fmt.Sprintf("2001:db8:7:%x::1", i) }, 800, 0},
		"not known":           {func(int) string { return "" }, 200, 0},
		"neighbours":          {func(i int) string { return fmt.Sprintf("198.51.%d.%d", i/250, i%250) }, 1000, 4000},
		"sites":               {func(i int) string { return fmt.Sprintf("2001:db8:%x::1", i) }, 1000, 4000},
	} {
		g := newRateLimit("", 100, 1000)
		if through, others := count(g, 5000, row.from); through != row.through || others != row.others {
			t.Errorf("%s: %d go through and %d are refused for all, want %d and %d", name, through, others,
				row.through, row.others)
		}
		now = now.Add(10 * time.Second)
		if through, _ := count(g, 5000, row.from); through != row.through/4 && row.others == 0 {
			t.Errorf("%s: ten seconds later %d go through, want %d", name, through, row.through/4)
		}
	}
	// A rejection of one source does not count against the others.
	g := newRateLimit("", 100, 1000)
	count(g, 100_000, func(int) string { return "198.51.100.7" })
	if through, _ := count(g, 1000, func(i int) string {
		return fmt.Sprintf("203.0.%d.%d", i/100,
			i%100)
	}); through != 800 {
		t.Errorf("after a flood of one address %d of the others go through, want 800", through)
	}
	// The memory is limited, and a forgotten source gets no more than the burst of all.
	g = newRateLimit("", 100, 1000)
	through, _ := count(g, 3*maxSources, func(i int) string {
		return fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255,
			i&255)
	})
	if n := len(g.near.by); n > maxSources || through != 1000 {
		t.Errorf("%d networks are remembered, want at most %d; %d go through, want 1000", n, maxSources, through)
	}
}

// TestRateLimitNamesTheWait: a person and a program learn how long to wait, and the operator which
// address to look for.
func TestRateLimitNamesTheWait(t *testing.T) {
	log, limited := new(authtest.Text), map[string]int{}
	s := mustStand(t, func(o *Options) {
		behindProxy(t)(o)
		o.Log, o.Limited = authtest.Log(t, log), func(what string) { limited[what]++ }
	})
	s.clock.stop()
	a, b := s.mustApp(t), newBrowserAt(t, "198.51.100.7")
	p := page{}
	for i := 0; i < 1000 && p.status != http.StatusTooManyRequests; i++ {
		p = b.once(http.MethodGet, a.asks(), nil)
	}
	if p.status != http.StatusTooManyRequests || p.header.Get("Retry-After") != "5" ||
		!strings.Contains(p.body, "Your network address sends too many requests. Wait a few seconds") ||
		p.header.Get("Content-Security-Policy") == "" {
		t.Errorf("a person is told %d, %v\n%s", p.status, p.header, p.body)
	}
	b.once(http.MethodGet, a.asks(), nil)
	if n := strings.Count(log.String(), "add it to auth.trusted_proxies"); n != 1 {
		t.Errorf("the log says %d times which address it is", n)
	}
	status, body := 0, ""
	for i := 0; i < 2000 && status != http.StatusTooManyRequests; i++ {
		status, body = s.post(t, "/oauth/token", "application/x-www-form-urlencoded", "grant_type=x")
	}
	if status != http.StatusTooManyRequests || member(t, body, "error") != "temporarily_unavailable" {
		t.Errorf("a program is told %d %s", status, body)
	}
	if limited["sign_in"] != 2 || limited["token"] != 1 || len(limited) != 2 {
		t.Errorf("rejected requests are counted as %v", limited)
	}
	s.clock.forward(time.Minute)
	if p = b.once(http.MethodGet, a.asks(), nil); p.status != http.StatusOK {
		t.Errorf("a minute later it is %d", p.status)
	}
}

// TestKnownClientsShareNoAddress: a flood of one address with nonsense does not hold up the refresh of
// a client at the same address. One client has a limit of its own.
func TestKnownClientsShareNoAddress(t *testing.T) {
	limited := map[string]int{}
	s := mustStand(t, func(o *Options) {
		behindProxy(t)(o)
		o.Limited = func(what string) { limited[what]++ }
	})
	a := s.mustApp(t)
	m := a.mustSignIn(t, newBrowserAt(t, "198.51.100.7"))
	s.clock.stop() // a machine that is slow lets no more through
	ask := func(token string) int {
		r := httptest.NewRequest(http.MethodPost, "/oauth/token", strings.NewReader(url.Values{
			"grant_type": {"refresh_token"}, "refresh_token": {token}, "client_id": {a.id}}.Encode()))
		r.RemoteAddr = "127.0.0.1:1234"
		r.Header.Set("X-Forwarded-For", "198.51.100.7")
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w.Code
	}
	for range 600 {
		ask("jct_rt_nonsense")
	}
	if got := ask("jct_rt_nonsense"); got != http.StatusTooManyRequests {
		t.Fatalf("a stranger after a flood: %d", got)
	}
	token := fmt.Sprint(m["refresh_token"])
	if got := ask(token); got != http.StatusOK {
		t.Errorf("a client of a user at the same address: %d", got)
	}
	last := 0
	for range 150 {
		last = ask(token)
	}
	if last != http.StatusTooManyRequests {
		t.Errorf("the same token again and again: %d", last)
	}
	if limited["token"] == 0 || limited["refresh"] == 0 || len(limited) != 2 {
		t.Errorf("rejected requests are counted as %v", limited)
	}
}

// TestPagesOfManyBehindOneAddress: with limits.pages, 3,000 people behind one address begin to sign in
// within 20 seconds.
func TestPagesOfManyBehindOneAddress(t *testing.T) {
	from, now := netip.MustParseAddr("198.51.100.7"), time.Now()
	passed := func(l Limits) (n int) {
		begin := newRateLimits(l.withDefaults()).begin
		for second := range 20 {
			for range 300 {
				if begin.pass(from, now.Add(time.Duration(second)*time.Second)) == withinLimit {
					n++
				}
			}
		}
		return n
	}
	if few, many := passed(Limits{}), passed(Limits{Pages: 50}); few > 300 || many < 2900 {
		t.Errorf("%d people begin by default, and %d with pages: 50", few, many)
	}
}

// TestKnownBrowsersAreNotStrangers: while strangers use up the limit of an address, a browser in which a
// user has signed in goes on there, also after its session has ended. A cookie that this server has not made,
// or that is too old, is a stranger's. One browser does not use up the limit of the others.
func TestKnownBrowsersAreNotStrangers(t *testing.T) {
	const office = "198.51.100.7"
	s := mustStand(t, behindProxy(t))
	s.clock.stop()
	a, ann, ben := s.mustApp(t), newBrowserAt(t, office), newBrowserAt(t, office)
	a.mustSignIn(t, ann)
	a.mustSignIn(t, ben)
	host := strings.TrimPrefix(s.url, "http://")
	for _, b := range []*browser{ann, ben} {
		delete(b.cookies[host], sessionCookie)
		delete(b.cookies[host], bindingCookie)
	}
	opens := func(b *browser) bool { return b.once(http.MethodGet, a.asks(), nil).status == http.StatusOK }
	stranger := newBrowserAt(t, office)
	for opens(stranger) {
	}
	if code := a.mustCode(t, ann); code == "" {
		t.Error("a known browser cannot sign in")
	}
	known := ben.cookies[host][knownCookie]
	other := byte('A')
	if known[30] == other {
		other = 'B'
	}
	for _, value := range []string{secret(), known[:30] + string(other) + known[31:], strings.Repeat("A", 43)} {
		stranger.cookies[host] = map[string]string{knownCookie: value}
		if opens(stranger) {
			t.Errorf("a browser with the cookie %s is no stranger", value)
		}
	}
	n := 0
	for ; n < 100 && opens(ann); n++ {
	}
	if n < 40 || n > 60 || !opens(ben) {
		t.Errorf("a known browser opens %d pages at once, and another one next to it %v", n, opens(ben))
	}
	s.clock.forward(knownTTL + time.Minute)
	for opens(stranger) {
	}
	if opens(ben) {
		t.Error("after 90 days without a sign-in the browser is no stranger")
	}
}

// TestOfficeBehindOneAddress: with limits.pages, sign-ins that 3,000 people behind one address have begun
// stay stored. A known browser has its own account.
func TestOfficeBehindOneAddress(t *testing.T) {
	if n := newRateLimits(Limits{Pages: 50}.withDefaults()).requests; n < 3000 {
		t.Errorf("%d requests of one address are kept", n)
	}
	s := mustStand(t, func(o *Options) { o.Config.Limits.Pages = 6; behindProxy(t)(o) })
	a, b := s.mustApp(t), newBrowserAt(t, "198.51.100.7")
	for range s.limits.requests + 5 {
		if p := b.once(http.MethodGet, a.asks(), nil); p.status != http.StatusOK {
			s.clock.forward(time.Second)
		}
	}
	if n := s.rows(t, "auth_requests"); n <= 200 || n > s.limits.requests {
		t.Errorf("%d requests are stored, want about %d", n, s.limits.requests)
	}
	s.clock.forward(time.Second) // the last one may have used up the limit
	a.mustSignIn(t, b)
	before := s.query(t, "SELECT count(*) FROM auth_requests WHERE network LIKE 'browser %'")
	b.once(http.MethodGet, a.asks(), nil)
	if n := s.query(t, "SELECT count(*) FROM auth_requests WHERE network LIKE 'browser %'"); n != before+1 {
		t.Errorf("a known browser has %d requests of its own, want %d", n, before+1)
	}
}
