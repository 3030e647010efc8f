package raw_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"junction/upstream/raw"
)

func TestParse(t *testing.T) {
	text := " { \"a\" : 1.0 ,\n\"\\u0062\":{\"x\":[ ]}\t,\"a\":null } "
	o, err := raw.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range o.Members() {
		name, err := m.Name()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, name, string(m.Key), string(m.Value))
	}
	if want := []string{"a", `"a"`, "1.0", "b", `"\u0062"`, `{"x":[ ]}`, "a", `"a"`, "null"}; !slices.Equal(got, want) {
		t.Errorf("members are %q, want %q", got, want)
	}
	if !o.Present() || string(o.Text()) != text {
		t.Errorf("Present() = %v, Text() = %q; want true, %q", o.Present(), o.Text(), text)
	}
}

func TestParseEmpty(t *testing.T) {
	o, err := raw.Parse([]byte("{ }"))
	if err != nil || !o.Present() || len(o.Members()) != 0 {
		t.Errorf("Parse({ }) = %d members, present %v, error %v", len(o.Members()), o.Present(), err)
	}
	var zero raw.Object
	if _, err := zero.Get("a"); zero.Present() || len(zero.Members()) != 0 || err != raw.ErrAbsent {
		t.Errorf("the zero Object is present %v, has %d members, Get says %v", zero.Present(), len(zero.Members()), err)
	}
	if got, err := zero.Splice(raw.Edit{Name: "a", Value: []byte("1")}); err != raw.ErrAbsent {
		t.Errorf("Splice of the zero Object = %q, %v; want %v", got, err, raw.ErrAbsent)
	}
}

func TestParseErrors(t *testing.T) {
	for _, text := range []string{"null", "[{}]", `"{}"`, "1", " true "} {
		if _, err := raw.Parse([]byte(text)); err != raw.ErrAbsent {
			t.Errorf("Parse(%q) = %v, want %v", text, err, raw.ErrAbsent)
		}
	}
	for _, text := range []string{"", " ", "{", `{"a":1,}`, "{}{}", "{} x", "[", "1 2", `{"a":01}`, "nul"} {
		_, err := raw.Parse([]byte(text))
		if _, ok := errors.AsType[*raw.SyntaxError](err); !ok {
			t.Errorf("Parse(%q) = %v, want a syntax error", text, err)
		}
	}
	nested := func(n int) []byte { return []byte(strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n)) }
	if _, err := raw.Parse(nested(raw.DefaultDepth)); err != nil {
		t.Errorf("Parse at the default depth: %v", err)
	}
	if _, err := raw.Parse(nested(raw.DefaultDepth + 1)); err != raw.ErrDepth {
		t.Errorf("Parse past the default depth: %v, want %v", err, raw.ErrDepth)
	}
	if _, err := raw.ParseDepth(nested(3), 3); err != nil {
		t.Errorf("ParseDepth of 3 with limit 3: %v", err)
	}
	if _, err := raw.ParseDepth(nested(3), 2); err != raw.ErrDepth {
		t.Errorf("ParseDepth of 3 with limit 2: %v, want %v", err, raw.ErrDepth)
	}
	if _, err := raw.ParseDepth([]byte("[[[]]]"), 2); err != raw.ErrDepth {
		t.Errorf("ParseDepth of an array that is too deep: %v, want %v", err, raw.ErrDepth)
	}
}

