//go:build unix

package upstream

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gopkg.in/yaml.v3"

	"junction/auth/authtest"
	"junction/upstream/client"
	"junction/upstream/command"
	"junction/upstream/sandbox"
)

// mustEnforce skips a test of what the kernel enforces where it does not.
func mustEnforce(t *testing.T) {
	t.Helper()
	if s := sandbox.Kernel(); s.Missing(&sandbox.Rules{}) != "" {
		t.Skip("NOT TESTED: " + s.Missing(&sandbox.Rules{}))
	}
}

// allPorts are those of the word all.
func allPorts() (p command.Ports) {
	into, _ := p.Shape(&yaml.Node{Kind: yaml.ScalarNode, Value: "all"})
	*into.(*string) = "all"
	return p
}

// TestSandboxOnKernelsThatLack: without require a command starts where its sandbox cannot be
// enforced, and the status says so; with it, no process starts, and the upstream is blocked with
// the reason.
func TestSandboxOnKernelsThatLack(t *testing.T) {
	const ran3 = "exited with status 3"
	ports, required, none := allPorts(), command.Sandbox{Require: true}, sandbox.Support{Why: "none here"}
	abi := func(n int) sandbox.Support { return sandbox.Support{ABI: n, Filter: true} }
	unfiltered := sandbox.Support{ABI: 4, FilterWhy: "no filter here"}
	for _, row := range []struct {
		name    string
		sandbox command.Sandbox
		kernel  sandbox.Support
		state   State  // StateRetrying: the command ran, and is no server
		status  string // how Status.Sandbox begins
		err     string // is part of Status.Err
	}{
		{"none", command.Sandbox{}, none, StateRetrying, "not enforced: none here", ran3},
		{"none, required", required, none, StateBlocked, "not enforced: none here", "(sandbox.require): none here"},
		{"too old", command.Sandbox{}, abi(1), StateRetrying, "not enforced: Landlock of this kernel (ABI 1)", ran3},
		{"too old, required", required, abi(1), StateBlocked, "not enforced: ", "ABI 1"},
		{"no TCP, required", required, abi(3), StateBlocked, "enforced in part: ", "does not restrict TCP"},
		{"no TCP, not needed", command.Sandbox{Require: true, TCP: ports}, abi(3), StateRetrying, command.Enforced, ran3},
		{"no TCP", command.Sandbox{}, abi(3), StateRetrying, "enforced in part: ", ran3},
		{"no UNIX sockets", command.Sandbox{TCP: ports}, abi(8), StateRetrying,
			"enforced in part: Landlock of this kernel (ABI 8) does not restrict UNIX sockets; set require: true", ran3},
		{"no UNIX sockets, required", required, abi(4), StateRetrying, command.Enforced, ran3}, // it can create none
		{"no filter", command.Sandbox{}, unfiltered, StateRetrying, "enforced in part: ", ran3},
		{"no filter, required", required, unfiltered, StateBlocked,
			"enforced in part: TCP Fast Open, protocols other than TCP and io_uring are not restricted: no filter here",
			"no filter here"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.kernel.Enforces() && row.state == StateRetrying {
				mustEnforce(t)
			}
			ran := filepath.Join(t.TempDir(), "ran")
			if err := os.WriteFile(ran, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			row.sandbox.Write = []string{ran}
			u := Start("up", Config{Command: []string{"sh", "-c", "echo x >" + ran + "; exit 3"}, Sandbox: &row.sandbox},
				Options{Log: authtest.Log(t), Sandboxes: t.TempDir(), kernel: func() sandbox.Support { return row.kernel }})
			defer u.Close()
			<-u.Met()
			s := u.Status()
			if s.State != row.state || !strings.HasPrefix(s.Sandbox, row.status) || !strings.Contains(s.Err, row.err) {
				t.Errorf("status is %v, sandbox %q, error %q; want %v, %q, %q",
					s.State, s.Sandbox, s.Err, row.state, row.status, row.err)
			}
			if text, err := os.ReadFile(ran); (len(text) > 0) != (row.state == StateRetrying) || err != nil {
				t.Errorf("the command has left %q (%v)", text, err)
			}
			r := u.Check(t.Context())
			if r.Err == nil || !strings.Contains(r.Err.Error(), row.err) || !strings.HasPrefix(r.Sandbox, row.status) {
				t.Errorf("a check finds %v, sandbox %q", r.Err, r.Sandbox)
			}
			if advised := strings.Contains(r.Advice, "require: true"); advised != (row.state == StateBlocked) {
				t.Errorf("the advice is %q", r.Advice)
			}
		})
	}
}

