package upstream

import (
	"fmt"
	"path"
	"reflect"
	"strings"
	"time"

	"junction/upstream/client"
	"junction/upstream/prose"
	"junction/upstream/yamlread"
)

// A LimitRow is one limit of an upstream. The rows are the numbers of Config with the tag limit, whose four
// words are OfCall, Each, Ends and Measure: call or server, each or one, a kind of error or none, and a measure.
type LimitRow struct {
	Key string
	// OfCall means that (*Upstream).Call reads the limit; the others bound the server and its connections.
	OfCall bool
	// Each means that each replica counts for itself, so that several have more together. Other limits bound
	// one call or one connection.
	Each bool
	// Ends is the kind of the error of a call that the limit ends; "" if it ends no call. The table of the
	// outcomes in package proxy has the outcome of the kind.
	Ends client.Kind
	// Measure is what the limit counts. Of two limits of a call with one measure, the smaller one defeats the
	// other, also if that one is the limit of a tool in a pack: junction check compares them.
	Measure yamlread.Measure
	field   []int
}

// noKind is the third word of a limit that ends no call.
const noKind = "none"

// Limits returns the limits in the order of their fields.
func Limits() (rows []LimitRow) {
	entry := reflect.TypeFor[Config]()
	for _, field := range reflect.VisibleFields(entry) {
		words := strings.Split(field.Tag.Get("limit"), ",")
		if len(words) < 4 {
			continue
		}
		row := LimitRow{Key: field.Tag.Get("yaml"), OfCall: words[0] == "call", Each: words[1] == "each",
			Measure: yamlread.Measure(words[3]), field: field.Index}
		if words[2] != noKind {
			row.Ends = client.Kind(words[2])
		}
		rows = append(rows, row)
	}
	return rows
}

// A Bound is a limit in force, and the key of the file that gives it; From is "" for a built-in limit.
type Bound struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	From  string `json:"from,omitempty"`
}

func (b Bound) String() string {
	if b.From == "" {
		return b.Key + ": " + b.Value + " (default)"
	}
	return b.Key + ": " + b.Value + " (" + b.From + ")"
}

// explained are the limits that junction why shows in words: ExplainLimits, and the effect of cache on a tool.
var explained = map[string]bool{"timeout": true, "max_timeout": true, "cache": true}

// BoundsOf returns the other limits of an item (explained), as far as they are set. tool is the
// server's own name of a tool; "" for other items. name is the name of the upstream; the config is the one of
// the file, without defaults.
func (c Config) BoundsOf(name, tool string, d Defaults) (bounds []Bound) {
	inForce := reflect.ValueOf(c.withDefaults(d))
	given, defaults := reflect.ValueOf(c), reflect.ValueOf(d)
	inEntry, inDefaults, inRule := given.Type(), yamlread.Keys(defaults.Type()), yamlread.Keys(reflect.TypeFor[Rule]())
	for _, row := range Limits() {
		if explained[row.Key] {
			continue
		}
		value, from := inForce.FieldByIndex(row.field), ""
		switch {
		case !given.FieldByIndex(row.field).IsZero():
			from = "upstreams." + name + "." + inEntry.FieldByIndex(row.field).Tag.Get("yaml")
		case inDefaults[row.Key] != nil && !defaults.FieldByIndex(inDefaults[row.Key]).IsZero():
			value, from = defaults.FieldByIndex(inDefaults[row.Key]), "defaults."+row.Key
		}
		if r := c.ruleOf(tool); r != nil && inRule[row.Key] != nil {
			if own := reflect.ValueOf(r.Rule).FieldByIndex(inRule[row.Key]); !own.IsZero() {
				value, from = own, "upstreams."+name+".tools."+r.Glob+"."+row.Key
			}
		}
		if !value.IsZero() {
			bounds = append(bounds, Bound{row.Key, numberText(value), from})
		}
	}
	return bounds
}

// ruleOf returns the rule of a tool, by the server's own name; nil if it has none, and for "".
func (c *Config) ruleOf(tool string) *GlobRule {
	for i := range c.Tools {
		r := &c.Tools[i]
		if ok, _ := path.Match(r.Glob, tool); tool != "" && (ok || r.Glob == tool) {
			return r
		}
	}
	return nil
}

// numberText returns the value of a limit for people.
func numberText(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if d, ok := v.Interface().(time.Duration); ok {
		return prose.Duration(d)
	}
	return fmt.Sprint(v.Interface())
}
