package upstream

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
	"junction/upstream/client"
	"junction/upstream/folder"
	"junction/upstream/upstreamtest"
)

// asksRoots has the server ask for the roots of its client, on a stream that names no call.
const asksRoots = `{"on":"get","questions":[{"method":"roots/list","params":{}}]}`

// places are folders that a Guard permits.
type places struct {
	dir   string
	guard *folder.Guard
}

func newPlaces(t *testing.T, names ...string) places {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return places{dir, folder.New(folder.Rules{Within: []string{dir}})}
}

// in is a call from a client with these roots.
func (p places) in(t *testing.T, principal string, names ...string) func(*Call) {
	t.Helper()
	var uris []string
	for _, name := range names {
		uris = append(uris, "file://"+filepath.ToSlash(filepath.Join(p.dir, name)))
	}
	set, err := p.guard.AdmitRoots(t.Context(), principal, uris)
	if err != nil {
		t.Fatal(err)
	}
	return func(c *Call) { c.Principal, c.Folders = principal, NewFolders(set, p.guard, principal) }
}

// me is what a process tells about itself.
type me struct {
	Pid int
	Dir string
	Env map[string]string
}

func whoIs(t *testing.T, u *Upstream, change ...func(*Call)) me {
	t.Helper()
	var r struct{ StructuredContent me }
	if err := json.Unmarshal([]byte(mustCall(t, u, toolCall("whoami", `{"names":["PLACE"]}`, change...))), &r); err != nil {
		t.Fatal(err)
	}
	return r.StructuredContent
}

// TestEachFolderHasAProcess: the calls of one folder share a process, which starts there, gets its path, and
// learns its roots from Junction. Another folder, another set of roots and another user have other processes.
func TestEachFolderHasAProcess(t *testing.T) {
	for _, era := range []client.Era{client.EraLegacy, client.EraModern} {
		t.Run(string(era), func(t *testing.T) {
			p := newPlaces(t, "shop", "blog")
			child := upstreamtest.Command(t, upstreamtest.Script{Era: string(era)})
			child.Env["PLACE"] = "at=${folder}"
			u := Start("up", Config{Command: child.Command, Env: child.Env, Dir: "${folder}", Era: era,
				Isolation: IsolationFolder}, Options{Log: authtest.Log(t)})
			defer u.Close()
			shop, blog := p.in(t, "ann", "shop"), p.in(t, "ann", "blog")
			first := whoIs(t, u, shop)
			if want := filepath.Join(p.dir, "shop"); first.Dir != want || first.Env["PLACE"] != "at="+want {
				t.Errorf("the process of the shop is %+v", first)
			}
			if other := whoIs(t, u, blog); other.Dir != filepath.Join(p.dir, "blog") || other.Pid == first.Pid {
				t.Errorf("the process of the blog is %+v, that of the shop %+v", other, first)
			}
			if again := whoIs(t, u, p.in(t, "ann", "shop")); again.Pid != first.Pid {
				t.Error("the next call from the shop goes to another process")
			}
			if bob := whoIs(t, u, p.in(t, "bob", "shop")); bob.Pid == first.Pid {
				t.Error("two users share a process")
			}
			both := p.in(t, "ann", "shop", "blog")
			if two := whoIs(t, u, both); two.Pid == first.Pid || two.Dir != first.Dir {
				t.Errorf("the process of both roots is %+v", two)
			}
			asks := asksRoots
			if era == client.EraModern {
				asks = `{"questions":[{"method":"roots/list","params":{}}]}`
			}
			silent := func(c *Call) { c.Profile = client.Profile{} } // the client has no roots, as with a header
			for from, want := range map[string][]string{"shop": {"shop"}, "blog": {"blog"}, "both": {"shop", "blog"}} {
				in := map[string]func(*Call){"shop": shop, "blog": blog, "both": both}[from]
				text := mustCall(t, u, toolCall("ask", asks, in, silent))
				for _, name := range []string{"shop", "blog"} {
					has := strings.Contains(text, "file://"+filepath.ToSlash(filepath.Join(p.dir, name)))
					if has != strings.Contains(strings.Join(want, " "), name) {
						t.Errorf("%s: the process learns the root %s: %t, from %s", from, name, has, text)
					}
				}
			}
		})
	}
}

