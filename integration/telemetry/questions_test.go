package telemetry

import (
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// all returns the spans of that kind and name, in the order in which they ended.
func (r *receiver) all(kind, name string) (found []span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if s.kind == kind && s.name == name {
			found = append(found, s)
		}
	}
	return found
}

// mustAsk calls the tool that asks, answers, and returns the question that the client got.
func (x *traced) mustAsk(t *testing.T, meta, question string) harness.ServerRequest {
	t.Helper()
	q := harness.Asking(question)
	q.Meta = meta
	m, asked := x.Converse(t, q, harness.AnswersTo)
	if m.Error != nil || len(asked) != 1 {
		t.Fatalf("the call is answered %s after %d questions, want 1", m.Append(nil), len(asked))
	}
	x.flush(t)
	return asked[0]
}

// TestTraceOfQuestion follows one trace from the client through Junction to the upstream, and back to
// the client by a question.
func TestTraceOfQuestion(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		for _, question := range []string{harness.AskForm, harness.AskSampling, harness.AskRoots} {
			method := harness.Text(t, []byte(question), "method")
			t.Run(method, func(t *testing.T) {
				x := mustTrace(t, p, upstreamtest.Script{}, nil, func(c *upstream.Config) {
					c.Questions = upstream.QuestionsExact // roots need it
				})
				got := x.mustAsk(t, `"traceparent":"`+fromMeta+`"`, question)
				requests, calls := x.all(serverSpan, "tools/call up__ask"), x.all(clientSpan, "tools/call ask")
				put := x.only(t, clientSpan, method)
				for _, s := range append(append(requests, calls...), put) {
					if s.trace != traceID {
						t.Errorf("%s is in the trace %s, want %s", s.name, s.trace, traceID)
					}
				}
				parent := requests[0]
				if p.Upstream == client.EraLegacy {
					parent = x.only(t, serverSpan, method)
					if parent.trace != traceID || parent.parent != calls[0].id {
						t.Errorf("the upstream's request is %+v, want it below the call %s", parent, calls[0].id)
					}
				}
				if put.parent != parent.id {
					t.Errorf("the question is %+v, want it below %s %s", put, parent.kind, parent.name)
				}
				x.ofQuestion(t, p, put, got, requests)
			})
		}
	})
}

// ofQuestion compares what depends on the client's era: a legacy client gets the span of the question,
// and a modern client answers in a second request.
func (x *traced) ofQuestion(t *testing.T, p harness.Pair, put span, got harness.ServerRequest, requests []span) {
	t.Helper()
	if p.Client == client.EraLegacy {
		want := `"00-` + traceID + "-" + put.id + `-01"`
		if text := harness.Member(got.Params, "_meta", "traceparent"); text != want {
			t.Errorf("the client gets the traceparent %s, want %s", text, want)
		}
	} else if len(requests) != 2 {
		t.Errorf("there are %d spans of requests, want 2", len(requests))
	} else if want := traceID + "-" + requests[1].id; p.Upstream == client.EraModern &&
		(len(put.links) != 1 || put.links[0] != want) {
		t.Errorf("the links of the question are %q, want the request with the answer, %s", put.links, want)
	}
	version := map[client.Era]string{client.EraLegacy: "2025-11-25", client.EraModern: "2026-07-28"}[p.Client]
	for name, value := range map[string]string{"mcp.method.name": put.name, "junction.upstream": "up",
		"mcp.protocol.version": version, "network.transport": "tcp", "error.type": ""} {
		if put.attributes[name] != value {
			t.Errorf("%s of the question = %q, want %q", name, put.attributes[name], value)
		}
	}
}

// TestTraceOfAsker joins the trace that a legacy upstream names in its request. The call is of another
// trace, and becomes a link.
func TestTraceOfAsker(t *testing.T) {
	harness.Waits(t)
	for _, era := range harness.Eras {
		harness.EachTransport(t, era, client.EraLegacy, func(t *testing.T, p harness.Pair) {
			x := mustTrace(t, p, upstreamtest.Script{}, nil)
			x.mustAsk(t, "", strings.Replace(harness.AskForm, `"message"`,
				`"_meta":{"traceparent":"`+fromMeta+`","tracestate":"c=3"},"message"`, 1))
			call, from, put := x.only(t, clientSpan, "tools/call ask"), x.only(t, serverSpan, "elicitation/create"),
				x.only(t, clientSpan, "elicitation/create")
			if from.trace != traceID || from.parent != callerID || from.state != "c=3" {
				t.Errorf("the upstream's request is %+v, want it below %s", from, fromMeta)
			}
			if want := call.trace + "-" + call.id; len(from.links) != 1 || from.links[0] != want {
				t.Errorf("its links are %q, want the call %s", from.links, want)
			}
			if put.trace != traceID || put.parent != from.id {
				t.Errorf("the question is %+v, want it below %s", put, from.id)
			}
		})
	}
}

// TestTraceOfRefusal marks a question that the client cannot be asked, and one that it refuses.
func TestTraceOfRefusal(t *testing.T) {
	harness.Waits(t)
	harness.EachTransport(t, client.EraLegacy, client.EraLegacy, func(t *testing.T, p harness.Pair) {
		x := mustTrace(t, p, upstreamtest.Script{}, nil)
		x.Converse(t, harness.Asking(harness.AskSampling), func(harness.ServerRequest) string {
			return `"error":{"code":-1,"message":"no"}`
		})
		x.Begin(t, harness.Called("up__ask", `{"always":true,"questions":[{"method":"elicitation/create",`+
			`"params":{"mode":"canary","message":"m"}}]}`)).Answer(t)
		x.flush(t)
		for _, kind := range []string{serverSpan, clientSpan} {
			if s := x.only(t, kind, "sampling/createMessage"); !s.failed || s.attributes["error.type"] != "_OTHER" {
				t.Errorf("%s %s is %v, want a failure", kind, s.name, s.attributes)
			}
		}
		if s := x.only(t, serverSpan, "elicitation/create"); !s.failed || s.attributes["error.type"] != "-32602" {
			t.Errorf("the question that cannot be asked is %v, want -32602", s.attributes)
		}
		if n := len(x.all(clientSpan, "elicitation/create")); n != 0 {
			t.Errorf("there are %d spans of a question that the client did not get", n)
		}
	})
}

