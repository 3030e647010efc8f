package config

import (
	"reflect"
	"testing"
)

// TestWithoutLost: a file with mistakes takes the keys that it does not have any more, if its list of keys can be
// read. It never adds a key, and never ends authentication.
func TestWithoutLost(t *testing.T) {
	key := func(name, hash string) string { return "{ name: " + name + ", hash: \"" + hash + "\" }" }
	const mistake = "nonsense: 1\nupstreams: { u: { command: [x] } }\n"
	in := mustParse(t, "upstreams: { u: { command: [x] } }\nauth: { api_keys: ["+keyA+", "+keyB+"] }\n", nil)
	a, b := in.Auth.APIKeys[0], in.Auth.APIKeys[1]
	zero := "sha256:3333333333333333333333333333333333333333333333333333333333333333"
	for what, tt := range map[string]struct {
		text string
		want []string
	}{
		"one key is gone":              {"auth: { api_keys: [" + keyA + "] }\n", []string{a.Name}},
		"a key is new":                 {"auth: { api_keys: [" + keyA + ", " + keyB + ", " + key("new", zero) + "] }\n", []string{a.Name, b.Name}},
		"all keys are gone":            {"auth: { api_keys: [" + key("new", zero) + "] }\n", []string{"nobody"}},
		"the section is gone":          {"", []string{a.Name, b.Name}},
		"the section has another name": {"auht: { api_keys: [" + keyA + "] }\n", []string{a.Name, b.Name}},
		"the list has another name":    {"auth: { api_kys: [" + keyA + "], jwt: [{ issuer: https://i.example, audiences: [x] }] }\n", []string{a.Name, b.Name}},
		"the list is none":             {"auth: { api_keys: none }\n", []string{a.Name, b.Name}},
		"an entry of the name cannot be read": {"auth: { api_keys: [" + keyA + ", " + key(b.Name, "sha256:nonsense") + "] }\n",
			[]string{a.Name, b.Name}},
		"an entry of another name cannot be read": {"auth: { api_keys: [" + keyA + ", " + key("other", "sha256:nonsense") + "] }\n",
			[]string{a.Name}},
		"an entry without a name cannot be read": {"auth: { api_keys: [" + keyA + ", 7] }\n", []string{a.Name, b.Name}},
		"it is no YAML":                          {"auth: { api_keys: [" + keyA + "] }\n}\n", []string{a.Name, b.Name}},
	} {
		t.Run(what, func(t *testing.T) {
			c, err := Parse("next.yaml", []byte(tt.text+mistake), func(string) (string, bool) { return "", false })
			if err == nil {
				t.Fatal("the file has no mistake")
			}
			next, lost := in.WithoutLost(c, err)
			var names []string
			for _, k := range next.Auth.APIKeys {
				names = append(names, k.Name)
			}
			if !reflect.DeepEqual(names, tt.want) || !next.Auth.Needed() || len(in.Auth.APIKeys) != 2 {
				t.Errorf("in force are %v, and %v are lost; want %v", names, KeyNames(lost), tt.want)
			}
		})
	}
}
