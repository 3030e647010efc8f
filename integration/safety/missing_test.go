package safety

import (
	"encoding/json"
	"slices"
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// TestToolsThatNothingAnnounced has tools appear at a server that declares changes and announces none,
// and at one that declares none. A caller gets the tool that it names. A name that a policy hides has
// the list read as often as one that does not exist, and is answered in the same words. An upstream
// that is hidden is not read.
func TestToolsThatNothingAnnounced(t *testing.T) {
	harness.Waits(t)
	declares := []byte(`{"tools":{"listChanged":true},"prompts":{"listChanged":true}}`)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		for name, script := range map[string]upstreamtest.Script{
			"declared": {Capabilities: declares}, "not declared": {},
			"without sessions": {NoSession: true},
		} {
			if script.NoSession && (p.Upstream != client.EraLegacy || p.Transport != "http") {
				continue
			}
			t.Run(name, func(t *testing.T) {
				script.NoListChanged, script.Tools = true, harness.Definitions("echo")
				script.Prompts = []json.RawMessage{[]byte(`{"name":"p"}`)}
				s, other := p.Serve(t, script), p.Serve(t, upstreamtest.Script{})
				s.Config.Isolation = upstream.IsolationShared // a second process would have the old lists
				guard, keys := harness.Keyring(t, "one")
				j := harness.Start(t, p, harness.Setup{Guard: guard,
					Upstreams: map[string]upstream.Config{"up": s.Config, "other": other.Config},
					Policy: harness.MustPolicy(t, `
- name: one
  rules: [ { deny: { tools: "up__gate" } }, { allow: { upstreams: up } } ]
`)})
				j.Offers(t, "up", "other")
				c := j.As(t, keys["one"])
				appear := func() {
					s.Set(t, "tools/list", harness.Definitions("echo", "log", "gate"))
					s.Set(t, "prompts/list", []json.RawMessage{[]byte(`{"name":"p"}`), []byte(`{"name":"q"}`)})
				}
				appear()
				for method, params := range map[string]string{"tools/call": `"name":"up__log","arguments":{}`,
					"prompts/get": `"name":"up__q"`} {
					if s.Inside == nil {
						// A process changes its lists a moment after it is told, and nothing announces it: each call
						// has the lists read once more, at most once a second.
						patience := harness.Patient(t)
						for got := c.Ask(t, method, params); got.Error != nil; got = c.Ask(t, method, params) {
							if patience.Err() != nil {
								t.Fatalf("the new item of %s is still answered %s", method, got.Error)
							}
							appear()
						}
					} else if got := c.Ask(t, method, params); got.Error != nil {
						t.Errorf("the new item of %s is answered %s", method, got.Error)
					}
				}
				names := c.Names(t)
				// Each process reads for itself, and the list may be that of another one.
				if read := slices.Contains(names, "up__log"); !read && harness.Processes() == 1 ||
					slices.Contains(names, "up__gate") {
					t.Errorf("the list is %q afterwards", names)
				}
				readings := func(called string) (n int, said string) {
					lists := func() (n int) {
						for _, m := range append(s.Methods(), other.Methods()...) {
							if m == "tools/list" {
								n++
							}
						}
						return n
					}
					before := lists()
					got := c.Ask(t, "tools/call", `"name":"`+called+`","arguments":{}`)
					return lists() - before, harness.WithoutName(got, called)
				}
				if s.Inside == nil { // a process reports a moment later what it received
					return
				}
				hidden, saidOfHidden := readings("up__gate")
				none, saidOfNone := readings("up__nothing")
				for range 5 { // a reading of another cause can come between
					if hidden == none && none <= 1 {
						break
					}
					hidden, saidOfHidden = readings("up__gate")
					none, saidOfNone = readings("up__nothing")
				}
				if hidden != none || saidOfHidden != saidOfNone {
					t.Errorf("what is hidden causes %d readings and is answered %s\nwhat does not exist  %d, %s", hidden, saidOfHidden,
						none, saidOfNone)
				}
				if none != 1 && !(none == 0 && harness.Processes() > 1) {
					t.Errorf("an unknown name causes %d readings, want one", none)
				}
				for _, name := range []string{"other__echo", "nobody__echo"} {
					n, said := readings(name)
					for range 5 {
						if n == 0 {
							break
						}
						n, said = readings(name)
					}
					if n != 0 || said != saidOfNone {
						t.Errorf("%s causes %d readings, and is answered %s, want none and %s", name, n, said, saidOfNone)
					}
				}
			})
		}
	})
}
