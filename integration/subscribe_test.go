package integration

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"junction/proxy"
	"junction/upstream"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// The assertions of protocol.md §6.5 about resources and the lists other than that of tools, and
// about legacy clients.

// library is a server with a resource, a template and a prompt.
func library(string) upstreamtest.Script {
	return upstreamtest.Script{
		Prompts: []json.RawMessage{[]byte(`{"name":"p"}`)}, Resources: []json.RawMessage{[]byte(`{"uri":"file:///dir","name":"d"}`)},
		Templates: []json.RawMessage{[]byte(`{"uriTemplate":"file:///{path}","name":"f"}`)},
	}
}

// hears takes so many notifications of a stream, in any order, and compares them: each is the
// method and the uri, if it has one.
func hears(t *testing.T, a *answering, want ...string) {
	t.Helper()
	var got []string
	for range want {
		m, ok := a.next(t)
		if !ok {
			t.Fatalf("the stream ended after %q, want %q", got, want)
		}
		if a.id != "" && member(m.Params, "_meta", "io.modelcontextprotocol/subscriptionId") != a.id {
			t.Errorf("%s on the subscription %s", m.Append(nil), a.id)
		}
		note := strings.TrimPrefix(m.Method, "notifications/")
		if uri, err := raw.Get(m.Params, "uri"); len(m.Params) > 0 && err == nil {
			s, _ := raw.String(uri)
			note += " " + s
		}
		got = append(got, note)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("heard %q, want %q", got, want)
	}
}

// silent ends the proxy's streams, and wants nothing more to have been on them.
func silent(t *testing.T, j *junction, streams ...*answering) {
	t.Helper()
	j.server.Shutdown()
	for _, a := range streams {
		for {
			m, ok := a.next(t)
			if !ok {
				break
			}
			if !m.IsResponse() {
				t.Errorf("the stream %q has further %s", a.id, m.Append(nil))
			}
		}
	}
}

// subscriptions counts what a legacy upstream was asked to subscribe to and to unsubscribe from, by
// its own URI.
func subscriptions(t *testing.T, s *served, method string) map[string]int {
	t.Helper()
	count := map[string]int{}
	for _, r := range s.requestsOf(t, method, 0) {
		uri, _ := raw.Get(r.Message.Params, "uri")
		name, _ := raw.String(uri)
		count[name]++
	}
	return count
}

// subscribed waits until the upstream was asked to tell of a resource.
func subscribed(t *testing.T, s *served, p pair, uri string) {
	t.Helper()
	quoted := string(raw.Quote(uri))
	await(t, s.Journal, "subscription to "+uri, func(r upstreamtest.Record) bool {
		if r.Verb == "CLOSE" {
			return false
		}
		return r.Message.Method == "resources/subscribe" && member(r.Message.Params, "uri") == quoted ||
			r.Message.Method == "subscriptions/listen" && strings.Contains(member(r.Message.Params, "notifications", "resourceSubscriptions"), quoted)
	})
}

func TestProtocolT91EachListIsToldOfByItself(t *testing.T) {
	for _, up := range eras {
		eachWire(t, pair{upstream.EraModern, up, ""}, func(t *testing.T, p pair) {
			s, j := over(t, p, library("up"), nil)
			s.listened(t, p)
			c := j.talk(t)
			tools, _ := subscribe(t, c, `1`, `{"toolsListChanged":true}`)
			prompts, honoured := subscribe(t, c, `"p"`, `{"promptsListChanged":true,"toolsListChanged":false}`)
			if honoured != `{"promptsListChanged":true}` {
				t.Errorf("acknowledged %s", honoured)
			}
			resources, honoured := subscribe(t, c, `"r"`, `{"resourcesListChanged":true}`)
			if honoured != `{"resourcesListChanged":true}` {
				t.Errorf("acknowledged %s", honoured)
			}
			all, _ := subscribe(t, c, `"a"`, `{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}`)
			s.set(t, "prompts/list", []json.RawMessage{[]byte(`{"name":"q"}`)})
			hears(t, prompts, "prompts/list_changed")
			hears(t, all, "prompts/list_changed")
			if got := string(c.must(t, "prompts/list", ``)); !strings.Contains(got, "up__q") {
				t.Errorf("after the change the prompts are %s", got)
			}
			s.set(t, "tools/list", definitions("new"))
			s.set(t, "resources/templates/list", []json.RawMessage{[]byte(`{"uriTemplate":"x:{a}","name":"x"}`)})
			hears(t, resources, "resources/list_changed")
			hears(t, tools, "tools/list_changed")
			hears(t, all, "resources/list_changed", "tools/list_changed")
			if got := string(c.must(t, "resources/templates/list", ``)); !strings.Contains(got, "mcp://up/x:{a}") {
				t.Errorf("after the change the templates are %s", got)
			}
			silent(t, j, tools, prompts, resources, all)
		})
	}
}

