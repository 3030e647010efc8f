package replicas

import (
	"fmt"
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/upstreamtest"
)

// TestProcessesAnswerForEachOther sends the requests of each client to three processes in turn.
func TestProcessesAnswerForEachOther(t *testing.T) {
	eachWire(t, func(t *testing.T, client, up upstream.Era) {
		s, url := upstreamtest.Start(t, upstreamtest.Script{Era: string(up)})
		p := harness.MustProcesses(t, 3, fmt.Sprintf("upstreams: { up: { url: %q, era: %s } }", url, up))
		p.MustReady(t, harness.Patience)
		c := harness.Talk(t, p.URL, client)
		for range 6 {
			c.Succeed(t, "up__echo", `{}`)
		}
		m, asked := c.Converse(t, harness.Asking(harness.AskForm), harness.AnswersTo)
		if len(asked) != 1 || m.Error != nil {
			t.Errorf("%d questions and then %s, want one and a result", len(asked), m.Append(nil))
		}
		if n := len(harness.CallsOf(t, &s.Journal, 7)); n > 8 {
			t.Errorf("%d calls reached the upstream", n)
		}
	})
}

// eachWire runs f for each pair of eras.
func eachWire(t *testing.T, f func(t *testing.T, client, up upstream.Era)) {
	for _, client := range harness.Eras {
		for _, up := range harness.Eras {
			t.Run(fmt.Sprintf("%s client, %s upstream", client, up), func(t *testing.T) { f(t, client, up) })
		}
	}
}
