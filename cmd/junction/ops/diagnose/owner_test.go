package diagnose

import (
	"net/http"
	"testing"
)

// TestNoSecretIsThatOfNoRequest: if a proxy has no secret, no request has it, also not one with an empty
// header.
func TestNoSecretIsThatOfNoRequest(t *testing.T) {
	for _, given := range [][]string{nil, {""}, {"x"}, {"", ""}} {
		if Owner("").sentBy(&http.Request{Header: http.Header{OwnerHeader: given}}) {
			t.Errorf("the header %q has the secret of a proxy without one", given)
		}
	}
}
