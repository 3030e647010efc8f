package safety

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// TestRedactionOfOurErrors has an upstream fail in words that are not for the client, in ways that
// make an error of ours of them.
func TestRedactionOfOurErrors(t *testing.T) {
	harness.Waits(t)
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

// TestRedactionOfEveryMemberOfAnError: the client reads no text of an error that a rule matches, wherever
// the server writes it, and no text that Junction has put back. The other members of the error stay.
func TestRedactionOfEveryMemberOfAnError(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "each process keeps the removed text of its own answers to modern clients")
	const token = "ghp_0123456789abcdefghijABCDEFGHIJ112233"
	authtest.Secret("a token of GitHub", token)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{})
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config},
			Policy: harness.MustPolicy(t, `
- name: all
  redact: { patterns: [secrets], restore: true }
  rules: [ { allow: { upstreams: "*" } } ]
`)})
		j.Offers(t, "up")
		c := j.Talk(t)
		mark := removedMark.FindString(string(c.Succeed(t, "up__echo", `{"result":{"content":[{"type":"text","text":"`+token+`"}]}}`)))
		for _, text := range []string{token, "zz" + token, mark} { // the server gets the token in place of the mark
			for _, members := range []string{
				`"message":"x","trace":"at ` + text + `"`,
				`"message":{"x":"` + text + `"}`,
				`"message":"a","message":"` + text + `"`,
				`"Message":"` + text + `"`,
				`"message":"x","` + token + `":1`,
			} {
				m := c.Call(t, "up__fail", `{"error":{"code":-32000,"kept":"here",`+members+`}}`)
				if got := string(m.Append(nil)); strings.Contains(got, token) || !strings.Contains(got, "redacted") ||
					!strings.Contains(got, `"kept":"here"`) {
					t.Errorf("%s: the client reads %s", members, got)
				}
			}
		}
	})
}

// TestRedactionOfCheckedArguments: the answer to arguments that do not fit (validate) quotes nothing of
// the schema that a rule matches, wherever it is in the schema, and also not a part of it. The same holds
// for a schema that cannot be used, and for the header of an argument.
func TestRedactionOfCheckedArguments(t *testing.T) {
	harness.Waits(t)
	long := strings.Repeat("a", 110) + " TCK-12345678"
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		tools := []json.RawMessage{[]byte(`{"name":"echo","inputSchema":{"type":"object"}}`)}
		calls := []struct{ schema, arguments, want string }{
			{`{"properties":{"a":{"enum":["TCK-12345678","x"]}}}`, `{"a":"z"}`, `a: must be one of \"[redacted: ticket]\", \"x\"`},
			{`{"properties":{"a":{"enum":["` + long + `"]}}}`, `{"a":"z"}`, `a: must be one of \"aaa`},
			{`{"properties":{"a":{"enum":[4111111111111111]}}}`, `{"a":1}`, `a: must be one of [redacted: card]`},
			{`{"properties":{"a":{"const":"TCK-12345678"}}}`, `{"a":"z"}`, `a: must be \"[redacted: ticket]\"`},
			{`{"properties":{"a":{"type":"string","pattern":"^TCK-12345678$"}}}`, `{"a":"z"}`, `a: must match ^[redacted: ticket]$`},
			{`{"properties":{"a":{"type":"string","pattern":"` + long + `"}}}`, `{"a":"z"}`, `a: must match aaa`},
			{`{"properties":{"TCK-12345678":{"type":"string"}},"additionalProperties":false}`, `{"z":1}`, `there are [redacted: ticket]`},
			{`{"properties":{"` + long + `":{"type":"string"}},"additionalProperties":false}`, `{"z":1}`, `there are aaa`},
			{`{"required":["TCK-12345678"]}`, `{"z":1}`, `[redacted: ticket]: missing`},
			{`{"properties":{"a":{"enum":["TCK-12345678"]}},"required":["a"]}`, `{}`, `a: missing; must be one of \"[redacted: ticket]\"`},
			{`{"dependentRequired":{"z":["TCK-12345678"]}}`, `{"z":1}`, `z needs [redacted: ticket] as well`},
			{`{"properties":{"a":{"type":"string","pattern":"(TCK-12345678"}}}`, `{"a":"z"}`, `was not called`},
			{`{"properties":{"a":{"$ref":"https://x.org/TCK-12345678"}}}`, `{"a":"z"}`, `cannot be used. The reason is in Junction's log`},
			{`{"properties":{"TCK-12345678":{"type":"TCK-12345678"}}}`, `{"a":"z"}`, `was not called`},
		}
		for i, q := range calls {
			tools = append(tools, fmt.Appendf(nil, `{"name":"get_%d","inputSchema":{"type":"object",%s}`, i, q.schema[1:]))
		}
		tools = append(tools, []byte(`{"name":"get_header","inputSchema":{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"TCK-12345678"}}}}`))
		s := p.Serve(t, upstreamtest.Script{Tools: tools})
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Policy: harness.MustPolicy(t, `
- name: all
  validate: true
  redact: { patterns: [{ name: ticket, re: "TCK-[0-9]{8}" }, { name: card, re: "^[0-9]{16}$" }], restore: true }
  rules: [ { allow: { upstreams: "*" } } ]
`)})
		j.Offers(t, "up")
		c := j.Talk(t)
		for i, q := range calls {
			m := c.Call(t, fmt.Sprintf("up__get_%d", i), q.arguments)
			got := string(m.Append(nil))
			if strings.Contains(got, "TCK") || strings.Contains(got, "4111") || !strings.Contains(got, q.want) {
				t.Errorf("%.120s: the client reads %s, want %s", q.schema, got, q.want)
			}
		}
		m := c.Call(t, "up__get_header", `{"a":"z"}`)
		if got := string(m.Append(nil)); strings.Contains(got, "TCK") {
			t.Errorf("without the header, the client reads %s", got)
		}
		if n := len(harness.CallsOf(t, s.Journal, 0)); n > 1 { // of get_header, for a client of the legacy era
			t.Errorf("the server was called %d times", n)
		}
	})
}

