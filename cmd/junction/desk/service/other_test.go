package service

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/ops/diagnose"
	"junction/upstream/files"
)

// TestTheJunctionOfAnotherUserIsNamed: a service of another user serves the file. Commands of this user name its
// process and its user, neither start a second process nor say that nothing serves, and end no process.
func TestTheJunctionOfAnotherUserIsNamed(t *testing.T) {
	var answer diagnose.Running
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer admin.Close()
	for user, who := range map[string]string{"junction": `process 7 of the user "junction" serves `,
		runfile.User(): "process 7 serves "} {
		h, ran := fakeHost(t, "linux", "")
		file := filepath.Join(h.Home, "config.yaml")
		text := "upstreams: { a: { command: [a] } }\nadmin: " + strings.TrimPrefix(admin.URL, "http://") + "\n"
		if err := files.Write(file, []byte(text)); err != nil {
			t.Fatal(err)
		}
		answer = diagnose.Running{User: user, PID: 7, File: file, URL: "http://127.0.0.1:1/mcp"}
		s, err := h.Of(file)
		if err != nil {
			t.Fatal(err)
		}
		_, restarted := s.Restart(t.Context())
		_, installed := s.Install(t.Context())
		_, halted := s.Halt(t.Context())
		for name, err := range map[string]error{"restart": restarted, "install": installed, "stop": halted} {
			if err == nil || !strings.HasPrefix(err.Error(), who+file) {
				t.Errorf("%s = %v, want %q", name, err, who+file)
			}
		}
		if s.Installed() || len(*ran) > 0 {
			t.Errorf("a service was installed: %q", *ran)
		}
		j := s.status(t.Context())
		if said := j.text(file); !j.Running || j.User != user || !strings.Contains(said, "http://127.0.0.1:1/mcp, process 7") {
			t.Errorf("status = %+v\n%s", j, said)
		}
		answer.File += "2"
		if j := s.status(t.Context()); j.Running {
			t.Errorf("of another file: %+v", j)
		}
	}
}
