package diagnose

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"junction/policy"
)

// TestCallerOfAQuery reads the callers that junction why accepts.
func TestCallerOfAQuery(t *testing.T) {
	for as, want := range map[string]policy.Subject{
		"ci":       {Kind: "key", ID: "key:ci", Key: "ci"},
		"key:ci":   {Kind: "key", ID: "key:ci", Key: "ci"},
		"user:ann": {Kind: "user", ID: "user:ann", User: "ann"},
		"ann@x.io": {Kind: "key", ID: "key:ann@x.io", Key: "ann@x.io"},
	} {
		if got, err := (&WhyQuery{As: as}).Subject(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("--as %s is %+v, %v; want %+v", as, got, err, want)
		}
	}
	got, err := (&WhyQuery{As: "local"}).Subject()
	if err != nil || got.Kind != "local" || !got.Address.IsLoopback() {
		t.Errorf("--as local is %+v, %v; want this machine", got, err)
	}
	got, err = (&WhyQuery{As: "local", From: "::ffff:10.1.2.3", Groups: []string{"g"}, Scopes: []string{"s"}, Email: "e",
		Issuer: "i", OAuthClient: "o"}).Subject()
	if err != nil || got.Address != netip.MustParseAddr("10.1.2.3") || !slices.Equal(got.Groups, []string{"g"}) ||
		!slices.Equal(got.Scopes, []string{"s"}) || got.Email+got.Issuer+got.OAuthClient != "eio" {
		t.Errorf("with everything the caller is %+v, %v", got, err)
	}
	for what, row := range map[string]struct {
		q    WhyQuery
		want string
	}{
		"nobody":     {WhyQuery{}, "add --as"},
		"a secret":   {WhyQuery{As: "canary-jct_key_x"}, "not the key itself"},
		"no name":    {WhyQuery{As: "key:"}, "is not a caller"},
		"no user":    {WhyQuery{As: "user:"}, "is not a caller"},
		"a kind":     {WhyQuery{As: "group:x"}, "is not a caller"},
		"no address": {WhyQuery{As: "ci", From: "here"}, "write it like 10.1.2.3"},
	} {
		_, err := row.q.Subject()
		if err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "canary-") {
			t.Errorf("%s: %v, want %q and no secret", what, err, row.want)
		}
	}
}

// TestQueryIsWholeAsParameters: the command sends a query, and the proxy reads the same.
func TestQueryIsWholeAsParameters(t *testing.T) {
	want := WhyQuery{As: "a", Endpoint: "e", Name: "n", Groups: []string{"g", "h"}, Scopes: []string{"s"}, Email: "m",
		Issuer: "i", From: "f", OAuthClient: "o"}
	v := reflect.ValueOf(want)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("the test has no %s", v.Type().Field(i).Name)
		}
	}
	if got := queryOf(want.Values()); !reflect.DeepEqual(got, want) {
		t.Errorf("the query arrives as %+v, want %+v", got, want)
	}
}

// TestEndpointWords: what an operator writes for an endpoint, and the path that is shown.
func TestEndpointWords(t *testing.T) {
	for word, want := range map[string][]string{
		"": {""}, "/mcp": {""}, "mcp/": {""}, "http://localhost:8420/mcp": {""}, "/mcp/up": {"up"}, "mcp/up": {"up"},
		"https://x.org/web/mcp": {"web/"}, "web/mcp": {"web/"}, "web": {"web/", "web"},
	} {
		if got := endpoints(word); !slices.Equal(got, want) {
			t.Errorf("%q may be %q, want %q", word, got, want)
		}
	}
	for endpoint, want := range map[string]string{"": "/mcp", "up": "/mcp/up", "web/": "/web/mcp"} {
		if got := EndpointPath(endpoint); got != want {
			t.Errorf("the path of %q is %s, want %s", endpoint, got, want)
		}
	}
}
