package policy

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// filled sets each field of a value to something that is not its zero value. A pointer to a bool is one to
// false, which is not the same as none.
func filled(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		if v.Elem().Kind() != reflect.Bool {
			filled(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("json") != "-" {
				filled(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		filled(v.Index(0))
	case reflect.Map:
		element := reflect.New(v.Type().Elem()).Elem()
		filled(element)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("a/b"), element)
	case reflect.String:
		v.SetString("call <&>")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int:
		v.SetInt(3)
	case reflect.Float64:
		v.SetFloat(100.0 / 3600)
	default:
		panic("the test has no value for " + v.Type().String())
	}
}

// TestCarriedPoliciesLoseNothing: another process reads each key of a policy as it is, with a value and without.
func TestCarriedPoliciesLoseNothing(t *testing.T) {
	full := Carried{}
	filled(reflect.ValueOf(&full).Elem())
	nobody := []string{} // not the same as no key folders
	for name, given := range map[string]Carried{"all keys": full, "no keys": {Policies: Config{{}}}, "no policies": {},
		"an empty list": {Policies: Config{{Folders: nobody}}}, "no policy": {Policies: Config{}}} {
		text, err := Carry([]Carried{given})
		if err != nil {
			t.Fatal(err)
		}
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		var got []Carried
		if err := d.Decode(&got); err != nil || len(got) != 1 || !reflect.DeepEqual(got[0], given) {
			t.Errorf("%s: %v, got\n%+v, want\n%+v", name, err, got, given)
		}
	}
}

// TestCarriedPoliciesDecideAlike: the compiled policies decide as those of their process, of both files if there are
// two. What this version cannot read as a whole is refused.
func TestCarriedPoliciesDecideAlike(t *testing.T) {
	some := Config{{Name: "some", Rules: []Rule{{Allow: &Selector{Tools: List{"a", "b"}}}}}}
	fewer := Config{{Name: "fewer", Rules: []Rule{{Deny: &Selector{Tools: List{"b"}}}, {Allow: &Selector{Upstreams: List{"*"}}}}}}
	sees := func(all ...Carried) (seen string) {
		text, err := Carry(all)
		if err != nil {
			t.Fatal(err)
		}
		p, err := FromText(text)
		if err != nil {
			t.Fatal(err)
		}
		rights := p.For(Subject{Kind: "key", ID: "key:ci"})
		for _, name := range []string{"a", "b", "c"} {
			if rights.Bind(Item{Kind: Tool, Upstream: "up", Names: []string{name}}).Visible() {
				seen += name
			}
		}
		return seen
	}
	for _, test := range []struct{ got, want string }{{sees(Carried{}), "abc"}, {sees(Carried{Policies: Config{}}), ""},
		{sees(Carried{Policies: some}), "ab"}, {sees(Carried{Policies: fewer}), "ac"},
		{sees(Carried{Policies: some}, Carried{Policies: fewer}), "a"}} {
		if test.got != test.want {
			t.Errorf("visible are %q, want %q", test.got, test.want)
		}
	}
	for _, text := range []string{``, `[]`, `{}`, `[{"Policies":[{"Name":"x","Deny":"later"}]}]`, `[{"Policies":[{"Name":""}]}]`} {
		if p, err := FromText([]byte(text)); err == nil {
			t.Errorf("%s compiles: %v", text, p)
		}
	}
	if text, err := Carry([]Carried{{Policies: some}}); err != nil || !strings.Contains(string(text), "some") {
		t.Errorf("%s, %v", text, err)
	}
}
