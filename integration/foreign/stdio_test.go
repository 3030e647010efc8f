package foreign

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"junction/integration/harness"
	"junction/integration/harness/npm"
)

// TestStdioClients has the SDK's stdio clients, of both eras, use an endpoint over junction stdio: they
// see and get the same as over HTTP, hear of progress, and are asked.
func TestStdioClients(t *testing.T) {
	defer harness.Computes(t)()
	npm.MustFolder(t)
	p := harness.MustProgram(t, "upstreams:\n  demo: {command: [junction, demo]}\n")
	p.MustReady(t, harness.Patience)
	for _, direct := range sdkClients(t) {
		c := npm.OverStdio([]npm.Client{direct})[0]
		t.Run(c.Name, func(t *testing.T) {
			over, want := c.MustList(t, p.URL), direct.MustList(t, p.URL)
			if !slices.Equal(over.Tools, want.Tools) || over.Era != direct.Era() {
				t.Errorf("over stdio it lists %q in %s, want %q in %s", over.Tools, over.Era, want.Tools, direct.Era())
			}
			if !harness.SameJSON(t, over.Raw, want.Raw) {
				t.Errorf("over stdio the list is\n%s\nwant\n%s", over.Raw, want.Raw)
			}
			var counted npm.Progress
			if err := c.Run(t, &counted, p.URL, "progress", "demo__count", `{"n":3,"ms":200}`); err != nil {
				t.Fatal(err)
			}
			// Over stdio, the SDK drops progress that it reads together with the response.
			if len(counted.Progress) == 0 || counted.Result.Text() != "Counted 3 steps." {
				t.Errorf("counting gave %+v", counted)
			}
			a := mustAsk(t, c, p.URL, "demo__ask", "{}")
			if len(a.Questions) != 1 || a.Questions[0].Method != "elicitation/create" || a.Result.IsError {
				t.Errorf("the tool that asks gave %+v", a)
			}
		})
	}
}

// TestStdioClientsSurviveRestart restarts Junction under clients over stdio, once with its sessions and
// once without the key of sessions. They notice only that lists may have changed, and go on to hear of
// changes, in both eras.
func TestStdioClientsSurviveRestart(t *testing.T) {
	harness.Long(t)
	defer harness.Computes(t)()
	npm.MustFolder(t)
	for _, test := range []struct {
		name   string
		forget bool
	}{{"sessions kept", false}, {"sessions lost", true}} {
		t.Run(test.name, func(t *testing.T) {
			p := harness.MustProgram(t, "upstreams:\n  demo: {command: [junction, demo]}\n")
			p.MustReady(t, harness.Patience)
			var sessions, watching []npm.Session
			for _, c := range npm.OverStdio(sdkClients(t)) {
				w := c.MustOpen(t, p.URL, "watch")
				var h heard
				if w.MustRead(&h); !slices.Contains(h.Ready, "demo__echo") {
					t.Fatalf("%s: at first, the tools are %q", w.Name, h.Ready)
				}
				watching = append(watching, w)
				s := c.MustOpen(t, p.URL, "restart")
				s.MustRead(&h)
				sessions = append(sessions, s)
			}
			address := p.Origin()[len("http://"):]
			p.MustStop(t)
			if test.forget {
				mustForgetSessions(t, p.Dir)
			}
			p.MustServe(t, "--listen", address)
			p.MustReady(t, harness.Patience)
			for _, s := range sessions {
				s.MustContinue()
				var again struct{ Tools []string }
				if s.MustRead(&again); !slices.Contains(again.Tools, "demo__echo") {
					t.Errorf("%s: after the restart, the tools are %q", s.Name, again.Tools)
				}
			}
			for _, w := range watching {
				mustHear(w, "demo__echo")
			}
			p.MustConfigure(t, "upstreams:\n  demo: {command: [junction, demo]}\n  again: {command: [junction, demo]}\n")
			for _, w := range watching {
				mustHear(w, "again__echo")
			}
		})
	}
}

// mustForgetSessions deletes the key of sessions.
func mustForgetSessions(t *testing.T, dir string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, "key")); err != nil {
		t.Fatal(err)
	}
}