// TestTraceOfPing is a ping of an upstream, which no client causes.
func TestTraceOfPing(t *testing.T) {
	harness.Waits(t)
	harness.EachTransport(t, client.EraLegacy, client.EraLegacy, func(t *testing.T, p harness.Pair) {
		x := mustTrace(t, p, upstreamtest.Script{}, nil)
		x.Served.Listened(t, p)
		x.Served.Ask(t, "ping", "{}")
		x.flush(t)
		s := x.only(t, serverSpan, "ping")
		if s.parent != "" || s.failed || s.attributes["junction.upstream"] != "up" {
			t.Errorf("the ping is %+v, want a trace of its own", s)
		}
	})
}

// TestTraceOfConnect has the handshakes and the lists, each in a trace of its own.
func TestTraceOfConnect(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		x := mustTrace(t, p, upstreamtest.Script{}, nil)
		x.call(t, "", nil)
		x.flush(t)
		handshake := map[client.Era]string{client.EraLegacy: "initialize", client.EraModern: "server/discover"}
		for _, name := range []string{handshake[p.Upstream], "tools/list"} {
			all := x.all(clientSpan, name)
			if len(all) == 0 || all[0].parent != "" || all[0].failed || all[0].attributes["junction.upstream"] != "up" {
				t.Errorf("%s of the upstream: the spans are %+v, want one without parent", name, all)
			}
		}
		if p.Client == client.EraModern {
			return
		}
		if s := x.only(t, serverSpan, "initialize"); s.failed || s.attributes["mcp.protocol.version"] != "2025-11-25" ||
			s.attributes["mcp.session.id"] == "" || s.attributes["junction.outcome"] != "ok" {
			t.Errorf("the handshake of the client is %+v", s)
		}
	})
}

// TestTraceOfOwnConnect: the call that needs a connection of its own has the handshake in its trace,
// and the server learns the spans.
func TestTraceOfOwnConnect(t *testing.T) {
	harness.Waits(t)
	for _, clientEra := range harness.Eras {
		harness.EachTransport(t, clientEra, client.EraLegacy, func(t *testing.T, p harness.Pair) {
			ownConnect(t, p)
		})
	}
}

func ownConnect(t *testing.T, p harness.Pair) {
	x := mustTrace(t, p, upstreamtest.Script{}, nil, func(c *upstream.Config) { c.Isolation = upstream.IsolationPrincipal })
	x.call(t, `"traceparent":"`+fromMeta+`","tracestate":"a=1"`, nil)
	x.flush(t)
	request := x.only(t, serverSpan, "tools/call up__echo")
	for _, method := range []string{"initialize", "tools/list"} {
		joined := map[string]bool{}
		for _, s := range x.all(clientSpan, method) {
			if s.trace == traceID && s.parent == request.id {
				joined[`"00-`+traceID+"-"+s.id+`-01"`] = true
			}
		}
		if len(joined) != 1 {
			t.Errorf("%d spans of %s are below the call, want 1", len(joined), method)
		}
		n := 0
		for _, r := range x.Received() {
			if r.Message.Method == method && joined[harness.Member(r.Message.Params, "_meta", "traceparent")] {
				n++
				if state := harness.Member(r.Message.Params, "_meta", "tracestate"); state != `"a=1"` {
					t.Errorf("%s has the tracestate %s", method, state)
				}
			}
		}
		if n != 1 {
			t.Errorf("the server gets %d requests %s with that span, want 1", n, method)
		}
	}
}

// TestMetricsOfQuestions counts the requests of an upstream and the questions to a client, and leaves
// them out of the outcomes of clients' requests.
func TestMetricsOfQuestions(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		x := mustMeasure(t, p)
		if m, _ := x.Talk(t).Converse(t, harness.Asking(harness.AskForm), harness.AnswersTo); m.Error != nil {
			t.Fatal(m.Error)
		}
		text := x.scrape(t)
		const requests, calls = "mcp_server_operation_duration_seconds_count", "mcp_client_operation_duration_seconds_count"
		received := map[client.Era]string{client.EraLegacy: "1"}[p.Upstream]
		if got := value(t, text, requests, `mcp_method_name="elicitation/create"`, `junction_upstream="up"`); got != received {
			t.Errorf("%q requests of the upstream, want %q", got, received)
		}
		if got := value(t, text, calls, `mcp_method_name="elicitation/create"`, `junction_upstream="up"`); got != "1" {
			t.Errorf("%q questions to the client, want 1", got)
		}
		if got := value(t, text, requests, `mcp_method_name="elicitation/create"`, `junction_outcome=`); got != "" {
			t.Errorf("%q requests of an upstream have the outcome of a client's request", got)
		}
		handshake := map[client.Era]string{client.EraLegacy: "initialize", client.EraModern: "server/discover"}
		if got := value(t, text, calls, `mcp_method_name="`+handshake[p.Upstream]+`"`); got != "1" {
			t.Errorf("%q handshakes with the upstream, want 1", got)
		}
	})
}