// TestSandboxChangeRestarts: processes of the old rules end, and those of equal rules
// stay.
func TestSandboxChangeRestarts(t *testing.T) {
	dir := t.TempDir()
	config := func(change func(*command.Sandbox)) map[string]Config {
		s := command.Sandbox{Write: []string{dir}, TCP: command.Ports{List: []command.Port{443}}}
		change(&s)
		return map[string]Config{"up": {Command: []string{"cat"}, Sandbox: &s}}
	}
	o := Options{Log: authtest.Log(t), Sandboxes: t.TempDir()}
	var set Set
	var closing sync.WaitGroup
	defer closing.Wait()
	defer set.Close()
	before := set.Apply(config(func(*command.Sandbox) {}), o, nil)[0].pool
	if same := set.Apply(config(func(*command.Sandbox) {}), o, nil)[0].pool; same != before {
		t.Error("equal rules restart the command")
	}
	for i, change := range []func(*command.Sandbox){
		func(s *command.Sandbox) { s.Write = nil }, func(s *command.Sandbox) { s.Read = []string{dir} },
		func(s *command.Sandbox) { s.TCP.List[0] = 80 },
		func(s *command.Sandbox) { s.TCP = allPorts() }, func(s *command.Sandbox) { s.Require = true },
	} {
		next := set.Apply(config(change), o, nil)[0].pool
		if next == before {
			t.Error(fmt.Sprint("change ", i, " restarts nothing"))
		}
		before = next
	}
	if c := (Config{Command: []string{"cat"}}); set.Apply(map[string]Config{"up": c}, o, nil)[0].pool == before {
		t.Error("a removed sandbox restarts nothing")
	}
}

// TestSandboxKnowsWhatAllEntriesMayChange: each process knows the paths of write and the private folders
// of all entries, also of those that are off, and of those that a later file adds.
func TestSandboxKnowsWhatAllEntriesMayChange(t *testing.T) {
	entry := func(enabled bool, write ...string) Config {
		return Config{Command: []string{"cat"}, Enabled: &enabled, Sandbox: &command.Sandbox{Write: write}}
	}
	configs := map[string]Config{"up": entry(true, "/a"), "off": entry(false, "/b"), "free": {Command: []string{"cat"}}}
	private := t.TempDir()
	o := Options{Log: authtest.Log(t), Sandboxes: private}
	var set Set
	defer set.Close()
	set.Apply(configs, o, nil)
	var running *pool
	for _, u := range set.All() {
		if u.Name() == "up" {
			running = u.pool
		}
	}
	want := []string{"/a", "/b", filepath.Join(private, "off"), filepath.Join(private, "up")}
	if got := running.confinement().Others(); !slices.Equal(got, want) {
		t.Errorf("the command knows %q, want %q", got, want)
	}
	configs["later"] = entry(true, "/c")
	set.Apply(configs, o, nil)
	if got := running.confinement().Others(); !slices.Contains(got, "/c") ||
		!slices.Contains(got, filepath.Join(private, "later")) {
		t.Errorf("the command that has not changed knows %q, and not what the new entry may change", got)
	}
}

