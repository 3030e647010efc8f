package protocol

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// Resources, templates and completion. The exact texts of everything renamed are in kinds_test.go.

// twins starts a junction over two upstreams, a and b, that serve scripts which differ in nothing
// but who they are.
func twins(t *testing.T, p harness.Pair, script func(name string) upstreamtest.Script) (map[string]*harness.Served,
	*harness.Junction) {
	t.Helper()
	ups, configs := map[string]*harness.Served{}, map[string]upstream.Config{}
	for _, name := range []string{"a", "b"} {
		ups[name] = p.Serve(t, script(name))
		configs[name] = harness.Exact(ups[name].Config)
	}
	j := harness.Start(t, p, harness.Setup{Upstreams: configs})
	j.Offers(t, "a", "b")
	return ups, j
}

// textContents is the contents of a resource that is one text.
func textContents(uri, text string) json.RawMessage {
	return fmt.Appendf(nil, `[{"uri":%s,"text":%s,"x":1.0}]`, raw.Quote(uri), raw.Quote(text))
}

func TestUnlistedLinksAreReadable(t *testing.T) {
	harness.Waits(t)
	const odd = "file:///deep/ü%20b?q=a/../b#f"
	result := fmt.Sprintf(
		`{"content":[{"type":"resource_link","uri":%[1]q,"name":"n","x":1.0},{"type":"text","text":%[1]q},`+
			`{"type":"resource","resource":{"uri":"note:1","text":"t","_meta":{"k":1.0}}}],"structuredContent":{"uri":%[1]q}}`,
		odd)
	prompt := fmt.Sprintf(`{"messages":[{"role":"user","content":{"type":"resource_link","uri":%q,"name":"n"}}]}`, odd)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		ups, j := twins(t, p, func(name string) upstreamtest.Script {
			return upstreamtest.Script{
				Prompts: []json.RawMessage{[]byte(`{"name":"p"}`)}, Messages: map[string]json.RawMessage{"p": []byte(prompt)},
				Resources: []json.RawMessage{},
				Contents: map[string]json.RawMessage{odd: textContents(odd, "odd of "+name),
					"note:1": textContents("note:1", "note of "+name)},
			}
		})
		c := j.Talk(t)
		for _, name := range []string{"a", "b"} {
			got := c.Succeed(t, name+"__echo", `{"result":`+result+`}`)
			list, _ := raw.Get(got, "content")
			blocks, err := raw.Elements(list)
			if err != nil || len(blocks) != 3 {
				t.Fatalf("result = %s", got)
			}
			if harness.Member(blocks[1], "text") != string(raw.Quote(odd)) ||
				harness.Member(got, "structuredContent", "uri") != string(raw.Quote(odd)) {
				t.Errorf("a URI in a text was changed: %s", got)
			}
			message := c.Must(t, "prompts/get", `"name":"`+name+`__p"`)
			messages, _ := raw.Get(message, "messages")
			first, _ := raw.Elements(messages)
			for i, row := range []struct{ exposed, own, want string }{
				{harness.Text(t, blocks[0], "uri"), odd, "odd of " + name},
				{harness.Text(t, blocks[2], "resource", "uri"), "note:1", "note of " + name},
				{harness.Text(t, first[0], "content", "uri"), odd, "odd of " + name},
			} {
				if row.exposed != "mcp://"+name+"/"+row.own {
					t.Errorf("exposed %s, want %s under the name of %s", row.exposed, row.own, name)
				}
				uri, content := c.Read(t, row.exposed)
				if content != row.want || uri != row.exposed {
					t.Errorf("read %s = %s of %s, want %s", row.exposed, content, uri, row.want)
				}
				reads := ups[name].RequestsOf(t, "resources/read", i+1)
				if got := harness.Text(t, reads[i].Message.Params, "uri"); got != row.own {
					t.Errorf("%s was asked for %s, want %s", name, got, row.own)
				}
			}
		}
		bare := j.TalkTo(t, "/a")
		if got := string(bare.Succeed(t, "echo", `{"result":`+result+`}`)); !strings.HasPrefix(got,
			strings.TrimSuffix(result, "}")) {
			t.Errorf("on the upstream's own endpoint %s\nwant %s", got, result)
		}
		if uri, content := bare.Read(t, odd); uri != odd || content != "odd of a" {
			t.Errorf("read of %s = %s of %s", odd, content, uri)
		}
	})
}

