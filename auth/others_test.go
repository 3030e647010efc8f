package auth_test

import (
	"fmt"
	"net/netip"
	"testing"

	"junction/auth"
)

// differing are other processes that differ in one key.
type differing string

func (d differing) Differs(key string) bool { return string(d) == key }
func (d differing) Lacks(string) bool       { return false }

// TestARolloutRefusesNoToken: a token that this process refuses, and another one may accept by its file, is
// answered 503 without a challenge, so that the client keeps it. Tokens that no file decides about are refused.
func TestARolloutRefusesNoToken(t *testing.T) {
	for _, tt := range []struct {
		token, differs string
		err            error
		status         int
	}{
		{"jct_key_x", "auth.api_keys", auth.ErrInvalidToken, 503},
		{"jct_key_x", "auth.jwt", auth.ErrInvalidToken, 401},
		{"jct_key_x", "", auth.ErrInvalidToken, 401},
		{"other", "auth.jwt", auth.ErrInvalidToken, 503},
		{"other", "auth.introspection", auth.ErrInvalidToken, 503},
		{"other", "auth.api_keys", auth.ErrInvalidToken, 401},
		{"other", "auth.jwt", &auth.ScopeError{Scopes: []string{"mcp"}}, 503},
		{"jct_at_x", "auth.jwt", auth.ErrInvalidToken, 401},
		{"jct_at_x", "auth.api_keys", auth.ErrInvalidToken, 401},
	} {
		g := &auth.Guard{Others: differing(tt.differs), Verifier: verify(func(string, netip.Addr) (*auth.Principal, error) {
			return nil, fmt.Errorf("refused: %w", tt.err)
		})}
		p, resp := ask(t, g, "POST", "/mcp", authorization("Bearer "+tt.token))
		retries := resp.Header.Get("Retry-After") != ""
		if p != nil || resp.StatusCode != tt.status || retries != (tt.status == 503) ||
			retries == (resp.Header.Get("WWW-Authenticate") != "") {
			t.Errorf("%s, refused with %v, while %q differs: %d, %v; want %d", tt.token, tt.err, tt.differs, resp.StatusCode,
				resp.Header, tt.status)
		}
	}
}