// TestRedactionComesBeforeAnyCut: texts of a server that Junction shortens are redacted first, so that the
// client reads no part of a match: one line of a failed request's answer, and instructions.
func TestRedactionComesBeforeAnyCut(t *testing.T) {
	harness.Waits(t)
	const token = "ghp_0123456789abcdefghijABCDEFGHIJ987654"
	authtest.Secret("a token of GitHub", token)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{Instructions: strings.Repeat("a", 2020) + " " + token + " and more"})
		s.Config.Instructions = true
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Policy: harness.MustPolicy(t, `
- { name: all, rules: [ { allow: { upstreams: "*" } } ], redact: { patterns: [ secrets, { name: block, re: "(?s)BEGIN.*END" } ], restore: true } }
`)})
		j.Offers(t, "up")
		c := j.Talk(t)
		instructions := instructionsFor(t, j, p.Client, "")
		if strings.Contains(instructions, token[:10]) || !strings.Contains(instructions, "aaa [redacted: ") {
			t.Errorf("the client reads the instructions %s", instructions)
		}
		if p.Transport != "http" {
			return
		}
		for _, body := range []string{
			strings.Repeat("a", 160) + " " + token, strings.Repeat("a", 195) + " " + token, `BEGIN secret\nEND`,
			"<title>" + strings.Repeat("a", 160) + " " + token + "</title>",
		} {
			for _, code := range []int{400, 500} {
				if code == 400 && harness.Processes() > 1 {
					continue // it ends the session, and the log has the reason in the words of the server
				}
				m := c.Call(t, "up__status", fmt.Sprintf(`{"code":%d,"body":"%s"}`, code, body))
				if got := string(m.Append(nil)); strings.Contains(got, token[:10]) || strings.Contains(got, "secret") ||
					!strings.Contains(got, "redacted") && !strings.Contains(got, "[re") {
					t.Errorf("%d, %.20s: the client reads %s", code, body, got)
				}
			}
		}
	})
}

// TestRedactionOfACallThatIsReturnedTo: the file redacts more while the user is asked in the middle of a
// call. The client then reads the next question and the result without that text. A legacy client's call to
// a legacy server has no second request, so it keeps the policy with which it began.
func TestRedactionOfACallThatIsReturnedTo(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		if p.Client == client.EraLegacy && p.Upstream == client.EraLegacy {
			t.Skip("one request")
		}
		s := p.Serve(t, upstreamtest.Script{})
		setup := harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Policy: harness.MustPolicy(t,
			"- { name: all, rules: [ { allow: { upstreams: \"*\" } } ] }\n")}
		j := harness.Start(t, p, setup)
		j.Offers(t, "up")
		m, asked := j.Talk(t).Converse(t, harness.Asking(harness.AskForm, strings.Replace(harness.AskForm, "Name?", "Is it TCK-77?", 1)),
			func(q harness.ServerRequest) string {
				if strings.Contains(string(q.Params), "Name?") {
					later := setup
					later.Policy = harness.MustPolicy(t, `
- { name: all, rules: [ { allow: { upstreams: "*" } } ], redact: [ { name: ticket, re: "TCK-[0-9]+" } ] }
`)
					j.Apply(later)
				}
				return `"result":{"action":"accept","content":{"n":"TCK-99"}}`
			})
		if len(asked) != 2 || !strings.Contains(string(asked[1].Params), "Is it [redacted: ticket]?") {
			t.Errorf("the client is asked %q", asked)
		}
		if got := string(m.Append(nil)); m.Error != nil || strings.Contains(got, "TCK") || !strings.Contains(got, "[redacted: ticket]") {
			t.Errorf("the call is answered %s", got)
		}
	})
}

// TestRedactionLeavesItsMarks: an error of a server is searched twice, and a result that a client returns to,
// too. A pattern that matches the mark of its rule changes nothing then, also with restore.
func TestRedactionLeavesItsMarks(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{Tools: harness.Definitions("fail")})
		guard, keys := harness.Keyring(t, "loses", "restores")
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Guard: guard,
			Policy: harness.MustPolicy(t, `
- { name: all, rules: [ { allow: { upstreams: "*" } } ] }
- { name: loses, match: { key: loses }, redact: [ { name: ticket, re: "TCK-[0-9]+|redacted|ticket|[A-Z2-7]{16}" } ] }
- name: restores
  match: { key: restores }
  redact: { patterns: [ { name: ticket, re: "TCK-[0-9]+|redacted|ticket|[A-Z2-7]{16}" } ], restore: true }
`)})
		j.Offers(t, "up")
		for name, mark := range map[string]string{"loses": `\[redacted: ticket\]`, "restores": `\[redacted: ticket #[A-Z2-7]{16}\]`} {
			m := j.As(t, keys[name]).Call(t, "up__fail", `{"error":{"code":7,"message":"no TCK-1 and no ticket","data":{"x":"TCK-2"}}}`)
			if m.Error == nil || !regexp.MustCompile(`^no `+mark+` and no `+mark+`$`).MatchString(m.Error.Message) ||
				!regexp.MustCompile(`^\{"x":"`+mark+`"\}$`).Match(m.Error.Data) {
				t.Errorf("%s: the error is %s", name, m.Append(nil))
			}
		}
	})
}
