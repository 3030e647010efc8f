package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"junction/upstream/yamlread"
)

// This file tells which keys of the file a change has, and what it means for the holders of API keys.

// An Access is what a change does to the holder of an API key, or to users. The lists have names of tools for clients.
type Access struct {
	Key     string   `json:"key,omitempty"`
	Users   string   `json:"users,omitempty"` // such as "a user of the group staff"; "" for a key
	Gains   []string `json:"gains,omitempty"`
	Loses   []string `json:"loses,omitempty"`
	Asks    []string `json:"asks,omitempty"`    // need an approval now, also of Gains
	Unasked []string `json:"unasked,omitempty"` // need no approval any more
	Other   []string `json:"other,omitempty"`   // other arguments are allowed, or may be
	Joins   []string `json:"joins,omitempty"`   // new upstreams, whose tools are not known, that a rule gives the key
}

// None reports whether nothing changes.
func (a *Access) None() bool {
	return len(a.Gains)+len(a.Loses)+len(a.Asks)+len(a.Unasked)+len(a.Other)+len(a.Joins) == 0
}

// does returns what changes, for people, without the key.
func (a *Access) does() string {
	var parts []string
	for _, list := range []struct {
		before, after string
		names         []string
	}{{"gains", "", a.Gains}, {"loses", "", a.Loses}, {"needs an approval for", "", a.Asks},
		{"needs no approval any more for", "", a.Unasked}, {"may use other arguments of", "", a.Other},
		{"may use tools of the new", ", which are not known yet", a.Joins}} {
		if len(list.names) > 0 {
			parts = append(parts, list.before+" "+strings.Join(few(list.names), ", ")+list.after)
		}
	}
	return strings.Join(parts, "; ")
}

// accessLines returns a line for each set of keys to which the same happens, and one for each kind of users.
func accessLines(all []Access) (lines []string) {
	var order, users []string
	keys := map[string][]string{}
	for i := range all {
		does := all[i].does()
		if all[i].Users != "" {
			users = append(users, all[i].Users+" "+does)
			continue
		}
		if keys[does] == nil {
			order = append(order, does)
		}
		keys[does] = append(keys[does], all[i].Key)
	}
	for _, does := range order {
		who := "the key " + keys[does][0]
		if len(keys[does]) > 1 {
			who = "each of the keys " + strings.Join(keys[does], ", ")
		}
		lines = append(lines, who+" "+does)
	}
	return append(lines, users...)
}

// toolLines returns what is known of the tools of each key; nil if the lists of a running junction were not asked.
func (ch *Change) toolLines() (lines []string) {
	who := "key"
	if ch.before.Auth.SignsIn() || ch.Config.Auth.SignsIn() {
		who = "caller"
	}
	switch {
	case who == "key" && len(ch.before.Auth.APIKeys)+len(ch.Config.Auth.APIKeys) == 0:
		return nil
	case ch.Unlisted != "" && len(ch.Policies)+len(ch.AddedKeys)+len(ch.Changed)+len(ch.Removed) > 0:
		return []string{"which " + who + " gains or loses which tools is not known: " + ch.Unlisted}
	case !ch.Listed:
		return nil
	}
	if lines = accessLines(ch.Access); len(lines) == 0 && len(ch.Policies)+len(ch.Changed)+len(ch.Removed) > 0 {
		lines = []string{"no " + who + " gains or loses a tool of those that the running Junction lists"}
	}
	if len(ch.Unknown) > 0 {
		lines = append(lines, "not compared, because the running Junction does not have their lists: "+
			strings.Join(few(ch.Unknown), ", "))
	}
	return lines
}

// Before returns the configuration in force before the change.
func (ch *Change) Before() *Config { return ch.before }

// changedKeys returns the keys whose values differ, outside of upstreams, policies and auth.api_keys, sorted, and those
// of each changed upstream.
func changedKeys(old, next *Config) (keys []string, ofUpstreams map[string][]string) {
	keys = differing(reflect.ValueOf(*old), reflect.ValueOf(*next), "")
	keys = slices.DeleteFunc(keys, func(k string) bool {
		section, _, _ := strings.Cut(k, ".")
		return section == "upstreams" || section == Policies || k == "auth.api_keys"
	})
	ofUpstreams = map[string][]string{}
	for name, u := range next.Upstreams {
		if was, there := old.Upstreams[name]; there && !reflect.DeepEqual(was, u) {
			ofUpstreams[name] = differing(reflect.ValueOf(was), reflect.ValueOf(u), "")
		}
	}
	return keys, ofUpstreams
}

// differing returns the paths of the keys below a section whose values differ, sorted. A list is one key.
func differing(a, b reflect.Value, path string) (keys []string) {
	for a.Kind() == reflect.Pointer && b.Kind() == reflect.Pointer && !a.IsNil() && !b.IsNil() {
		a, b = a.Elem(), b.Elem()
	}
	if reflect.DeepEqual(a.Interface(), b.Interface()) {
		return nil
	}
	rows := map[string][]int{}
	if a.Kind() == reflect.Struct {
		rows = yamlread.Keys(a.Type())
	}
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		from, to := a.FieldByIndex(rows[key]), b.FieldByIndex(rows[key])
		keys = append(keys, differing(from, to, yamlread.Join(path, key))...)
	}
	if a.Kind() == reflect.Map && a.Type().Key().Kind() == reflect.String {
		var names []string
		for _, m := range []reflect.Value{a, b} {
			for _, k := range m.MapKeys() {
				names = append(names, k.String())
			}
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			k := reflect.ValueOf(name).Convert(a.Type().Key())
			if from, to := a.MapIndex(k), b.MapIndex(k); from.IsValid() && to.IsValid() {
				keys = append(keys, differing(from, to, yamlread.Join(path, name))...)
			} else {
				keys = append(keys, yamlread.Join(path, name))
			}
		}
	}
	if keys == nil {
		return []string{path}
	}
	return keys
}

// withKeys returns the names of changed upstreams, each with its changed keys.
func (ch *Change) withKeys() (list []string) {
	for _, name := range ch.Changed {
		if keys := ch.UpstreamKeys[name]; len(keys) > 0 && ch.Refused == nil { // else Partial has them
			name += " (" + strings.Join(few(keys), ", ") + ")"
		}
		list = append(list, name)
	}
	return list
}

// keysAtOnce returns the other changed keys of the file that a reload applies, and those below a key of Restart. If the
// reload is refused, Partial has them.
func (ch *Change) keysAtOnce() (now, later []string) {
	for _, key := range ch.Keys {
		switch below := func(r string) bool { return strings.HasPrefix(key, r+".") }; {
		case ch.Refused != nil, slices.Contains(ch.Restart, key):
		case slices.ContainsFunc(ch.Restart, below):
			later = append(later, key)
		default:
			now = append(now, key)
		}
	}
	return now, later
}
