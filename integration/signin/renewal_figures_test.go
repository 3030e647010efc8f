package signin

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/integration/load"
	"junction/upstream/client"
)

// minutely has the authorization server of l give tokens that live one minute, which its MCP server then refuses. The
// results return how many tokens it has given, and how many requests came with a token that had ended.
func minutely(l *linear) (given, late func() int) {
	ends, ended := map[string]time.Time{}, 0
	l.change(func() {
		l.token = func(url.Values) (int, string) {
			answer := l.give("team")
			answer["expires_in"] = 60
			delete(answer, "refresh_token")
			ends[answer["access_token"].(string)] = time.Now().Add(time.Minute)
			text, _ := json.Marshal(answer)
			return http.StatusOK, string(text)
		}
		l.refused = func(token string) bool {
			over := time.Now().After(ends[token])
			if over {
				ended++
			}
			return over
		}
	})
	return func() int { return l.count("token client_credentials") }, func() (n int) {
		l.change(func() { n = ended })
		return n
	}
}

// TestFiguresOfClientCredentials: a thousand callers at three members use ten upstreams, whose tokens live one minute.
// The members share each token and its renewals, and no call is lost.
//
//	JUNCTION_TEST_LONG=1 go test ./integration/signin -run TestFiguresOfClientCredentials -v | grep FIGURES
func TestFiguresOfClientCredentials(t *testing.T) {
	harness.Long(t)
	harness.Alone(t, "a thousand callers take both processors")
	authtest.Secret("the secret of our client", "canary-secret")
	const upstreams, callers, members, lives = 10, 1000, 3, 5
	var given, late []func() int
	entries := &strings.Builder{}
	for i := range upstreams {
		l := mustLinear(t)
		g, e := minutely(l)
		given, late = append(given, g), append(late, e)
		fmt.Fprintf(entries, "  up%d: { url: %q, auth: { mode: client_credentials, issuer: %q, client_id: us, "+
			"client_secret: canary-secret } }\n", i, l.url, l.issuer)
	}
	p := harness.MustProcesses(t, members, "outbound: { allow_private: [127.0.0.0/8] }\nupstreams:\n"+entries.String())
	for _, one := range append(p.Others, p) {
		one.MustReady(t, harness.Patience)
	}
	began := time.Now()
	people := make([]*harness.Caller, callers)
	for i := range people {
		people[i] = harness.MustCaller(t, p.URL, harness.ModernEra)
	}
	l := load.Start(t, callers, func(ctx context.Context, caller, n int) error {
		select { // ten seconds between two calls of a caller, at most
		case <-time.After(rand.N(10 * time.Second)):
		case <-ctx.Done():
			return ctx.Err()
		}
		return load.Call(ctx, people[caller], fmt.Sprintf("up%d__echo", (caller+n)%upstreams), `{"say":"x"}`)
	})
	for slices.ContainsFunc(given, func(given func() int) bool { return given() < lives }) {
		l.AwaitCalls(100)
	}
	l.Stop()
	f, minutes, most, sum := l.Figures(time.Time{}), time.Since(began).Minutes(), 0, 0
	for i := range given {
		n := given[i]()
		most, sum = max(most, n), sum+n
		if ended := late[i](); ended > 0 {
			t.Errorf("up%d has got %d requests with a token that had ended", i, ended)
		}
	}
	t.Logf("FIGURES client_credentials: %d upstreams, %d callers, %d members, %.1f minutes: %d calls, %d lost; "+
		"%d tokens, %.2f a minute for each upstream", upstreams, callers, members, minutes, f.Calls, f.Lost, sum,
		float64(sum)/upstreams/minutes)
	if f.Lost > 0 || f.Calls < callers {
		t.Errorf("%v", f)
	}
	// A token is renewed when 22 seconds of its minute are over, at the earliest.
	if limit := 1 + int(time.Since(began)/(22*time.Second)); most > limit {
		t.Errorf("an upstream has got %d tokens in %.1f minutes, want at most %d", most, minutes, limit)
	}
}

// TestFiguresOfUsers: a hundred users connect their own accounts, and the tokens of all end at once. Each sign-in is
// renewed once over both members, no call is lost, and each call has the account of its user.
//
//	JUNCTION_TEST_LONG=1 go test ./integration/signin -run TestFiguresOfUsers -v | grep FIGURES
func TestFiguresOfUsers(t *testing.T) {
	harness.Long(t)
	harness.Alone(t, "a hundred users take both processors")
	const users, each = 100, 4
	l := mustLinear(t)
	c, replicas := mustReplicas(t, fmt.Sprintf(`{ linear: { url: %q, auth: { mode: oauth_user } } }`, l.url),
		"outbound: { allow_private: [127.0.0.0/8] }\n")
	var all []*harness.Talker
	for i := range users {
		w := mustWorker(t, c, fmt.Sprint("user", i))
		w.mustConnect(t)
		all = append(all, (&harness.Talker{URL: replicas[i%2].URL, Era: client.EraModern, Capabilities: `{}`,
			Key: w.tokens.Access}).Start(t))
		all[i].Succeed(t, "linear__echo", `{}`)
	}
	l.expire()
	var calls sync.WaitGroup
	for i := range users * each {
		calls.Go(func() {
			who := *all[i/each]
			who.URL = replicas[i%2].URL
			if m := who.Call(t, "linear__echo", fmt.Sprintf(`{"say":"user%d/%d"}`, i/each, i%each)); m.Error != nil ||
				harness.Member(m.Result, "isError") == "true" {
				t.Errorf("call %d = %s", i, m.Append(nil))
			}
		})
	}
	calls.Wait()
	renewals, wrong := l.count("token refresh_token"), 0
	for said, token := range l.accounts() {
		if user, _, ok := strings.Cut(said, "/"); ok && !strings.HasPrefix(token, "Bearer canary-at-"+user+"-linear-") {
			wrong++
		}
	}
	t.Logf("FIGURES oauth_user: %d users, 2 members, all tokens ended: %d calls, %d renewals, %d calls with the account "+
		"of another user", users, users*each, renewals, wrong)
	if renewals != users || wrong > 0 {
		t.Errorf("%d renewals for %d users, and %d calls with the account of another user", renewals, users, wrong)
	}
}