// TestObjectGet is the smuggling rule: for each text, what a reader of "task" or of another name
// gets.
func TestObjectGet(t *testing.T) {
	for _, test := range []struct {
		text, name, want string
		err              error
	}{
		{text: `{"task":1}`, name: "task", want: "1"},
		{text: `{"x":{"task":2},"task": 9007199254740993 ,"y":0}`, name: "task", want: "9007199254740993"},
		{text: `{"t\u0061sk":1}`, name: "task", want: "1"},
		{text: `{"\u0074\u0061\u0073\u006B":1}`, name: "task", want: "1"},
		{text: `{"a\/b":1}`, name: "a/b", want: "1"},
		{text: `{"":1}`, name: "", want: "1"},
		{text: `{"größe":1}`, name: "größe", want: "1"},
		{text: `{"gr\u00f6\u00dfe":1}`, name: "größe", want: "1"},
		{text: `{"\ud834\udd1e":1}`, name: "𝄞", want: "1"},
		{text: `{"task":null}`, name: "task", want: "null"},
		{text: `{"a@b":1,"a` + "`" + `b":2}`, name: "a@b", want: "1"}, // they differ in the bit that letter case differs in
		{text: `{"a[b":1,"a{b":2}`, name: "a{b", want: "2"},
		{text: `{"tasks":1,"tas":2,"ask":3,"":4,"task ":5}`, name: "task", err: raw.ErrAbsent},
		{text: `{"x":{"task":1}}`, name: "task", err: raw.ErrAbsent},
		{text: `{}`, name: "task", err: raw.ErrAbsent},

		{text: `{"task":1,"task":1}`, name: "task", err: raw.ErrAmbiguous},
		{text: `{"task":1,"a":0,"t\u0061sk":1}`, name: "task", err: raw.ErrAmbiguous},
		{text: `{"task":1,"Task":2}`, name: "task", err: raw.ErrAmbiguous},
		{text: `{"TASK":2,"task":1}`, name: "task", err: raw.ErrAmbiguous},
		{text: `{"Task":2}`, name: "task", err: raw.ErrAmbiguous}, // encoding/json would take it, others would not
		{text: `{"task":1,"T\u0041SK":2}`, name: "task", err: raw.ErrAmbiguous},
		{text: `{"task":1,"taſk":2}`, name: "task", err: raw.ErrAmbiguous},
		{text: `{"tas` + "\u212a" + `":2}`, name: "task", err: raw.ErrAmbiguous},
		{text: `{"tas\u212a":2}`, name: "task", err: raw.ErrAmbiguous},
		{text: `{"task":2}`, name: "taſk", err: raw.ErrAmbiguous},
		{text: `{"tasx":2}`, name: "tas\u212a", err: raw.ErrAbsent},
		{text: `{"GRÖSSE":0,"GRÖẞE":2}`, name: "größe", err: raw.ErrAmbiguous},

		{text: `{"task":1,"task\ud800":2}`, name: "task", err: raw.ErrAmbiguous},
		{text: `{"\udc00T\ud800\ud800ask":2}`, name: "task", err: raw.ErrAmbiguous},
		{text: `{"ta` + "\xff" + `sk":2,"task":1}`, name: "task", err: raw.ErrAmbiguous},
		{text: `{"task":1,"task\u0000x":2}`, name: "task", err: raw.ErrAmbiguous},
		{text: `{"task":1,"TASK` + `\u0000":2}`, name: "task", err: raw.ErrAmbiguous},
		{text: `{"task":1,"\ud800tas":2,"x\u0000task":3,"` + "\xff" + `":4}`, name: "task", want: "1"},
		{text: `{"\ud83d":1,"task":2}`, name: "task", want: "2"},
	} {
		o, err := raw.Parse([]byte(test.text))
		if err != nil {
			t.Fatalf("Parse(%q): %v", test.text, err)
		}
		got, err := o.Get(test.name)
		if string(got) != test.want || err != test.err {
			t.Errorf("%q: Get(%q) = %q, %v; want %q, %v", test.text, test.name, got, err, test.want, test.err)
		}
	}
}

