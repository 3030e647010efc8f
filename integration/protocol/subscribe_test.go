package protocol

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/proxy"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// Subscriptions to resources and to the lists other than that of tools, and those of legacy clients.

// subscriptions counts what a legacy upstream was asked to subscribe to and to unsubscribe from, by
// its own URI.
func subscriptions(t *testing.T, s *harness.Served, method string) map[string]int {
	t.Helper()
	count := map[string]int{}
	for _, r := range s.RequestsOf(t, method, 0) {
		uri, _ := raw.Get(r.Message.Params, "uri")
		name, _ := raw.String(uri)
		count[name]++
	}
	return count
}

// subscribed waits until the upstream was asked to tell of a resource.
func subscribed(t *testing.T, s *harness.Served, p harness.Pair, uri string) {
	t.Helper()
	quoted := string(raw.Quote(uri))
	harness.Await(t, s.Journal, "subscription to "+uri, func(r upstreamtest.Record) bool {
		if r.Verb == "CLOSE" {
			return false
		}
		return r.Message.Method == "resources/subscribe" && harness.Member(r.Message.Params, "uri") == quoted ||
			r.Message.Method == "subscriptions/listen" &&
				strings.Contains(harness.Member(r.Message.Params, "notifications", "resourceSubscriptions"), quoted)
	})
}

func TestListChangesGoToTheirListeners(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraModern, up, func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, harness.Library("up"), nil)
			s.Listened(t, p)
			c := j.Talk(t)
			tools, _ := harness.Subscribe(t, c, `1`, `{"toolsListChanged":true}`)
			prompts, honoured := harness.Subscribe(t, c, `"p"`, `{"promptsListChanged":true,"toolsListChanged":false}`)
			if honoured != `{"promptsListChanged":true}` {
				t.Errorf("acknowledged %s", honoured)
			}
			resources, honoured := harness.Subscribe(t, c, `"r"`, `{"resourcesListChanged":true}`)
			if honoured != `{"resourcesListChanged":true}` {
				t.Errorf("acknowledged %s", honoured)
			}
			all, _ := harness.Subscribe(t, c, `"a"`,
				`{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}`)
			s.Set(t, "prompts/list", []json.RawMessage{[]byte(`{"name":"q"}`)})
			harness.WantNotes(t, prompts, "prompts/list_changed")
			harness.WantNotes(t, all, "prompts/list_changed")
			if got := string(c.Must(t, "prompts/list", ``)); !strings.Contains(got, "up__q") {
				t.Errorf("after the change the prompts are %s", got)
			}
			s.Set(t, "tools/list", harness.Definitions("new"))
			s.Set(t, "resources/templates/list", []json.RawMessage{[]byte(`{"uriTemplate":"x:{a}","name":"x"}`)})
			harness.WantNotes(t, resources, "resources/list_changed")
			harness.WantNotes(t, tools, "tools/list_changed")
			harness.WantNotes(t, all, "resources/list_changed", "tools/list_changed")
			if got := string(c.Must(t, "resources/templates/list", ``)); !strings.Contains(got, "mcp://up/x:{a}") {
				t.Errorf("after the change the templates are %s", got)
			}
			harness.WantSilentEnd(t, j, tools, prompts, resources, all)
		})
	}
}