// TestCallWithoutFolder: a call from no folder goes to dir if the entry has one. Otherwise it fails, and the
// lists are read in an empty folder that nobody else has.
func TestCallWithoutFolder(t *testing.T) {
	p := newPlaces(t, "own")
	for name, row := range map[string]struct{ dir, want string }{
		"dir":    {filepath.Join(p.dir, "own"), filepath.Join(p.dir, "own")},
		"no dir": {"", ""},
		"folder": {"${folder}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			child := upstreamtest.Command(t, upstreamtest.Script{AsksRoots: true})
			child.Env["PLACE"] = "${folder}"
			u := Start("up", Config{Command: child.Command, Env: child.Env, Dir: row.dir, Isolation: IsolationFolder,
				Era: client.EraLegacy}, Options{Log: authtest.Log(t)})
			defer u.Close()
			if err := u.Ready(t.Context()); err != nil || len(u.Catalog().Tools) == 0 {
				t.Fatalf("the lists are not read: %v", err)
			}
			if row.want != "" {
				if got := whoIs(t, u); got.Dir != row.want || got.Env["PLACE"] != row.want {
					t.Errorf("the call is made in %+v", got)
				}
				return
			}
			res := <-begun(u, toolCall("whoami", `{}`))
			if !errors.Is(res.err, errNoFolder) {
				t.Errorf("Call = %s, %v", res.text, res.err)
			}
			home := u.home.path
			if list, err := os.ReadDir(home); err != nil || len(list) > 0 {
				t.Errorf("the folder of the lists has %v, %v", list, err)
			}
			if u.Close(); home == "" {
				t.Error("there is no folder of the lists")
			} else if _, err := os.Stat(home); err == nil {
				t.Error("the folder of the lists is left")
			}
		})
	}
}

// TestFolderThatWasReplaced: a process does not start in a folder that has the path of the permitted one now.
func TestFolderThatWasReplaced(t *testing.T) {
	p := newPlaces(t, "shop")
	child := upstreamtest.Command(t, upstreamtest.Script{})
	u := Start("up", Config{Command: child.Command, Env: child.Env, Dir: "${folder}", Isolation: IsolationFolder}, Options{Log: authtest.Log(t)})
	defer u.Close()
	in := p.in(t, "ann", "shop")
	if err := os.Rename(filepath.Join(p.dir, "shop"), filepath.Join(p.dir, "old")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(p.dir, "shop"), 0o700); err != nil {
		t.Fatal(err)
	}
	if res := <-begun(u, toolCall("whoami", `{}`, in)); res.err == nil {
		t.Errorf("Call = %s", res.text)
	}
	if got := whoIs(t, u, p.in(t, "ann", "shop")); got.Dir != filepath.Join(p.dir, "shop") {
		t.Errorf("the next call is made in %+v", got)
	}
}

// TestFolderThatWouldBeDivided: a name with a character at which a program divides a value stands only where it is
// a whole argument.
func TestFolderThatWouldBeDivided(t *testing.T) {
	p := newPlaces(t, "a,b")
	for value, ok := range map[string]bool{"${folder}": true, "--root=${folder}": false} {
		child := upstreamtest.Command(t, upstreamtest.Script{})
		child.Env["PLACE"] = value
		u := Start("up", Config{Command: child.Command, Env: child.Env, Isolation: IsolationFolder}, Options{Log: authtest.Log(t)})
		defer u.Close()
		res := <-begun(u, toolCall("whoami", `{"names":["PLACE"]}`, p.in(t, "ann", "a,b")))
		if ok != (res.err == nil) || !ok && !strings.Contains(res.err.Error(), "rename the folder") {
			t.Errorf("%s: Call = %s, %v", value, res.text, res.err)
		}
	}
}

