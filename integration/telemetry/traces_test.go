package telemetry

import (
	"net/http"
	"runtime"
	"testing"

	"junction/auth/authtest"
	"junction/cmd/junction/base/telemetry"
	"junction/integration/harness"
	"junction/proxy/budget"
	"junction/proxy/front"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// Spans of other programs.
const (
	traceID   = "4bf92f3577b34da6a3ce929d0e0e4736"
	callerID  = "00f067aa0ba902b7"
	proxyID   = "b7ad6b7169203331" // of a reverse proxy
	fromMeta  = "00-" + traceID + "-" + callerID + "-01"
	fromProxy = "00-0af7651916cd43dd8448eb211c80319c-" + proxyID + "-01"
)

// traced is a junction over one upstream, up, with traces.
type traced struct {
	*receiver
	*harness.Served
	*harness.Talker
	measured *telemetry.Telemetry
	server   *front.Server
}

func mustTrace(t *testing.T, p harness.Pair, script upstreamtest.Script, more map[string]string,
	change ...func(*upstream.Config)) traced {
	t.Helper()
	x := traced{receiver: newReceiver(t), Served: p.Serve(t, script)}
	for _, f := range change {
		f(&x.Config)
	}
	variables := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": x.url, "OTEL_METRICS_EXPORTER": "none"}
	for name, value := range more {
		variables[name] = value
	}
	var err error
	x.measured, err = telemetry.New(telemetry.Options{Version: "test", Log: authtest.Log(t),
		Getenv: func(name string) (string, bool) { v, ok := variables[name]; return v, ok }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.measured.Close(t.Context()) })
	j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": x.Config},
		Requests: x.measured.Requests(), Calls: x.measured.Calls()})
	j.Offers(t, "up")
	x.Talker, x.server = j.Talk(t), j.Server
	return x
}

// flush sends all spans, once no request is in progress: an answer may arrive before its span ends.
func (x *traced) flush(t *testing.T) {
	t.Helper()
	for ctx := harness.Patient(t); x.server.Used()[budget.Requests] > 0; runtime.Gosched() {
		if ctx.Err() != nil {
			t.Fatal("a request does not end")
		}
	}
	if err := x.measured.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// call calls the tool echo with more members of _meta and headers, and returns what the upstream has
// received.
func (x *traced) call(t *testing.T, meta string, header http.Header) upstreamtest.Record {
	t.Helper()
	q := harness.Called("up__echo", `{}`)
	q.Meta, q.Header = meta, header
	if m := x.Begin(t, q).Answer(t); m.Error != nil {
		t.Fatalf("error %v", m.Error)
	}
	return harness.CallsOf(t, x.Journal, 1)[0]
}

// TestTrace follows one trace through client, Junction and upstream. The trace of the HTTP request
// is another one, and becomes a link.
func TestTrace(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		x := mustTrace(t, p, upstreamtest.Script{}, nil)
		got := x.call(t, `"traceparent":"`+fromMeta+`","tracestate":"a=1","com.example/key":{"n":1.0}`,
			http.Header{"Traceparent": {fromProxy}})
		x.flush(t)
		request, call := x.only(t, serverSpan, "tools/call up__echo"), x.only(t, clientSpan, "tools/call echo")
		if request.trace != traceID || request.parent != callerID || request.state != "a=1" {
			t.Errorf("the span of the request is %+v, want it below %s", request, fromMeta)
		}
		if len(request.links) != 1 || request.links[0] != fromProxy[3:52] {
			t.Errorf("the links of the request are %q, want %s", request.links, fromProxy)
		}
		if call.trace != traceID || call.parent != request.id {
			t.Errorf("the span of the call is %+v, want it below %s", call, request.id)
		}
		own := "00-" + traceID + "-" + call.id + "-01"
		params := got.Message.Params
		for name, want := range map[string]string{"traceparent": `"` + own + `"`, "tracestate": `"a=1"`,
			"com.example/key": `{"n":1.0}`} {
			if got := harness.Member(params, "_meta", name); got != want {
				t.Errorf("the upstream gets %s = %s, want %s", name, got, want)
			}
		}
		if over := got.Header.Get("Traceparent"); p.Transport == "http" && over != own {
			t.Errorf("the header is %q, want %q", over, own)
		}
		x.attributes(t, p, request, call)
	})
}

// attributes compares those of the conventions.
func (x *traced) attributes(t *testing.T, p harness.Pair, request, call span) {
	t.Helper()
	version := map[client.Era]string{client.EraLegacy: "2025-11-25", client.EraModern: "2026-07-28"}
	network := map[string]string{"stdio": "pipe"}[p.Transport]
	if network == "" {
		network = "tcp"
	}
	for of, want := range map[*span]map[string]string{
		&request: {"gen_ai.tool.name": "up__echo", "mcp.protocol.version": version[p.Client], "network.transport": "tcp",
			"junction.outcome": "ok"},
		&call: {"gen_ai.tool.name": "echo", "mcp.protocol.version": version[p.Upstream], "network.transport": network},
	} {
		want["mcp.method.name"], want["gen_ai.operation.name"], want["junction.upstream"] = "tools/call", "execute_tool", "up"
		for name, value := range want {
			if of.attributes[name] != value {
				t.Errorf("%s: %s = %q, want %q", of.name, name, of.attributes[name], value)
			}
		}
		if of.failed || of.attributes["error.type"] != "" {
			t.Errorf("%s failed: %v", of.name, of.attributes)
		}
	}
	if x.service != "junction" {
		t.Errorf("service.name = %q", x.service)
	}
}

