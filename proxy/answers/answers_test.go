package answers

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"junction/upstream/raw"
)

func mustParse(t *testing.T, text string) raw.Object {
	t.Helper()
	o, err := raw.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestKeys compares the keys of calls: a key is the same if the result must be the same, and
// differs otherwise.
func TestKeys(t *testing.T) {
	c := New()
	base := Call{Account: "ann", Source: "up", Announced: 1, Tool: "t", Definition: []byte(`{"name":"t"}`), Client: "x"}
	const params = `{"name":"up__t","arguments":{"a":1,"b":"x"}}`
	key := func(change func(*Call), params string) Key {
		t.Helper()
		call := base
		change(&call)
		call.Params = mustParse(t, params)
		k, ok := c.Key(call)
		if !ok {
			t.Fatalf("%s has no key", params)
		}
		return k
	}
	same := func(*Call) {}
	want := key(same, params)
	for _, equal := range []string{`{"arguments":{"b":"\u0078","a":1.0},"name":"t"}`,
		`{"name":"up__t","arguments":{"a":1,"b":"x"},"_meta":{"progressToken":7,"io.modelcontextprotocol/clientInfo":{"name":"c"}}}`,
		`{"name":"up__t","arguments":{"a":1,"b":"x"},"_meta":{}}`} {
		if key(same, equal) != want {
			t.Errorf("%s has another key", equal)
		}
	}
	for _, other := range []string{`{"name":"up__t","arguments":{"a":1,"b":"X"}}`, `{"name":"up__t","arguments":{"a":1}}`,
		`{"name":"up__t"}`, `{"name":"up__t","arguments":{"a":1,"b":"x"},"_meta":{"tenant":"x"}}`,
		`{"name":"up__t","arguments":{"a":1,"b":"x"},"else":1}`} {
		if key(same, other) == want {
			t.Errorf("%s has the same key", other)
		}
	}
	for i, change := range []func(*Call){
		func(c *Call) { c.Account = "bob" }, func(c *Call) { c.Source = "other" }, func(c *Call) { c.Announced++ },
		func(c *Call) { c.Tool = "u" }, func(c *Call) { c.Definition = []byte(`{"name":"t","x":1}`) },
		func(c *Call) { c.Client = "y" }, func(c *Call) { c.Tool, c.Definition = `t{"name":"t"}`, nil }} {
		if key(change, params) == want {
			t.Errorf("change %d has the same key", i)
		}
	}
	for _, none := range []string{`{"name":"t","requestState":"s"}`, `{"name":"t","inputResponses":{}}`, `{"name":"t","task":{}}`,
		`{"name":"t","arguments":{"a":1,"a":2}}`, `{"name":"t","_meta":7}`, `{"name":"t","name":"u"}`,
		`{"name":"t","_meta":{"progressToken":1,"ProgressToken":2}}`} {
		call := base
		call.Params = mustParse(t, none)
		if _, ok := c.Key(call); ok {
			t.Errorf("%s has a key", none)
		}
	}
}

// TestKept keeps results until their end, until Clear, and within the bounds.
func TestKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		key := func(i int) Key {
			k, _ := c.Key(Call{Account: i, Source: "up", Tool: "t", Params: mustParse(t, "{}")})
			return k
		}
		has := func(i int) bool { _, ok := c.Get(key(i)); return ok }
		text := []byte(`{"a":1}`)
		c.Put(key(1), text, time.Minute)
		text[2] = 'b' // the memory of an answer is used again
		if got, _ := c.Get(key(1)); string(got) != `{"a":1}` {
			t.Errorf("kept is %s", got)
		}
		time.Sleep(time.Minute - 1)
		if !has(1) {
			t.Error("a result is gone before its end")
		}
		time.Sleep(time.Nanosecond)
		if has(1) {
			t.Error("a result is there after its end")
		}
		c.Put(key(1), text, time.Minute)
		old := key(2)
		c.Clear()
		c.Put(old, text, time.Minute)
		if has(1) || has(2) || c.room.Used != 0 {
			t.Errorf("after Clear %d bytes are kept", c.room.Used)
		}
		c.Put(key(1), []byte(strings.Repeat("x", maxResult+1)), time.Minute)
		if has(1) {
			t.Error("a result that is too large is kept")
		}
		for i := range 2 * maxBytes / overhead {
			c.Put(key(i), text, time.Minute)
		}
		if c.room.Used > maxBytes || c.room.Len() > maxBytes/overhead {
			t.Errorf("%d results with %d bytes are kept", c.room.Len(), c.room.Used)
		}
	})
}

func BenchmarkKey(b *testing.B) {
	c := New()
	params, err := raw.Parse(fmt.Appendf(nil, `{"name":"t","arguments":{"query":"%s","limit":10}}`, strings.Repeat("x", 100)))
	if err != nil {
		b.Fatal(err)
	}
	definition := []byte(strings.Repeat("x", 2000))
	b.ReportAllocs()
	for b.Loop() {
		k, _ := c.Key(Call{Account: "a", Source: "u", Tool: "t", Definition: definition, Params: params})
		c.Get(k)
	}
}
