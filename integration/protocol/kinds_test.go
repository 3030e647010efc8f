package protocol

import (
	"encoding/json"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/proxy/front"
	"junction/proxy/scope"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// kinds is a server with one of everything. Its answers are the same for whatever it is asked.
func kinds(name string) upstreamtest.Script {
	rule := func(method, result string) upstreamtest.Rule {
		return upstreamtest.Rule{Method: method, Result: json.RawMessage(result)}
	}
	return upstreamtest.Script{
		Capabilities: json.RawMessage(`{"tools":{},"prompts":{},"resources":{},"completions":{}}`),
		Tools: harness.ToolTexts(`{"name":"`+name+
			`-open","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://clock/face"},`+
			`"ui/resourceUri":"ui://clock/face"}}`,
			`{"name":"same","inputSchema":{"type":"object"}}`,
			`{"name":"tick","inputSchema":{"type":"object"},"_meta":{"ui":{"visibility":["app"]}}}`),
		Rules: []upstreamtest.Rule{
			rule("prompts/list",
				`{"prompts":[{"name":"ask","arguments":[{"name":"a"}]},{"name":"`+name+`-own"},{"name":"bad","arguments":[1]}]}`),
			rule("resources/list",
				`{"resources":[{"uri":"file:///x","name":"x"},{"uri":"https://x.org/both","name":"b"},{"uri":"https://x.org/`+name+
					`","name":"w"},{"uri":"note:`+name+`","name":"n"},{"uri":"no-name"}]}`),
			rule("resources/templates/list",
				`{"resourceTemplates":[{"uriTemplate":"file:///{path}","name":"f"},{"uriTemplate":"`+name+
					`://{+any}","name":"u"}]}`),
			rule("resources/read",
				`{"contents":[{"uri":"file:///x","text":"of `+name+
					`: file:///x"},{"uri":"ui://clock/face","_meta":{"ui":{"csp":{}}}},{"uri":"https://x.org/a"}]}`),
			rule("prompts/get",
				`{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"file:///x","text":"`+name+
					`"}}},{"role":"user","content":[{"type":"text","text":"a"},{"type":"resource_link","uri":"note:1","name":"n"}]}]}`),
			rule("completion/complete", `{"completion":{"values":["`+name+`"]}}`),
			rule("tools/call",
				`{"content":[{"type":"text","text":"file:///x"},{"type":"resource_link","uri":"file:///unlisted","name":"n"}],`+
					`"structuredContent":{"uri":"file:///x"},"_meta":{"ui":{"resourceUri":"ui://clock/face"}}}`),
		},
	}
}

func TestKinds(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, m harness.Pair) {
		configs, journals := map[string]upstream.Config{}, map[string]*upstreamtest.Journal{}
		for _, name := range []string{"a", "b"} {
			configs[name], journals[name] = m.Start(t, kinds(name))
		}
		e := harness.MustProxy(t, configs,
			func(_ *front.Options, w *scope.Config, _ *upstream.Options) { w.Names.AppTools = new(false) })
		c := harness.MustClient(t, e, m.Client)
		// want expects the answer to begin with the result, and returns it.
		want := func(method, params, result string) {
			t.Helper()
			a := c.CallID(t, "1", method, params)
			if !strings.HasPrefix(string(a.Message.Result), result) &&
				(a.Message.Error == nil || !strings.HasPrefix(string(a.Message.Error.Append(nil)), result)) {
				t.Errorf("%s %s:\ngot  %s\nwant %s", method, params, a, result)
			}
		}
		code := `{"code":-32602,`
		// asked expects that the upstream was asked for it; a process of its own reports that a
		// moment later than it answers.
		asked := func(name, method, member, value string) {
			t.Helper()
			_, err := journals[name].Await(harness.Patient(t), func(r upstreamtest.Record) bool {
				v, err := raw.Get(r.Message.Params, strings.Split(member, ".")...)
				return r.Message.Method == method && err == nil && string(v) == `"`+value+`"`
			})
			if err != nil {
				t.Errorf("%s was not asked %s with the %s %s: %v", name, method, member, value, err)
			}
		}
		want("prompts/list", "",
			`{"prompts":[{"name":"a__ask","arguments":[{"name":"a"}]},{"name":"a__a-own"},{"name":"b__ask",`+
				`"arguments":[{"name":"a"}]},{"name":"b__b-own"}]`)
		// The upstream that was ready first keeps a web address that both list.
		const both = `{"uri":"https://x.org/both","name":"b"},`
		list := string(c.CallID(t, "1", "resources/list", "").Message.Result)
		if result := `{"resources":[{"uri":"mcp://a/file:///x","name":"x"},{"uri":"https://x.org/a","name":"w"},` +
			`{"uri":"mcp://a/note:a","name":"n"},{"uri":"mcp://b/file:///x","name":"x"},{"uri":"https://x.org/b","name":"w"},` +
			`{"uri":"mcp://b/note:b","name":"n"}]`; strings.Count(list, both) != 1 ||
			!strings.HasPrefix(strings.Replace(list, both, "", 1), result) {
			t.Errorf("resources/list:\ngot  %s\nwant %s, with %s once", list, result, both)
		}
		want("resources/templates/list", "",
			`{"resourceTemplates":[{"uriTemplate":"mcp://a/file:///{path}","name":"f"},{"uriTemplate":"mcp://a/a://{+any}",`+
				`"name":"u"},`+
				`{"uriTemplate":"mcp://b/file:///{path}","name":"f"},{"uriTemplate":"mcp://b/b://{+any}","name":"u"}]`)
		want("tools/list", "",
			`{"tools":[{"name":"a__a-open","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://a/clock/face"},`+
				`"ui/resourceUri":"ui://a/clock/face"}},`+
				`{"name":"a__same","inputSchema":{"type":"object"}},{"name":"b__b-open"`)
		want("resources/read", `{"uri":"mcp://b/file:///x"}`,
			`{"contents":[{"uri":"mcp://b/file:///x","text":"of b: file:///x"},{"uri":"ui://b/clock/face",`+
				`"_meta":{"ui":{"csp":{}}}},{"uri":"https://x.org/a"}]`)
		asked("b", "resources/read", "uri", "file:///x")
		want("resources/read", `{"uri":"ui://a/clock/face"}`, `{"contents":[{"uri":"mcp://a/file:///x"`)
		asked("a", "resources/read", "uri", "ui://clock/face")
		want("resources/read", `{"uri":"https://x.org/b"}`, `{"contents":[{"uri":"mcp://b/`)
		want("resources/read", `{"uri":"note:b"}`, `{"contents":[{"uri":"mcp://b/`)
		want("resources/read", `{"uri":"b://whatever/there"}`, `{"contents":[{"uri":"mcp://b/`)
		want("resources/read", `{"uri":"https://x.org/both"}`, code)
		want("resources/read", `{"uri":"file:///x"}`, code)
		want("resources/read", `{"uri":"nobody:1"}`, code)
		want("prompts/get", `{"name":"a__ask"}`,
			`{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"mcp://a/file:///x","text":"a"}}},`+
				`{"role":"user","content":[{"type":"text","text":"a"},{"type":"resource_link","uri":"mcp://a/note:1","name":"n"}]}]`)
		asked("a", "prompts/get", "name", "ask")
		want("prompts/get", `{"name":"b-own"}`, `{"messages":[`)
		asked("b", "prompts/get", "name", "b-own")
		want("prompts/get", `{"name":"ask"}`, code)
		want("completion/complete", `{"ref":{"type":"ref/prompt","name":"b__ask"},"argument":{"name":"a","value":""}}`,
			`{"completion":{"values":["b"]}`)
		asked("b", "completion/complete", "ref.name", "ask")
		want("completion/complete",
			`{"ref":{"type":"ref/resource","uri":"mcp://a/file:///{path}"},"argument":{"name":"path","value":""}}`,
			`{"completion":{"values":["a"]}`)
		asked("a", "completion/complete", "ref.uri", "file:///{path}")
		want("tools/call", `{"name":"a-open"}`,
			`{"content":[{"type":"text","text":"file:///x"},{"type":"resource_link","uri":"mcp://a/file:///unlisted",`+
				`"name":"n"}],"structuredContent":{"uri":"file:///x"},"_meta":{"ui":{"resourceUri":"ui://a/clock/face"}`)
		want("tools/call", `{"name":"a__tick"}`, code)
		want("tools/call", `{"name":"tick"}`, code)
		want("tools/call", `{"name":"same"}`, code)
		c2 := *c
		c2.URL += "/a"
		c = &c2
		if m.Client == client.EraLegacy {
			c.MustInitialize(t, "2025-11-25")
		}
		want("resources/read", `{"uri":"file:///x"}`,
			`{"contents":[{"uri":"file:///x","text":"of a: file:///x"},{"uri":"ui://clock/face"`)
		want("tools/call", `{"name":"tick"}`,
			`{"content":[{"type":"text","text":"file:///x"},{"type":"resource_link","uri":"file:///unlisted"`)
		want("prompts/list", "", `{"prompts":[{"name":"ask",`)
	})
}
