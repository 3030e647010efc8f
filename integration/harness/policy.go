package harness

import (
	"cmp"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"junction/auth"
	"junction/policy"
	"junction/proxy/front"
	"junction/proxy/scope"
	"junction/upstream"
	"junction/upstream/jsonrpc"
)

// MustPolicy compiles a policies section.
func MustPolicy(t *testing.T, text string) *policy.Policy {
	t.Helper()
	var c policy.Config
	var n yaml.Node
	if err := cmp.Or(yaml.Unmarshal([]byte(text), &c), yaml.Unmarshal([]byte(text), &n)); err != nil {
		t.Fatal(err)
	}
	p, err := policy.Compile(c)
	if err != nil {
		t.Fatal(err)
	}
	madeFrom(t, p, n.Content[0])
	return p
}

// Keyring makes a key for each name, and the guard that knows them.
func Keyring(t *testing.T, names ...string) (*auth.Guard, map[string]string) {
	t.Helper()
	keys := map[string]string{}
	var config auth.Config
	for _, name := range names {
		keys[name] = auth.NewKey()
		hash, err := auth.HashKey(keys[name])
		if err != nil {
			t.Fatal(err)
		}
		config.APIKeys = append(config.APIKeys, auth.Key{Name: name, Hash: hash})
	}
	guard := config.Guard(nil, "", nil)
	madeFrom(t, guard, config)
	return guard, keys
}

// As returns a client that shows a key.
func (j *Junction) As(t *testing.T, key string, change ...func(*Talker)) *Talker {
	t.Helper()
	c := &Talker{URL: j.URL, Era: j.pair.Client, Version: "2025-11-25", Capabilities: AllCapabilities, Key: key}
	for _, f := range change {
		f(c)
	}
	return c.Start(t)
}

// WithoutName is what a client reads of an answer, without the id and with one name in place of
// another.
func WithoutName(m jsonrpc.Message, name string) string {
	m.ID = "0"
	return strings.ReplaceAll(string(m.Append(nil)), name, "NAME")
}

// Allowing is an option of MustProxy: pages of these origins may send requests.
func Allowing(origins []string) Option {
	return func(_ *front.Options, w *scope.Config, _ *upstream.Options) { w.AllowedOrigins = origins }
}
