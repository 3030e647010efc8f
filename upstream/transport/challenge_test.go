package transport

import (
	"maps"
	"strings"
	"testing"
)

// TestChallenges reads challenges as servers write them: the last three are no grammar of RFC 9110.
func TestChallenges(t *testing.T) {
	for _, test := range []struct {
		name, scheme string
		values       []string
		want         map[string]string
	}{
		{"one", "bearer", []string{`Bearer realm="a b", scope="read write", resource_metadata="https://a.example/x"`},
			map[string]string{"realm": "a b", "scope": "read write", "resource_metadata": "https://a.example/x"}},
		{"another one first", "bearer", []string{`Basic realm="resource_metadata=no", Bearer scope="read"`}, map[string]string{"scope": "read"}},
		{"in two headers", "bearer", []string{`Basic realm="x"`, `bearer  Scope = "read"`}, map[string]string{"scope": "read"}},
		{"DPoP", "dpop", []string{`DPoP algs="ES256", resource_metadata="/x"`}, map[string]string{"algs": "ES256", "resource_metadata": "/x"}},
		{"of another scheme", "", []string{`Negotiate resource_metadata="https://evil.example"`}, nil},
		{"an escape", "bearer", []string{`Bearer realm="a \"b\", scope=\"no\"", scope="c"`}, map[string]string{"realm": `a "b", scope="no"`, "scope": "c"}},
		{"none", "", nil, nil},
		{"without quotation marks", "bearer", []string{`Bearer resource_metadata=https://a.example/x?y=1, scope=read`},
			map[string]string{"resource_metadata": "https://a.example/x?y=1", "scope": "read"}},
		{"doubled", "bearer", []string{`Bearer scope="a", scope="b"`}, map[string]string{"scope": "a"}},
		{"a bare URL", "", []string{`https://a.example/x`}, nil},
		{"without an end", "bearer", []string{`Bearer scope="read`}, map[string]string{"scope": "read"}},
	} {
		c, ok := OfBearer(test.values)
		if ok != (test.scheme != "") || c.Scheme != test.scheme || !maps.Equal(c.Parameters, test.want) {
			t.Errorf("%s: %+v, %v", test.name, c, ok)
		}
	}
	if all := Challenges([]string{strings.Repeat("Bearer a=b, ", 10_000)}); len(all) != maxChallenges {
		t.Errorf("there are %d challenges", len(all))
	}
}

// TestReferralNeedsNoQuotationMarks: a parameter of another scheme, or in a quoted text, refers to no
// sign-in.
func TestReferralNeedsNoQuotationMarks(t *testing.T) {
	for challenge, want := range map[string]bool{
		`Bearer resource_metadata="https://a.example/x"`:          true,
		`Bearer resource_metadata = https://a.example/x`:          true,
		`Basic realm="x", Bearer resource_metadata="https://a/x"`: true,
		`Basic realm="resource_metadata=x"`:                       false,
		`Negotiate resource_metadata="https://a.example/x"`:       false,
		`Bearer realm="x"`: false,
	} {
		if got := (&StatusError{Status: 401, Challenge: []string{challenge}}).WantsOAuth(); got != want {
			t.Errorf("%s: %v", challenge, got)
		}
	}
	lacks := &StatusError{Status: 403, Challenge: []string{`Bearer scope=files:write, error=insufficient_scope`}}
	if scopes, ok := lacks.Lacks(); !ok || len(scopes) != 1 || scopes[0] != "files:write" {
		t.Errorf("a challenge without quotation marks: %q, %v", scopes, ok)
	}
}
