package harness

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"junction/auth"
	"junction/cmd/watch"
	"junction/integration/harness/process"
	"junction/integration/harness/settings"
	"junction/proxy"
	"junction/upstream"
	"junction/upstream/client"
)

// This file lets several processes of the program stand for the proxy of a test, if
// JUNCTION_TEST_PROCESSES is set.

// Processes returns the number of processes behind each proxy of a test. 1 is a proxy in the process
// of the test. Each process has its own connections to the upstreams, and starts their commands.
func Processes() int {
	n, err := strconv.Atoi(os.Getenv("JUNCTION_TEST_PROCESSES"))
	if err != nil || n < 1 {
		return 1
	}
	return n
}

// InMemory skips the test if processes stand for the proxy, and states why it needs the proxy in its
// own process. ../README.md lists these tests.
func InMemory(t testing.TB, reason string) {
	t.Helper()
	if Processes() > 1 {
		t.Skip("not over several processes: " + reason)
	}
}

// cluster is several processes over one Postgres behind nginx. Tests use it one after the other, and
// each changes its configuration by a reload, because processes take longer to start.
type cluster struct {
	*lasting
	members []*Program
	url     string // of the merged endpoint, at nginx
	fixed   string // the settings that need a restart
	idle    string // the sections between two tests
	file    string
	begin   string // of the file
	over    bool   // its processes have ended
	spent   bool   // the database has counts of the limits of policies
}

// nothing is the configuration of a cluster that no test uses. A file needs an upstream.
const nothing = "upstreams: { none: { command: [junction, demo], enabled: false } }\n"

// nobody is the section auth of a cluster that no test uses and whose tests have API keys: no process begins or
// ends to ask for keys by a reload, because several must agree in that.
const nobody = "auth: { api_keys: [{ name: nobody, hash: " +
	"sha256:0000000000000000000000000000000000000000000000000000000000000001 }] }\n"

