package config

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"junction/auth/fetch"
)

// TestHeadersOfAnswersAreBounded: a challenge is kept in memory, so a server of the configuration cannot
// send one of any length.
func TestHeadersOfAnswersAreBounded(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Bearer scope="`+strings.Repeat("x", 1<<20)+`"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer s.Close()
	client := http.Client{Transport: Trusting(&fetch.Fetcher{})}
	if r, err := client.Get(s.URL); err == nil {
		r.Body.Close()
		t.Errorf("an answer with a header of 1 MiB was read: %s", r.Status)
	}
}
