package config

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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

// TestStateBesideAReadOnlyKey: the folder of a mounted secret cannot keep catalogs. /sys is such a folder,
// also for root.
func TestStateBesideAReadOnlyKey(t *testing.T) {
	state, dir := t.TempDir(), t.TempDir()
	getenv := func(name string) (string, bool) { return state, name == "XDG_STATE_HOME" }
	for file, want := range map[string]string{
		"":                               filepath.Join(state, "junction"),
		filepath.Join(dir, "key"):        dir,
		filepath.Join(dir, "new", "key"): filepath.Join(dir, "new"), // which is made with the key
		"/sys/key":                       filepath.Join(state, "junction"),
	} {
		if _, err := os.Stat(filepath.Dir(file)); file == "/sys/key" && err != nil {
			continue
		}
		if got := KeyDir(file, getenv); got != want {
			t.Errorf("KeyDir(%q) = %q, want %q", file, got, want)
		}
	}
}
