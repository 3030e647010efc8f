package upstream

import (
	"testing"

	"junction/auth/authtest"
	"junction/upstream/client"
	"junction/upstream/pace"
	"junction/upstream/upstreamtest"
)

// TestAsksForRoots: a command is started once, and the request for roots tells that it works in the folders of its
// client. A server that ends, or that asks for something else, does not.
func TestAsksForRoots(t *testing.T) {
	for _, test := range []struct {
		name        string
		script      upstreamtest.Script
		command     []string // instead of the script
		want, fails bool
	}{
		{name: "asks", script: upstreamtest.Script{AsksRoots: true}, want: true},
		{name: "does not ask", script: upstreamtest.Script{}},
		{name: "asks for a name", script: upstreamtest.Script{AsksDuring: map[string]upstreamtest.Question{
			"ping": {Method: "elicitation/create"}}}},
		{name: "is absent", command: []string{"there-is-no-such-program"}, fails: true},
		{name: "ends", command: []string{"false"}, fails: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := Config{Command: test.command, Era: client.EraLegacy}
			if test.command == nil {
				child := upstreamtest.Command(t, test.script)
				c.Command, c.Env = child.Command, child.Env
			}
			got, err := AsksForRoots(t.Context(), "s", c, Options{Log: authtest.Log(t)})
			if got != test.want || (err != nil) != test.fails {
				t.Errorf("AsksForRoots = %v, %v, want %v", got, err, test.want)
			}
		})
	}
}

// TestStatusShowsAServerWithoutFolders: a server that asks for roots outside of a call is in the status, and a check
// finds one that asks only clients with roots, which its state does not keep. An entry with isolation: folder gives it folders.
func TestStatusShowsAServerWithoutFolders(t *testing.T) {
	always := upstreamtest.Script{AsksDuring: map[string]upstreamtest.Question{"tools/list": {Method: "roots/list"}}}
	for _, test := range []struct {
		name            string
		script          upstreamtest.Script
		isolation       Isolation
		before, checked bool
	}{
		{"asks always", always, IsolationUnset, true, true},
		{"asks clients with roots", upstreamtest.Script{AsksRoots: true}, IsolationUnset, false, true},
		{"has folders", upstreamtest.Script{AsksRoots: true}, IsolationFolder, false, false},
		{"does not ask", upstreamtest.Script{}, IsolationUnset, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			read := make(chan struct{}, 1)
			child := upstreamtest.Command(t, test.script)
			u := Start("s", Config{Command: child.Command, Env: child.Env, Era: client.EraLegacy, Isolation: test.isolation},
				Options{Log: authtest.Log(t), Hooks: Hooks{CatalogChanged: func(string) { pace.Wake(read) }}})
			defer u.Close()
			<-read
			if got := u.Status().Rootless; got != test.before {
				t.Errorf("before a check, Rootless = %v", got)
			}
			if r := u.Check(t.Context()); r.Err != nil || (r.Rootless || test.before) != test.checked {
				t.Errorf("Check returns %v and Rootless = %v, want %v", r.Err, r.Rootless, test.checked)
			}
			if got := u.Status().Rootless; got != test.before {
				t.Errorf("after a check, Rootless = %v: a check counts as a client", got)
			}
		})
	}
}
