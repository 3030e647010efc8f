package integration

import (
	"strings"
	"testing"

	"junction/auth/authtest"
	"junction/upstream"
	"junction/upstream/upstreamtest"
)

// TestRedactionOfOurErrors has an upstream fail in words that are not for the client, in ways that
// make an error of ours of them.
func TestRedactionOfOurErrors(t *testing.T) {
	const token = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
	authtest.Secret("a token of GitHub", token)
	for _, up := range eras {
		for _, client := range eras {
			runPair(t, pair{client, up, "http"}, func(t *testing.T, p pair) {
				s := p.serve(t, upstreamtest.Script{})
				j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}, policy: mustPolicy(t, `
- { name: all, rules: [ { allow: { upstreams: "*" } } ], redact: [ secrets ] }
`)})
				j.offers(t, "up")
				c := j.talk(t)
				for _, q := range []query{
					called("up__status", `{"code":500,"body":"cannot log in with `+token+`"}`),
					called("up__status", `{"code":400,"body":"cannot log in with `+token+`"}`),
					called("up__fail", `{"error":{"code":-32600,"message":"bad `+token+`"}}`),
					called("up__fail", `{"error":{"code":-32601,"message":"bad `+token+`"}}`),
					called("up__fail", `{"error":{"code":-32042,"message":"bad `+token+`","data":{"elicitations":[{"mode":"url","message":"`+token+`","url":"https://x.org","elicitationId":"1"}]}}}`),
					called("up__ask", `{"always":true,"questions":[{"method":"odd `+token+`","params":{}}]}`),
				} {
					m := c.begin(t, q).answer(t)
					if got := string(m.Append(nil)); strings.Contains(got, token) {
						t.Errorf("%.60s: the client reads %s", q.params, got[:min(len(got), 400)])
					}
				}
			})
		}
	}
}
