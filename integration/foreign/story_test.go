package foreign

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/integration/harness/needs"
	"junction/integration/harness/npm"
	"junction/integration/harness/process"
)

// sdkClients are the clients that can stay connected.
func sdkClients(t testing.TB) []npm.Client {
	return slices.DeleteFunc(npm.Tried(t, npm.Clients()), func(c npm.Client) bool { return !c.Sdk })
}

// heard is what the command watch prints.
type heard struct {
	Ready, Changed []string
	Reopened       bool
}

// mustHear waits until the client has heard of a change after which the tool is listed.
func mustHear(s npm.Session, tool string) {
	s.T.Helper()
	mustReadUntil(s, func(h heard) bool { return slices.Contains(h.Changed, tool) })
}

// mustReadUntil reads what watch prints until it is what the test waits for.
func mustReadUntil(s npm.Session, good func(heard) bool) {
	s.T.Helper()
	for {
		var h heard
		if s.MustRead(&h); good(h) {
			return
		}
	}
}

// TestForeignClientsHearOfChanges has connected clients of both eras hear that the configuration
// was reloaded with another upstream, and that an upstream has another tool.
func TestForeignClientsHearOfChanges(t *testing.T) {
	defer harness.Computes(t)()
	npm.MustFolder(t)
	reference := harness.Command(t, mustBuildReference(t))
	p := harness.MustProgram(t, "upstreams:\n  ref: {"+reference+"}\n")
	p.MustReady(t, harness.Patience)
	clients := sdkClients(t)
	var watching []npm.Session
	for _, c := range clients {
		s := c.MustOpen(t, p.URL, "watch")
		watching = append(watching, s)
		var h heard
		if s.MustRead(&h); !slices.Contains(h.Ready, "ref__test_simple_text") || slices.Contains(h.Ready, "demo__echo") {
			t.Fatalf("%s: at first, the tools are %q, want those of ref alone", s.Name, h.Ready)
		}
	}
	p.MustConfigure(t, "upstreams:\n  ref: {"+reference+"}\n  demo: {command: [junction, demo]}\n")
	for _, s := range watching {
		mustHear(s, "demo__echo")
	}
	const late = "ref____transient_tool_for_list_changed"
	clients[0].MustCall(t, p.URL, "ref__test_trigger_tool_change", "{}")
	for _, s := range watching {
		mustHear(s, late)
	}
	p.MustConfigure(t, "upstreams:\n  demo: {command: [junction, demo]}\n")
	for _, s := range watching {
		mustReadUntil(s, func(h heard) bool { return h.Changed != nil && !slices.Contains(h.Changed, late) })
	}
}

// TestForeignClientsSurviveRestart restarts Junction under connected clients: their sessions go on
// without a new handshake, and those that listen on a stream open it again by themselves and hear
// what comes then.
func TestForeignClientsSurviveRestart(t *testing.T) {
	defer harness.Computes(t)()
	npm.MustFolder(t)
	const before, after = "upstreams:\n  demo: {command: [junction, demo]}\n", "upstreams:\n  demo: {command: [junction," +
		" demo]}\n  again: {command: [junction, demo]}\n"
	p := harness.MustProgram(t, before)
	p.MustReady(t, harness.Patience)
	clients := sdkClients(t)
	var sessions, watching []npm.Session
	for _, c := range clients {
		s := c.MustOpen(t, p.URL, "restart")
		var first heard
		if s.MustRead(&first); !slices.Contains(first.Ready, "demo__echo") {
			t.Fatalf("%s: at first, the tools are %q, want those of demo", s.Name, first.Ready)
		}
		sessions = append(sessions, s)
		if !c.Modern { // version 2 of the SDK does not renew a subscription of the modern era
			w := c.MustOpen(t, p.URL, "watch")
			var h heard
			w.MustRead(&h)
			watching = append(watching, w)
		}
	}
	p.MustRestart(t)
	p.MustReady(t, harness.Patience)
	for i, s := range sessions {
		s.MustContinue()
		var again struct {
			Tools, Methods []string
			Alive          string
		}
		s.MustRead(&again)
		if !slices.Contains(again.Tools, "demo__echo") || slices.Contains(again.Methods, "initialize") ||
			len(again.Methods) == 0 {
			t.Errorf("%s: after the restart, it posted %q and sees the tools %q; want those of demo without initialize", s.Name,
				again.Methods, again.Tools)
		}
		if !clients[i].Modern && !slices.Equal(again.Methods, []string{"ping", "tools/list"}) {
			t.Errorf("%s: after the restart, it posted %q, want ping and tools/list", s.Name, again.Methods)
		}
	}
	for _, w := range watching {
		mustReadUntil(w, func(h heard) bool { return h.Reopened })
	}
	p.MustConfigure(t, after)
	for _, w := range watching {
		mustHear(w, "again__echo")
	}
}