// TestServerWaitsForAFolder: a server that ends in an empty folder has not failed. It is not started again for callers
// without a folder. The first client with one has its lists read there, with a call as with a list. If that folder
// goes, the server waits for the next one, and its tools stay.
func TestServerWaitsForAFolder(t *testing.T) {
	for name, bring := range map[string]func(*testing.T, *Upstream, func(*Call)){
		"call": func(t *testing.T, u *Upstream, in func(*Call)) { whoIs(t, u, in) },
		"list": func(t *testing.T, u *Upstream, in func(*Call)) {
			c := toolCall("whoami", `{}`, in)
			if waited := u.Bring(t.Context(), c.Folders); !waited || len(u.Catalog().Tools) == 0 {
				t.Errorf("after the list of a client in a folder, %d tools are known", len(u.Catalog().Tools))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlaces(t, "shop")
			if err := os.WriteFile(filepath.Join(p.dir, "shop", "here"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			child, starts := upstreamtest.Command(t, upstreamtest.Script{}), filepath.Join(p.dir, "starts")
			const ends = `echo >>"$2"; [ -e "$1/here" ] || exit 7; shift 2; exec "$@"`
			states := make(chan Change, 100)
			u := Start("up", Config{Command: append([]string{"sh", "-c", ends, "sh", "${folder}", starts}, child.Command...),
				Env: child.Env, Isolation: IsolationFolder, Era: client.EraLegacy},
				Options{Log: authtest.Log(t), Hooks: Hooks{StateChanged: func(c Change) { states <- c }}})
			defer u.Close()
			until := func(want State) Change {
				for {
					select {
					case c := <-states:
						if c.State == want {
							return c
						}
					case <-t.Context().Done():
						t.Fatalf("the state does not become %v; it is %v", want, u.Status().State)
					}
				}
			}
			until(StateWaiting)
			if u.dead.Load() != nil {
				t.Error("calls from a folder would not wait for their process")
			}
			if s := u.Status(); s.State != StateWaiting || s.State.Broken() || s.State.Failed() || !strings.Contains(s.Advice, "by roots alone") ||
				!strings.Contains(s.Err, "status 7") || !s.Retry.IsZero() {
				t.Errorf("the status is %+v", s)
			}
			for range 2 {
				if err := u.Ready(t.Context()); !errors.As(err, new(*WaitingError)) {
					t.Errorf("Ready = %v", err)
				}
			}
			if text, err := os.ReadFile(starts); err != nil || len(text) != 1 {
				t.Errorf("for callers without a folder it was started %d times, %v", len(text), err)
			}
			if r := u.Check(t.Context()); r.Err != nil || !errors.As(r.Waits, new(*WaitingError)) || r.Advice == "" {
				t.Errorf("the check finds %v, %v", r.Err, r.Waits)
			}
			bring(t, u, p.in(t, "ann", "shop"))
			until(StateReady)
			if r := u.Check(t.Context()); r.Err != nil || r.Waits != nil || r.Catalog == nil {
				t.Errorf("then the check finds %v, %v", r.Err, r.Waits)
			}
			if err := os.RemoveAll(filepath.Join(p.dir, "shop")); err != nil {
				t.Fatal(err)
			}
			u.reconnect()
			until(StateWaiting)
			if len(u.Catalog().Tools) == 0 {
				t.Error("the tools have gone with the folder")
			}
		})
	}
}

// TestStateOfAFolderEndsWithItsConnection: the windows of a program in a folder have a state, which is named without
// numbers of the file system. If another member may have it now, the process of that folder ends, and no other one.
func TestStateOfAFolderEndsWithItsConnection(t *testing.T) {
	p := newPlaces(t, "a", "b")
	child := upstreamtest.Command(t, upstreamtest.Script{Era: string(client.EraLegacy)})
	yes := true
	u := Start("up", Config{Command: child.Command, Env: child.Env, Isolation: IsolationFolder, Era: client.EraLegacy,
		Stateful: &yes}, Options{Log: authtest.Log(t)})
	defer u.Close()
	agent := func(account, folder string) func(*Call) {
		in := p.in(t, "", folder)
		return func(c *Call) { in(c); c.Account = account }
	}
	holder := func(account, folder string) string {
		h, ok := u.Holder(Window{Account: account, Folders: []string{filepath.Join(p.dir, folder)}})
		if !ok {
			t.Error("no state is declared")
		}
		return h
	}
	all := []func(*Call){agent("codex", "b"), agent("claude", "a"), agent("codex", "a")}
	var before []int
	for _, in := range all {
		before = append(before, whoIs(t, u, in).Pid)
	}
	if !u.Keeps(holder("codex", "a")) || u.Keeps(holder("claude", "b")) {
		t.Error("other windows have a state")
	}
	u.Discard(holder("codex", "a"))
	for i, in := range all {
		if now := whoIs(t, u, in).Pid; (now != before[i]) != (i == 2) {
			t.Errorf("process %d follows on %d", now, before[i])
		}
	}
}

// TestServerThatCannotStartDoesNotWait: no folder of a client would help.
func TestServerThatCannotStartDoesNotWait(t *testing.T) {
	u := Start("up", Config{Command: []string{filepath.Join(t.TempDir(), "none")}, Isolation: IsolationFolder}, Options{Log: authtest.Log(t)})
	defer u.Close()
	<-u.Met()
	if s := u.Status(); s.State != StateRetrying {
		t.Errorf("the status is %+v", s)
	}
}

// TestNobodyLosesTheProcessOfAFolder: the process of a folder that was used in the last minutes does not make room for
// another folder. The caller that finds no place is told so at once.
func TestNobodyLosesTheProcessOfAFolder(t *testing.T) {
	p := newPlaces(t, "a", "b", "c", "d", "e")
	child := upstreamtest.Command(t, upstreamtest.Script{Era: string(client.EraLegacy)})
	u := Start("up", Config{Command: child.Command, Env: child.Env, Dir: "${folder}", Isolation: IsolationFolder,
		Era: client.EraLegacy, MaxLinks: 5}, Options{Log: authtest.Log(t)})
	defer u.Close()
	agent := func(account, folder string) func(*Call) {
		in := p.in(t, "", folder)
		return func(c *Call) { in(c); c.Account = account }
	}
	first, second := whoIs(t, u, agent("codex", "a")), whoIs(t, u, agent("codex", "b"))
	whoIs(t, u, agent("claude", "a"))
	whoIs(t, u, agent("claude", "d"))
	for want, in := range map[string]func(*Call){"of one program beside others (of max_links: ": agent("codex", "c"), "of processes (max_links: ": agent("opencode", "e")} {
		res := <-begun(u, toolCall("whoami", `{}`, in))
		if text := mustFail(t, res, client.KindBusy); !strings.Contains(text, want) || !strings.Contains(text, "upstreams.up") {
			t.Errorf("Call = %s", text)
		}
	}
	if a, b := whoIs(t, u, agent("codex", "a")), whoIs(t, u, agent("codex", "b")); a.Pid != first.Pid || b.Pid != second.Pid {
		t.Error("a window has lost its process")
	}
}

// TestProcessOfARemovedFolderMakesRoom: no call can name a folder that was removed, also if another one has its path
// now. Its process makes room at once; that of another folder stays.
func TestProcessOfARemovedFolderMakesRoom(t *testing.T) {
	p := newPlaces(t, "a", "b", "c", "d")
	child := upstreamtest.Command(t, upstreamtest.Script{Era: string(client.EraLegacy)})
	u := Start("up", Config{Command: child.Command, Env: child.Env, Isolation: IsolationFolder,
		Era: client.EraLegacy, MaxLinks: 4}, Options{Log: authtest.Log(t)})
	defer u.Close()
	whoIs(t, u, p.in(t, "ann", "a"))
	kept := whoIs(t, u, p.in(t, "ann", "b"))
	c := p.in(t, "ann", "c")
	mustFail(t, <-begun(u, toolCall("whoami", `{}`, c)), client.KindBusy)
	if err := os.RemoveAll(filepath.Join(p.dir, "a")); err != nil {
		t.Fatal(err)
	}
	whoIs(t, u, c)
	mustFail(t, <-begun(u, toolCall("whoami", `{}`, p.in(t, "ann", "d"))), client.KindBusy)
	if err := errors.Join(os.Rename(filepath.Join(p.dir, "c"), filepath.Join(p.dir, "moved")),
		os.Mkdir(filepath.Join(p.dir, "c"), 0o700)); err != nil {
		t.Fatal(err)
	}
	whoIs(t, u, p.in(t, "ann", "c"))
	if now := whoIs(t, u, p.in(t, "ann", "b")); now.Pid != kept.Pid {
		t.Error("the folder that is still there has lost its process")
	}
}

// TestProcessOfAFolderMakesRoomLater: the process that was unused for the longest time makes room, minutes after its
// last call. A second process of a folder, for a call beside a question, makes room at once.
func TestProcessOfAFolderMakesRoomLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pool{name: "up", connConfig: Config{Isolation: IsolationFolder, MaxLinks: 6}, log: authtest.Log(t), links: map[linkKey]*link{}}
		add := func(key linkKey) *link {
			l := &link{pool: p, key: key, linkState: linkState{state: StateReady, used: time.Now(), changed: make(chan struct{})}}
			p.links[key] = l
			return l
		}
		of := func(folder string, number int) linkKey {
			return linkKey{holder: "folder " + folder, user: "ann", number: number}
		}
		a := add(of("a", 0))
		time.Sleep(time.Minute)
		add(of("b", 0))
		spare := add(of("b", 1))
		if p.allHeld(of("c", 0)) {
			t.Error("no place can become free")
		}
		if got := p.takeIdle(of("c", 0)); got != spare {
			t.Errorf("%p makes room", got)
		}
		delete(p.links, spare.key)
		add(of("c", 0)).calls = 1
		time.Sleep(keptFor - time.Minute - time.Second)
		if got := p.takeIdle(of("d", 0)); got != nil || !p.allHeld(of("d", 0)) {
			t.Errorf("too early, %p makes room", got)
		}
		time.Sleep(time.Second)
		if got := p.takeIdle(of("d", 0)); got != a {
			t.Errorf("%p makes room", got)
		}
	})
}

