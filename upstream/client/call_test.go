package client

import (
	"errors"
	"fmt"
	"testing"

	"junction/upstream/transport"
)

// TestKindOfTokens: a call for which there was no token was not made.
func TestKindOfTokens(t *testing.T) {
	err := fmt.Errorf("call: %w", &transport.TokenError{Err: errors.New("the store is away")})
	if got := KindOf(err); got != KindUnavailable {
		t.Errorf("kindOf(%v) = %s, want %s", err, got, KindUnavailable)
	}
}