func TestProtocolT92OnlyWhatCanBeSubscribed(t *testing.T) {
	for _, up := range eras {
		eachWire(t, pair{upstream.EraModern, up, ""}, func(t *testing.T, p pair) {
			ups, j := twins(t, p, func(name string) upstreamtest.Script {
				script := library(name)
				script.NoSubscribe = name == "b"
				return script
			})
			c := j.talk(t)
			a, honoured := subscribe(t, c, `"L"`, `{"resourceSubscriptions":["mcp://a/file:///dir","mcp://b/file:///dir","mcp://nobody/file:///dir","mcp://a/file:///not/listed"]}`)
			wantJSON(t, "acknowledged", []byte(honoured), `{"resourceSubscriptions":["mcp://a/file:///dir","mcp://a/file:///not/listed"]}`)
			subscribed(t, ups["a"], p, "file:///dir")
			_, honoured = subscribe(t, c, `"M"`, `{"resourceSubscriptions":["mcp://b/file:///dir"],"toolsListChanged":true}`)
			if got := member([]byte(honoured), "resourceSubscriptions"); got != "" && got != "[]" || member([]byte(honoured), "toolsListChanged") != "true" {
				t.Errorf("acknowledged %s, want changes of tools alone", honoured)
			}
			ups["a"].updated(t, "file:///dir")
			hears(t, a, "resources/updated mcp://a/file:///dir")
			if n := len(ups["b"].requestsOf(t, "resources/subscribe", 0)); n > 0 {
				t.Errorf("b, which tells of nothing, was asked %d times to", n)
			}
			bare := j.talkTo(t, "/a")
			own, honoured := subscribe(t, bare, `"B"`, `{"resourceSubscriptions":["file:///dir"]}`)
			wantJSON(t, "acknowledged on the upstream's own endpoint", []byte(honoured), `{"resourceSubscriptions":["file:///dir"]}`)
			ups["a"].updated(t, "file:///dir")
			hears(t, own, "resources/updated file:///dir")
		})
	}
}

func TestProtocolT93OverlappingSubscriptions(t *testing.T) {
	for _, up := range eras {
		eachWire(t, pair{upstream.EraModern, up, ""}, func(t *testing.T, p pair) {
			s, j := over(t, p, library("up"), nil)
			c := j.talk(t)
			if p.upstream == upstream.EraLegacy {
				s.listened(t, p) // when its stream begins, all that was subscribed to before may have changed
			}
			one, _ := subscribe(t, c, `"1"`, `{"resourceSubscriptions":["mcp://up/file:///a"]}`)
			two, _ := subscribe(t, c, `2`, `{"resourceSubscriptions":["mcp://up/file:///b","mcp://up/file:///a"]}`)
			three, _ := subscribe(t, j.talk(t), `2`, `{"resourceSubscriptions":["mcp://up/file:///a"]}`) // of another client
			follows(t, s, p, "file:///a", "file:///b")
			s.updated(t, "file:///a")
			for _, a := range []*answering{one, two, three} {
				hears(t, a, "resources/updated mcp://up/file:///a")
			}
			s.updated(t, "file:///b")
			hears(t, two, "resources/updated mcp://up/file:///b")
			one.drop()
			three.drop()
			c.succeed(t, "up__echo", `{}`)
			s.updated(t, "file:///a") // there is one left who hears
			hears(t, two, "resources/updated mcp://up/file:///a")
			if p.upstream == upstream.EraModern {
				two.drop()
				follows(t, s, p)
				return
			}
			if got := subscriptions(t, s, "resources/subscribe"); got["file:///a"] != 1 || got["file:///b"] != 1 {
				t.Errorf("subscribed upstream %v times, want each once", got)
			}
			if got := subscriptions(t, s, "resources/unsubscribe"); len(got) > 0 {
				t.Errorf("unsubscribed %v although somebody hears", got)
			}
			two.drop()
			for _, uri := range []string{"file:///a", "file:///b"} {
				await(t, s.Journal, "unsubscription from "+uri, func(r upstreamtest.Record) bool {
					return r.Message.Method == "resources/unsubscribe" && member(r.Message.Params, "uri") == string(raw.Quote(uri))
				})
			}
			if got := subscriptions(t, s, "resources/unsubscribe"); got["file:///a"] != 1 || got["file:///b"] != 1 {
				t.Errorf("unsubscribed upstream %v times, want each once", got)
			}
		})
	}
}