// TestProcessOfAFolderStopsAlone: idle_stop ends the process of a folder that no call uses, and no other one. The next
// call from the folder starts another process there.
func TestProcessOfAFolderStopsAlone(t *testing.T) {
	p := newPlaces(t, "a", "b")
	child := upstreamtest.Command(t, upstreamtest.Script{Era: string(client.EraLegacy)})
	u := Start("up", Config{Command: child.Command, Env: child.Env, Dir: "${folder}", Isolation: IsolationFolder,
		Era: client.EraLegacy, IdleStop: 10 * time.Millisecond}, Options{Log: authtest.Log(t)})
	defer u.Close()
	a, b := p.in(t, "ann", "a"), p.in(t, "ann", "b")
	works := begun(u, toolCall("gate", `{"gate":"end"}`, b))
	first := whoIs(t, u, a)
	u.mu.Lock()
	l := u.links[u.keyOf(toolCall("whoami", `{}`, a), false)]
	u.mu.Unlock()
	if l != nil { // else it has ended already
		<-l.done
	}
	if again := whoIs(t, u, a); again.Pid == first.Pid || again.Dir != first.Dir {
		t.Errorf("the process %+v follows on %+v", again, first)
	}
	mustCall(t, u, toolCall("open", `{"gate":"end"}`, b))
	if res := <-works; res.err != nil {
		t.Errorf("the call from the other folder = %v", res.err)
	}
}
