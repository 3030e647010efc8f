package upstream

import (
	"log/slog"
	"reflect"
	"testing"

	"junction/auth/authtest"
	"junction/upstream/yamlread"
)

// TestAChangedKeyCostsWhatItsTagSays: each field of an entry, also one that the file does not have, says
// what its change costs. After a change of a field that costs no connection, the upstream keeps the
// connections that it has; after any other change it has new ones.
func TestAChangedKeyCostsWhatItsTagSays(t *testing.T) {
	log := authtest.Log(t)
	var try func(t0 reflect.Type, at []int, name string)
	try = func(t0 reflect.Type, at []int, name string) {
		for i := range t0.NumField() {
			field := t0.Field(i)
			index, name := append(at[:len(at):len(at)], i), name+field.Name
			change, tagged, err := yamlread.ChangeOf(field)
			if !tagged || err != nil {
				t.Errorf("%s does not say what its change costs (the tag change): %v", name, err)
				continue
			}
			if change.Cost == yamlread.CostInside {
				try(field.Type, index, name+".")
				continue
			}
			if !field.IsExported() {
				continue // set by Apply
			}
			if keeps, cheap := keepsConnections(t, log, index), change.Cost != yamlread.CostConnection; keeps != cheap {
				t.Errorf("after a change of %s, which costs a %s, the connections are kept: %v", name, change.Cost, keeps)
			}
		}
	}
	try(reflect.TypeFor[Config](), nil, "")
}

// keepsConnections reports whether an upstream keeps its connections after a change of a field.
func keepsConnections(t *testing.T, log *slog.Logger, index []int) bool {
	t.Helper()
	off := false
	next := Config{Enabled: &off, Command: []string{"x"}}
	p := &pool{connConfig: next.connConfig(), options: Options{Log: log}}
	v := reflect.ValueOf(&next).Elem().FieldByIndex(index)
	before := v.Interface()
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		if b, is := v.Interface().(*bool); is {
			*b = true
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 3, 3))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem())
	case reflect.String:
		v.SetString("other")
	case reflect.Bool:
		v.SetBool(true)
	default:
		v.SetInt(7)
	}
	if reflect.DeepEqual(before, v.Interface()) {
		t.Fatalf("the test did not change the field %v", index)
	}
	return p.serves(resolved{next, next}, p.options)
}
