package safety

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// A client that repeats a request may write it in another way. Junction compares requests by their
// values.

// respelled writes JSON in another way: members in reverse order, strings as escapes, whole numbers
// as decimals.
func respelled(t *testing.T, text []byte) string {
	t.Helper()
	switch text[0] {
	case '{':
		o, err := raw.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		var parts []string
		for _, m := range o.Members() {
			parts = append(parts, respelled(t, m.Key)+" : "+respelled(t, m.Value))
		}
		slices.Reverse(parts)
		return "{ " + strings.Join(parts, " , ") + " }"
	case '[':
		list, err := raw.Elements(text)
		if err != nil {
			t.Fatal(err)
		}
		var parts []string
		for _, v := range list {
			parts = append(parts, respelled(t, v))
		}
		return "[ " + strings.Join(parts, " , ") + " ]"
	case '"':
		s, err := raw.String(text)
		if err != nil {
			t.Fatal(err)
		}
		b := []byte{'"'}
		for _, c := range s {
			b = fmt.Appendf(b, `\u%04x`, c)
		}
		return string(append(b, '"'))
	case 't', 'f', 'n':
		return string(text)
	}
	if strings.ContainsAny(string(text), ".eE") {
		return string(text)
	}
	return string(text) + ".0e0"
}

// membersOf is an object as query.params has it, without its braces.
func membersOf(object string) string { return strings.TrimSuffix(strings.TrimPrefix(object, "{"), "}") }

// respelling is a client that writes each repetition of a request in another way than the request
// before.
type respelling struct {
	*harness.Talker
	t      *testing.T
	change func(params string) string // of each repetition; nil changes nothing
}

// converse is (*talker).converse for such a client. A legacy client does not repeat its request.
func (c respelling) converse(q harness.Query, answer func(harness.ServerRequest) string) (jsonrpc.Message,
	[]harness.ServerRequest) {
	c.t.Helper()
	if c.Era == client.EraLegacy {
		return c.Talker.Converse(c.t, q, answer)
	}
	base, spelled := q.Params, q.Params
	var asked []harness.ServerRequest
	for range 10 {
		q.ID = ""
		m := c.Begin(c.t, q).Answer(c.t)
		if m.Error != nil || harness.Member(m.Result, "resultType") != `"input_required"` {
			return m, asked
		}
		var responses []string
		for _, p := range harness.Requested(c.t, m) {
			asked = append(asked, p)
			responses = append(responses, string(raw.Quote(p.Key))+":"+strings.TrimPrefix(answer(p), `"result":`))
		}
		if spelled == base {
			spelled = membersOf(respelled(c.t, []byte("{"+base+"}")))
		} else {
			spelled = base
		}
		if c.change != nil {
			spelled = c.change(spelled)
		}
		q.Params = harness.Retried(spelled, m, responses...)
	}
	c.t.Fatal("the questions do not end")
	return jsonrpc.Message{}, nil
}

const odd = `{"text":"a\"é","list":[1,{"z":2,"a":3}],"flag":true,"none":null}`

func TestForeignRespelledRequestIsAnswered(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{})
		j := harness.Start(t, p,
			harness.Setup{Upstreams: map[string]upstream.Config{"up": harness.Exact(s.Config)},
				Policy: harness.MustPolicy(t, approving)})
		j.Offers(t, "up")
		c := respelling{j.Talk(t), t, nil}
		if m, asked := c.converse(harness.Called("up__echo", odd), approval("Allow once")); m.Error != nil ||
			len(asked) != 1 || harness.Member(m.Result, "isError") == "true" {
			t.Fatalf("after %d questions the approved call is answered %s", len(asked), m.Append(nil))
		}
		// The upstream asks two questions in the course of an approved call.
		q := harness.Called("up__ask", `{"extra":`+odd+`,"questions":[`+harness.AskForm+`,`+harness.AskRoots+`]}`)
		if m, asked := c.converse(q, approval("Allow once")); len(asked) != 3 ||
			harness.AnswersOf(t, m) != `[{`+harness.Accepted+`},{`+harness.Rooted+`}]` {
			t.Errorf("after %d questions: %s", len(asked), m.Append(nil))
		}
		// An approval that is remembered is good for another spelling, in a legacy session too.
		c.converse(harness.Called("up__echo", `{"n":1,"m":"x"}`), approval("Allow and remember for this exact call"))
		for arguments, want := range map[string]int{
			`{"m":"\u0078","n":1.0}`: 0, `{ "n" : 10e-1 , "m" : "x" }`: 0,
			`{"n":"1","m":"x"}`: 1, `{"n":2,"m":"x"}`: 1, `{"n":1}`: 1, `{"n":1,"m":"X"}`: 1,
		} {
			if m, asked := c.Talker.Converse(t, harness.Called("up__echo", arguments), approval("Do not allow")); len(asked) < want ||
				len(asked) > max(want, forgotten(p)) {
				t.Errorf("%s: %d questions, want %d; %s", arguments, len(asked), want, m.Append(nil))
			}
		}
		if m, asked := c.Talker.Converse(t, harness.Called("up__echo", `{"n":1,"m":"x","m":"x"}`),
			approval("Allow once")); len(asked) > 0 || !strings.Contains(string(m.Result), "a name occurs twice") {
			t.Errorf("a key twice: %d questions, %s", len(asked), m.Append(nil))
		}
	})
}

// TestForeignChangedRequestIsNotTheSame has a client come back with its state and a request that it
// changed.
func TestForeignChangedRequestIsNotTheSame(t *testing.T) {
	harness.Waits(t)
	changes := map[string]func(string) string{
		"another value":   func(s string) string { return strings.Replace(s, `"n":1`, `"n":2`, 1) },
		"another type":    func(s string) string { return strings.Replace(s, `"n":1`, `"n":"1"`, 1) },
		"a key twice":     func(s string) string { return strings.Replace(s, `"n":1`, `"n":1,"n":1`, 1) },
		"a large integer": func(s string) string { return strings.Replace(s, `9007199254740993`, `9007199254740992`, 1) },
		"another member":  func(s string) string { return strings.Replace(s, `"n":1`, `"n":1,"o":null`, 1) },
	}
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraModern, up, func(t *testing.T, p harness.Pair) {
			s := p.Serve(t, upstreamtest.Script{})
			j := harness.Start(t, p,
				harness.Setup{Upstreams: map[string]upstream.Config{"up": harness.Exact(s.Config)},
					Policy: harness.MustPolicy(t, approving)})
			j.Offers(t, "up")
			for name, change := range changes {
				for _, q := range []harness.Query{harness.Called("up__echo", `{"n":1,"big":9007199254740993}`),
					harness.Called("up__ask", `{"n":1,"big":9007199254740993,"questions":[`+harness.AskForm+`]}`)} {
					q.Params = strings.Replace(q.Params, ` `, ``, -1)
					c, base := j.Talk(t), q.Params
					m := c.Begin(t, q).Answer(t)
					yes := string(raw.Quote(harness.Requested(t, m)[0].Key)) + `:{"action":"accept","content":{"answer":"Allow once"}}`
					q.Params = harness.Retried(change(base), m, yes)
					if again := c.Begin(t, q).Answer(t); again.Error == nil || again.Error.Code != -32602 {
						t.Errorf("%s: the changed request is answered %s", name, again.Append(nil))
					}
				}
			}
			if n := len(harness.CallsOf(t, s.Journal, 0)); n != 0 {
				t.Errorf("the upstream was called %d times", n)
			}
		})
	}
}
