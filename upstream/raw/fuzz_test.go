package raw_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"junction/upstream/raw"
)

// hostile are the fuzz targets' first inputs.
var hostile = []string{
	`{"modelcontextprotocol/name":1,"ModelContextProtocol/Name":2}`, `{"modelcontextprotocol/n\u0061me":1,"modelcontextprotocol/other":"x"}`,
	`{}`, ` { "a" : 1 , "b" : [ ] } `, `{"a":1,"a":2}`, `{"name":"x","Name":"y","n\u0061me":"z"}`, `{"task":1,"taſk":2,"tas\u212a":3}`,
	`{"a":"\ud800","\udc00":1,"b\u0000":2}`, "{\"\xff\":\"\xfe\"}", `[1.0,-0,1e400,9007199254740993]`, `{"a":{"b":{"c":[{},[],"",null,true,false]}}}`,
	`{"é\n":"𝄞\"\\\/\b\f\r\t","x":"` + strings.Repeat("long ", 20) + `"}`, `{"a":1,}`, `[1,]`, `"\u12"`, "\"\x1f\"", "\ufeff{}", `{"a":1}}`, `01`, `1.`, `nul`,
}

// FuzzScan holds Scan against encoding/json, which has the same limit of nesting.
func FuzzScan(f *testing.F) {
	for _, text := range hostile {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := raw.Scan(text, raw.DefaultDepth)
		if valid := json.Valid(text); valid != (err == nil) {
			t.Fatalf("Scan(%q) = %v, encoding/json says valid = %v", text, err, valid)
		}
		if err == nil {
			if want := bytes.Trim(text, " \t\r\n"); !bytes.Equal(got, want) {
				t.Errorf("Scan(%q) = %q, want %q", text, got, want)
			}
			return
		}
		// The byte at which it stops is the one that encoding/json complains of.
		bad, ok := errors.AsType[*raw.SyntaxError](err)
		if !ok {
			return
		}
		var v any
		theirs, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(text, &v))
		if !ok {
			t.Fatalf("encoding/json has no syntax error for %q", text)
		}
		// Theirs is the number of bytes read, with the wrong one; at the end of the text there is
		// no wrong one.
		if want := int(theirs.Offset); bad.Offset != want-1 && (bad.Offset != len(text) || want != len(text)) {
			t.Errorf("Scan(%q) stops at byte %d, encoding/json after %d bytes: %v", text, bad.Offset, want, theirs)
		}
	})
}

// member is a member of an object as encoding/json reads it.
type member struct{ name, value string }

// decode returns the members of an object in their order, duplicates included.
func decode(t *testing.T, text []byte) []member {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		t.Fatalf("%q is no object: %v", text, err)
	}
	var list []member
	for d.More() {
		name, err := d.Token()
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		list = append(list, member{name.(string), string(value)})
	}
	if _, err := d.Token(); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	if _, err := d.Token(); err != io.EOF {
		t.Fatalf("%q: %v after the object", text, err)
	}
	return list
}

// FuzzSplice makes two edits, and looks at the result with encoding/json: members have their values
// and order, and keep their bytes.
func FuzzSplice(f *testing.F) {
	for _, text := range hostile {
		f.Add([]byte(text), "a", []byte(`{"x": 1.0}`), "b", []byte(nil))
		f.Add([]byte(text), "name", []byte(nil), "new", []byte(`"v"`))
	}
	f.Fuzz(func(t *testing.T, text []byte, name1 string, value1 []byte, name2 string, value2 []byte) {
		o, err := raw.Parse(text)
		if err != nil || name1 == name2 || !utf8.ValidString(name1) || !utf8.ValidString(name2) {
			return
		}
		edits := []raw.Edit{{Name: name1, Value: value1}, {Name: name2, Value: value2}}
		for i, e := range edits {
			if v, err := raw.Scan(e.Value, 1000); err == nil {
				edits[i].Value = v
			} else if len(e.Value) > 0 {
				edits[i].Value = raw.Quote(string(e.Value))
			}
		}
		before := bytes.Clone(text)
		got, err := o.Splice(edits...)
		if !bytes.Equal(text, before) {
			t.Fatalf("Splice changed the text from %q to %q", before, text)
		}
		for _, e := range edits {
			if _, bad := o.Get(e.Name); bad == raw.ErrAmbiguous {
				if err != raw.ErrAmbiguous {
					t.Fatalf("%q: Splice = %v, and %q is ambiguous", text, err, e.Name)
				}
				return
			}
		}
		if err != nil {
			t.Fatalf("%q: Splice(%q) = %v", text, edits, err)
		}
		if !json.Valid(got) {
			t.Fatalf("%q: Splice(%q) = %q, which is no JSON", text, edits, got)
		}
		if after, err := o.AppendSplice([]byte(`,{"a":1,`), edits...); err != nil || string(after) != `,{"a":1,`+string(got) {
			t.Fatalf("%q: AppendSplice(%q) = %q, %v; Splice makes %q", text, edits, after, err, got)
		}

		var want []member
		var keys [][]byte
		done := make([]bool, len(edits))
		decoded := decode(t, text)
		if len(decoded) != len(o.Members()) {
			t.Fatalf("%q: %d members, encoding/json finds %d", text, len(o.Members()), len(decoded))
		}
		for i, m := range decoded {
			name, err := o.Members()[i].Name()
			k := slices.IndexFunc(edits, func(e raw.Edit) bool { return err == nil && e.Name == name })
			if k >= 0 {
				if done[k] = true; len(edits[k].Value) == 0 {
					continue
				}
				m.value = string(edits[k].Value)
			}
			want = append(want, m)
			keys = append(keys, o.Members()[i].Key)
		}
		for k, e := range edits {
			if !done[k] && len(e.Value) > 0 {
				want = append(want, member{e.Name, string(e.Value)})
				keys = append(keys, raw.Quote(e.Name))
			}
		}
		if list := decode(t, got); !slices.Equal(list, want) {
			t.Errorf("%q: Splice(%q) = %q, members %q, want %q", text, edits, got, list, want)
		}
		spliced, err := raw.Parse(got)
		if err != nil {
			t.Fatalf("Parse(%q): %v", got, err)
		}
		for i, m := range spliced.Members() {
			if !bytes.Equal(m.Key, keys[i]) {
				t.Errorf("%q: Splice(%q) = %q, key %d is %s, want %s", text, edits, got, i, m.Key, keys[i])
			}
		}

		// A member that is replaced by itself changes nothing at all.
		var same []raw.Edit
		for _, e := range edits {
			if v, err := o.Get(e.Name); err == nil {
				same = append(same, raw.Edit{Name: e.Name, Value: v})
			}
		}
		if again, err := o.Splice(same...); err != nil || !bytes.Equal(again, text) {
			t.Errorf("%q with its own members spliced in = %q, %v", text, again, err)
		}
	})
}

