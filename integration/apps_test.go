package integration

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"junction/proxy"
	"junction/upstream"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// MCP Apps (io.modelcontextprotocol/ui) through the proxy: protocol.md §4.6.

const (
	uiMeta  = `"_meta":{"ui":{"csp":{"connectDomains":["https://api.example.com"],"x":1.0},"permissions":{"camera":{}},"domain":"d","prefersBorder":true}}`
	uiPage  = `[{"uri":"ui://clock/face","mimeType":"text/html;profile=mcp-app","text":"<script>call(\"tick\",\"ui:\/\/clock/face\")</script>",` + uiMeta + `}]`
	uiCaps  = `{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]},"vendor/x":{}}}`
	uiTools = `{"name":"clock","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://clock/face","visibility":["model","app"],"x":1.0},"ui/resourceUri":"ui://clock/face","z":"ui://clock/face"}}`
	uiTick  = `{"name":"tick","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://clock/face","visibility":["app"]}}}`
)

func app(name string) upstreamtest.Script {
	return upstreamtest.Script{
		Tools: toolTexts(uiTools, uiTick, `{"name":"capabilities","inputSchema":{"type":"object"}}`), Resources: []json.RawMessage{},
		Contents: map[string]json.RawMessage{"ui://clock/face": []byte(strings.Replace(uiPage, "tick", "tick of "+name, 1))},
	}
}

func TestProtocolT110AppIsReadable(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		ups, j := twins(t, p, app) // both have the same URI
		c := talkAs(t, j.url, p.client, "2025-11-25", uiCaps)
		for _, name := range []string{"a", "b"} {
			tools, _ := c.list(t, "")
			var tool []byte
			for _, d := range tools {
				if text(t, d, "name") == name+"__clock" {
					tool = d
				}
			}
			uri := text(t, tool, "_meta", "ui", "resourceUri")
			if uri != "ui://"+name+"/clock/face" || text(t, tool, "_meta", "ui/resourceUri") != uri {
				t.Errorf("the tool's page is %s", tool)
			}
			if text(t, tool, "_meta", "z") != "ui://clock/face" || member(tool, "_meta", "ui", "x") != "1.0" || member(tool, "_meta", "ui", "visibility") != `["model","app"]` {
				t.Errorf("what is no URI of the page was changed: %s", tool)
			}
			list, err := raw.Get(c.must(t, "resources/read", `"uri":"`+uri+`"`), "contents")
			want := strings.Replace(strings.Replace(uiPage, "tick", "tick of "+name, 1), `"uri":"ui://clock/face"`, `"uri":"`+uri+`"`, 1)
			if err != nil || string(list) != want {
				t.Errorf("contents = %s\nwant       %s", list, want)
			}
			if got := text(t, ups[name].requestsOf(t, "resources/read", 1)[0].Message.Params, "uri"); got != "ui://clock/face" {
				t.Errorf("%s was asked for %s", name, got)
			}
			capabilities := member(c.succeed(t, name+"__capabilities", `{}`), "structuredContent", "capabilities")
			wantJSON(t, "capabilities", []byte(capabilities), `{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}`)
		}
		simple := talkAs(t, j.url, p.client, "2025-11-25", `{}`)
		if got := member(simple.succeed(t, "a__capabilities", `{}`), "structuredContent", "capabilities"); got != `{}` {
			t.Errorf("of a client that shows no apps the upstream heard %s", got)
		}
	})
}

func TestForeignProtocolT110ToolsOfTheAppAlone(t *testing.T) {
	for _, appTools := range []*bool{nil, new(false), new(true)} {
		eachEra(t, func(t *testing.T, p pair) {
			s := p.serve(t, app("up"))
			j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}, names: proxy.Names{AppTools: appTools}})
			j.offers(t, "up")
			for _, capabilities := range []string{`{}`, uiCaps} {
				c := talkAs(t, j.url, p.client, "2025-11-25", capabilities)
				offered := capabilities == uiCaps
				if appTools != nil {
					offered = *appTools
				}
				if got := slices.Contains(c.names(t), "up__tick"); got != offered {
					t.Errorf("a client with %s sees the tool: %t, want %t", capabilities, got, offered)
				}
				for _, name := range []string{"up__tick", "tick"} { // the second is what the page has in it
					if m := c.call(t, name, `{}`); (m.Error == nil) != offered {
						t.Errorf("a client with %s calls %s and reads %s", capabilities, name, m.Append(nil))
					} else if !offered {
						wantCode(t, m, -32602)
					}
				}
			}
			bare := j.talkTo(t, "/up")
			if got := bare.names(t); !slices.Equal(got, []string{"clock", "tick", "capabilities"}) {
				t.Errorf("on the upstream's own endpoint there are %q", got)
			}
			bare.succeed(t, "tick", `{}`)
			list, _ := raw.Get(bare.must(t, "resources/read", `"uri":"ui://clock/face"`), "contents")
			if want := strings.Replace(uiPage, "tick", "tick of up", 1); string(list) != want {
				t.Errorf("contents = %s\nwant       %s", list, want)
			}
		})
	}
}

// TestProtocolT110NamesInThePage has the page of an app call a tool by the name that its upstream
// knows it by.
func TestProtocolT110NamesInThePage(t *testing.T) {
	eachEra(t, func(t *testing.T, p pair) {
		ups, j := twins(t, p, func(name string) upstreamtest.Script {
			return upstreamtest.Script{Tools: definitions("only-"+name, "both")}
		})
		c := j.talk(t)
		c.succeed(t, "only-b", `{}`)
		if got := text(t, callsOf(t, ups["b"].Journal, 1)[0].Message.Params, "name"); got != "only-b" {
			t.Errorf("b was called %s", got)
		}
		wantCode(t, c.call(t, "both", `{}`), -32602)
		if n := len(callsOf(t, ups["a"].Journal, 0)); n > 0 {
			t.Errorf("a was called %d times", n)
		}
	})
}