func TestOneURIOfTwoUpstreams(t *testing.T) {
	harness.Waits(t)
	const web = "https://example.com/x"
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		ups, j := twins(t, p, func(name string) upstreamtest.Script {
			own := "https://example.com/" + name
			return upstreamtest.Script{
				Resources: []json.RawMessage{[]byte(`{"uri":"file:///x","name":"x","y":1.0}`),
					[]byte(`{"uri":"` + web + `","name":"w"}`), []byte(`{"uri":"` + own + `","name":"o"}`)},
				Contents: map[string]json.RawMessage{
					"file:///x": []byte(`[{"uri":"file:///x","text":"of ` + name + `"},{"uri":"file:///x/part","text":"part"}]`),
					web:         textContents(web, "web of "+name), own: textContents(own, "own of "+name),
				},
			}
		})
		c := j.Talk(t)
		list, err := raw.Get(c.Must(t, "resources/list", ``), "resources")
		if err != nil {
			t.Fatal(err)
		}
		items, _ := raw.Elements(list)
		seen := map[string]bool{}
		for _, item := range items {
			uri := harness.Text(t, item, "uri")
			if seen[uri] {
				t.Errorf("%s is listed twice: %s", uri, list)
			}
			seen[uri] = true
		}
		for _, name := range []string{"a", "b"} {
			exposed := "mcp://" + name + "/file:///x"
			if !seen[exposed] || !seen["https://example.com/"+name] {
				t.Errorf("listed %s, want %s and the upstream's page", list, exposed)
			}
			result := c.Must(t, "resources/read", `"uri":"`+exposed+`"`)
			contents, _ := raw.Get(result, "contents")
			want := `[{"uri":"` + exposed + `","text":"of ` + name + `"},{"uri":"` + exposed + `/part","text":"part"}]`
			if string(contents) != want {
				t.Errorf("contents = %s\nwant       %s", contents, want)
			}
			if uri, content := c.Read(t, "https://example.com/"+name); content != "own of "+name ||
				uri != "https://example.com/"+name {
				t.Errorf("the page of %s = %s of %s", name, content, uri)
			}
		}
		before := len(ups["a"].RequestsOf(t, "resources/read", 2)) + len(ups["b"].RequestsOf(t, "resources/read", 2))
		for _, uri := range []string{web, "file:///x"} { // either could have it
			m := c.Ask(t, "resources/read", `"uri":"`+uri+`"`)
			if harness.WantCode(t, m, -32602); m.Error != nil && !strings.Contains(m.Error.Message, "a") {
				t.Errorf("%s does not say whose it could be", m.Error.Message)
			}
		}
		c.Succeed(t, "a__echo", `{}`)
		c.Succeed(t, "b__echo", `{}`)
		harness.CallsOf(t, ups["a"].Journal, 1) // which come after
		harness.CallsOf(t, ups["b"].Journal, 1)
		if after := len(ups["a"].RequestsOf(t, "resources/read", 0)) +
			len(ups["b"].RequestsOf(t, "resources/read", 0)); after != before {
			t.Error("a resource with two owners was read from one of them")
		}
	})
}

func TestExpandedTemplateReachesItsUpstream(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		ups, j := twins(t, p, func(string) upstreamtest.Script {
			return upstreamtest.Script{
				Templates: []json.RawMessage{[]byte(`{"uriTemplate":"file:///{path}","name":"f","x":1.0}`),
					[]byte(`{"uriTemplate":"db://{+host}/{table}{?q*}","name":"d"}`)}}
		})
		c := j.Talk(t)
		list, err := raw.Get(c.Must(t, "resources/templates/list", ``), "resourceTemplates")
		if err != nil {
			t.Fatal(err)
		}
		items, _ := raw.Elements(list)
		var templates []string
		for _, item := range items {
			templates = append(templates, harness.Text(t, item, "uriTemplate"))
		}
		if want := []string{"mcp://a/file:///{path}", "mcp://a/db://{+host}/{table}{?q*}", "mcp://b/file:///{path}",
			"mcp://b/db://{+host}/{table}{?q*}"}; !slices.Equal(templates, want) {
			t.Fatalf("templates = %q, want %q", templates, want)
		}
		for i, expanded := range []string{"file:///a%20b%2Fc", "file:///", "file:///%C3%BC%25", "db://u:p@h:1/t?q=1&q=%20",
			"file:///mcp://a/x"} {
			exposed := "mcp://b/" + expanded
			uri, content := c.Read(t, exposed)
			if content != "content of "+expanded || uri != exposed {
				t.Errorf("read %s = %s of %s", exposed, content, uri)
			}
			reads := ups["b"].RequestsOf(t, "resources/read", i+1)
			if got := harness.Text(t, reads[i].Message.Params, "uri"); got != expanded {
				t.Errorf("b was asked for %s, want %s", got, expanded)
			}
		}
		if n := len(ups["a"].RequestsOf(t, "resources/read", 0)); n > 0 {
			t.Errorf("a was asked %d times for what is b's", n)
		}
	})
}

