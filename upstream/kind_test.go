package upstream

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"junction/upstream/client"
)

// TestEveryKindOfServerHasItsFacts: each kind of server has all facts, and an address that decides which
// server is meant.
func TestEveryKindOfServerHasItsFacts(t *testing.T) {
	mayBeEmpty := []string{"Process", "HTTP", "Downloads", "Closed"}
	for _, kind := range client.ServerKinds() {
		row, ok := kindRows[kind]
		if !ok {
			t.Fatalf("kindRows has no row for %s", kind.Key)
		}
		for i, of := 0, reflect.ValueOf(row); i < of.NumField(); i++ {
			if of.Field(i).IsZero() {
				t.Fatalf("the row for %s in kindRows lacks the fact %s", kind.Key, of.Type().Field(i).Name)
			}
		}
		facts := reflect.ValueOf(kind).Elem()
		for i := range facts.NumField() {
			if name := facts.Type().Field(i).Name; facts.Field(i).IsZero() && !slices.Contains(mayBeEmpty, name) {
				t.Errorf("%s has no %s", kind.Key, name)
			}
		}
		var none, c Config
		row.assume(&c)
		if c.Kind() != kind || !c.Addressed() || none.Addressed() {
			t.Errorf("an entry with the key %s is %s", kind.Key, c.Kind().Key)
		}
		if reflect.DeepEqual(c.Address(), none.Address()) || c.Entry("a") == none.Entry("a") {
			t.Errorf("what was remembered of another server is used for a server with another %s", kind.Key)
		}
		if problems := c.Validate("a"); len(problems) > 0 {
			t.Errorf("the address that is assumed for %s has mistakes: %v", kind.Key, problems)
		}
		if c.shown() == "" {
			t.Errorf("nothing is shown of a server with %s", kind.Key)
		}
	}
}

// TestKeysNameTheirKindOfServer: the tag kind of a field is the key of a kind of server, and an entry of
// another kind with this field is a mistake.
func TestKeysNameTheirKindOfServer(t *testing.T) {
	if len(kindRows) < len(client.ServerKinds()) {
		t.Fatal("a kind of server lacks its facts: see TestEveryKindOfServerHasItsFacts")
	}
	values := map[string]any{"Env": map[string]string{"A": "b"}, "InheritEnv": []string{"A"}, "Dir": "/x",
		"Headers": map[string]string{"A": "b"}, "ForwardHeaders": []string{"A"}, "Identity": Identity{Audience: "a"}, "Transport": "http", "TLS": TLS{CAFile: "/ca.pem"}}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		of, _, _ := strings.Cut(field.Tag.Get("kind"), ",")
		if of == "" {
			continue
		}
		if client.ServerKindOfKey(of) == nil {
			t.Errorf("%s is for servers with %s, which is no key of a kind of server", field.Name, of)
		}
		for _, kind := range client.ServerKinds() {
			var c Config
			if kindRows[kind].assume(&c); kind.HTTP {
				c.URL = "https://unknown.invalid"
			}
			v := reflect.ValueOf(&c).Elem().FieldByIndex(field.Index)
			switch value, ok := values[field.Name]; {
			case ok:
				v.Set(reflect.ValueOf(value).Convert(v.Type()))
			case v.Kind() == reflect.Pointer:
				v.Set(reflect.New(v.Type().Elem()))
			case field.Name == "Auth":
				c.Auth.Mode = AuthOAuth
			default:
				t.Fatalf("the test has no value for %s", field.Name)
			}
			if problems := c.Validate("a"); (len(problems) == 0) != (kind.Key == of) {
				t.Errorf("%s beside %s: %v", field.Name, kind.Key, problems)
			}
		}
	}
}