// FuzzGet holds Get against encoding/json where that is sure, and otherwise wants ErrAmbiguous.
func FuzzGet(f *testing.F) {
	for _, text := range hostile {
		for _, name := range []string{"a", "name", "task", "b", "é\n", "", "modelcontextprotocol/name", "modelcontextprotocol/n\\u0061me"} {
			f.Add([]byte(text), name)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, name string) {
		if !utf8.ValidString(name) || strings.ContainsRune(name, utf8.RuneError) {
			return // encoding/json would find what is no UTF-8 under this name
		}
		got, err := raw.Get(text, name)
		var members map[string]json.RawMessage
		if bad := json.Unmarshal(text, &members); bad != nil || members == nil {
			if _, syntax := errors.AsType[*raw.SyntaxError](err); err == nil || err == raw.ErrAmbiguous || syntax == json.Valid(text) {
				t.Fatalf("Get(%q, %q) = %q, %v; encoding/json says %v", text, name, got, err, bad)
			}
			return
		}
		exact, near, odd := 0, 0, false
		for _, m := range decode(t, text) {
			switch {
			case m.name == name:
				exact++
			case strings.EqualFold(m.name, name):
				near++
			case strings.ContainsAny(m.name, "\x00\ufffd"):
				odd = true // some readers drop these, so that such a key may be ambiguous
			}
		}
		switch {
		case odd && err == raw.ErrAmbiguous:
		case exact == 0 && near == 0:
			if err != raw.ErrAbsent {
				t.Errorf("Get(%q, %q) = %q, %v; want %v", text, name, got, err, raw.ErrAbsent)
			}
		case exact == 1 && near == 0:
			if err != nil || string(got) != string(members[name]) {
				t.Errorf("Get(%q, %q) = %q, %v; want %q", text, name, got, err, members[name])
			}
		default:
			if err != raw.ErrAmbiguous {
				t.Errorf("Get(%q, %q) = %q, %v; want %v", text, name, got, err, raw.ErrAmbiguous)
			}
		}
	})
}

// FuzzString holds String and Quote against encoding/json.
func FuzzString(f *testing.F) {
	for _, text := range hostile {
		f.Add([]byte(text))
		f.Add(raw.Quote(text))
		f.Add([]byte(`"` + strings.ReplaceAll(text, `"`, "") + `"`))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := raw.String(text)
		var want string
		bad := json.Unmarshal(text, &want)
		_, syntax := errors.AsType[*raw.SyntaxError](err)
		switch {
		case err == nil:
			if bad != nil || got != want || !utf8.ValidString(got) {
				t.Errorf("String(%q) = %q; want %q, %v", text, got, want, bad)
			}
		case err == raw.ErrAmbiguous:
			if bad != nil || !strings.ContainsRune(want, utf8.RuneError) {
				t.Errorf("String(%q) = %v; encoding/json says %q, %v", text, err, want, bad)
			}
		case err == raw.ErrAbsent:
			if len(text) > 0 && text[0] == '"' {
				t.Errorf("String(%q) = %v", text, err)
			}
		case !syntax || bad == nil && text[0] == '"' && text[len(text)-1] == '"':
			t.Errorf("String(%q) = %v; encoding/json says %q, %v", text, err, want, bad)
		}

		quoted := raw.Quote(string(text))
		if err := json.Unmarshal(quoted, &want); err != nil || want != strings.ToValidUTF8(string(text), "\ufffd") && utf8.Valid(text) {
			t.Errorf("Quote(%q) = %q, in which encoding/json reads %q, %v", text, quoted, want, err)
		}
		if got, err := raw.String(quoted); err != nil || got != want {
			t.Errorf("String(Quote(%q)) = %q, %v; want %q", text, got, err, want)
		}
	})
}

// FuzzKeep holds what is kept from a scan against what further scans read.
func FuzzKeep(f *testing.F) {
	for _, text := range hostile {
		f.Add([]byte(text))
		f.Add([]byte(`{"x":{"list":[` + text + `,` + text + `],"deep":{"a":` + text + `},"x":` + text + `}}`))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		kept, err := raw.ParseDepth(text, raw.DefaultDepth, "x", "list", "deep")
		plain, want := raw.Parse(text)
		if fmt.Sprint(err) != fmt.Sprint(want) {
			t.Fatalf("%q: %v, and %v when nothing is kept", text, err, want)
		}
		compareKept(t, string(text), kept, plain)
	})
}