// TestTraceOfHeader joins a trace whose client knows only HTTP headers.
func TestTraceOfHeader(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		x := mustTrace(t, p, upstreamtest.Script{}, nil)
		got := x.call(t, "", http.Header{"Traceparent": {fromProxy}, "Tracestate": {"b=2"}})
		x.flush(t)
		request, call := x.only(t, serverSpan, "tools/call up__echo"), x.only(t, clientSpan, "tools/call echo")
		if request.parent != proxyID || len(request.links) != 0 {
			t.Errorf("the span of the request is %+v, want it below %s without links", request, fromProxy)
		}
		own := `"` + fromProxy[:36] + call.id + `-01"`
		if text := harness.Member(got.Message.Params, "_meta", "traceparent"); text != own {
			t.Errorf("the upstream gets %s, want %s", text, own)
		}
		if text := harness.Member(got.Message.Params, "_meta", "tracestate"); text != `"b=2"` {
			t.Errorf("the upstream gets the tracestate %s", text)
		}
	})
}

// TestTraceStateOfClient keeps a tracestate of the client beside the trace of the header.
func TestTraceStateOfClient(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		x := mustTrace(t, p, upstreamtest.Script{}, nil)
		got := x.call(t, `"tracestate":[ 1 ]`, http.Header{"Traceparent": {fromProxy}, "Tracestate": {"b=2"}})
		if text := harness.Member(got.Message.Params, "_meta", "tracestate"); text != `[ 1 ]` {
			t.Errorf("the upstream gets the tracestate %s, want that of the client", text)
		}
		if text := harness.Member(got.Message.Params, "_meta", "traceparent"); len(text) != 57 || text[:37] != `"`+fromProxy[:36] {
			t.Errorf("the upstream gets %s, want a child of %s", text, fromProxy)
		}
	})
}

// TestTraceOfNone sends what is no traceparent: it is carried as it was, and a new trace begins.
func TestTraceOfNone(t *testing.T) {
	harness.Waits(t)
	for _, none := range []string{`1`, `null`, `{"a":[]}`, `""`, `"00"`, `"00-` + traceID + `-0000000000000000-01"`,
		`"ff-` + traceID + `-` + callerID + `-01"`, `"00-4BF92F3577B34DA6A3CE929D0E0E4736-` + callerID + `-01"`,
		`"00-` + traceID + `-` + callerID + `-01-more"`, `"00-\u0034` + traceID[1:] + `-` + callerID + `"`} {
		t.Run(none, func(t *testing.T) {
			harness.EachEra(t, func(t *testing.T, p harness.Pair) {
				x := mustTrace(t, p, upstreamtest.Script{}, nil)
				got := x.call(t, `"traceparent":`+none+`,"tracestate":[ 1 ]`, http.Header{"Traceparent": {"00-none"}})
				x.flush(t)
				request, call := x.only(t, serverSpan, "tools/call up__echo"), x.only(t, clientSpan, "tools/call echo")
				if request.parent != "" || request.trace == traceID || len(request.links) != 0 {
					t.Errorf("the span of the request is %+v, want a new trace", request)
				}
				meta := harness.Member(got.Message.Params, "_meta")
				if harness.Member([]byte(meta), "traceparent") != none || harness.Member([]byte(meta), "tracestate") != `[ 1 ]` {
					t.Errorf("the upstream gets %s, want the bytes of the client", meta)
				}
				if over := got.Header.Get("Traceparent"); over != "00-"+request.trace+"-"+call.id+"-01" {
					t.Errorf("the header is %q, want the span of the call", over)
				}
			})
		})
	}
}

// TestTraceFails marks the spans of calls that fail, with the types of the conventions.
func TestTraceFails(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		x := mustTrace(t, p, upstreamtest.Script{}, nil)
		for _, q := range []harness.Query{harness.Called("up__echo", `{"result":{"content":[],"isError":true}}`),
			harness.Called("up__fail", `{}`), harness.Called("up__canary", `{}`)} {
			x.Begin(t, q).Answer(t)
		}
		x.flush(t)
		types := map[string]map[string]bool{serverSpan: {}, clientSpan: {}}
		for _, s := range x.spans {
			if s.failed {
				types[s.kind][s.attributes["error.type"]] = true
			}
			if s.attributes["gen_ai.tool.name"] == "up__canary" {
				t.Errorf("%s has a name that only the client has sent", s.name)
			}
		}
		for _, want := range []string{"tool_error", "-32603"} {
			if !types[clientSpan][want] || !types[serverSpan][want] {
				t.Errorf("the types of errors are %v, want %s in both", types, want)
			}
		}
		if !types[serverSpan]["-32602"] {
			t.Errorf("the types of errors are %v, want -32602 of the unknown tool", types)
		}
	})
}

// TestTraceUnsampled tells the upstream that a trace is not recorded.
func TestTraceUnsampled(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		x := mustTrace(t, p, upstreamtest.Script{}, nil)
		got := x.call(t, `"traceparent":"`+fromMeta[:53]+`00"`, nil)
		x.flush(t)
		text := harness.Member(got.Message.Params, "_meta", "traceparent")
		if len(text) != 57 || text[:37] != `"`+fromMeta[:36] || text[54:] != `00"` || text[37:53] == callerID {
			t.Errorf("the upstream gets %s, want a child of %s that is not sampled", text, fromMeta)
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		for _, s := range x.spans {
			if s.trace == traceID {
				t.Errorf("%s was recorded", s.name)
			}
		}
	})
}