// follows waits until a modern upstream has subscriptions open to these resources, and to no
// others. Over HTTP they are one, in this order: the one before it is open for a moment longer, and
// both tell the same. Of a legacy upstream it waits until all were subscribed to.
func follows(t *testing.T, s *served, p pair, uris ...string) {
	t.Helper()
	if p.upstream == upstream.EraLegacy {
		for _, uri := range uris {
			subscribed(t, s, p, uri)
		}
		return
	}
	open := map[jsonrpc.ID][]string{}
	past := len(s.Received())
	await(t, s.Journal, fmt.Sprintf("subscriptions to %q alone", uris), func(r upstreamtest.Record) bool {
		switch {
		case r.Verb == "CLOSE":
			delete(open, r.Message.ID)
		case r.Message.Method == "notifications/cancelled":
			delete(open, jsonrpc.ID(member(r.Message.Params, "requestId")))
		case r.Message.Method == "subscriptions/listen":
			var list []string
			if err := json.Unmarshal([]byte(cmp.Or(member(r.Message.Params, "notifications", "resourceSubscriptions"), "[]")), &list); err != nil {
				t.Error(err)
			} else if len(list) > 0 {
				open[r.Message.ID] = list
			}
		}
		if past--; past > 0 {
			return false
		}
		var all []string
		for _, list := range open {
			all = append(all, list...)
		}
		if p.wire == "stdio" {
			slices.Sort(all)
		}
		return slices.Equal(all, uris) && (p.wire == "stdio" || len(open) <= 1)
	})
}

func TestProtocolT94UpdatesFindTheirSubscribers(t *testing.T) {
	for _, up := range eras {
		eachWire(t, pair{upstream.EraModern, up, ""}, func(t *testing.T, p pair) {
			ups, j := twins(t, p, library)
			if p.upstream == upstream.EraLegacy {
				for _, s := range ups {
					s.listened(t, p) // when its stream begins, all that was subscribed to before may have changed
				}
			}
			c := j.talk(t)
			dir, _ := subscribe(t, c, `"dir"`, `{"resourceSubscriptions":["mcp://a/file:///dir"]}`)
			part, _ := subscribe(t, c, `"part"`, `{"resourceSubscriptions":["mcp://a/file:///dir/x"]}`)
			other, _ := subscribe(t, c, `"other"`, `{"resourceSubscriptions":["mcp://a/file:///dirt","mcp://b/file:///dir/x"]}`)
			follows(t, ups["a"], p, "file:///dir", "file:///dir/x", "file:///dirt")
			follows(t, ups["b"], p, "file:///dir/x")
			ups["a"].updated(t, "file:///dir/x")
			hears(t, dir, "resources/updated mcp://a/file:///dir/x")
			hears(t, part, "resources/updated mcp://a/file:///dir/x")
			ups["a"].updated(t, "file:///dir")
			hears(t, dir, "resources/updated mcp://a/file:///dir")
			ups["b"].updated(t, "file:///dir/x")
			hears(t, other, "resources/updated mcp://b/file:///dir/x")
			ups["a"].updated(t, "file:///dirt")
			hears(t, other, "resources/updated mcp://a/file:///dirt")
			silent(t, j, dir, part, other)
		})
	}
}

// TestProtocolT94UpdateThatFitsNobody has a legacy server tell of a URI that only it knows to be a
// part of another: all who have subscribed to something of its are told.
func TestProtocolT94UpdateThatFitsNobody(t *testing.T) {
	eachWire(t, pair{upstream.EraModern, upstream.EraLegacy, ""}, func(t *testing.T, p pair) {
		ups, j := twins(t, p, library)
		ups["a"].listened(t, p) // when its stream begins, all that was subscribed to before may have changed
		c := j.talk(t)
		one, _ := subscribe(t, c, `1`, `{"resourceSubscriptions":["mcp://a/file:///x"]}`)
		two, _ := subscribe(t, c, `2`, `{"resourceSubscriptions":["mcp://a/file:///y"]}`)
		none, _ := subscribe(t, c, `3`, `{"resourceSubscriptions":["mcp://b/file:///x"],"toolsListChanged":true}`)
		subscribed(t, ups["a"], p, "file:///y")
		ups["a"].notify(t, "notifications/resources/updated", `{"uri":"alias:1"}`)
		hears(t, one, "resources/updated mcp://a/alias:1")
		hears(t, two, "resources/updated mcp://a/alias:1")
		silent(t, j, one, two, none)
	})
}

