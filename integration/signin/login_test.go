package signin

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/integration/harness/npm"
	"junction/integration/harness/process"
)

// TestLoginAtForeignServers: junction login signs in at authorization servers that others wrote,
// each with a registration of its own. A running proxy uses the tokens, and still has them after a
// restart. The scripted servers are those of TestLoginCommand and TestLogin.
func TestLoginAtForeignServers(t *testing.T) {
	harness.WithoutShort(t)
	harness.Waits(t)
	t.Run("oidc-provider", func(t *testing.T) {
		defer harness.Computes(t)()
		l := mustLinear(t)
		as := mustNode(t, "as.mjs", l.url)
		var said struct{ Issuer string }
		as.MustRead(&said)
		l.change(func() {
			l.issuer, l.whose = said.Issuer, func(token string) string { return whose(token, said.Issuer, l.url) }
		})
		b := mustChromium(t, "operator")
		mustLogIn(t, l.url, func(t *testing.T, where string) string {
			v := b.visit(where, false)
			return v.Pages[len(v.Pages)-1].Text
		})
	})
	t.Run("example of the TypeScript SDK", func(t *testing.T) {
		defer harness.Computes(t)()
		mcp, as := process.FreePort(t), process.FreePort(t)
		port := func(address string) string { return address[strings.LastIndex(address, ":")+1:] }
		cmd := exec.Command("node", "node_modules/@modelcontextprotocol/sdk/dist/esm/examples/server/simpleStreamableHttp.js", "--oauth", "--oauth-strict")
		cmd.Dir = npm.MustFolder(t)
		cmd.Env = append(os.Environ(), "MCP_PORT="+port(mcp), "MCP_AUTH_PORT="+port(as))
		process.MustStartServer(t, cmd, regexp.MustCompile(`(?s)Authorization Server listening.*HTTP Server listening`))
		mustLogIn(t, "http://localhost:"+port(mcp)+"/mcp", func(t *testing.T, where string) string {
			resp, err := http.Get(where)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		})
	})
}

// mustLogIn runs the program over a server that uses OAuth, signs in with the browser and checks
// that the server can be used, before and after a restart. browser returns the last page.
func mustLogIn(t *testing.T, url string, browser func(t *testing.T, where string) string) {
	t.Helper()
	p := harness.NewProgram(t)
	p.MustConfigure(t, fmt.Sprintf("storage: { dsn: %[1]s/junction.db, key_file: %[1]s/master.key }\n"+
		"outbound: { allow_private: [127.0.0.0/8, \"::1/128\"] }\nupstreams: { linear: { url: %[2]q, auth: { mode: oauth } } }\n", p.Dir, url))
	p.MustServe(t)
	p.Stderr.MustMatch(t, regexp.MustCompile(`nobody has signed in yet; run: junction login linear`), harness.Patience, p.Done)

	l := mustBeginLogin(t, p)
	where := l.said.MustMatch(t, regexp.MustCompile(`\n\n  (http\S+)\n`), harness.Patience, l.ended)[1]
	if page := browser(t, where); !strings.Contains(page, "Signed in to linear. You can close this window.") {
		t.Errorf("the last page is %s", page)
		l.cmd.Process.Kill()
	}
	<-l.ended
	if !l.cmd.ProcessState.Success() || l.out.String() != "Signed in to linear.\n" {
		t.Fatalf("junction login: %v\n%s%s", l.cmd.ProcessState, l.out, l.said)
	}
	for _, when := range []string{"after the sign-in", "after a restart"} {
		if r := p.MustReady(t, harness.Patience); r.Tools == 0 {
			t.Errorf("%s there are no tools: %+v", when, r)
		}
		if when == "after the sign-in" {
			p.MustRestart(t)
		}
	}
	if _, stderr, err := harness.RunJunction(t, nil, "logout", "linear", "--config", p.File()); err != nil {
		t.Errorf("logout: %v\n%s", err, stderr)
	}
}

// A loginCommand is a junction login in progress.
type loginCommand struct {
	cmd       *exec.Cmd
	out, said *process.Output // standard output and standard error
	ended     chan struct{}
}

// mustBeginLogin starts junction login for the server linear, without a browser. Its standard input
// stays open until the test ends.
func mustBeginLogin(t *testing.T, p *harness.Program) *loginCommand {
	t.Helper()
	args := []string{"login", "linear", "--no-browser", "--config", p.File()}
	l := &loginCommand{exec.Command(harness.JunctionBinary(t), args...), process.NewOutput(), process.NewOutput(), make(chan struct{})}
	l.cmd.Stdout, l.cmd.Stderr = authtest.Command(t, args, l.out, l.said)
	stdin, err := l.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close() })
	l.cmd.WaitDelay = 5 * time.Second
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(l.ended)
		l.cmd.Wait() // how it ended is in cmd.ProcessState
	}()
	t.Cleanup(func() {
		l.cmd.Process.Kill()
		<-l.ended
	})
	return l
}
