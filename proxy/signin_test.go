package proxy

import (
	"strings"
	"testing"

	"junction/upstream"
)

// TestSignInNamesItsReason: if it is known why a sign-in has ended, the user reads that first, and then what
// to do.
func TestSignInNamesItsReason(t *testing.T) {
	need := &upstream.SignInError{Upstream: "linear", Mode: upstream.AuthOAuthUser, Again: true}
	plain := signInMessage(need)
	need.Reason = "the client secret expired"
	if got := signInMessage(need); got != need.Reason+"; "+plain || !strings.Contains(plain, "connected again") {
		t.Errorf("the user reads %q, and without a reason %q", got, plain)
	}
}