func TestObjectKinds(t *testing.T) {
	o, err := raw.Parse([]byte(`{"s":"\u0061","n":1,"o":{"x":1},"null":null,"half":"\ud800","S":0}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, want string
		err        error
	}{
		{"n", "", raw.ErrAbsent}, {"null", "", raw.ErrAbsent}, {"none", "", raw.ErrAbsent}, {"half", "", raw.ErrAmbiguous}, {"s", "", raw.ErrAmbiguous},
	} {
		if got, err := o.String(test.name); got != test.want || err != test.err {
			t.Errorf("String(%q) = %q, %v; want %q, %v", test.name, got, err, test.want, test.err)
		}
	}
	inner, err := o.Object("o")
	if err != nil || string(inner.Text()) != `{"x":1}` {
		t.Errorf(`Object("o") = %q, %v`, inner.Text(), err)
	}
	for _, name := range []string{"n", "null", "none"} {
		if inner, err := o.Object(name); inner.Present() || err != raw.ErrAbsent {
			t.Errorf("Object(%q) = %q, %v; want %v", name, inner.Text(), err, raw.ErrAbsent)
		}
	}
	if inner, err := o.Object("s"); inner.Present() || err != raw.ErrAmbiguous {
		t.Errorf(`Object("s") = %q, %v; want %v`, inner.Text(), err, raw.ErrAmbiguous)
	}
}

func TestObjectHasAndIsTrue(t *testing.T) {
	o, err := raw.Parse([]byte(`{"a":{"b":true,"c":{}},"d":false,"e":"true"}`))
	if err != nil {
		t.Fatal(err)
	}
	if !o.HasObject("a") || !o.HasObject("a", "c") || o.HasObject("a", "b") || o.HasObject("x") || (raw.Object{}).HasObject("a") {
		t.Error("HasObject does not tell objects from other values")
	}
	if !o.IsTrue("a", "b") || o.IsTrue("a") || o.IsTrue("d") || o.IsTrue("e") || o.IsTrue("x") || (raw.Object{}).IsTrue("a") {
		t.Error("IsTrue does not tell true from other values")
	}
}

// TestSplice writes edits as name=value; name= takes the member out.
func TestSplice(t *testing.T) {
	for _, test := range []struct{ text, edits, want string }{
		// Replace: nothing else moves.
		{`{"a":1}`, `a=2`, `{"a":2}`},
		{` { "a" : 1 , "b" : 1.0 } `, `a="x"`, ` { "a" : "x" , "b" : 1.0 } `},
		{"{\"a\":1,\n\t\"b\":2\n}\n", `b={}`, "{\"a\":1,\n\t\"b\":{}\n}\n"},
		{`{"\u0061":1e400,"x":-0}`, `a=1`, `{"\u0061":1,"x":-0}`},
		{`{"a":{"a":1},"b":"}","c":[{}]}`, `b=0`, `{"a":{"a":1},"b":0,"c":[{}]}`},
		// Add: at the end, before the brace.
		{`{}`, `a=1`, `{"a":1}`},
		{` { } `, `a=1`, ` { "a":1} `},
		{`{}`, `a=1 b=2`, `{"a":1,"b":2}`},
		{`{"x":"}"}`, `a=1`, `{"x":"}","a":1}`},
		{"{\"x\":0 \n}\n", `a=1 b=2`, "{\"x\":0 \n,\"a\":1,\"b\":2}\n"},
		// Take out: the comma goes too.
		{`{"a":1,"b":2,"c":3}`, `a=`, `{"b":2,"c":3}`},
		{`{"a":1,"b":2,"c":3}`, `b=`, `{"a":1,"c":3}`},
		{`{"a":1,"b":2,"c":3}`, `c=`, `{"a":1,"b":2}`},
		{`{ "a" : 1 , "b" : 2 , "c" : 3 }`, `a=`, `{ "b" : 2 , "c" : 3 }`},
		{`{ "a" : 1 , "b" : 2 , "c" : 3 }`, `b=`, `{ "a" : 1 , "c" : 3 }`},
		{`{ "a" : 1 , "b" : 2 , "c" : 3 }`, `c=`, `{ "a" : 1 , "b" : 2  }`},
		{`{"a":","}`, `a=`, `{}`},
		{` { "a" : 1 } `, `a=`, ` {  } `},
		{`      { "a" : 1 , "b":2}`, `a= b=`, `      { }`},
		{`{}`, `a=`, `{}`},
		{`{"b":1}`, `a=`, `{"b":1}`},
		// Several at once, in any order.
		{`{"a":1,"b":2,"c":3}`, `a= b= c=`, `{}`},
		{`{"a":1,"b":2,"c":3}`, `c= a= b=`, `{}`},
		{`{ "a":1 , "b":2 , "c":3 }`, `c= b= a=`, `{  }`},
		{`{"a":1,"b":2,"c":3}`, `b= c=`, `{"a":1}`},
		{`{"a":1,"b":2,"c":3}`, `a= c=`, `{"b":2}`},
		{`{"a":1,"b":2,"c":3}`, `a= b=`, `{"c":3}`},
		{`{"a":1,"b":2,"c":3}`, `c=4 a= d=5`, `{"b":2,"c":4,"d":5}`},
		{`{"a":1,"b":2,"c":3}`, `d=5 c= a=0`, `{"a":0,"b":2,"d":5}`},
		{`{"a":1,"b":2,"c":3}`, `b=0 c=`, `{"a":1,"b":0}`},
		{`{"a":1}`, `a= b=2`, `{"b":2}`},
		{` { "a" : 1 } `, `a= b=2`, ` {  "b":2} `},
		{`{"a":1,"b":",,,"}`, `b= c=","`, `{"a":1,"c":","}`},
		{`{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"j":10}`, `j= i= h=1 g= f= e=1 d= c=1 b= a= k=0`, `{"c":1,"e":1,"h":1,"k":0}`},
		// Members that are not edited stay as they are, however odd.
		{`{"x":1,"x":2,"X":3,"\ud800":4,"a":5}`, `a=`, `{"x":1,"x":2,"X":3,"\ud800":4}`},
		{`{"a":1}`, `é"=2`, `{"a":1,"é\"":2}`},
	} {
		o, err := raw.Parse([]byte(test.text))
		if err != nil {
			t.Fatalf("Parse(%q): %v", test.text, err)
		}
		var edits []raw.Edit
		for edit := range strings.FieldsSeq(test.edits) {
			name, value, _ := strings.Cut(edit, "=")
			edits = append(edits, raw.Edit{Name: name, Value: []byte(value)})
		}
		got, err := o.Splice(edits...)
		if err != nil || string(got) != test.want {
			t.Errorf("%q with %q = %q, %v; want %q", test.text, test.edits, got, err, test.want)
		}
		if string(o.Text()) != test.text {
			t.Errorf("Splice changed the text to %q", o.Text())
		}
		for i := range edits {
			if len(edits[i].Value) == 0 {
				edits[i].Value = nil
			}
		}
		if again, err := o.Splice(edits...); !bytes.Equal(again, got) || err != nil {
			t.Errorf("%q with %q, nil for empty = %q, %v; want %q", test.text, test.edits, again, err, got)
		}
	}
}

func TestSpliceAmbiguous(t *testing.T) {
	for _, text := range []string{`{"a":1,"a":2}`, `{"a":1,"A":2}`, `{"A":2}`, `{"a":1,"\u0061":2}`, `{"b":0,"a\ud800":1}`} {
		o, err := raw.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		for _, value := range [][]byte{nil, []byte("1")} {
			got, err := o.Splice(raw.Edit{Name: "z", Value: []byte("1")}, raw.Edit{Name: "a", Value: value})
			if got != nil || err != raw.ErrAmbiguous {
				t.Errorf("%q: Splice(z, a=%q) = %q, %v; want %v", text, value, got, err, raw.ErrAmbiguous)
			}
		}
	}
}

func TestSpliceAllocates(t *testing.T) {
	o, err := raw.Parse([]byte(`{"name":"files__read","arguments":{"path":"/etc/hosts"},"_meta":{"progressToken":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	edits := []raw.Edit{{Name: "name", Value: bytes.Repeat([]byte("1"), 1000)}, {Name: "_meta"}, {Name: "more", Value: []byte("1")}}
	if n := testing.AllocsPerRun(100, func() { o.Splice(edits...) }); n > 1 {
		t.Errorf("Splice allocates %v times, want once", n)
	}
	if n := testing.AllocsPerRun(100, func() { o.Get("arguments") }); n > 0 {
		t.Errorf("Get allocates %v times, want never", n)
	}
}

// TestParseKeep holds what was kept from the scan against what a second scan reads.
func TestParseKeep(t *testing.T) {
	many := "[" + strings.Repeat("0,", 1500) + "1]"
	for _, text := range []string{
		` { "x" : { "deep" : { "x" : [ 1 , {"x":2} ] , "y" : null } } , "list" : [ "a" , [ ] , {} ] } `,
		`{"x":{},"list":[]}`, `{"x":[1],"list":{"x":{"a":1}}}`, `{"x":null,"list":"[]"}`, `{"\u0078":{"a":1},"l\u0069st":[1]}`,
		`{"x":{"x":{"x":{"list":[1,2]}}}}`, `{"x":{"a":1},"x":{"a":2},"list":[],"LIST":[]}`, `{}`, `{"list":` + many + `}`,
		`{"x":{` + strings.Repeat(`"a":1,`, 1500) + `"b":2}}`,
	} {
		kept, err := raw.ParseDepth([]byte(text), 100, "x", "list")
		if err != nil {
			t.Fatalf("%.80s: %v", text, err)
		}
		plain, _ := raw.Parse([]byte(text))
		compareKept(t, text, kept, plain)
	}
	for _, text := range []string{`{"x":{"a":[}}`, `{"x":[1,]}`, `{"list":[{"x":01}]}`, `{"x"`, `{"x":`, `{"x":{`, `{"x":[`, `{"x":{}`} {
		_, err := raw.ParseDepth([]byte(text), 100, "x", "list")
		_, want := raw.Parse([]byte(text))
		if bad, ok := errors.AsType[*raw.SyntaxError](err); !ok || *bad != *want.(*raw.SyntaxError) {
			t.Errorf("%s: %v, and %v when nothing is kept", text, err, want)
		}
	}
	if _, err := raw.ParseDepth([]byte(`{"x":{"x":[0]}}`), 2, "x"); err != raw.ErrDepth {
		t.Errorf("what is kept is too deep: %v, want %v", err, raw.ErrDepth)
	}
	text := []byte(`{"x":{"x":{"a":1,"b":2}}}`)
	o, _ := raw.ParseDepth(text, 100, "x")
	if allocs := testing.AllocsPerRun(10, func() {
		inner, _ := o.Object("x")
		inner.Object("x")
	}); allocs > 0 {
		t.Errorf("to find what was kept takes %v allocations: it was read again", allocs)
	}
}

func compareKept(t *testing.T, text string, kept, plain raw.Object) {
	t.Helper()
	for _, name := range []string{"x", "list", "deep", "a"} {
		got, gotErr := kept.Object(name)
		want, wantErr := plain.Object(name)
		if gotErr != wantErr || string(got.Text()) != string(want.Text()) || len(got.Members()) != len(want.Members()) || got.Present() != want.Present() {
			t.Fatalf("%.80s: the object %s is %q, %v; want %q, %v", text, name, got.Text(), gotErr, want.Text(), wantErr)
		}
		elements, gotErr := kept.Elements(name)
		wanted := [][]byte(nil)
		v, wantErr := plain.Get(name)
		if wantErr == nil {
			wanted, wantErr = raw.Elements(v)
		}
		if gotErr != wantErr || !slices.EqualFunc(elements, wanted, bytes.Equal) {
			t.Fatalf("%.80s: the elements of %s are %q, %v; want %q, %v", text, name, elements, gotErr, wanted, wantErr)
		}
		if !got.Present() {
			continue
		}
		edits := []raw.Edit{{Name: "deep", Value: []byte(`"new"`)}, {Name: "x"}, {Name: "a", Value: []byte("7")}}
		spliced, gotErr := got.Splice(edits...)
		again, wantErr := want.Splice(edits...)
		if gotErr != wantErr || string(spliced) != string(again) {
			t.Fatalf("%.80s: edits of %s make %q, %v; want %q, %v", text, name, spliced, gotErr, again, wantErr)
		}
		compareKept(t, text, got, want)
	}
}

func TestEachReturnsWhatParseReturns(t *testing.T) {
	for _, text := range []string{`{}`, ` { } `, `{"a":1}`, "{ \"a\" :\n[1,{\"b\":2}] , \"\\u0062\":{\"c\":null},\"a\":\"}\" } ", `[1]`, `"x"`, `null`} {
		var got []string
		for m := range raw.Each([]byte(text)) {
			got = append(got, string(m.Key)+string(m.Value))
		}
		var want []string
		o, _ := raw.Parse([]byte(text))
		for m := range o.All() {
			want = append(want, string(m.Key)+string(m.Value))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", text, got, want)
		}
		for m := range raw.Each([]byte(text)) { // may end early
			if len(got) == 0 || string(m.Key)+string(m.Value) != got[0] {
				t.Errorf("%s begins with %s", text, m.Key)
			}
			break
		}
	}
}