func TestOnlySubscribableResourcesAreAcknowledged(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraModern, up, func(t *testing.T, p harness.Pair) {
			ups, j := twins(t, p, func(name string) upstreamtest.Script {
				script := harness.Library(name)
				script.NoSubscribe = name == "b"
				return script
			})
			c := j.Talk(t)
			a, honoured := harness.Subscribe(t, c, `"L"`,
				`{"resourceSubscriptions":["mcp://a/file:///dir","mcp://b/file:///dir","mcp://nobody/file:///dir",`+
					`"mcp://a/file:///not/listed"]}`)
			harness.WantJSON(t, "acknowledged", []byte(honoured),
				`{"resourceSubscriptions":["mcp://a/file:///dir","mcp://a/file:///not/listed"]}`)
			subscribed(t, ups["a"], p, "file:///dir")
			_, honoured = harness.Subscribe(t, c, `"M"`,
				`{"resourceSubscriptions":["mcp://b/file:///dir"],"toolsListChanged":true}`)
			if got := harness.Member([]byte(honoured), "resourceSubscriptions"); got != "" && got != "[]" ||
				harness.Member([]byte(honoured), "toolsListChanged") != "true" {
				t.Errorf("acknowledged %s, want changes of tools alone", honoured)
			}
			ups["a"].Updated(t, "file:///dir")
			harness.WantNotes(t, a, "resources/updated mcp://a/file:///dir")
			if n := len(ups["b"].RequestsOf(t, "resources/subscribe", 0)); n > 0 {
				t.Errorf("b, which tells of nothing, was asked %d times to", n)
			}
			bare := j.TalkTo(t, "/a")
			own, honoured := harness.Subscribe(t, bare, `"B"`, `{"resourceSubscriptions":["file:///dir"]}`)
			harness.WantJSON(t, "acknowledged on the upstream's own endpoint", []byte(honoured),
				`{"resourceSubscriptions":["file:///dir"]}`)
			ups["a"].Updated(t, "file:///dir")
			harness.WantNotes(t, own, "resources/updated file:///dir")
		})
	}
}

