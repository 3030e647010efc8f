package signin

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/upstream/upstreamtest"
)

// TestSignInHostsAreChecked asks for every path of the sign-in by names that lead to the program:
// those of strangers get nothing, and those of the operator get what they ask for.
func TestSignInHostsAreChecked(t *testing.T) {
	harness.Waits(t)
	s := authtest.Start(t)
	p, _ := guarded(t, "allowed_hosts: [alias.example]\n"+alsoHere(s, trusting(s)))
	port := p.Origin()[strings.LastIndex(p.Origin(), ":"):]
	for _, path := range []string{
		"/oauth/authorize?client_id=x", "/oauth/token", "/oauth/register", "/oauth/revoke", "/oauth/consent",
		"/oauth/backchannel-logout/sso", "/oauth/continue?tx=x", "/oauth/callback/sso?state=x",
		"/oauth/client-metadata.json", "/oauth/x", "/account", "/account/logout", "/account/grants/x/revoke",
		"/connect/up", "/connect/up/callback", "/connect/up/disconnect", "/",
	} {
		for _, method := range []string{"GET", "POST", "OPTIONS"} {
			for host, allowed := range map[string]bool{
				"evil.example": false, "evil.example" +
					port: false, "127.0.0.1.evil.example": false, "mcp.example.com.evil.example": false,
				"192.0.2.1":       false,
				"mcp.example.com": true, "MCP.example.com:443": true, "alias.example": true, "localhost" +
					port: true, "127.0.0.1" + port: true, "[::1]": true,
			} {
				status, header, text := mustGet(t, method, p.Origin()+path, harness.With("Host", host))
				refused := status == http.StatusForbidden &&
					strings.HasPrefix(string(text), fmt.Sprintf("Host header %q is not allowed.", host)) &&
					strings.Contains(string(text), fmt.Sprintf("allowed_hosts: [%q]\n", host))
				if refused == allowed || refused && (header.Get("Set-Cookie") != "" ||
					header.Get("Access-Control-Allow-Origin") != "") {
					t.Errorf("%s %s with Host %s: %d %v %s", method, path, host, status, header, text)
				}
			}
		}
	}
	p.MustReload(t, "allowed_hosts: [alias.example]", "allowed_hosts: [other.example]")
	for host, want := range map[string]int{"alias.example": 403, "other.example": 200} {
		if status, _, text := mustGet(t, "GET", p.Origin()+"/account", harness.With("Host", host)); status != want {
			t.Errorf("after a reload, with Host %s: %d %s", host, status, text)
		}
	}
}

// TestInvalidRequestInABrowser has a stranger send a person to the sign-in with a request that is
// not in order. The person stays there.
func TestInvalidRequestInABrowser(t *testing.T) {
	harness.WithoutShort(t)
	defer harness.Computes(t)()
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "", "")
	b, app := mustChromium(t, "ann"), mustRegister(t, c, "https://app.example.com/cb")
	mistake := strings.Replace(app.authorize(), "code_challenge_method=S256", "code_challenge_method=plain", 1)
	v := b.visit(mistake, false)
	if len(v.Pages) != 1 || v.Returned != "" || !strings.Contains(v.Pages[0].Title, "This app cannot sign you in") ||
		!strings.Contains(v.Pages[0].Text, "code_challenge_method must be S256 (invalid_request)") ||
		!strings.Contains(v.Pages[0].Text, "The app asked to send you to app.example.com. You were not sent there, "+
			"because any web page can send you here with such a request") {
		t.Fatalf("it ends at %q after %+v", v.Returned, v.Pages)
	}
	if links := v.Pages[0].Links; len(links) != 1 ||
		!strings.HasPrefix(links[0], "https://app.example.com/cb?error=invalid_request&") ||
		!strings.Contains(links[0], "state=a+state") {
		t.Errorf("the page leads to %q", links)
	}
	local := mustRegister(t, c, "http://localhost:61802/callback")
	if v = b.visit(local.authorize()+"&prompt=none", false); v.Returned != "" ||
		!strings.Contains(v.Pages[0].Text, "localhost:61802 on this computer") {
		t.Errorf("it ends at %q after %+v", v.Returned, v.Pages)
	}
	if v = b.visit(app.authorize(), false, "Continue with"); !strings.HasPrefix(v.Returned,
		"https://app.example.com/cb?code=") {
		t.Fatalf("it ends at %q after %s", v.Returned, v.titles())
	}
	if g := newPerson(t, "ben").do(http.MethodGet, mistake, nil); g.status != http.StatusBadRequest || g.next() != "" {
		t.Errorf("after another user has allowed the app, ben is sent to %q (%d)", g.next(), g.status)
	}
	b.mustEnd(c.origin, c.issuer, "https://app.example.com")
}

