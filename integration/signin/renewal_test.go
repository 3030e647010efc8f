package signin

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"junction/integration/harness"
	"junction/upstream/client"
)

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