func TestCompletionReachesItsUpstream(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		const completed = `{"values":["é","\u00e9"],"total":7.0,"hasMore":true,"x":1E2}`
		ups, j := twins(t, p, func(name string) upstreamtest.Script {
			s := upstreamtest.Script{
				Prompts:   []json.RawMessage{[]byte(`{"name":"p","arguments":[{"name":"x"}]}`)},
				Templates: []json.RawMessage{[]byte(`{"uriTemplate":"file:///{path}","name":"f"}`)},
			}
			if name == "a" { // the other completes nothing
				s.Completions = map[string]json.RawMessage{"p": []byte(completed), "file:///{path}": []byte(completed),
					"file:///x": []byte(completed)}
			}
			return s
		})
		c := j.Talk(t)
		const argument = `"argument":{"name":"x","value":"v \u00e9"},"context":{"arguments":{"y":"1"}}`
		for i, row := range []struct{ ref, own string }{
			{`{"type":"ref/prompt","name":"a__p","title":"T"}`, `{"type":"ref/prompt","name":"p","title":"T"}`},
			{`{"type":"ref/resource","uri":"mcp://a/file:///{path}"}`, `{"type":"ref/resource","uri":"file:///{path}"}`},
			{`{"type":"ref/resource","uri":"mcp://a/file:///x"}`, `{"type":"ref/resource","uri":"file:///x"}`},
		} {
			result := c.Must(t, "completion/complete", `"ref":`+row.ref+`,`+argument)
			want := completed
			if p.Transport == "stdio" {
				want = string(harness.Member([]byte(`{"c":`+completed+`}`), "c"))
			}
			if got := harness.Member(result, "completion"); got != want {
				t.Errorf("completion of %s = %s, want %s", row.ref, got, want)
			}
			params := ups["a"].RequestsOf(t, "completion/complete", i+1)[i].Message.Params
			if got := harness.Member(params, "ref"); got != row.own {
				t.Errorf("the upstream was asked about %s, want %s", got, row.own)
			}
			if got := string(params); !strings.Contains(got, argument) {
				t.Errorf("the upstream got %s, want %s in it", got, argument)
			}
		}
		for _, ref := range []string{`{"type":"ref/prompt","name":"b__p"}`,
			`{"type":"ref/resource","uri":"mcp://b/file:///{path}"}`} {
			result := c.Must(t, "completion/complete", `"ref":`+ref+`,`+argument)
			if got := harness.Member(result, "completion", "values"); got != `[]` {
				t.Errorf("completion of %s = %s, want nothing", ref, result)
			}
		}
		for _, ref := range []string{`{"type":"ref/prompt","name":"a__nothing"}`, `{"type":"ref/prompt","name":"p"}`,
			`{"type":"ref/resource","uri":"mcp://nobody/x"}`, `{"type":"ref/x"}`, `{}`} {
			harness.WantCode(t, c.Ask(t, "completion/complete", `"ref":`+ref+`,`+argument), -32602)
		}
		if p.Client == client.EraLegacy && p.Upstream == client.EraLegacy {
			return // the other is asked, although it declares nothing
		}
		for _, r := range ups["b"].RequestsOf(t, "completion/complete", 0) {
			t.Errorf("the upstream that completes nothing got %s", r.Body)
		}
	})
}

func TestCompletionOfNoUpstream(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		_, j := harness.Over(t, p, upstreamtest.Script{Prompts: []json.RawMessage{[]byte(`{"name":"p"}`)}}, nil)
		m := j.Talk(t).Ask(t, "completion/complete",
			`"ref":{"type":"ref/prompt","name":"up__p"},"argument":{"name":"x","value":""}`)
		if m.Error == nil && harness.Member(m.Result, "completion", "values") != `[]` ||
			m.Error != nil && m.Error.Code != -32601 {
			t.Errorf("got %s, want nothing completed, or no such method", m.Append(nil))
		}
	})
}

