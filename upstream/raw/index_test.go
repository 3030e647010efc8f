package raw

import (
	"strings"
	"testing"
)

// FuzzIndex holds what is only compared against the long way: the short one must not see a name
// where that sees none, nor miss one that another reader finds.
func FuzzIndex(f *testing.F) {
	for _, key := range []string{"name", "Name", "task", "n\\u0061me", "na\\u0000me", "name\\u0000x", "taſk", "tas\u212a", "na\xffme", "na\\ud800me", "na@e", "na`e",
		"modelcontextprotocol/name", "modelcontextprotocol/n\\u0061me", "modelcontextprotocol\\/name", "12345678\x7f", "1234567\xc3\xa9", "", "\\u0000", "\\\"", "]name["} {
		for _, name := range []string{"name", "task", "na`e", "na@e", "modelcontextprotocol/name", "", "taſk", "{name{"} {
			f.Add([]byte(key), []byte("other"), name)
		}
	}
	f.Fuzz(func(t *testing.T, key, other []byte, name string) {
		text := strings.Join([]string{`{"`, string(key), `":1,"x":{"y":2,"`, string(other), `":3,"`, string(key), `":4},"`, string(other), `":5}`}, "")
		o, err := ParseDepth([]byte(text), 3, "x")
		if err != nil {
			return
		}
		for _, m := range o.members {
			if m.inside != nil {
				holdIndex(t, Object{o.valueOf(&m), m.inside.members}, name)
			}
		}
		holdIndex(t, o, name)
	})
}

func holdIndex(t *testing.T, o Object, name string) {
	t.Helper()
	want, wrong := -1, error(ErrAbsent)
	for i, m := range o.Members() {
		switch match(m.Key, name) {
		case twisted:
			wrong = ErrAmbiguous
		case exact:
			if want >= 0 {
				wrong = ErrAmbiguous
			} else if want = i; wrong == ErrAbsent {
				wrong = nil
			}
		}
	}
	if got, err := o.index(name); err != wrong || err == nil && got != want {
		t.Errorf("%q in %q: member %d, %v; want %d, %v", name, o.text, got, err, want, wrong)
	}
	if name == "" || len(name) > 255 || !ascii(name) {
		return
	}
	found := o.Find(NewNames("x", name, "y"))
	one, err := o.Get(name)
	if got, bad := found.Get(1); bad != err || string(got) != string(one) {
		t.Errorf("%q in %q, found with others: %q, %v; want %q, %v", name, o.text, got, bad, one, err)
	}
}
