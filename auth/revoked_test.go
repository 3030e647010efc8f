package auth

import (
	"errors"
	"net/netip"
	"testing"
	"time"
)

// TestKeysThatAnEarlierProcessSawRevoked: the records name the key, and the client gets the answer for an unknown
// one. A key that is configured again is accepted.
func TestKeysThatAnEarlierProcessSawRevoked(t *testing.T) {
	gone, back := NewKey(), NewKey()
	hashOf := func(key string) Hash {
		h, err := HashKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	p := NewProviders(nil)
	t.Cleanup(p.Close)
	p.Revoked([]RevokedKey{{"max", hashOf(gone), time.Unix(0, 0)}, {"ann", hashOf(back), time.Unix(0, 0)}})
	keys := p.keyring([]Key{{Name: "ann", Hash: hashOf(back)}})
	_, err := keys.Verify(t.Context(), gone, netip.Addr{})
	why, known := errors.AsType[*keyError](err)
	if !known || why.name != "max" || why.why != "the key was revoked at 1970-01-01T00:00:00Z" || !errors.Is(err, errUnknownKey) {
		t.Errorf("the revoked key: %v, %+v", err, why)
	}
	if who, err := keys.Verify(t.Context(), back, netip.Addr{}); err != nil || who.ID != "key:ann" {
		t.Errorf("the key that is back: %v, %v", who, err)
	}
}