// mustCluster starts a cluster for the test, which others may use after it.
func mustCluster(t testing.TB, n int, fixed, idle string) *cluster {
	t.Helper()
	c := &cluster{lasting: &lasting{TB: t}, fixed: fixed, idle: idle}
	first := MustProcesses(c.lasting, n, "log: { level: debug }\n"+fixed+idle)
	c.members, c.url = append([]*Program{first}, first.Others...), first.URL
	// The link keeps the file out of the folder that the processes watch, so that they reload it on
	// SIGHUP only, once for each change.
	c.file = filepath.Join(first.Dir, "file", "junction.yaml")
	text, err := os.ReadFile(first.File())
	for _, step := range []func() error{
		func() error { return err },
		func() error { return os.Mkdir(filepath.Dir(c.file), 0o700) },
		func() error { return os.Rename(first.File(), c.file) },
		func() error { return os.Symlink(c.file, first.File()) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	c.begin = strings.Replace(strings.Replace(string(text), idle, "", 1), allowing(c.url), "", 1)
	return c
}

// answers are the lines of the log after a reload.
var answers = regexp.MustCompile(`(?m)msg="configuration (reloaded|not reloaded).*$`)

// reload has all processes reload the file with these further sections, and waits for it.
func (c *cluster) reload(sections string) {
	c.Helper()
	c.spent = c.spent || strings.Contains(sections, "limits:")
	if err := os.WriteFile(c.file+".new", []byte(c.begin+sections), 0o600); err != nil {
		c.Fatal(err)
	}
	// A reload on SIGHUP waits for a file that was just written, which could be half of one.
	if err := os.Chtimes(c.file+".new", time.Time{}, time.Now().Add(-watch.InPlace)); err != nil {
		c.Fatal(err)
	}
	if err := os.Rename(c.file+".new", c.file); err != nil {
		c.Fatal(err)
	}
	c.again()
}

// again has all processes reload the unchanged file, which also puts changed lists in force.
func (c *cluster) again() {
	c.Helper()
	var before []int
	for _, p := range c.members {
		before = append(before, p.Stderr.Len())
		if err := p.Cmd.Process.Signal(syscall.SIGHUP); err != nil {
			c.Fatal(err)
		}
	}
	for i, p := range c.members {
		if m := p.Stderr.MustMatchAfter(c, before[i], answers, Patience, p.Done); m[1] != "reloaded" {
			text, _ := os.ReadFile(c.file)
			c.Fatalf("%s\n%s\n%s", m[0], p.Stderr.Tail(2000), text)
		}
	}
}

// ready waits until the upstreams are ready in all processes, and offered.
func (c *cluster) ready(names []string) {
	c.Helper()
	for _, p := range c.members {
		var last Report
		await(c, fmt.Sprintf("%q to be ready", names), func() bool {
			last, _ = p.report(c.Context())
			return !slices.ContainsFunc(names, func(name string) bool {
				return !slices.ContainsFunc(last.Upstreams, func(u UpstreamReport) bool {
					return u.Name == name && u.State == "ready"
				})
			})
		})
	}
	c.again()
}

// log has the logs of the processes also written to w, until the next call.
func (c *cluster) log(w io.Writer) {
	for _, p := range c.members {
		p.Stderr.Copy(w)
	}
}

// endSession deletes a session at the end of the test that began it, if the next test uses the same
// processes. They would subscribe for it to the resources of the next test.
func endSession(t testing.TB, url string, own http.Header) {
	if Processes() == 1 {
		return
	}
	t.Cleanup(func() {
		r, err := http.NewRequest(http.MethodDelete, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = own
		if answer, err := http.DefaultClient.Do(r); err == nil { // else the processes have ended
			answer.Body.Close()
		}
	})
}

// shutdown ends the processes while the test uses them.
func (c *cluster) shutdown() {
	c.over = true
	for _, p := range c.members {
		process.Terminate(p.Cmd.Process.Pid)
	}
}

// sections returns the part of the file that the setup consists of.
func (w Setup) sections(t *cluster) string {
	t.Helper()
	switch {
	case w.Store != nil, w.Requests != nil, w.Calls != nil, w.Members != 0:
		t.Fatal("a process has no Store, Requests, Calls or Members of the test; call harness.InMemory")
	}
	all := map[string]any{"allowed_origins": append([]string{originOf(t.url)}, w.origins...)}
	put := func(key string, n *yaml.Node, err error) {
		if err != nil {
			t.Fatalf("%s cannot be settings of a process: %v", key, err)
		}
		if len(n.Content) > 0 {
			all[key] = n
		}
	}
	n, err := settings.Section(w.Upstreams, "Separate")
	put("upstreams", n, err)
	n, err = settings.Section(w.Endpoints)
	put("endpoints", n, err)
	n, err = settings.Section(proxy.CatalogConfig{FirstWait: w.FirstWait})
	put("catalog", n, err)
	if w.Guard != nil {
		n, err = settings.Section(origin(t, w.Guard).(auth.Config))
		put("auth", n, err)
	}
	if w.Policy != nil {
		all["policies"] = origin(t, w.Policy)
	}
	text, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if len(w.Upstreams) == 0 {
		return nothing + string(text)
	}
	return string(text)
}

// fixed returns the part of the file that a reload cannot change, and the sections between two tests.
func (w Setup) fixed(t testing.TB) (fixed, idle string) {
	t.Helper()
	all := map[string]any{}
	for key, of := range map[string]any{"limits": w.Limits, "names": w.Names} {
		n, err := settings.Section(of)
		if err != nil {
			t.Fatalf("%s cannot be settings of a process: %v", key, err)
		}
		if len(n.Content) > 0 {
			all[key] = n
		}
	}
	idle = nothing
	if w.Guard != nil {
		if c := origin(t, w.Guard).(auth.Config); c.Needed() {
			idle += nobody
		}
	}
	if len(all) == 0 {
		return "", idle
	}
	text, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), idle
}

// madeFrom remembers the section of the file that a policy or a guard was made from.
func madeFrom(t testing.TB, value, section any) {
	p := clusters()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.origins[value] = section
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.origins, value)
	})
}

func origin(t testing.TB, value any) any {
	t.Helper()
	p := clusters()
	p.mu.Lock()
	section, ok := p.origins[value]
	p.mu.Unlock()
	if !ok {
		t.Fatalf("a %s that the harness has not made cannot be settings of a process; use harness.MustPolicy and "+
			"harness.Keyring, or call harness.InMemory", reflect.TypeOf(value))
	}
	return section
}

// pool has the clusters that no test uses.
type pool struct {
	mu      sync.Mutex
	idle    []*cluster
	ends    []func()    // see AtEnd
	bad     bool        // an end of a cluster was a failure
	origins map[any]any // the sections of policies and guards of the harness
}

var clusters = sync.OnceValue(func() *pool { return &pool{origins: map[any]any{}} })

// mostIdle is how many clusters wait for another test.
const mostIdle = 4