// TestSandboxKnowsWhatOldProcessesMayChange: paths that a new file no longer names count until the
// processes of the old file have ended.
func TestSandboxKnowsWhatOldProcessesMayChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entry := func(write string) map[string]Config {
			return map[string]Config{"up": {Command: []string{"cat"}, Blocked: "no process is needed here",
				Sandbox: &command.Sandbox{Write: []string{write}}}}
		}
		var set Set
		defer set.Close()
		o := Options{Log: authtest.Log(t)}
		set.Apply(entry("/old"), o, nil)
		running := set.Apply(entry("/new"), o, nil)[0].pool
		if got, want := running.confinement().Others(), []string{"/new", "/old"}; !slices.Equal(got, want) {
			t.Errorf("while the old process may run, the command knows %q, want %q", got, want)
		}
		time.Sleep(retireGrace)
		synctest.Wait()
		if got, want := running.confinement().Others(), []string{"/new"}; !slices.Equal(got, want) {
			t.Errorf("after its end, the command knows %q, want %q", got, want)
		}
	})
}

// TestConfiningCommandIsTold: a command that confines commands itself gets the paths that confined
// commands may change, and another process when they change, but not with each file.
func TestConfiningCommandIsTold(t *testing.T) {
	configs := map[string]Config{
		"pack": {Command: []string{"cat"}, Blocked: "no process is needed here", Confines: true,
			Env: map[string]string{"A": "a"}},
		"up": {Command: []string{"cat"}, Blocked: "no process is needed here", Sandbox: &command.Sandbox{
			Write: []string{"/w"}}},
	}
	var set Set
	defer set.Close()
	apply := func(o Options) *pool { return set.Apply(configs, o, nil)[0].pool }
	told := func(p *pool) []string {
		env := p.dialOptions().Env.Own
		paths, err := sandbox.Listen(env[sandbox.Told])
		if err != nil || env["A"] != "a" {
			t.Errorf("the command gets %q, %v", env, err)
		}
		return paths
	}
	o := Options{Log: authtest.Log(t), Writable: []string{"/tool"}}
	first := apply(o)
	if got, want := told(first), []string{"/tool", "/w"}; !slices.Equal(got, want) {
		t.Errorf("the command is told %q, want %q", got, want)
	}
	if apply(o) != first {
		t.Error("the same file starts another process")
	}
	configs["later"] = Config{Command: []string{"cat"}, Blocked: "no", Sandbox: &command.Sandbox{Write: []string{"/x"}}}
	next := set.Apply(configs, o, nil)[1].pool
	if got := told(next); next == first || !slices.Contains(got, "/x") {
		t.Errorf("after a new entry, the command is told %q", got)
	}
	delete(configs, "later")
	last := apply(o)
	if got := told(last); slices.Contains(got, "/x") {
		t.Errorf("without the entry, the command is told %q", got)
	}
	if apply(o) != last {
		t.Error("the same file starts another process")
	}
}

// TestSandboxHasAllRootsOfAClient: a command with a sandbox may change each permitted root of its client; only read
// them, if the entry says so; and not another folder that clients may name.
func TestSandboxHasAllRootsOfAClient(t *testing.T) {
	mustEnforce(t)
	for _, reads := range []bool{false, true} {
		p := newPlaces(t, "shop", "blog", "other")
		c := Config{Isolation: IsolationFolder, Era: client.EraLegacy, Sandbox: &command.Sandbox{Require: true, TCP: allPorts()}}
		if reads {
			c.Sandbox.Read = []string{"${folder}"}
		}
		const uses = `ls "$1" && exit 5; shift; ls "$@" || exit 4; for d; do echo x >"$d/written"; done; exit 3`
		c.Command = []string{"sh", "-c", uses, "sh", filepath.Join(p.dir, "other"), filepath.Join(p.dir, "shop"),
			filepath.Join(p.dir, "blog")}
		u := Start("up", c, Options{Log: authtest.Log(t), Sandboxes: t.TempDir()})
		res := <-begun(u, toolCall("whoami", `{}`, p.in(t, "ann", "shop", "blog")))
		if res.err == nil || !strings.Contains(res.err.Error(), "status 3") {
			t.Errorf("only read %v: the command ended with %v", reads, res.err)
		}
		for _, name := range []string{"shop", "blog"} {
			if _, err := os.Stat(filepath.Join(p.dir, name, "written")); (err == nil) == reads {
				t.Errorf("only read %v: it has changed %s: %v", reads, name, err == nil)
			}
		}
		u.Close()
	}
}
