package signin

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// TestCallsGetAnotherSecretOfAProgram: a server accepts another secret from one moment on. The calls that it answers
// 401 are sent again with the secret that the program prints now, each once, and the program runs once for all of
// them. The server has executed each call once. Less than a minute later, a call with a wrong secret fails without
// that anything ran. Nothing shows a secret, also if the server repeats it.
func TestCallsGetAnotherSecretOfAProgram(t *testing.T) {
	harness.Waits(t)
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			defer harness.Computes(t)()
			for _, n := range []string{"one", "two", "three"} {
				authtest.Secret("a secret that a program prints", "canary-printed-"+n)
			}
			up := upstreamtest.New(upstreamtest.Script{Era: era})
			defer up.Close()
			var good atomic.Pointer[string]
			var refused atomic.Int32
			accept := func(secret string) { s := "canary-printed-" + secret; good.Store(&s) }
			accept("one")
			url, _ := upstreamtest.Serve(t, "127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if sent := r.Header.Get("X-Key"); sent != *good.Load() {
					refused.Add(1)
					http.Error(w, "the key "+sent+" is not known here", http.StatusUnauthorized)
					return
				}
				up.Handler().ServeHTTP(w, r)
			}))
			p := harness.NewProgram(t)
			file := filepath.Join(p.Dir, "secret")
			write := func(secret string) {
				if err := os.WriteFile(file, []byte("canary-printed-"+secret+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write("one")
			p.MustConfigure(t, fmt.Sprintf("log: { level: debug }\nupstreams:\n  up: { url: %q, headers: { X-Key: %q }, "+
				"exec: { every: 24h } }\n", url+"/mcp", "${exec: [sh, -c, 'echo >> "+p.Dir+"/ran; cat "+file+"']}"))
			p.MustServe(t)
			p.MustReady(t, harness.Patience)
			c := harness.Talk(t, p.URL, client.EraModern)
			c.Succeed(t, "up__count", `{}`)
			accept("two")
			write("two")
			before := refused.Load()
			var calls []*harness.Answering
			for range 20 {
				calls = append(calls, c.Begin(t, harness.Called("up__count", `{}`)))
			}
			for _, call := range calls {
				if m := call.Answer(t); m.Error != nil {
					t.Errorf("a call during the change fails: %v %s", m.Error, m.Error.Data)
				}
			}
			if refused.Load() == before {
				t.Error("the server has refused no secret")
			}
			ran, err := os.ReadFile(filepath.Join(p.Dir, "ran"))
			if err != nil || strings.Count(string(ran), "\n") != 2 {
				t.Errorf("the program ran %d times, %v; want one at the start and one for all calls", strings.Count(string(ran), "\n"), err)
			}
			accept("three")
			if m := c.Call(t, "up__count", `{}`); m.Error == nil || strings.Contains(m.Error.Message+string(m.Error.Data), "canary") {
				t.Errorf("a secret that is wrong again: %v", m.Error)
			}
			accept("two")
			p.MustReady(t, harness.Patience)
			if got := string(c.Succeed(t, "up__count", `{}`)); !strings.Contains(got, `"22"`) {
				t.Errorf("the server has executed another number of calls than 1, 20 and 1: %s", got)
			}
			if strings.Contains(p.Stdout.String()+p.Stderr.String(), "canary") {
				t.Error("the log has a secret")
			}
		})
	}
}
