package policy

import (
	"reflect"
	"testing"
)

// TestEachVerdictIsARow: a verdict has a word, which is the key of its rules; the selector of the row is that
// of the key; and each rule with a key has a verdict.
func TestEachVerdictIsARow(t *testing.T) {
	keys := 0
	for i := range reflect.TypeFor[Rule]().NumField() {
		field := reflect.TypeFor[Rule]().Field(i)
		if field.Type != reflect.TypeFor[*Selector]() {
			continue
		}
		keys++
		v, ok := VerdictOf(field.Tag.Get("yaml"))
		if !ok {
			t.Errorf("the key %s of a rule has no verdict", field.Tag.Get("yaml"))
			continue
		}
		r, want := &Rule{}, &Selector{}
		reflect.ValueOf(r).Elem().Field(i).Set(reflect.ValueOf(want))
		if got := r.selectors(); len(got) != 1 || got[0].verdict != v || got[0].Selector != want {
			t.Errorf("a rule with %s has the selectors %v", v, got)
		}
	}
	if keys != len(verdicts) {
		t.Errorf("%d keys of rules and %d verdicts", keys, len(verdicts))
	}
	for i := range verdicts {
		v := Verdict(i)
		is := 0
		for _, fact := range []bool{v.Denies(), v.Asks(), v.Allows()} {
			if fact {
				is++
			}
		}
		if is != 1 || v.Asks() && v.Denies() {
			t.Errorf("%s denies %t, asks %t, allows %t: want one of them", v, v.Denies(), v.Asks(), v.Allows())
		}
		if v.Denies() && !v.doubts() {
			t.Errorf("%s denies, and does not select what it cannot judge", v)
		}
	}
	if zero := Verdict(0); !zero.Denies() || !Verdict(len(verdicts)).Denies() {
		t.Error("the zero value, or a value without a row, does not deny")
	}
	if _, ok := VerdictOf(""); ok {
		t.Error("the empty word has a verdict")
	}
}
