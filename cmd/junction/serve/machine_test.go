//go:build unix

package serve

import (
	"bytes"
	"strings"
	"testing"

	"junction/auth/authtest"
	"junction/cmd/junction/base/config"
	"junction/upstream"
	"junction/upstream/command"
	"junction/upstream/sandbox"
	"junction/upstream/stdio"
)

// TestLogMissing: a start says which protections of commands the system does not have.
func TestLogMissing(t *testing.T) {
	off := false
	plain := upstream.Config{Command: []string{"x"}}
	confined := upstream.Config{Command: []string{"x"}, Sandbox: &command.Sandbox{}}
	disabled := upstream.Config{Command: []string{"x"}, Enabled: &off}
	const watchdog, noSandbox = "there is no watchdog: ", "there is no sandbox on this system"
	for _, test := range []struct {
		name      string
		server    upstream.Config
		unwatched string
		want      []string
	}{
		{"nothing is missing but the sandbox", plain, "", []string{noSandbox}},
		{"a command", plain, "windows has no process groups", []string{watchdog, noSandbox}},
		{"a sandbox, of which check warns", confined, "there is no /bin/sh", []string{watchdog}},
		{"a disabled command", disabled, "windows has no process groups", nil},
		{"a URL", upstream.Config{URL: "https://mcp.example.com/"}, "windows has no process groups", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var b bytes.Buffer
			log := authtest.Log(t, &b)
			c := &config.Config{Upstreams: map[string]upstream.Config{"s": test.server}}
			logMissing(log, c, test.unwatched, sandbox.Support{Why: "only Linux has Landlock"})
			if got := strings.Count(b.String(), "\n"); got != len(test.want) {
				t.Errorf("the log has %d lines, want %d:\n%s", got, len(test.want), &b)
			}
			for _, want := range test.want {
				if !strings.Contains(b.String(), want) {
					t.Errorf("the log has no %q:\n%s", want, &b)
				}
			}
			if strings.Contains(b.String(), watchdog) && !strings.Contains(b.String(), test.unwatched) {
				t.Errorf("the log does not name the reason:\n%s", &b)
			}
		})
	}
	if why := stdio.Unwatched(); why != "" {
		t.Errorf("Unwatched gives %q on a system with /bin/sh", why)
	}
}
