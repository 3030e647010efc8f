//go:build unix

package signin

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/integration/harness/process"
	"junction/upstream/upstreamtest"
)

// TestDisabledUsersEndAtEachProcess: when the command ends, neither of two processes over one database accepts
// the user's token, which both of them know, in either era. If one process does not answer, the command names it.
func TestDisabledUsersEndAtEachProcess(t *testing.T) {
	harness.Waits(t)
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "", fmt.Sprintf("storage: { driver: postgres, dsn: %q, key_file: %q }\n"+
		"replicas: { listen: 127.0.0.1:0, advertise: 127.0.0.1:0 }\n",
		authtest.Schema(t), filepath.Join(t.TempDir(), "master.key")))
	second := harness.NewProgram(t)
	second.Dir = c.Dir
	second.MustServe(t, "--listen", process.FreePort(t))
	for _, p := range []*harness.Program{c.Program, second} {
		p.MustJoin(t, 2)
		p.MustReady(t, harness.Patience)
	}
	a := mustRegister(t, c, appRedirect)
	tokens := map[string]tokenPair{}
	for _, name := range []string{"ann", "bob", "cid"} {
		tokens[name] = a.mustSignIn(t, newPerson(t, name))
	}
	clients := map[string][]*harness.Client{}
	for name, pair := range tokens {
		for _, p := range []*harness.Program{c.Program, second} {
			for _, era := range harness.Eras {
				k := showing(t, p, era, pair.Access, "/mcp")
				harness.WantEcho(t, k.Tool(t, "up__echo", `{}`))
				clients[name] = append(clients[name], k)
			}
		}
	}
	out := c.mustOperate(t, "users", "disable", "ann@acme.example")
	for _, k := range clients["ann"] {
		wantRefused(t, "POST", refusedTo(t, k, "POST"), 401, refusedToken+"it was revoked")
	}
	if !strings.HasSuffix(out, "Ended: 1 session and 1 grant. The running junction has applied the change.\n") {
		t.Errorf("the command prints %q", out)
	}
	for _, k := range clients["bob"] {
		harness.WantEcho(t, k.Tool(t, "up__echo", `{}`))
	}
	// The second process has the record of the file that both serve, so the command asks it.
	stopped := c.Cmd.Process
	if err := stopped.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	out = c.mustOperate(t, "users", "disable", "bob@acme.example")
	if err := stopped.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if want := "does not answer, and applies the change within ten seconds.\n"; !strings.HasSuffix(out, want) {
		t.Errorf("with a process that hangs, the command prints %q, want %q", out, want)
	}
}
