package protocol

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// MCP Apps (io.modelcontextprotocol/ui) through the proxy.

const (
	uiMeta = `"_meta":{"ui":{"csp":{"connectDomains":["https://api.example.com"],"x":1.0},"permissions":{"camera":{}},` +
		`"domain":"d","prefersBorder":true}}`
	uiPage = `[{"uri":"ui://clock/face","mimeType":"text/html;profile=mcp-app","text":"<script>call(\"tick\",` +
		`\"ui:\/\/clock/face\")</script>",` + uiMeta + `}]`
	uiCaps  = `{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]},"vendor/x":{}}}`
	uiTools = `{"name":"clock","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://clock/face",` +
		`"visibility":["model","app"],"x":1.0},"ui/resourceUri":"ui://clock/face","z":"ui://clock/face"}}`
	uiTick = `{"name":"tick","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://clock/face",` +
		`"visibility":["app"]}}}`
)

func app(name string) upstreamtest.Script {
	return upstreamtest.Script{
		Tools:     harness.ToolTexts(uiTools, uiTick, `{"name":"capabilities","inputSchema":{"type":"object"}}`),
		Resources: []json.RawMessage{},
		Contents:  map[string]json.RawMessage{"ui://clock/face": []byte(strings.Replace(uiPage, "tick", "tick of "+name, 1))},
	}
}

func TestAppPagesAreReadable(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		ups, j := twins(t, p, app) // both have the same URI
		c := harness.TalkAs(t, j.URL, p.Client, "2025-11-25", uiCaps)
		for _, name := range []string{"a", "b"} {
			tools, _ := c.List(t, "")
			var tool []byte
			for _, d := range tools {
				if harness.Text(t, d, "name") == name+"__clock" {
					tool = d
				}
			}
			uri := harness.Text(t, tool, "_meta", "ui", "resourceUri")
			if uri != "ui://"+name+"/clock/face" || harness.Text(t, tool, "_meta", "ui/resourceUri") != uri {
				t.Errorf("the tool's page is %s", tool)
			}
			if harness.Text(t, tool, "_meta", "z") != "ui://clock/face" || harness.Member(tool, "_meta", "ui", "x") != "1.0" ||
				harness.Member(tool, "_meta", "ui", "visibility") != `["model","app"]` {
				t.Errorf("what is no URI of the page was changed: %s", tool)
			}
			list, err := raw.Get(c.Must(t, "resources/read", `"uri":"`+uri+`"`), "contents")
			want := strings.Replace(strings.Replace(uiPage, "tick", "tick of "+name, 1), `"uri":"ui://clock/face"`,
				`"uri":"`+uri+`"`, 1)
			if err != nil || string(list) != want {
				t.Errorf("contents = %s\nwant       %s", list, want)
			}
			if got := harness.Text(t, ups[name].RequestsOf(t, "resources/read", 1)[0].Message.Params,
				"uri"); got != "ui://clock/face" {
				t.Errorf("%s was asked for %s", name, got)
			}
			capabilities := harness.Member(c.Succeed(t, name+"__capabilities", `{}`), "structuredContent", "capabilities")
			harness.WantJSON(t, "capabilities", []byte(capabilities),
				`{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}`)
		}
		simple := harness.TalkAs(t, j.URL, p.Client, "2025-11-25", `{}`)
		if got := harness.Member(simple.Succeed(t, "a__capabilities", `{}`), "structuredContent",
			"capabilities"); got != `{}` {
			t.Errorf("of a client that shows no apps the upstream heard %s", got)
		}
	})
}

func TestAppToolsAreForClientsWithApps(t *testing.T) {
	harness.Waits(t)
	for _, appTools := range []*bool{nil, new(false), new(true)} {
		harness.EachEra(t, func(t *testing.T, p harness.Pair) {
			s := p.Serve(t, app("up"))
			j := harness.Start(t, p,
				harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Names: view.Names{AppTools: appTools}})
			j.Offers(t, "up")
			for _, capabilities := range []string{`{}`, uiCaps} {
				c := harness.TalkAs(t, j.URL, p.Client, "2025-11-25", capabilities)
				offered := capabilities == uiCaps
				if appTools != nil {
					offered = *appTools
				}
				if got := slices.Contains(c.Names(t), "up__tick"); got != offered {
					t.Errorf("a client with %s sees the tool: %t, want %t", capabilities, got, offered)
				}
				for _, name := range []string{"up__tick", "tick"} { // the second is what the page has in it
					if m := c.Call(t, name, `{}`); (m.Error == nil) != offered {
						t.Errorf("a client with %s calls %s and reads %s", capabilities, name, m.Append(nil))
					} else if !offered {
						harness.WantCode(t, m, -32602)
					}
				}
			}
			bare := j.TalkTo(t, "/up")
			if got := bare.Names(t); !slices.Equal(got, []string{"clock", "tick", "capabilities"}) {
				t.Errorf("on the upstream's own endpoint there are %q", got)
			}
			bare.Succeed(t, "tick", `{}`)
			list, _ := raw.Get(bare.Must(t, "resources/read", `"uri":"ui://clock/face"`), "contents")
			if want := strings.Replace(uiPage, "tick", "tick of up", 1); string(list) != want {
				t.Errorf("contents = %s\nwant       %s", list, want)
			}
		})
	}
}

// TestAppCallsToolsByTheirOwnNames has the page of an app call a tool by the name that its upstream
// knows it by.
func TestAppCallsToolsByTheirOwnNames(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		ups, j := twins(t, p, func(name string) upstreamtest.Script {
			return upstreamtest.Script{Tools: harness.Definitions("only-"+name, "both")}
		})
		c := j.Talk(t)
		c.Succeed(t, "only-b", `{}`)
		if got := harness.Text(t, harness.CallsOf(t, ups["b"].Journal, 1)[0].Message.Params, "name"); got != "only-b" {
			t.Errorf("b was called %s", got)
		}
		harness.WantCode(t, c.Call(t, "both", `{}`), -32602)
		if n := len(harness.CallsOf(t, ups["a"].Journal, 0)); n > 0 {
			t.Errorf("a was called %d times", n)
		}
	})
}