func TestOverlappingSubscriptions(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "it counts the subscriptions of one process")
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraModern, up, func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, harness.Library("up"), nil)
			c := j.Talk(t)
			if p.Upstream == client.EraLegacy {
				s.Listened(t, p) // when its stream begins, all that was subscribed to before may have changed
			}
			one, _ := harness.Subscribe(t, c, `"1"`, `{"resourceSubscriptions":["mcp://up/file:///a"]}`)
			two, _ := harness.Subscribe(t, c, `2`, `{"resourceSubscriptions":["mcp://up/file:///b","mcp://up/file:///a"]}`)
			// of another client
			three, _ := harness.Subscribe(t, j.Talk(t), `2`, `{"resourceSubscriptions":["mcp://up/file:///a"]}`)
			follows(t, s, p, "file:///a", "file:///b")
			s.Updated(t, "file:///a")
			for _, a := range []*harness.Answering{one, two, three} {
				harness.WantNotes(t, a, "resources/updated mcp://up/file:///a")
			}
			s.Updated(t, "file:///b")
			harness.WantNotes(t, two, "resources/updated mcp://up/file:///b")
			one.Drop()
			three.Drop()
			c.Succeed(t, "up__echo", `{}`)
			s.Updated(t, "file:///a") // there is one left who hears
			harness.WantNotes(t, two, "resources/updated mcp://up/file:///a")
			if p.Upstream == client.EraModern {
				two.Drop()
				follows(t, s, p)
				return
			}
			if got := subscriptions(t, s, "resources/subscribe"); got["file:///a"] != 1 || got["file:///b"] != 1 {
				t.Errorf("subscribed upstream %v times, want each once", got)
			}
			if got := subscriptions(t, s, "resources/unsubscribe"); len(got) > 0 {
				t.Errorf("unsubscribed %v although a client listens", got)
			}
			two.Drop()
			for _, uri := range []string{"file:///a", "file:///b"} {
				harness.Await(t, s.Journal, "unsubscription from "+uri, func(r upstreamtest.Record) bool {
					return r.Message.Method == "resources/unsubscribe" &&
						harness.Member(r.Message.Params, "uri") == string(raw.Quote(uri))
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
func follows(t *testing.T, s *harness.Served, p harness.Pair, uris ...string) {
	t.Helper()
	if p.Upstream == client.EraLegacy {
		for _, uri := range uris {
			subscribed(t, s, p, uri)
		}
		return
	}
	open := map[string][]string{} // by process, ID and filter, because IDs are those of a process
	key := func(r upstreamtest.Record, id jsonrpc.ID) string {
		return fmt.Sprint(r.PID, id, harness.Member(r.Message.Params, "notifications"))
	}
	past := len(s.Received())
	harness.Await(t, s.Journal, fmt.Sprintf("subscriptions to %q alone", uris), func(r upstreamtest.Record) bool {
		switch {
		case r.Verb == "CLOSE":
			delete(open, key(r, r.Message.ID))
		case r.Message.Method == "notifications/cancelled":
			id := fmt.Sprint(r.PID, harness.Member(r.Message.Params, "requestId"), "{")
			maps.DeleteFunc(open, func(key string, _ []string) bool { return strings.HasPrefix(key, id) })
		case r.Message.Method == "subscriptions/listen":
			var list []string
			if err := json.Unmarshal([]byte(cmp.Or(harness.Member(r.Message.Params, "notifications", "resourceSubscriptions"),
				"[]")), &list); err != nil {
				t.Error(err)
			} else if len(list) > 0 {
				open[key(r, r.Message.ID)] = list
			}
		}
		if past--; past > 0 {
			return false
		}
		var all []string
		for _, list := range open {
			all = append(all, list...)
		}
		one := p.Transport != "stdio" && harness.Processes() == 1
		if !one {
			slices.Sort(all)
		}
		return slices.Equal(all, uris) && (!one || len(open) <= 1)
	})
}

func TestUpdatesFindTheirSubscribers(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraModern, up, func(t *testing.T, p harness.Pair) {
			ups, j := twins(t, p, harness.Library)
			if p.Upstream == client.EraLegacy {
				for _, s := range ups {
					s.Listened(t, p) // when its stream begins, all that was subscribed to before may have changed
				}
			}
			c := j.Talk(t)
			dir, _ := harness.Subscribe(t, c, `"dir"`, `{"resourceSubscriptions":["mcp://a/file:///dir"]}`)
			part, _ := harness.Subscribe(t, c, `"part"`, `{"resourceSubscriptions":["mcp://a/file:///dir/x"]}`)
			other, _ := harness.Subscribe(t, c, `"other"`,
				`{"resourceSubscriptions":["mcp://a/file:///dirt","mcp://b/file:///dir/x"]}`)
			follows(t, ups["a"], p, "file:///dir", "file:///dir/x", "file:///dirt")
			follows(t, ups["b"], p, "file:///dir/x")
			ups["a"].Updated(t, "file:///dir/x")
			harness.WantNotes(t, dir, "resources/updated mcp://a/file:///dir/x")
			harness.WantNotes(t, part, "resources/updated mcp://a/file:///dir/x")
			ups["a"].Updated(t, "file:///dir")
			harness.WantNotes(t, dir, "resources/updated mcp://a/file:///dir")
			ups["b"].Updated(t, "file:///dir/x")
			harness.WantNotes(t, other, "resources/updated mcp://b/file:///dir/x")
			ups["a"].Updated(t, "file:///dirt")
			harness.WantNotes(t, other, "resources/updated mcp://a/file:///dirt")
			harness.WantSilentEnd(t, j, dir, part, other)
		})
	}
}

// TestUpdateOfAnUnknownURIReachesAll has a legacy server tell of a URI that only it knows to be a
// part of another: all who have subscribed to something of its are told.
func TestUpdateOfAnUnknownURIReachesAll(t *testing.T) {
	harness.Waits(t)
	harness.EachTransport(t, client.EraModern, client.EraLegacy, func(t *testing.T, p harness.Pair) {
		ups, j := twins(t, p, harness.Library)
		ups["a"].Listened(t, p) // when its stream begins, all that was subscribed to before may have changed
		c := j.Talk(t)
		one, _ := harness.Subscribe(t, c, `1`, `{"resourceSubscriptions":["mcp://a/file:///x"]}`)
		two, _ := harness.Subscribe(t, c, `2`, `{"resourceSubscriptions":["mcp://a/file:///y"]}`)
		none, _ := harness.Subscribe(t, c, `3`, `{"resourceSubscriptions":["mcp://b/file:///x"],"toolsListChanged":true}`)
		subscribed(t, ups["a"], p, "file:///y")
		ups["a"].Notify(t, "notifications/resources/updated", `{"uri":"alias:1"}`)
		harness.WantNotes(t, one, "resources/updated mcp://a/alias:1")
		harness.WantNotes(t, two, "resources/updated mcp://a/alias:1")
		harness.WantSilentEnd(t, j, one, two, none)
	})
}

func TestLegacyClientHearsOnItsStream(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraLegacy, up, func(t *testing.T, p harness.Pair) {
			ups, j := twins(t, p, func(name string) upstreamtest.Script {
				script := harness.Library(name)
				script.NoSubscribe = name == "b"
				return script
			})
			ups["a"].Listened(t, p)
			c, other := j.Talk(t), j.Talk(t)
			mine, theirs := c.Get(t), other.Get(t)
			if got := string(c.Must(t, "resources/subscribe", `"uri":"mcp://a/file:///dir"`)); got != `{}` {
				t.Errorf("resources/subscribe = %s, want {}", got)
			}
			for _, uri := range []string{"mcp://b/file:///dir", "mcp://nobody/file:///dir"} {
				if m := c.Ask(t, "resources/subscribe", `"uri":"`+uri+`"`); m.Error == nil {
					t.Errorf("subscribed to %s, which no upstream has", uri)
				}
			}
			subscribed(t, ups["a"], p, "file:///dir")
			ups["a"].Updated(t, "file:///dir/x")
			harness.WantNotes(t, mine, "resources/updated mcp://a/file:///dir/x")
			for method, items := range map[string][]json.RawMessage{"tools/list": harness.Definitions("new"),
				"prompts/list": nil, "resources/list": nil} {
				ups["a"].Set(t, method, items)
			}
			for _, stream := range []*harness.Answering{mine, theirs} {
				harness.WantNotes(t, stream, "tools/list_changed", "prompts/list_changed", "resources/list_changed")
			}
			if got := string(c.Must(t, "resources/unsubscribe", `"uri":"mcp://a/file:///dir"`)); got != `{}` {
				t.Errorf("resources/unsubscribe = %s, want {}", got)
			}
			ups["a"].Updated(t, "file:///dir")
			ups["a"].Set(t, "prompts/list", []json.RawMessage{[]byte(`{"name":"z"}`)}) // comes after what should not come
			harness.WantNotes(t, mine, "prompts/list_changed")
			harness.WantNotes(t, theirs, "prompts/list_changed")
			harness.WantSilentEnd(t, j, mine, theirs)
		})
	}
}

