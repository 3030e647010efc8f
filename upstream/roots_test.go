package upstream

import (
	"testing"

	"junction/upstream/client"
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
			got, err := AsksForRoots(t.Context(), "s", c, Options{})
			if got != test.want || (err != nil) != test.fails {
				t.Errorf("AsksForRoots = %v, %v, want %v", got, err, test.want)
			}
		})
	}
}
