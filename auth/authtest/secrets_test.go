package authtest

import (
	"fmt"
	"strings"
	"testing"
)

// heard is a test that somebody else looks at.
type heard struct {
	testing.TB
	said []string
}

func (h *heard) Helper() {}

func (h *heard) Errorf(format string, args ...any) {
	h.said = append(h.said, fmt.Sprintf(format, args...))
}

// TestAuthT116SecretsAreFound: whatever part of a secret is in a log is found, and what is no secret is not.
func TestAuthT116SecretsAreFound(t *testing.T) {
	Secret("an access token", "jct_at_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789_-AbCdE.ZyXwVuTsRqPoNmLkJiHgFeDcBa9876543210")
	Secret("an API key", "jct_key_a1b2c3d4_0a1b2c3d4e5f6g7h8i9j0a1b2c3d4e5f6g7h8i9j0k1l2m")
	Secret("a signed token", "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJlIG9mIGEgdG9rZW4gdGhhdCBpcyBsb25n")
	Secret("a password", "hunter2")
	Secret("nothing", "ok")
	for text, want := range map[string]string{
		"x=jct_rt_0123456789abcdefghij":                   "looks like a secret",
		"x=jct_key_a1b2c3d4_00000000 of somebody":         "looks like a secret",
		"level=INFO msg=serving":                          "",
		"token=jct_at_… key=jct_key_a1b2c3d4 sub=ann":     "",
		"claims=eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.": "",
		"ok":                             "",
		"a=b\nx=IjKlMnOpQrStUvWxYz01234": "an access token",
		"half=ZyXwVuTsRqPoNmLkJiHgFeDcBa9876543210":          "an access token",
		"key=7h8i9j0a1b2c3d4e5f6g7h8i9j0k1l2m":               "an API key",
		"Authorization: Bearer x.y.dG9rZW4gdGhhdCBpcyBsb25n": "a signed token",
		"user:hunter2@host":                                  "a password",
	} {
		h := &heard{}
		MustTellNothing(h, "the log", text)
		said := strings.Join(h.said, "\n")
		if (want == "") != (said == "") || !strings.Contains(said, want) || want != "" && !strings.Contains(said, text[strings.LastIndexByte(text, '\n')+1:]) {
			t.Errorf("%q is said to show %q, want %q and the line", text, said, want)
		}
	}
}
