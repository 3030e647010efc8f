package oauth

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestAnswerWithAByteOrderMark: a byte order mark before the answer of an authorization server is no part
// of it, also before an error.
func TestAnswerWithAByteOrderMark(t *testing.T) {
	status := http.StatusOK
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		io.WriteString(w, "\ufeff"+`{"error":"invalid_grant"}`)
	}))
	defer srv.Close()
	c := mustClient(t, srv.URL)
	ask := func() ([]byte, error) {
		r, err := http.NewRequest(http.MethodPost, srv.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, body, err := c.send(t.Context(), Upstream{URL: srv.URL}, r, nil)
		return body, err
	}
	if body, err := ask(); err != nil || string(body) != `{"error":"invalid_grant"}` {
		t.Errorf("the answer is %q, %v", body, err)
	}
	status = http.StatusBadRequest
	if _, err := ask(); err == nil || err.Error() != "it answered 400 invalid_grant" {
		t.Errorf("the error is %v", err)
	}
}