func TestProtocolT96LegacyClientHearsOnItsStream(t *testing.T) {
	for _, up := range eras {
		eachWire(t, pair{upstream.EraLegacy, up, ""}, func(t *testing.T, p pair) {
			ups, j := twins(t, p, func(name string) upstreamtest.Script {
				script := library(name)
				script.NoSubscribe = name == "b"
				return script
			})
			ups["a"].listened(t, p)
			c, other := j.talk(t), j.talk(t)
			mine, theirs := c.get(t), other.get(t)
			if got := string(c.must(t, "resources/subscribe", `"uri":"mcp://a/file:///dir"`)); got != `{}` {
				t.Errorf("resources/subscribe = %s, want {}", got)
			}
			for _, uri := range []string{"mcp://b/file:///dir", "mcp://nobody/file:///dir"} {
				if m := c.ask(t, "resources/subscribe", `"uri":"`+uri+`"`); m.Error == nil {
					t.Errorf("subscribed to %s, which nobody tells of", uri)
				}
			}
			subscribed(t, ups["a"], p, "file:///dir")
			ups["a"].updated(t, "file:///dir/x")
			hears(t, mine, "resources/updated mcp://a/file:///dir/x")
			for method, items := range map[string][]json.RawMessage{"tools/list": definitions("new"), "prompts/list": nil, "resources/list": nil} {
				ups["a"].set(t, method, items)
			}
			for _, stream := range []*answering{mine, theirs} {
				hears(t, stream, "tools/list_changed", "prompts/list_changed", "resources/list_changed")
			}
			if got := string(c.must(t, "resources/unsubscribe", `"uri":"mcp://a/file:///dir"`)); got != `{}` {
				t.Errorf("resources/unsubscribe = %s, want {}", got)
			}
			ups["a"].updated(t, "file:///dir")
			ups["a"].set(t, "prompts/list", []json.RawMessage{[]byte(`{"name":"z"}`)}) // comes after what should not come
			hears(t, mine, "prompts/list_changed")
			hears(t, theirs, "prompts/list_changed")
			silent(t, j, mine, theirs)
		})
	}
}

// TestProtocolT96TwoSessions holds that what one session has subscribed to is not another's
// business, and that the last one to leave unsubscribes.
func TestProtocolT96TwoSessions(t *testing.T) {
	for _, up := range eras {
		eachWire(t, pair{upstream.EraLegacy, up, ""}, func(t *testing.T, p pair) {
			s, j := over(t, p, library("up"), nil)
			s.listened(t, p)
			one, two, three := j.talk(t), j.talk(t), j.talk(t)
			streams := []*answering{one.get(t), two.get(t), three.get(t)}
			one.must(t, "resources/subscribe", `"uri":"mcp://up/file:///a"`)
			one.must(t, "resources/subscribe", `"uri":"mcp://up/file:///a"`) // twice is once
			two.must(t, "resources/subscribe", `"uri":"mcp://up/file:///a"`)
			subscribed(t, s, p, "file:///a")
			s.updated(t, "file:///a")
			hears(t, streams[0], "resources/updated mcp://up/file:///a")
			hears(t, streams[1], "resources/updated mcp://up/file:///a")
			one.must(t, "resources/unsubscribe", `"uri":"mcp://up/file:///a"`)
			s.updated(t, "file:///a")
			hears(t, streams[1], "resources/updated mcp://up/file:///a")
			if got := subscriptions(t, s, "resources/unsubscribe"); p.upstream == upstream.EraLegacy && len(got) > 0 {
				t.Errorf("unsubscribed %v although somebody hears", got)
			}
			if status := deleted(t, two); status/100 != 2 {
				t.Fatalf("DELETE = status %d", status)
			}
			if p.upstream == upstream.EraModern {
				follows(t, s, p)
			} else {
				await(t, s.Journal, "unsubscription", upstreamtest.Method("resources/unsubscribe"))
			}
			silent(t, j, streams[0], streams[2])
		})
	}
}

