package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"junction/cmd/pack/manifest"
	"junction/upstream"
	"junction/upstream/yamlread"
)

// TestCheckComparesEachLimit: of two limits of a call with one measure, junction check warns of that which the other one
// defeats. A limit of a call with a measure of its own has an upper bound.
func TestCheckComparesEachLimit(t *testing.T) {
	rows := map[string]struct {
		entry, warned string // keys of an entry, and the begin of a warning with this key
		refused       string // keys of an entry with a value beyond the upper bound
	}{
		"timeout":     {entry: "timeout: 20m", warned: "upstreams.x.timeout: has no effect: max_timeout ends each call after 10m"},
		"max_timeout": {entry: "timeout: 2m, max_timeout: 1m", warned: "upstreams.x.timeout: has no effect: max_timeout ends each call after 1m (upstreams.x.max_timeout)"},
		"cache":       {refused: "cache: 25h"},
	}
	limits := upstream.Limits()
	for _, limit := range limits {
		key, row := limit.Key, rows[limit.Key]
		delete(rows, key)
		alike := func(l upstream.LimitRow) bool { return l.OfCall && l.Key != key && l.Measure == limit.Measure }
		switch {
		case limit.OfCall && slices.ContainsFunc(limits, alike) && row.entry == "":
			t.Errorf("%s and another limit of a call both count %s: have check_limits.go compare them, and write a row", key, limit.Measure)
		case (limit.OfCall && row.entry == "" || limit.Measure == yamlread.MeasureBytes) && row.refused == "":
			t.Errorf("nothing bounds the limit %s, and check compares it with no other one: give it an upper bound in "+
				"upstream/validate.go, and write a row with a value beyond the bound", key)
		}
		if row.refused != "" {
			_, err := parseText("test.yaml", []byte("upstreams: { x: { command: [x], "+row.refused+" } }"), os.LookupEnv)
			if err == nil || !strings.Contains(err.Error(), "upstreams.x."+key+": ") {
				t.Errorf("with %s, check says %v", row.refused, err)
			}
		}
		if row.entry == "" {
			continue
		}
		if got := limitWarnings(mustParse(t, "upstreams: { x: { command: [x], "+row.entry+" } }", nil)); len(got) != 1 ||
			!strings.HasPrefix(got[0], row.warned) {
			t.Errorf("with %s, check warns %q, want %q", row.entry, got, row.warned)
		}
	}
	for key := range rows {
		t.Errorf("%s is no limit of an upstream", key)
	}
}

// limitWarnings returns what junction check warns of the limits of a configuration.
func limitWarnings(c *Config) (got []string) {
	c.warnLimits(func(path, format string, args ...any) { got = append(got, path+": "+fmt.Sprintf(format, args...)) })
	return got
}

// TestCheckComparesTheLimitsOfPacks: check warns of each limit of the tools of a pack that a limit of the calls of its
// upstream with the same measure defeats, and names the key that raises it.
func TestCheckComparesTheLimitsOfPacks(t *testing.T) {
	values := map[yamlread.Measure]struct{ small, large string }{
		yamlread.MeasureTime: {"1s", "1m"}, yamlread.MeasureBytes: {"1KiB", "1MiB"}, yamlread.MeasureCalls: {"1", "4"},
		yamlread.MeasureRequests: {"1", "4"}}
	tools, pairs := reflect.TypeFor[manifest.Limits](), 0
	for _, limit := range upstream.Limits() {
		for key, index := range yamlread.Keys(tools) {
			if !limit.OfCall || yamlread.Measure(tools.FieldByIndex(index).Tag.Get("measure")) != limit.Measure {
				continue
			}
			pairs++
			dir, value := t.TempDir(), values[limit.Measure]
			text := "name: p\ntools: { slow: { description: d, http: { url: 'https://a.example' }, " + key + ": " + value.large + " } }\n"
			if err := os.WriteFile(filepath.Join(dir, "pack.yaml"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			got := limitWarnings(mustParse(t, fmt.Sprintf("upstreams: { x: { pack: %q, %s: %s } }", dir, limit.Key, value.small), nil))
			want := "upstreams.x.pack: its " + key + " of " + value.large + " for slow has no effect: "
			if len(got) != 1 || !strings.HasPrefix(got[0], want) || !strings.Contains(got[0], "set upstreams.x."+limit.Key+": "+value.large) {
				t.Errorf("the limits %s of a tool and %s of an upstream both count %s, and check warns %q, want %q: have "+
					"warnPackLimits compare them", key, limit.Key, limit.Measure, got, want)
			}
		}
	}
	if pairs < 2 {
		t.Errorf("%d pairs of limits have one measure: the test reads something else", pairs)
	}
}