// TestSignInDuringAFlood has a stranger send requests over four connections, as a proxy
// reports them, while a person signs in from elsewhere, with each page and the token.
func TestSignInDuringAFlood(t *testing.T) {
	harness.Waits(t)
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "", "", "  trusted_proxies: [127.0.0.1/32]")
	app := mustRegister(t, c, "https://app.example.com/cb")
	stop := flood(t, "198.51.100.7", app.authorize(), c.origin+"/account", app.authorize(),
		c.origin+"/oauth/callback/sso?state=x")
	defer stop()
	for i := range 10 {
		ann := newPerson(t, "ann")
		g := ann.through(app.authorize())
		back := g.url.Query().Get("code")
		if back == "" {
			t.Fatalf("sign-in %d ends at %s with %d\n%s", i, g.url, g.status, g.body)
		}
		keep(g.url.String())
		if status, p := app.token(t, "grant_type", "authorization_code", "code", back, "code_verifier", appVerifier,
			"redirect_uri", app.redirect); status != 200 {
			t.Errorf("sign-in %d: %d %+v", i, status, p)
		}
	}
	if n := strings.Count(c.Stderr.String(), "rejecting sign-in requests: too many from one address"); n != 1 {
		t.Errorf("the log says %d times which address it is", n)
	}
}

// flood opens each page again and again until stop is called. from is the address of the client as
// a proxy reports it; "" if there is no proxy. It returns when each page was refused once.
func flood(t *testing.T, from string, pages ...string) (stop func()) {
	t.Helper()
	var done atomic.Bool
	var all sync.WaitGroup
	refused := make(chan struct{}, len(pages))
	for _, page := range pages {
		all.Go(func() {
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			tell := sync.OnceFunc(func() { refused <- struct{}{} })
			defer tell() // the test has failed
			for !done.Load() {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, page, nil)
				if err != nil {
					t.Error(err)
					return
				}
				if from != "" {
					r.Header.Set("X-Forwarded-For", from)
				}
				resp, err := transport.RoundTrip(r)
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
				if resp.StatusCode == http.StatusTooManyRequests {
					tell()
				}
			}
		})
	}
	for range pages {
		<-refused
	}
	return func() {
		done.Store(true)
		all.Wait()
	}
}

// TestUnfinishedBodiesOfAStranger: a stranger opens more connections than its share allows, and finishes
// no body. Junction reads only the bodies of the share. Forms of users behind the same address are
// answered, and those of other addresses.
func TestUnfinishedBodiesOfAStranger(t *testing.T) {
	harness.Waits(t)
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "", "", "  trusted_proxies: [127.0.0.1/32]")
	for from, head := range map[string]string{
		"198.51.100.7": "Content-Length: 65536\r\n\r\n",
		"198.51.100.8": "Transfer-Encoding: chunked\r\n\r\nfde8\r\n",
	} {
		t.Run(head[:strings.IndexByte(head, ':')], func(t *testing.T) {
			const share, surplus = 64, 20 // 4 MiB of 64 KiB
			begun := "POST /oauth/token HTTP/1.1\r\nHost: " + strings.TrimPrefix(c.origin, "http://") +
				"\r\nX-Forwarded-For: " + from + "\r\nContent-Type: application/x-www-form-urlencoded\r\n" + head
			answers := make(chan string, share+surplus)
			for range share + surplus {
				conn, err := net.Dial("tcp", strings.TrimPrefix(c.origin, "http://"))
				if err != nil {
					t.Fatal(err)
				}
				var reader sync.WaitGroup
				t.Cleanup(func() { conn.Close(); reader.Wait() })
				reader.Go(func() {
					if line, err := bufio.NewReader(conn).ReadString('\n'); err == nil {
						answers <- line
					}
				})
				if _, err := io.WriteString(conn, begun+strings.Repeat("x", 1000)); err != nil {
					t.Fatal(err)
				}
			}
			for range surplus {
				select {
				case line := <-answers:
					if line != "HTTP/1.1 429 Too Many Requests\r\n" {
						t.Errorf("a surplus body is answered %q", line)
					}
				case <-time.After(harness.Patience):
					t.Fatal("a surplus body is not answered")
				}
			}
			for from, want := range map[string][2]int{from: {401, 429}, "203.0.113.9": {401, 400}} {
				for i, more := range []int{10, 8000} {
					r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.origin+"/oauth/token",
						strings.NewReader("grant_type=refresh_token&refresh_token="+strings.Repeat("x", more)))
					if err != nil {
						t.Fatal(err)
					}
					r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
					r.Header.Set("X-Forwarded-For", from)
					resp, err := http.DefaultClient.Do(r)
					if err != nil {
						t.Fatal(err)
					}
					resp.Body.Close()
					if resp.StatusCode != want[i] {
						t.Errorf("a form of %d bytes from %s: %d, want %d", more, from, resp.StatusCode, want[i])
					}
				}
			}
		})
	}
}
