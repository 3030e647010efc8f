package policy

import (
	"reflect"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// TestTextOfARuleHasEveryKey sets each key of a rule, of its selector and of its annotations, one at a time: the text
// changes, and is the file's again.
func TestTextOfARuleHasEveryKey(t *testing.T) {
	yes := true
	var leaves func(at reflect.Value, path string, visit func(path string))
	leaves = func(at reflect.Value, path string, visit func(string)) {
		for i := range at.NumField() {
			f := at.Field(i)
			key := at.Type().Field(i).Tag.Get("yaml")
			switch f.Interface().(type) {
			case *Selector, *Annotations:
				f.Set(reflect.New(f.Type().Elem()))
				leaves(f.Elem(), path+"/"+key, visit)
			case List:
				f.Set(reflect.ValueOf(List{"x", "y"}))
				visit(path + "/" + key)
			case *bool:
				f.Set(reflect.ValueOf(&yes))
				visit(path + "/" + key)
			case Where:
				f.Set(reflect.ValueOf(Where{"a": {{Glob: "g*"}, {Re: "^r"}}, "b": {{Glob: "3"}}}))
				visit(path + "/" + key)
			case Remember:
				f.SetString("once")
				visit(path + "/" + key)
			default:
				t.Fatalf("%s/%s has the unknown type %s", path, key, f.Type())
			}
			f.SetZero()
		}
	}
	var r Rule
	n := 0
	leaves(reflect.ValueOf(&r).Elem(), "", func(path string) {
		n++
		text := r.Text()
		for key := range strings.SplitSeq(path[1:], "/") {
			if !strings.Contains(text, key+": ") {
				t.Errorf("%s: the text %q lacks the key %s", path, text, key)
			}
		}
		var again Rule
		if err := yaml.Unmarshal([]byte("{ "+text+" }"), &again); err != nil || !reflect.DeepEqual(again, r) {
			t.Errorf("%s: %q is read as %+v (%v), want %+v", path, text, again, err, r)
		}
	})
	if n < 30 {
		t.Errorf("only %d keys", n)
	}
}

// TestNotationIsThatOfTheFile: every value of a policy is shown as the file may have it.
func TestNotationIsThatOfTheFile(t *testing.T) {
	const text = `{ name: "p", match: { key: ["a", "b"], cidr: "10.0.0.0/8" }, enforced: false, endpoints: "web", ` +
		`folders: [], capabilities: ["c"], rules: [{ deny: { tools: "x" } }], ` +
		`redact: { patterns: [secrets, { name: "t", re: "T-[0-9]" }], restore: true }, validate: true, pinned: true, ` +
		`limits: { rate: 7/m, burst: 3, concurrent: 2 }, catalog: search, always: "y" }`
	var e Entry
	if err := yaml.Unmarshal([]byte(text), &e); err != nil {
		t.Fatal(err)
	}
	if got := Notation(e); got != text {
		t.Errorf("got\n%s\nwant\n%s", got, text)
	}
	for _, rate := range []string{"1/s", "7/s", "10/m", "1000/h", "1/h"} {
		var r Rate
		if err := r.UnmarshalText([]byte(rate)); err != nil || Notation(r) != rate {
			t.Errorf("%s is shown as %s (%v)", rate, Notation(r), err)
		}
	}
}