// TestSubscriptionsOfTwoSessions holds that what one session has subscribed to is not another's
// business, and that the last one to leave unsubscribes.
func TestSubscriptionsOfTwoSessions(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "it counts the subscriptions of one process")
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraLegacy, up, func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, harness.Library("up"), nil)
			s.Listened(t, p)
			one, two, three := j.Talk(t), j.Talk(t), j.Talk(t)
			streams := []*harness.Answering{one.Get(t), two.Get(t), three.Get(t)}
			one.Must(t, "resources/subscribe", `"uri":"mcp://up/file:///a"`)
			one.Must(t, "resources/subscribe", `"uri":"mcp://up/file:///a"`) // twice is once
			two.Must(t, "resources/subscribe", `"uri":"mcp://up/file:///a"`)
			subscribed(t, s, p, "file:///a")
			s.Updated(t, "file:///a")
			harness.WantNotes(t, streams[0], "resources/updated mcp://up/file:///a")
			harness.WantNotes(t, streams[1], "resources/updated mcp://up/file:///a")
			one.Must(t, "resources/unsubscribe", `"uri":"mcp://up/file:///a"`)
			s.Updated(t, "file:///a")
			harness.WantNotes(t, streams[1], "resources/updated mcp://up/file:///a")
			if got := subscriptions(t, s, "resources/unsubscribe"); p.Upstream == client.EraLegacy && len(got) > 0 {
				t.Errorf("unsubscribed %v although a client listens", got)
			}
			if status := harness.Deleted(t, two); status/100 != 2 {
				t.Fatalf("DELETE = status %d", status)
			}
			if p.Upstream == client.EraModern {
				follows(t, s, p)
			} else {
				harness.Await(t, s.Journal, "unsubscription", upstreamtest.Method("resources/unsubscribe"))
			}
			harness.WantSilentEnd(t, j, streams[0], streams[2])
		})
	}
}

