package config

import (
	"maps"
	"reflect"

	"junction/upstream/yamlread"
)

// This file reads from the fields of the file what the change of a key does while a proxy runs: the tag
// change (package yamlread). TestEveryKeyHasAnEffect finds a key without a tag.

// An effect is what the changed value of a key does. All but restarts take effect at once, unless the
// reload is refused in part. Then two files decide, and the effect says how.
type effect uint8

const (
	// inside: each key below has an effect of its own.
	inside effect = iota + 1
	// restarts: the old value stays until a restart.
	restarts
	// waits: the old value stays until the file can be loaded as a whole.
	waits
	// both: the values of both files decide, and the stricter one counts (stricter).
	both
	// neither: the key decides who comes in. An entry that differs in it is not in force.
	neither
)

// effects has the effect of each key with a tag. The keys below one that is not here have its effect.
// public_url, and a new scope of auth.scope_capabilities, wait for a restart if there is auth.oauth (carry).
// The server of auth.oauth keeps its section until a restart, but users of a provider that differs do not
// come in (meet).
var effects = effectsOf(reflect.TypeFor[Config](), "")

// effectsOf returns the effects of the keys of a section.
func effectsOf(t reflect.Type, path string) map[string]effect {
	all := map[string]effect{}
	for key, i := range yamlread.Keys(t) {
		field, row := t.FieldByIndex(i), yamlread.Join(path, key)
		change, tagged, _ := yamlread.ChangeOf(field)
		if tagged {
			all[row] = effectOf(change)
		}
		section := field.Type
		for section.Kind() == reflect.Pointer || section.Kind() == reflect.Slice || section.Kind() == reflect.Map {
			if section.Kind() == reflect.Map && all[row] == inside {
				row += ".*"
				all[row] = inside
			}
			section = section.Elem()
		}
		if section.Kind() == reflect.Struct {
			maps.Copy(all, effectsOf(section, row))
		}
	}
	return all
}

// effectOf returns the effect that a tag means; 0 if it has a mistake.
func effectOf(change yamlread.Change) effect {
	switch change.Cost {
	case yamlread.CostInside:
		return inside
	case yamlread.CostRestart:
		return restarts
	}
	return map[yamlread.Partly]effect{yamlread.PartlyWaits: waits, yamlread.PartlyBoth: both,
		yamlread.PartlyNeither: neither}[change.Partly]
}
