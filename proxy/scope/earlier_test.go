package scope

import (
	"fmt"
	"testing"

	"gopkg.in/yaml.v3"

	"junction/auth"
	"junction/policy"
	"junction/proxy/proxytest"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
)

// TestACursorFindsItsSnapshot changes the tools of a server more often than lists are kept. Each kept
// list is found with one look, also if only tools have changed that the caller does not see. A list
// that is not kept costs one look, too.
func TestACursorFindsItsSnapshot(t *testing.T) {
	var rules policy.Config
	if err := yaml.Unmarshal([]byte(`[ { name: some, rules: [ { allow: { tools: up__seen } } ] } ]`), &rules); err != nil {
		t.Fatal(err)
	}
	c := Config{Names: view.Names{}.WithDefaults(), Guard: &auth.Guard{}, Policy: proxytest.MustPolicy(t, rules)}
	const changes = maxEarlier + 3
	for name, seen := range map[string]func(change int) int{
		"the list changes each time":        func(change int) int { return change },
		"the list changes at the last time": func(change int) int { return change / changes },
	} {
		t.Run(name, func(t *testing.T) {
			var all Earlier
			defer all.Clear()
			backend := proxytest.NewBackend(t, 0, 10)
			var now Caller
			var prints, wholes []uint64 // of the lists before the last one
			for change := range changes + 1 {
				lists := *backend.Lists
				lists.Tools = []upstream.Tool{
					proxytest.MustTool(t, fmt.Sprintf(`{"name":"seen","description":"%d","inputSchema":{}}`, seen(change))),
					proxytest.MustTool(t, fmt.Sprintf(`{"name":"hidden","description":"%d","inputSchema":{}}`, change))}
				backend.Lists = &lists
				if now.Snapshot != nil {
					prints = append(prints, now.Subject.Print(upstream.PartTools, view.LegacyKind))
					wholes = append(wholes, now.Whole(upstream.PartTools, client.EraLegacy))
				}
				w := New(c, []view.Backend{backend}, now.Snapshot, new(Made))
				if now.Snapshot != nil {
					all.Keep(now.Snapshot, w)
				}
				now = Caller{Snapshot: w, Principal: auth.Local}
				now.Enter("")
			}
			for i, print := range prints {
				looks := 0
				_, found := all.Find(now, upstream.PartTools, client.EraLegacy, wholes[i], func(then Caller) bool {
					looks++
					return then.Subject.Print(upstream.PartTools, view.LegacyKind) == print
				})
				kept := i >= changes-maxEarlier || seen(i) == seen(changes-1)
				if found != kept || looks != 1 {
					t.Errorf("list %d of %d: found: %t after %d looks, want %t after one", i, changes, found, looks, kept)
				}
			}
		})
	}
}
