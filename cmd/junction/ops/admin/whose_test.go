package admin

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/ops/diagnose"
)

// TestWhose: a person without a configuration file reads whose Junction answers at the default addresses, and not that
// it has not read a file.
func TestWhose(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	const want = "You have no configuration file. This is the Junction of /other/config.yaml (process 7 of the user " +
		`"one").`
	served := `{"file": "/other/config.yaml", "config": "/other/config.yaml", "user": "one", "pid": 7, "read": "ab"}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(served))
	}))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	c := &config.Config{Admin: &address}
	if got := Whose(t.Context(), c); got != want {
		t.Errorf("the sentence is %q", got)
	}
	served = `{"pid": 7}` // the demo
	if got := Whose(t.Context(), c); got != "" {
		t.Errorf("about the demo, the sentence is %q", got)
	}

	var b bytes.Buffer
	none := ""
	s := statusOptions{stdout: &b, file: &none}
	r := diagnose.Running{File: "/other/config.yaml", User: "one", PID: 7, Read: "ab"}
	if !s.current(&r) {
		t.Error("a junction without a file of this person is not current")
	}
	if err := s.show(&r, nil); err != nil || !strings.Contains(strings.Join(strings.Fields(b.String()), " "), want) {
		t.Errorf("the status is, %v\n%s", err, b.String())
	}
}
