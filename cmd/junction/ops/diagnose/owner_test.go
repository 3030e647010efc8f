package diagnose

import (
	"net/http"
	"net/http/httptest"
	"strings"
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

// TestRefusalNamesTheFolderForState: a request without the secret is told with which folder for state a command finds
// the secret.
func TestRefusalNamesTheFolderForState(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "/var/lib/state of it")
	w := httptest.NewRecorder()
	if Owner("x").check(w, &http.Request{Header: http.Header{}}) || !strings.Contains(w.Body.String(), `XDG_STATE_HOME='/var/lib/state of it'`) {
		t.Errorf("the answer is %d %s", w.Code, w.Body)
	}
}
