package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestVersionAsksOnlyWhenTold: without --check, the command sends nothing. With it, it prints the newest
// version, and takes only a version for one.
func TestVersionAsksOnlyWhenTold(t *testing.T) {
	var asked int
	answer, code := "v9.8.7\n", http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.WriteHeader(code)
		_, _ = w.Write([]byte(answer))
	}))
	defer server.Close()
	version := func(address string, args ...string) (string, error) {
		var out bytes.Buffer
		cmd := versionCommand(&out, address)
		cmd.SetArgs(args)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	if out, err := version(server.URL); err != nil || asked != 0 || strings.Contains(out, "newest") {
		t.Errorf("without --check: %q (%v), %d requests", out, err, asked)
	}
	if out, err := version(server.URL, "--check"); err != nil || !strings.HasSuffix(out, "\nthe newest version is 9.8.7\n") {
		t.Errorf("with --check: %q (%v)", out, err)
	}
	if out, err := version(server.URL, "--check", "--json"); err != nil || !strings.Contains(out, `"newest": "9.8.7"`) {
		t.Errorf("as JSON: %q (%v)", out, err)
	}
	for _, answer = range []string{"", "<html>", "1.0.0\x1b[2J", strings.Repeat("1", 1<<20)} {
		if out, err := version(server.URL, "--check"); err == nil {
			t.Errorf("the answer %.20q is taken for a version: %q", answer, out)
		}
	}
	answer, code = "1.0.0", http.StatusNotFound
	if _, err := version(server.URL, "--check"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("an answer of 404 gives %v", err)
	}
	if _, err := version("", "--check"); err == nil || !strings.Contains(err.Error(), "not of a release") {
		t.Errorf("a program that is not of a release gives %v", err)
	}
}
