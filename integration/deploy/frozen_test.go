//go:build linux

package deploy

import (
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"junction/integration/harness"
	"junction/integration/load"
)

// noticed is what a reverse proxy writes when it has found out that a process does not answer its checks. nginx has
// no checks.
var noticed = map[string]*regexp.Regexp{
	"HAProxy": regexp.MustCompile(`Server junction/junction3 is DOWN`),
	"Caddy":   regexp.MustCompile(`health_checker.active[^\n]*(HTTP request failed|unhealthy|deadline exceeded)`),
}

// TestOperateRecipesAndAFrozenProcess stops one of three processes behind each reverse proxy by SIGSTOP: it accepts
// connections, and answers nothing. HAProxy and Caddy find out by their checks, and send it nothing afterwards: each
// modern call succeeds, and each request for a session of the frozen process gets 503. nginx sends it its share of
// the requests, which wait. When the process runs again, they end well, and the session is where it was.
func TestOperateRecipesAndAFrozenProcess(t *testing.T) {
	harness.Waits(t)
	harness.Long(t)
	for _, f := range fronts() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			all, at, key := mustProcesses(t)
			s := mustFront(t, f, "https://"+host, at)
			caller := func(url, era string) *harness.Caller {
				transport := s.http.Transport.(*http.Transport).Clone()
				if strings.HasPrefix(url, "http://") {
					transport = http.DefaultTransport.(*http.Transport).Clone()
				}
				t.Cleanup(transport.CloseIdleConnections)
				return harness.MustCallerBy(t, &http.Client{Transport: keyed{transport, key}}, url, era)
			}
			call := func(c *harness.Caller) error { return load.Call(t.Context(), c, "up__echo", `{"a":1}`) }
			session := caller(s.public+"/mcp", harness.LegacyEra)
			session.Session = caller("http://"+at[2].listen+"/mcp", harness.LegacyEra).Session
			const many = 9
			var modern []*harness.Caller
			for range many {
				modern = append(modern, caller(s.public+"/mcp", harness.ModernEra))
			}
			for _, c := range append(modern, session) {
				if err := call(c); err != nil {
					t.Fatal(err)
				}
			}

			process := all[2].Cmd.Process
			if err := process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			if words, checks := noticed[f.name]; checks {
				s.output.MustMatch(t, words, harness.Patience, nil)
				for _, c := range modern {
					if err := call(c); err != nil {
						t.Errorf("a modern call: %v", err)
					}
				}
				if err := call(session); err == nil || !strings.Contains(err.Error(), "send the request again") {
					t.Errorf("a call of a session of the frozen process: %v, want that the client may try again", err)
				}
				if err := process.Signal(syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
			} else {
				ends := make(chan error, many)
				for _, c := range modern {
					go func() { ends <- call(c) }()
				}
				for n := range many { // two thirds end, and then the others, which the frozen process has
					if n == many*2/3 {
						if err := process.Signal(syscall.SIGCONT); err != nil {
							t.Fatal(err)
						}
					}
					if err := <-ends; err != nil {
						t.Errorf("the modern call that ended as number %d: %v", n+1, err)
					}
				}
			}
			all[2].MustReady(t, harness.Patience)
			again := harness.Patient(t)
			for err := call(session); err != nil; err = call(session) {
				if again.Err() != nil {
					t.Fatalf("the session does not go on: %v", err)
				}
			}
		})
	}
}