// TestProtocolT97SubscriptionsOutliveTheConnection has the upstream restart: it is asked again for
// what is subscribed to.
func TestProtocolT97SubscriptionsOutliveTheConnection(t *testing.T) {
	eachEra(t, func(t *testing.T, p pair) {
		script := library("up")
		script.Era = string(p.upstream)
		first := upstreamtest.New(script)
		t.Cleanup(first.Close)
		url, stop := upstreamtest.Serve(t, "127.0.0.1:0", first.Handler())
		j := start(t, p, world{upstreams: map[string]upstream.Config{"up": {URL: url + "/mcp"}}, limits: proxy.Limits{}})
		j.offers(t, "up")
		c := j.talk(t)
		var stream *answering
		if p.client == upstream.EraLegacy {
			stream = c.get(t)
			c.must(t, "resources/subscribe", `"uri":"mcp://up/file:///a"`)
		} else {
			stream, _ = subscribe(t, c, `"L"`, `{"resourceSubscriptions":["mcp://up/file:///a"]}`)
		}
		before := &served{Journal: &first.Journal, inside: first}
		subscribed(t, before, p, "file:///a")
		stop()
		second := upstreamtest.New(script)
		t.Cleanup(second.Close)
		upstreamtest.Serve(t, strings.TrimPrefix(url, "http://"), second.Handler())
		after := &served{Journal: &second.Journal, inside: second}
		subscribed(t, after, p, "file:///a")
		after.listened(t, p)
		after.updated(t, "file:///a")
		// That it may have changed meanwhile is told as well, once or not at all.
		for n := 0; ; n++ {
			m, ok := stream.next(t)
			if !ok || n > 3 {
				t.Fatalf("no update came after the restart")
			}
			if m.Method == "notifications/resources/updated" && text(t, m.Params, "uri") == "mcp://up/file:///a" {
				break
			}
		}
	})
}

func TestProtocolT92TooManySubscriptions(t *testing.T) {
	var uris []string
	for i := range 5000 {
		uris = append(uris, fmt.Sprintf(`"mcp://up/file:///%d"`, i))
	}
	p := pair{upstream.EraModern, upstream.EraLegacy, "http"}
	_, j := over(t, p, library("up"), nil)
	c := j.talk(t)
	a := c.begin(t, query{method: "subscriptions/listen", params: `"notifications":{"resourceSubscriptions":[` + strings.Join(uris, ",") + `]}`})
	if m, ok := a.next(t); ok && m.Error == nil && strings.Count(string(m.Params), "mcp://up/") > 4000 {
		t.Errorf("acknowledged thousands of resources for one request of %d bytes", len(strings.Join(uris, ",")))
	}
	c.succeed(t, "up__echo", `{}`)
}

// TestProtocolT96TwoStreamsOfOneSession is 2025-11-25, basic/transports#multiple-connections: a
// message goes to one of the streams, and not to all of them.
func TestProtocolT96TwoStreamsOfOneSession(t *testing.T) {
	eachWire(t, pair{upstream.EraLegacy, upstream.EraModern, ""}, func(t *testing.T, p pair) {
		s, j := over(t, p, library("up"), nil)
		s.listened(t, p)
		c := j.talk(t)
		streams := []*answering{c.get(t), c.get(t)}
		c.must(t, "resources/subscribe", `"uri":"mcp://up/file:///a"`)
		subscribed(t, s, p, "file:///a")
		s.updated(t, "file:///a")
		s.set(t, "tools/list", definitions("new"))
		const updated, changed = "notifications/resources/updated", "notifications/tools/list_changed"
		heard := map[string]int{}
		for heard[updated] == 0 || heard[changed] == 0 {
			select {
			case m := <-streams[0].messages:
				heard[m.Method]++
			case m := <-streams[1].messages:
				heard[m.Method]++
			case <-patient(t).Done():
				t.Fatalf("heard only %v", heard)
			}
		}
		j.server.Shutdown()
		for _, stream := range streams {
			for m, ok := stream.next(t); ok; m, ok = stream.next(t) {
				heard[m.Method]++
			}
		}
		if want := map[string]int{updated: 1, changed: 1}; !maps.Equal(heard, want) {
			t.Errorf("heard %v, want %v", heard, want)
		}
	})
}
