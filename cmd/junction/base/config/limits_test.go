package config

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"junction/cmd/pack/manifest"
	"junction/upstream"
	"junction/upstream/yamlread"
)

// TestCheckComparesEachLimit: junction check warns of a limit of an upstream that defeats another one, or the table
// says why it compares none. A new limit needs a row, and a size an upper bound if nothing compares it.
func TestCheckComparesEachLimit(t *testing.T) {
	rows := map[string]struct {
		entry, warned string // keys of an entry, and the begin of a warning with this key
		why           string // why check does not compare the limit
		refused       string // keys of an entry with a value beyond the upper bound
		counted       bool   // it counts what Junction holds itself, so that it needs no bound
	}{
		"timeout":         {entry: "timeout: 20m", warned: "upstreams.x.timeout: has no effect: max_timeout ends each call after 10m"},
		"max_timeout":     {entry: "timeout: 2m, max_timeout: 1m", warned: "upstreams.x.timeout: has no effect: max_timeout ends each call after 1m (upstreams.x.max_timeout)"},
		"connect_timeout": {why: "it bounds the connection, which no other limit does"},
		"concurrency":     {why: "calls beyond it wait; those of a pack wait there, too", counted: true},
		"max_links":       {why: "it bounds connections, not calls", counted: true},
		"idle_stop":       {why: "it ends no call"},
		"cache":           {why: "it bounds no call", refused: "cache: 25h"},
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
		number := entry.FieldByIndex(index).Type != reflect.TypeFor[time.Duration]()
		if number && row.entry == "" && row.refused == "" && !row.counted {
			t.Errorf("the limit %s is a size: compare it with another limit, or give it an upper bound in upstream/validate.go; a "+
				"reason is not enough", key)
		}
		if row.refused != "" {
			_, err := parseText("test.yaml", []byte("upstreams: { x: { command: [x], "+row.refused+" } }"), os.LookupEnv)
			if err == nil || !strings.Contains(err.Error(), "upstreams.x."+key+": ") {
				t.Errorf("with %s, check says %v", row.refused, err)
			}
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

// TestCheckComparesTheLimitsOfPacks: the table says of each pair of a limit of the tools of a pack and a limit of the
// calls of an upstream whether check compares the two (warnPackLimits; the script limits shows it), or why not.
func TestCheckComparesTheLimitsOfPacks(t *testing.T) {
	const (
		compared = ""
		waits    = "calls beyond it wait, at the pack and at the upstream, and their time counts there"
		bytes    = "a time does not bound the bytes of an answer"
		within   = "the timeout of the tool bounds all requests of a call"
	)
	pairs := map[string]string{
		"timeout × timeout": compared, "timeout × max_timeout": compared,
		"concurrency × timeout": waits, "concurrency × max_timeout": waits,
		"max_output × timeout": bytes, "max_output × max_timeout": bytes,
		"cut × timeout": bytes, "cut × max_timeout": bytes,
		"retries × timeout": within, "retries × max_timeout": within,
	}
	entry := reflect.TypeFor[upstream.Config]()
	for key, index := range yamlread.Keys(entry) {
		if !strings.HasPrefix(entry.FieldByIndex(index).Tag.Get("limit"), "call") {
			continue
		}
		for limit := range yamlread.Keys(reflect.TypeFor[manifest.Limits]()) {
			pair := limit + " × " + key
			if _, judged := pairs[pair]; !judged {
				t.Errorf("the limits %s (of a tool of a pack × of a call of an upstream) are not judged: if the second one defeats the "+
					"first, have warnPackLimits compare them; write the pair into the table, as compared or with the reason", pair)
			}
			delete(pairs, pair)
		}
	}
	if len(pairs) > 0 {
		t.Errorf("these pairs of limits do not exist: %q", slices.Sorted(maps.Keys(pairs)))
	}
}
