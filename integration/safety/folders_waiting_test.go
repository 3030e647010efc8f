package safety

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"junction/auth"
	"junction/integration/harness"
	"junction/proxy/front"
	"junction/proxy/scope"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/folder"
	"junction/upstream/upstreamtest"
)

// This file is about servers that end in an empty folder, and about what the clients list that come first.

// newWaiting returns a proxy with two servers that end in a folder without the file here, and one that works in every folder.
func newWaiting(t *testing.T) workplace {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "a"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a", "here"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	guard := folder.New(folder.Rules{Within: []string{dir}})
	child := upstreamtest.Command(t, upstreamtest.Script{Era: string(client.EraLegacy)})
	every := upstream.Config{Command: child.Command, Env: child.Env, Era: client.EraLegacy,
		Isolation: upstream.IsolationFolder, Dir: folder.Word}
	ends := every
	ends.Command = append([]string{"sh", "-c", `[ -e "$1/here" ] || exit 7; shift; exec "$@"`, "sh", folder.Word}, child.Command...)
	return workplace{dir, harness.MustProxy(t, map[string]upstream.Config{"every": every, "one": ends, "two": ends},
		func(_ *front.Options, c *scope.Config, _ *upstream.Options) {
			c.Folders, c.FirstWait = guard, time.Nanosecond // less than any start of a server
			c.Guard, c.Policy = &auth.Guard{}, harness.MustPolicy(t, allowing)
		})}
}

// TestFirstListHasTheServersOfItsFolder: some legacy clients read the list of tools once. So the first list of a session
// in a folder waits for the servers that can list nothing without one, and has their tools.
func TestFirstListHasTheServersOfItsFolder(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "the permitted folders are those of this test")
	for name, roots := range map[string]bool{"header": false, "roots": true} {
		t.Run(name, func(t *testing.T) {
			w := newWaiting(t)
			list := harness.Query{Method: "tools/list"}
			if !roots {
				list = w.in("a", list)
			}
			m, _ := harness.Talk(t, w.URL, client.EraLegacy).Converse(t, list, w.rooted("a"))
			for _, tool := range []string{"every__whoami", "one__whoami", "two__whoami"} {
				if !strings.Contains(string(m.Result), tool) {
					t.Errorf("the first list lacks %s: %.2000s", tool, m.Result)
				}
			}
		})
	}
}

// TestCallWakesTheServersThatWait: an answer to a list cannot ask a modern client for its roots, so that a client with
// roots alone lists no tool of a server that waits for a folder. Its first call of any server that works in folders
// brings the folder to the others, and it hears that the list has changed.
func TestCallWakesTheServersThatWait(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "the permitted folders are those of this test")
	w := newWaiting(t)
	c := harness.Talk(t, w.URL, client.EraModern)
	list := harness.Query{Method: "tools/list"}
	m, asked := c.Converse(t, list, w.rooted("a"))
	if got := string(m.Result); len(asked) > 0 || strings.Contains(got, "one__whoami") || !strings.Contains(got, "every__whoami") {
		t.Errorf("with roots alone, %d questions, and the list %.2000s", len(asked), got)
	}
	hears, _ := harness.Subscribe(t, c, `"lists"`, `{"toolsListChanged":true}`)
	m, asked = c.Converse(t, harness.Called("every__whoami", `{}`), w.rooted("a"))
	if got := at(t, m); got != w.path("a") || len(asked) != 1 {
		t.Fatalf("the call is made in %s after %d questions", got, len(asked))
	}
	for got := ""; !strings.Contains(got, "one__whoami") || !strings.Contains(got, "two__whoami"); {
		harness.WantNotes(t, hears, "tools/list_changed")
		m, _ = c.Converse(t, list, w.rooted("a"))
		got = string(m.Result)
	}
}

// TestListAsksForRootsOnlyWhereItNeedsThem: a server with a folder of its own lists its tools there, so that a list
// does not ask a client for roots, also if the server has not listed anything yet.
func TestListAsksForRootsOnlyWhereItNeedsThem(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "the permitted folders are those of this test")
	dir := t.TempDir()
	for name, row := range map[string]struct {
		dir   string
		asked int
	}{"a folder of its own": {dir, 0}, "the folder of the client": {folder.Word, 1}} {
		t.Run(name, func(t *testing.T) {
			w := newReloading(t, upstreamtest.Script{Era: string(client.EraLegacy)})
			w.entry.Command, w.entry.Dir = []string{"sh", "-c", "exit 7"}, row.dir
			w.apply("other") // which has no lists of before
			m, asked := harness.Talk(t, w.URL, client.EraLegacy).Converse(t, harness.Query{Method: "tools/list"}, w.rooted("within/a"))
			if m.Error != nil || len(asked) != row.asked {
				t.Errorf("the list asks the client %d times, want %d: %s", len(asked), row.asked, m.Append(nil))
			}
		})
	}
}

// reloading is a workplace whose entry changes.
type reloading struct {
	workplace
	child *upstreamtest.Child
	entry upstream.Config
	world *scope.Config
	up    *upstream.Options
}

func newReloading(t *testing.T, script upstreamtest.Script) *reloading {
	t.Helper()
	w := &reloading{child: upstreamtest.Command(t, script)}
	w.workplace = newWorkplaceOf(t, client.Era(script.Era), allowing, func(c *upstream.Config) {
		c.Command, c.Env = w.child.Command, w.child.Env
		w.entry = *c
	}, func(_ *front.Options, c *scope.Config, up *upstream.Options) { w.world, w.up = c, up })
	return w
}

// apply has the entry alone under a name from now on, as after a reload of the file.
func (w *reloading) apply(name string) {
	w.Set.Apply(map[string]upstream.Config{name: w.entry}, *w.up, func(us []*upstream.Upstream) { w.Server.Apply(*w.world, us) })
}