// TestSubscriptionsOutliveARestartedUpstream has the upstream restart: it is asked again for
// what is subscribed to.
func TestSubscriptionsOutliveARestartedUpstream(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		script := harness.Library("up")
		script.Era = string(p.Upstream)
		first := upstreamtest.New(script)
		t.Cleanup(first.Close)
		url, stop := upstreamtest.Serve(t, "127.0.0.1:0", first.Handler())
		j := harness.Start(t, p,
			harness.Setup{Upstreams: map[string]upstream.Config{"up": {URL: url + "/mcp"}}, Limits: proxy.Limits{}})
		j.Offers(t, "up")
		c := j.Talk(t)
		var stream *harness.Answering
		if p.Client == client.EraLegacy {
			stream = c.Get(t)
			c.Must(t, "resources/subscribe", `"uri":"mcp://up/file:///a"`)
		} else {
			stream, _ = harness.Subscribe(t, c, `"L"`, `{"resourceSubscriptions":["mcp://up/file:///a"]}`)
		}
		before := &harness.Served{Journal: &first.Journal, Inside: first}
		subscribed(t, before, p, "file:///a")
		stop()
		second := upstreamtest.New(script)
		t.Cleanup(second.Close)
		upstreamtest.Serve(t, strings.TrimPrefix(url, "http://"), second.Handler())
		after := &harness.Served{Journal: &second.Journal, Inside: second}
		subscribed(t, after, p, "file:///a")
		after.Listened(t, p)
		after.Updated(t, "file:///a")
		// That it may have changed meanwhile is told as well, once or not at all.
		for n := 0; ; n++ {
			m, ok := stream.Next(t)
			if !ok || n > 3 {
				t.Fatalf("no update came after the restart")
			}
			if m.Method == "notifications/resources/updated" && harness.Text(t, m.Params, "uri") == "mcp://up/file:///a" {
				break
			}
		}
	})
}

// TestSubscriptionsOfARequestAreBounded asks for 1,500 resources in one request: 1,000 are subscribed
// to at most, and the acknowledgement names those to which the server has subscribed in time.
func TestSubscriptionsOfARequestAreBounded(t *testing.T) {
	harness.Waits(t)
	var uris []string
	for i := range 1500 {
		uris = append(uris, fmt.Sprintf(`"mcp://up/file:///%d"`, i))
	}
	p := harness.Pair{Client: client.EraModern, Upstream: client.EraLegacy, Transport: "http"}
	s, j := harness.Over(t, p, harness.Library("up"), nil)
	c := j.Talk(t)
	a := c.Begin(t, harness.Query{Method: "subscriptions/listen",
		Params: `"notifications":{"resourceSubscriptions":[` + strings.Join(uris, ",") + `]}`})
	m, ok := a.Next(t)
	if !ok {
		t.Fatal("the stream ended without an acknowledgement")
	}
	n := strings.Count(string(m.Params), "mcp://up/")
	c.Succeed(t, "up__echo", `{}`)
	asked := len(s.RequestsOf(t, "resources/subscribe", n))
	if m.Error != nil || n == 0 || asked < n || asked > 1000 {
		t.Errorf("acknowledged %d of %d resources (error %v), want those, of 1000 at most", n, asked, m.Error)
	}
}

// TestMessageGoesToOneStreamOfASession is 2025-11-25, basic/transports#multiple-connections: a
// message goes to one of the streams, and not to all of them.
func TestMessageGoesToOneStreamOfASession(t *testing.T) {
	harness.Waits(t)
	harness.EachTransport(t, client.EraLegacy, client.EraModern, func(t *testing.T, p harness.Pair) {
		s, j := harness.Over(t, p, harness.Library("up"), nil)
		s.Listened(t, p)
		c := j.Talk(t)
		streams := []*harness.Answering{c.Get(t), c.Get(t)}
		c.Must(t, "resources/subscribe", `"uri":"mcp://up/file:///a"`)
		subscribed(t, s, p, "file:///a")
		s.Updated(t, "file:///a")
		s.Set(t, "tools/list", harness.Definitions("new"))
		const updated, changed = "notifications/resources/updated", "notifications/tools/list_changed"
		heard := map[string]int{}
		for heard[updated] == 0 || heard[changed] == 0 {
			select {
			case m := <-streams[0].Messages:
				heard[m.Method]++
			case m := <-streams[1].Messages:
				heard[m.Method]++
			case <-harness.Patient(t).Done():
				t.Fatalf("heard only %v", heard)
			}
		}
		j.Shutdown()
		for _, stream := range streams {
			for m, ok := stream.Next(t); ok; m, ok = stream.Next(t) {
				heard[m.Method]++
			}
		}
		if want := map[string]int{updated: 1, changed: 1}; !maps.Equal(heard, want) {
			t.Errorf("heard %v, want %v", heard, want)
		}
	})
}