// take returns a cluster for the test, and starts one if none is idle.
func (p *pool) take(t testing.TB, n int, w Setup) *cluster {
	t.Helper()
	fixed, idle := w.fixed(t)
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.idle, func(c *cluster) bool { return c.fixed == fixed && c.idle == idle })
	if i < 0 {
		var c *cluster
		process.OwnerOf(t).Lasts(func() { c = mustCluster(t, n, fixed, idle) })
		return c
	}
	c := p.idle[i]
	p.idle = slices.Delete(p.idle, i, i+1)
	c.TB = t
	return c
}

// give takes a cluster back from its test. The servers of the test must end, and leave no process
// behind.
func (p *pool) give(c *cluster) {
	if c.Failed() {
		for i, m := range c.members {
			c.Logf("the log of process %d ends with:\n%s", i, m.Stderr.Tail(4000))
		}
	}
	c.log(nil)
	if !c.over && !c.Failed() {
		c.reload(c.idle)
		for _, m := range c.members {
			await(c, "the upstreams to end", func() bool { return len(process.Descendants(m.Cmd.Process.Pid)) == 0 })
		}
	}
	if c.over {
		for _, m := range c.members {
			await(c, "the process to end", func() bool {
				select {
				case <-m.Done:
					return true
				default:
					return false
				}
			})
		}
	}
	spent := c.over || c.spent || c.Failed()
	c.TB = nil
	p.mu.Lock()
	defer p.mu.Unlock()
	if !spent {
		p.idle = append(p.idle, c)
	}
	if spent || len(p.idle) > mostIdle {
		if !spent {
			c, p.idle = p.idle[0], p.idle[1:]
		}
		p.bad = !c.end() || p.bad
	}
}

// AtEnd has Main call f when all tests of the package have ended.
func AtEnd(f func()) {
	p := clusters()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ends = append(p.ends, f)
}

// end ends all idle clusters and what AtEnd has, and reports whether all clusters have ended well.
func (p *pool) end() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.ends {
		f()
	}
	for _, c := range p.idle {
		p.bad = !c.end() || p.bad
	}
	p.idle = nil
	return !p.bad
}

// lasting is the testing.TB of something that outlives the test that starts it.
type lasting struct {
	testing.TB // of the test that uses it; nil if none does
	cleanups   []func()
	failed     bool // when no test used it
}

// Cleanup, TempDir and the others replace those of a test that has ended.
func (l *lasting) Cleanup(f func()) { l.cleanups = append(l.cleanups, f) }

// TempDir returns a folder that Main removes.
func (l *lasting) TempDir() string {
	if err := os.MkdirAll(BuildDir(), 0o711); err != nil {
		l.Fatal(err)
	}
	dir, err := os.MkdirTemp(BuildDir(), "cluster")
	if err != nil {
		l.Fatal(err)
	}
	return dir
}

func (l *lasting) Helper() {
	if l.TB != nil {
		l.TB.Helper()
	}
}

func (l *lasting) Failed() bool { return l.failed || l.TB != nil && l.TB.Failed() }

func (l *lasting) Logf(format string, args ...any) {
	if l.TB != nil {
		l.TB.Helper()
		l.TB.Logf(format, args...)
		return
	}
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

func (l *lasting) Errorf(format string, args ...any) {
	if l.TB != nil {
		l.TB.Helper()
		l.TB.Errorf(format, args...)
		return
	}
	l.failed = true
	l.Logf("after the tests: "+format, args...)
}

func (l *lasting) Error(args ...any) { l.Errorf("%s", fmt.Sprint(args...)) }

func (l *lasting) Fatalf(format string, args ...any) {
	l.Errorf(format, args...)
	if l.TB != nil {
		l.TB.FailNow()
	}
	runtime.Goexit()
}

func (l *lasting) Fatal(args ...any) { l.Fatalf("%s", fmt.Sprint(args...)) }

// end runs the cleanups, the latest first, and reports whether all went well.
func (l *lasting) end() bool {
	for _, f := range slices.Backward(l.cleanups) {
		done := make(chan struct{})
		go func() { // which Fatal may end
			defer close(done)
			f()
		}()
		<-done
	}
	l.cleanups = nil
	return !l.failed
}

// report returns the report of the first process.
func (c *cluster) report() Report {
	c.Helper()
	r, err := c.members[0].report(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	return r
}

// status returns the status of an upstream in the first process; zero if there is none.
func (c *cluster) status(name string) upstream.Status {
	for _, u := range c.report().Upstreams {
		if u.Name == name {
			s := upstream.Status{Name: name, Err: u.Error, Tools: u.Listed, Links: u.Links, Stored: u.Stored,
				Era: client.Era(u.Era), Version: u.Version}
			for _, state := range upstream.States() {
				if state.String() == u.State {
					s.State = state
				}
			}
			return s
		}
	}
	return upstream.Status{}
}
