package safety

import (
	"strings"
	"testing"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/upstreamtest"
)

// TestRedactionOfOurErrors has an upstream fail in words that are not for the client, in ways that
// make an error of ours of them.
func TestRedactionOfOurErrors(t *testing.T) {
	const token = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
	authtest.Secret("a token of GitHub", token)
	for _, up := range harness.Eras {
		for _, client := range harness.Eras {
			harness.RunPair(t, client, up, "http", func(t *testing.T, p harness.Pair) {
				s := p.Serve(t, upstreamtest.Script{})
				j := harness.Start(t, p,
					harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Policy: harness.MustPolicy(t, `
- { name: all, rules: [ { allow: { upstreams: "*" } } ], redact: [ secrets ] }
`)})
				j.Offers(t, "up")
				c := j.Talk(t)
				for _, q := range []harness.Query{
					harness.Called("up__status", `{"code":500,"body":"cannot log in with `+token+`"}`),
					harness.Called("up__status", `{"code":400,"body":"cannot log in with `+token+`"}`),
					harness.Called("up__fail", `{"error":{"code":-32600,"message":"bad `+token+`"}}`),
					harness.Called("up__fail", `{"error":{"code":-32601,"message":"bad `+token+`"}}`),
					harness.Called("up__fail",
						`{"error":{"code":-32042,"message":"bad `+token+`","data":{"elicitations":[{"mode":"url","message":"`+token+
							`","url":"https://x.org","elicitationId":"1"}]}}}`),
					harness.Called("up__ask", `{"always":true,"questions":[{"method":"odd `+token+`","params":{}}]}`),
				} {
					if strings.Contains(q.Params, `"code":400`) && harness.Processes() > 1 {
						continue // it ends the session, and the log has the reason in the words of the server
					}
					m := c.Begin(t, q).Answer(t)
					if got := string(m.Append(nil)); strings.Contains(got, token) {
						t.Errorf("%.60s: the client reads %s", q.Params, got[:min(len(got), 400)])
					}
				}
			})
		}
	}
}
