package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"junction/cmd/pack/manifest"
	"junction/upstream"
	"junction/upstream/yamlread"
)

// TestCheckComparesEachLimit: junction check warns of a limit of an upstream that defeats another one, or the table
// says why it compares none. A new limit needs a row.
func TestCheckComparesEachLimit(t *testing.T) {
	rows := map[string]struct {
		entry, warned string // keys of an entry, and the begin of a warning with this key
		why           string // why check does not compare the limit
	}{
		"timeout":         {entry: "timeout: 20m", warned: "upstreams.x.timeout: has no effect: max_timeout ends each call after 10m"},
		"max_timeout":     {entry: "timeout: 2m, max_timeout: 1m", warned: "upstreams.x.timeout: has no effect: max_timeout ends each call after 1m (upstreams.x.max_timeout)"},
		"connect_timeout": {why: "it bounds the connection, which no other limit does"},
		"concurrency":     {why: "calls beyond it wait; those of a pack wait there, too"},
		"max_links":       {why: "it bounds connections, not calls"},
		"idle_stop":       {why: "it ends no call"},
		"cache":           {why: "it bounds no call"},
	}
	entry := reflect.TypeFor[upstream.Config]()
	var limits []string
	for key, index := range yamlread.Keys(entry) {
		if entry.FieldByIndex(index).Tag.Get("limit") == "" {
			continue
		}
		limits = append(limits, key)
		row := rows[key]
		if (row.entry == "") == (row.why == "") {
			t.Errorf("the limit %s has no row: have check_limits.go compare it with a limit that it defeats, or say why not", key)
			continue
		}
		if row.why != "" {
			continue
		}
		var got []string
		c := mustParse(t, "upstreams: { x: { command: [x], "+row.entry+" } }", nil)
		c.warnLimits(func(path, format string, args ...any) { got = append(got, path+": "+fmt.Sprintf(format, args...)) })
		if len(got) != 1 || !strings.HasPrefix(got[0], row.warned) {
			t.Errorf("with %s, check warns %q, want %q", row.entry, got, row.warned)
		}
	}
	slices.Sort(limits)
	if known := slices.Sorted(maps.Keys(rows)); !slices.Equal(known, limits) {
		t.Errorf("the table has %q, and an entry the limits %q", known, limits)
	}
}

// TestCheckComparesTheLimitsOfPacks: the table says of each limit of the tools of a pack whether check compares it with
// the limits of the upstream (warnPackLimits; the script limits shows it), and why not.
func TestCheckComparesTheLimitsOfPacks(t *testing.T) {
	rows := map[string]string{
		"timeout":     "", // compared
		"concurrency": "calls beyond it wait, and those beyond the one of the upstream wait, too",
		"max_output":  "no limit of an upstream bounds the bytes of an answer",
		"cut":         "no limit of an upstream bounds the bytes of an answer",
		"retries":     "the timeout of the tool bounds them",
	}
	compared := []string{"max_timeout", "timeout"} // the limits of calls that the rows are about
	var calls []string
	entry := reflect.TypeFor[upstream.Config]()
	for key, index := range yamlread.Keys(entry) {
		if strings.HasPrefix(entry.FieldByIndex(index).Tag.Get("limit"), "call") {
			calls = append(calls, key)
		}
	}
	if slices.Sort(calls); !slices.Equal(calls, compared) {
		t.Errorf("the rows are about the limits of calls %q, and an entry has %q: does a new one defeat a limit of a tool of a "+
			"pack? Have check_limits.go compare the two, and correct the rows", compared, calls)
	}
	limits := slices.Sorted(maps.Keys(yamlread.Keys(reflect.TypeFor[manifest.Limits]())))
	if known := slices.Sorted(maps.Keys(rows)); !slices.Equal(known, limits) {
		t.Errorf("the table has %q, and tools of packs the limits %q: have check_limits.go compare the new one, or say why not",
			known, limits)
	}
}