// notFound is the code for a resource that is not there: the modern era has none of its own.
func notFound(clientEra client.Era) int64 {
	if clientEra == client.EraModern {
		return -32602
	}
	return -32002
}

func TestMissingResource(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		ups, j := twins(t, p, func(string) upstreamtest.Script { return upstreamtest.Script{Resources: []json.RawMessage{}} })
		c := j.Talk(t)
		check := func(c *harness.Talker, uri string, code int64) {
			t.Helper()
			a := c.Begin(t, harness.Query{Method: "resources/read", Params: `"uri":"` + uri + `"`})
			m := a.Answer(t)
			if harness.WantCode(t, m, code); m.Error == nil {
				return
			}
			if a.Status != 200 {
				t.Errorf("%s: status %d, want 200", uri, a.Status)
			}
			if len(m.Error.Data) > 0 && harness.Text(t, m.Error.Data, "uri") != uri {
				t.Errorf("%s: data %s", uri, m.Error.Data)
			}
		}
		code := notFound(p.Client)
		if p.Upstream == client.EraModern { // whose word for it is one of many
			code = -32602
		}
		check(c, "mcp://a/file:///nothing", code)
		check(j.TalkTo(t, "/a"), "file:///nothing", code)
		if n := len(ups["a"].RequestsOf(t, "resources/read", 2)); n != 2 {
			t.Errorf("the upstream was asked %d times, want twice", n)
		}
		if m := c.Ask(t, "resources/read", `"uri":"mcp://nobody/file:///x"`); m.Error == nil ||
			m.Error.Code != -32602 && m.Error.Code != notFound(p.Client) {
			t.Errorf("got %s for a URI of no upstream, want that it is not there", m.Append(nil))
		}
		for name, s := range ups {
			if n := len(s.RequestsOf(t, "resources/read", 0)); n > map[string]int{"a": 2}[name] {
				t.Errorf("%s was asked for a URI of no upstream", name)
			}
		}
	})
}

func TestUnknownPrompt(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s, j := harness.Over(t, p,
			upstreamtest.Script{Prompts: []json.RawMessage{[]byte(`{"name":"p"}`), []byte(`{"name":"gone"}`)},
				Rules: []upstreamtest.Rule{
					{Method: "prompts/get", Times: 1, Error: []byte(`{"code":-32602,"message":"missing argument","data":{"x":1.0}}`)},
				}}, nil)
		c := j.Talk(t)
		for _, name := range []string{"up__nothing", "nothing", "UP__p", ""} {
			harness.WantCode(t, c.Ask(t, "prompts/get", `"name":"`+name+`"`), -32602)
		}
		if n := len(s.RequestsOf(t, "prompts/get", 0)); n > 0 {
			t.Errorf("the upstream was asked %d times for prompts that it does not have", n)
		}
		m := c.Ask(t, "prompts/get", `"name":"up__p"`)
		if m.Error == nil || string(m.Error.Append(nil)) != `{"code":-32602,"message":"missing argument","data":{"x":1.0}}` {
			t.Errorf("got %s, want the upstream's own error", m.Append(nil))
		}
		if got := harness.Member(c.Must(t, "prompts/get", `"name":"up__p","arguments":{"a":"b"}`),
			"messages"); got != `[{"role":"user","content":{"type":"text","text":"{\"a\":\"b\"}"}}]` {
			t.Errorf("messages = %s", got)
		}
	})
}

// TestNameHeaderOfAURI has the header Mcp-Name of a read, toward us and from us.
func TestNameHeaderOfAURI(t *testing.T) {
	harness.Waits(t)
	p := harness.Pair{Client: client.EraModern, Upstream: client.EraModern, Transport: "http"}
	s, j := harness.Over(t, p,
		upstreamtest.Script{Templates: []json.RawMessage{[]byte(`{"uriTemplate":"file:///{path}","name":"f"}`)}}, nil)
	c := j.Talk(t)
	for own, header := range map[string]string{"file:///x": "file:///x", "file:///ü y": "=?base64?ZmlsZTovLy/DvCB5?="} {
		if _, content := c.Read(t, "mcp://up/"+own); content != "content of "+own {
			t.Errorf("read %s = %s", own, content)
		}
		reads := s.RequestsOf(t, "resources/read", 1)
		if got := reads[len(reads)-1].Header.Get("Mcp-Name"); got != header {
			t.Errorf("Mcp-Name of %s = %q, want %q", own, got, header)
		}
	}
}
