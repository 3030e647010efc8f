package config

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestDigestsStayEqual: members of different releases compare these digests. The file uses each number, since releases
// before compared numbers that were zero.
func TestDigestsStayEqual(t *testing.T) {
	const text = `public_url: https://a.example
allowed_origins: [https://b.example]
names: { separator: "-" }
limits: { requests: 7 }
auth:
  api_keys: [` + keyA + `]
  jwt: [{ issuer: https://i.example, audiences: [https://a.example/mcp], required_claims: { tenant: t } }]
  trusted_proxies: [10.0.0.1/32]
  oauth:
    identity_providers: [{ id: sso, issuer: https://j.example, client_id: c, client_secret: canary-one }]
    tokens: { reuse_interval: 0 }
endpoints: { web: { upstreams: [a], match: { group: [dev] } } }
policies:
- name: p
  match: { group: [dev] }
  enforced: true
  rules: [{ allow: { tools: "a__*", where: { path: "/x<y" }, annotations: { readOnlyHint: true, trusted: [a] } } }, { deny: { resources: "é" } }]
  redact: [secrets]
  limits: { rate: 60/m, burst: 5, concurrent: 2 }
upstreams:
  a:
    url: https://c.example/mcp
    headers: { X-One: "1" }
    enabled: true
    tls: { server_name: d.example }
    idle_stop: 1m
    max_links: 3
    concurrency: 4
    timeout: 5s
    max_timeout: 6s
    connect_timeout: 7s
    cache: 8s
    tools: { "read_*": { enabled: true, cache: 9s, timeout: 3s, max_timeout: 4s } }
`
	all := mustShare(t, text)
	for _, want := range []string{
		"~allowed_origins=#62d64bb9ec92c39f",
		"auth=#205c94f3b0222e3b",
		"~auth.api_keys=#0248ce444b2b59d6",
		"~auth.jwt.https%3A//i.example=#205c94f3b0222e3b",
		"?auth.jwt.https%3A//i.example.audiences=#843b4cd1849ec128",
		"?auth.jwt.https%3A//i.example.claims.subject=#348ac383b4b016e3",
		"?auth.jwt.https%3A//i.example.issuer=#f89d4d08032fe6d7",
		"~auth.jwt.https%3A//i.example.required_claims=#8c61b52f965a00c7",
		"auth.oauth=#205c94f3b0222e3b",
		"~auth.oauth.identity_providers.sso=#205c94f3b0222e3b",
		"~auth.oauth.identity_providers.sso.client_id=#f8ccb15f76940fe6",
		"~auth.oauth.identity_providers.sso.client_secret=#c5cb178f5a55466c",
		"?auth.oauth.identity_providers.sso.id=#ba8e58ac7ae5cd65",
		"?auth.oauth.identity_providers.sso.issuer=#bb0aca7a6f14fda7",
		"?auth.oauth.identity_providers.sso.subject_claims=#348ac383b4b016e3",
		"~auth.oauth.tokens.reuse_interval=#089c386a9149b5cc",
		"~auth.trusted_proxies=#2998267077c600cb",
		"~endpoints=#d074c07342995915",
		"~limits.requests=#01235b0d2aa4a5da",
		"names.separator=#5a7f3cff0ba066f3",
		"~policies=#57ed4cbd3c9534b6",
		"public_url=#1efd777668c5f0a0",
		"~upstreams=#6bb69dbd9bd1b687",
	} {
		if !slices.Contains(all, want) {
			name, _, _ := strings.Cut(want, "=")
			t.Errorf("no part is %s; with this name there is %q", want, slices.DeleteFunc(slices.Clone(all),
				func(part string) bool { return !strings.HasPrefix(part, name+"=") }))
		}
	}
}

// TestUnusedKeysChangeNoDigest: members compare the same text of a type before and after it has got further keys, until
// a file uses one of them. A pointer is used if it is set, also to the zero value.
func TestUnusedKeysChangeNoDigest(t *testing.T) {
	type section struct{ Number int }
	type before struct{ Word string }
	type after struct {
		Word    string
		Number  int
		Size    float64
		Time    time.Duration
		Flag    bool
		Text    string
		List    []int
		Members map[string]int
		Inside  section
		Entry   *section
		Pointer *int
		Named   int `json:"renamed,omitempty"`
		section
	}
	text := func(v any) string {
		made, err := json.Marshal(used(reflect.ValueOf(v)))
		if err != nil {
			t.Fatal(err)
		}
		return string(made)
	}
	if got, want := text([]after{{Word: "x"}}), text([]before{{Word: "x"}}); got != want {
		t.Errorf("with further keys members compare %s, want %s", got, want)
	}
	for want, v := range map[string]after{
		`{"Pointer":0}`: {Pointer: new(int)}, `{"Entry":{}}`: {Entry: new(section)}, `{"List":[0]}`: {List: []int{0}},
		`{"Members":{"a":1}}`: {Members: map[string]int{"a": 1}}, `{"Inside":{"Number":1}}`: {Inside: section{1}},
		`{"renamed":1}`: {Named: 1}, `{"Flag":true,"Time":1}`: {Flag: true, Time: 1},
	} {
		if got := text(v); got != want {
			t.Errorf("of %+v members compare %s, want %s", v, got, want)
		}
	}
}
