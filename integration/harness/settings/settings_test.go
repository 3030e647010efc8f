package settings_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"junction/auth"
	"junction/integration/harness/settings"
	"junction/proxy"
	"junction/proxy/scope"
	"junction/upstream"
	"junction/upstream/client"
)

// TestSectionIsReadAsItWas writes settings of each kind and reads them as the file is read.
func TestSectionIsReadAsItWas(t *testing.T) {
	wants(t, map[string]upstream.Config{"up": {
		Command: []string{"sh", "-c", "exit"}, Env: map[string]string{"A": `{"b":"c: d # e"}`, "N": "1"}, Prefix: new(""),
		Enabled: new(false), Timeout: 1500 * time.Millisecond, Questions: upstream.QuestionsExact, MaxLinks: 3,
		Tools: upstream.Rules{{Glob: "z*", Rule: upstream.Rule{As: "y"}}, {Glob: "a", Rule: upstream.Rule{Cache: new(time.Duration)}}},
	}, "other": {URL: "http://x", Era: client.EraModern, Transport: client.TransportSSE}})
	wants(t, proxy.Limits{Page: 2, Message: 64 << 10, Patience: 100 * time.Millisecond})
	wants(t, auth.Config{APIKeys: []auth.Key{{Name: "one", Hash: auth.Hash{1, 2}}}})
	wants(t, map[string]scope.EndpointConfig{"web": {Upstreams: []string{"up"}}})
}

func wants[T any](t *testing.T, v T) {
	t.Helper()
	n, err := settings.Section(v)
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	var got T
	if err := yaml.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, v) {
		t.Errorf("%+v is read as\n%+v, %v, from\n%s", v, got, err, text)
	}
}

// TestSectionRefuses wants an error for each setting that would get lost.
func TestSectionRefuses(t *testing.T) {
	for _, c := range []upstream.Config{{Blocked: "a reason"}, {Separate: true}, {Reserved: []string{"X"}}, {Era: "no era"}} {
		if n, err := settings.Section(c); err == nil {
			t.Errorf("%+v is written as %+v, want an error", c, n)
		}
	}
	if _, err := settings.Section(upstream.Config{Separate: true}, "Separate"); err != nil {
		t.Errorf("Separate, which the reader sets: %v", err)
	}
}

// TestSectionHasNoReferences keeps the reader from replacing what looks like a variable.
func TestSectionHasNoReferences(t *testing.T) {
	n, err := settings.Section(upstream.Config{Env: map[string]string{"A": "${B} $C"}})
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := yaml.Marshal(n); !strings.Contains(string(text), "$${B} $C") {
		t.Errorf("written as %s", text)
	}
}