// mustBuildReference returns the path of the official reference server, which is built once for all
// tests of this process.
func mustBuildReference(t testing.TB) string {
	t.Helper()
	exe, err := reference()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

var reference = sync.OnceValues(func() (string, error) {
	if err := os.MkdirAll(harness.BuildDir(), 0o700); err != nil {
		return "", err
	}
	exe := filepath.Join(harness.BuildDir(), "reference")
	cmd := exec.Command("go", "build", "-o", exe, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return exe, nil
})

// mustServeReference starts the reference server over Streamable HTTP, and returns its URL.
func mustServeReference(t testing.TB, args ...string) string {
	t.Helper()
	address := process.FreePort(t)
	process.MustStartServer(t, exec.Command(mustBuildReference(t), append(args, "-http", address)...),
		regexp.MustCompile("listening at"))
	return "http://" + address + "/"
}

// TestReferenceServer puts the official reference server behind Junction, over both wires, and
// without and with sessions, for clients of both eras.
func TestReferenceServer(t *testing.T) {
	harness.Long(t)
	defer harness.Computes(t)()
	npm.MustFolder(t)
	reference := mustBuildReference(t)
	serve := func(args ...string) string { return fmt.Sprintf("url: %q", mustServeReference(t, args...)) }
	upstreams := []npmUpstream{
		{name: "http", config: serve(), era: "modern"},
		{name: "stateful", config: serve("-stateless=false"), era: "legacy"}, // with sessions it speaks no other
		{name: "stdio", config: harness.Command(t, reference), era: "modern"},
	}
	p := harness.MustProgram(t, configOf(upstreams))
	for i, got := range p.MustReady(t, harness.Patience).Upstreams {
		if got.Era != upstreams[i].era || got.Tools != 28 {
			t.Errorf("upstream %+v, want %s of the %s era with 28 tools", got, upstreams[i].name, upstreams[i].era)
		}
	}
	for _, c := range npm.Tried(t, npm.Clients()) {
		t.Run(c.Name, func(t *testing.T) {
			defer harness.Computes(t)()
			tried := upstreams
			if c.Sdk {
				c = c.Kept(t)
			} else { // it uses the SDK, and is a process for each command
				tried = slices.DeleteFunc(slices.Clone(upstreams),
					func(u npmUpstream) bool { return u.era != c.Era() || u.name == "http" })
			}
			var want []string
			bare := c.MustList(t, p.URL+"/stdio").Tools
			for _, u := range upstreams {
				for _, tool := range bare {
					want = append(want, u.name+"__"+tool)
				}
			}
			got := c.MustList(t, p.URL).Tools
			if len(bare) != 28 || len(got) != len(want) {
				t.Errorf("%d tools of one server and %d of all, want 28 and %d", len(bare), len(got), len(want))
			}
			for i, name := range want[:min(len(want), len(got))] {
				if len(name) <= 48 && got[i] != name ||
					len(name) > 48 && (len(got[i]) != 48 || !strings.HasPrefix(got[i], name[:40])) {
					t.Errorf("tool %d is %s, want %s, cut at 48 with a hash", i, got[i], name)
				}
			}
			for _, u := range tried {
				t.Run(u.name, func(t *testing.T) {
					defer harness.Computes(t)()
					mustUseReference(t, c, p.URL, u.name)
				})
			}
		})
	}
}

// mustUseReference calls tools of a reference server. A client of the SDK makes all calls in one
// session.
func mustUseReference(t *testing.T, c npm.Client, url, upstream string) {
	type call struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Progress  bool            `json:"progress"`
	}
	var calls []call
	want := []struct {
		tool, arguments, text string
		failed                bool
		progress              []float64
	}{
		{"test_simple_text", "{}", "This is a simple text response for testing.", false, nil},
		{"test_multiple_content_types", "{}", "This is text content[image][resource]", false, nil},
		{"test_x_mcp_header", `{"region":"Übersee, \"west\" 1","level":3}`, `region=Übersee, "west" 1`, false, nil},
		{"test_error_handling", "{}", "this tool intentionally returns an error for testing", true, nil},
		{"test_tool_with_progress", "{}", "", false, []float64{0, 50, 100}},
	}
	for _, w := range want {
		calls = append(calls, call{upstream + "__" + w.tool, json.RawMessage(w.arguments), w.progress != nil})
	}
	results := make([]npm.Progress, len(want))
	if c.Sdk {
		text, err := json.Marshal(calls)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Run(t, &results, url, "calls", string(text)); err != nil || len(results) != len(want) {
			t.Fatalf("%d results, want %d: %v", len(results), len(want), err)
		}
	}
	for i, w := range want {
		if !c.Sdk {
			if w.failed || w.progress != nil {
				continue // the inspector ends with status 5 for a failure, and reports no progress
			}
			results[i].Result = c.MustCall(t, url, calls[i].Name, w.arguments)
		}
		got := results[i].Result
		if w.text != "" && got.Text() != w.text || got.IsError != w.failed {
			t.Errorf("%s answered %q (isError %v), want %q (%v)", w.tool, got.Text(), got.IsError, w.text, w.failed)
		}
		var steps []float64
		for _, step := range results[i].Progress {
			steps = append(steps, step.Progress)
		}
		if !slices.Equal(steps, w.progress) {
			t.Errorf("the progress of %s is %v, want %v", w.tool, steps, w.progress)
		}
	}
}

// TestNewcomer does what the README tells a newcomer to do: with the go command and, for the
// example, with npx.
func TestNewcomer(t *testing.T) {
	harness.WithoutShort(t)
	defer harness.Computes(t)()
	defer harness.DefaultAddresses(t, true)()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	run := func(t *testing.T, args ...string) *harness.Program {
		t.Helper()
		for _, address := range []string{"127.0.0.1:8420", "127.0.0.1:8421"} {
			if process.Taken(address) {
				needs.Skip(t, fmt.Errorf("%s, where a newcomer's Junction listens, is taken", address))
			}
		}
		p := harness.NewProgram(t)
		cmd := exec.Command("go", append([]string{"run", "./cmd/junction"}, args...)...)
		cmd.Dir = root
		p.MustStart(t, cmd)
		if p.URL != "http://127.0.0.1:8420/mcp" || p.Admin != "http://127.0.0.1:8421" {
			t.Errorf("it serves %s and %s, want the ports of the README", p.URL, p.Admin)
		}
		return p
	}
	call := func(t *testing.T, want string, args ...string) {
		t.Helper()
		stdout, stderr, err := harness.RunJunction(t, nil, append([]string{"call"}, args...)...)
		if err != nil || !strings.Contains(stdout, want) {
			t.Errorf("junction call %s printed\n%s%s(%v)\nwant %q", strings.Join(args, " "), stdout, stderr, err, want)
		}
	}
	t.Run("nothing configured", func(t *testing.T) {
		p := run(t)
		p.MustReady(t, harness.Patience)
		p.Stdout.MustMatch(t,
			regexp.MustCompile(`(?s)Junction serves http://127\.0\.0\.1:8420/mcp\n.*demo +ready +3\n.*claude mcp add`),
			harness.Patience, p.Done)
		call(t, "hello there\n", "demo__echo", "text=hello there")
		call(t, "Counted 3 steps.\n", "demo__count", "n=3", "ms=1")
	})
	t.Run("example", func(t *testing.T) {
		needs.Node.Require(t)
		needs.Skip(t, npm.HaveRegistry())
		p := run(t, "--config", "config.example.yaml")
		ready := p.MustReady(t, 2*time.Minute)
		// move_file of filesystem is disabled there, and everything hides a tool without roots
		if len(ready.Upstreams) != 4 || ready.Tools != 3+16+13+9 {
			t.Errorf("%d tools of %+v, want 41 of four upstreams", ready.Tools, ready.Upstreams)
		}
		call(t, "hello there\n", "demo__echo", "text=hello there")
		call(t, `"entities": [`, "memory__read_graph")
		call(t, "[FILE] config.example.yaml\n", "filesystem__list_directory", "path=.")
		call(t, "Echo: hello there\n", "everything__echo", "message=hello there")
	})
}

// TestSlowInstall has a server that begins to serve late, as npx does with one that it must install
// first: Junction must neither give it up nor start it anew, which would interrupt the installation
// each time and leaves npm's cache broken.
func TestSlowInstall(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes 25 seconds")
	}
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("there is no sh")
	}
	harness.Waits(t)
	starts := filepath.Join(t.TempDir(), "starts")
	p := harness.MustProgram(t,
		"upstreams:\n  slow: {"+
			harness.Command(t, "sh", "-c", `echo start >>"$0"; sleep 25; exec "$1" demo`, starts, harness.JunctionBinary(t))+
			"}\n")
	if u := p.MustReady(t, 2*harness.Patience).Upstreams[0]; u.Era != "modern" || u.Tools != 3 {
		t.Errorf("upstream %+v, want one of the modern era with 3 tools", u)
	}
	if got, err := os.ReadFile(starts); err != nil || string(got) != "start\n" {
		t.Errorf("it was started %q (%v), want once", got, err)
	}
}
