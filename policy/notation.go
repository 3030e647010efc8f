package policy

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Notation returns a value of the section on one line, as in the file, with every key that is given. It is "" for a
// value that is not given.
func Notation(value any) string { return notation(reflect.ValueOf(value)) }

// Text returns the rule for people, as in the file.
func (r *Rule) Text() string { return inside(Notation(*r)) }

// named returns the keys of a selector without where, as in the file.
func (s *Selector) named() string {
	without := *s
	without.Where = nil
	return inside(Notation(without))
}

// inside returns the text of a mapping without its braces.
func inside(text string) string { return strings.TrimSuffix(strings.TrimPrefix(text, "{ "), " }") }

// inFile is a value that the file has in another form than its type.
type inFile interface{ inFile() any }

func (r Rate) inFile() any {
	for _, unit := range []struct {
		name    string
		seconds float64
	}{{"s", 1}, {"m", 60}, {"h", 3600}} {
		n := math.Round(float64(r) * unit.seconds)
		if r > 0 && Rate(n/unit.seconds) == r {
			return bare(fmt.Sprintf("%.0f/%s", n, unit.name))
		}
	}
	return bare("")
}

func (r Remember) inFile() any { return bare(r) }
func (c Catalog) inFile() any  { return bare(c) }

func (a Alternative) inFile() any {
	type mapping Alternative
	if a.Re == "" {
		return bare(quoted(a.Glob))
	}
	return mapping(a)
}

func (r Redact) inFile() any {
	type mapping Redact
	if r.Word != "" {
		return bare(r.Word)
	}
	return mapping(r)
}

func (r Redactions) inFile() any {
	type mapping Redactions
	if !r.Restore {
		return r.Patterns
	}
	return mapping(r)
}

// bare is a text without quotes.
type bare string

func quoted(text string) string {
	const most = 1000
	if r := []rune(text); len(r) > most {
		text = string(r[:most]) + "…"
	}
	return strconv.Quote(text)
}

func notation(v reflect.Value) string {
	if !v.IsValid() {
		return ""
	}
	if other, ok := v.Interface().(inFile); ok {
		return notation(reflect.ValueOf(other.inFile()))
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return ""
		}
		return cmp.Or(notation(v.Elem()), fmt.Sprint(v.Elem().Interface()))
	case reflect.Struct:
		var keys []string
		for i := range v.NumField() {
			key, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
			if text := notation(v.Field(i)); text != "" && key != "-" {
				keys = append(keys, key+": "+text)
			}
		}
		return mapping(keys)
	case reflect.Map:
		var keys []string
		for _, key := range slices.Sorted(maps.Keys(v.Interface().(Where))) {
			keys = append(keys, key+": "+notation(v.MapIndex(reflect.ValueOf(key))))
		}
		return mapping(keys)
	case reflect.Slice:
		return list(v)
	case reflect.String:
		text := v.String()
		if _, is := v.Interface().(bare); !is && text != "" {
			return quoted(text)
		}
		return text
	}
	if v.IsZero() {
		return ""
	}
	return fmt.Sprint(v.Interface())
}

func mapping(keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	return "{ " + strings.Join(keys, ", ") + " }"
}

// list returns a list, or its only value where the file may have that.
func list(v reflect.Value) string {
	if v.IsNil() {
		return ""
	}
	var all []string
	for i := range v.Len() {
		all = append(all, cmp.Or(notation(v.Index(i)), `""`))
	}
	switch v.Interface().(type) {
	case List, Pattern:
		if len(all) == 1 {
			return all[0]
		}
	}
	return "[" + strings.Join(all, ", ") + "]"
}
