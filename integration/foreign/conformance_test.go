package foreign

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"junction/integration/harness"
	"junction/integration/harness/npm"
	"junction/integration/harness/process"
)

// This file runs the official conformance suite, for servers: directly against the official
// reference server, which shows what the suite can find good there, and through the program. What
// passes directly must pass through the program too, check by check; testdata/conformance.yaml has
// what cannot, and why.

// conformancePatience is for one run of the suite, which takes about three seconds.
const conformancePatience = 3 * time.Minute

// verdict is what the suite found in one check.
type verdict struct {
	ID, Name, Description, Status, ErrorMessage string
	Details                                     json.RawMessage
}

func (v verdict) String() string {
	text := fmt.Sprintf("%s %s (%s): %s", v.Status, v.ID, v.Description, v.ErrorMessage)
	if len(v.Details) > 0 {
		var short bytes.Buffer
		if json.Compact(&short, v.Details) == nil {
			text += fmt.Sprintf("\n\t%.1500s", &short)
		}
	}
	return text
}

// conformance is one run of the suite.
type conformance struct {
	found  map[string][]verdict // by scenario
	said   string               // what the suite printed
	passed bool                 // by the count of the suite itself: no scenario that it scores has failed
}

// ranOn cuts the time off the folder of a scenario.
var ranOn = regexp.MustCompile(`^(?:server-)?(.*)-\d{4}-\d\d-\d\dT[-\dZ]+$`)

// mustConform runs the suite with these arguments and reads what it found.
func mustConform(t testing.TB, args ...string) conformance {
	t.Helper()
	c, err := conform(t.Context(), conformancePatience, npm.MustFolder(t), t.TempDir(), nil, args...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// conform runs the suite of the folder npm, which may write into dir, for at most a time. The suite's exit status says
// whether all was good, which is no error here.
func conform(
	ctx context.Context, patience time.Duration, folder, dir string, env []string, args ...string,
) (conformance, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", append(append([]string{"conformance.mjs"}, args...), "-o", dir)...)
	cmd.Dir = folder
	cmd.Env = append(cmd.Environ(), env...)
	cmd.SysProcAttr = process.ChildAttr(syscall.SIGKILL)
	cmd.Cancel = func() error { process.KillGroup(cmd.Process.Pid); return nil }
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	c := conformance{found: map[string][]verdict{}, said: string(out), passed: err == nil}
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || ctx.Err() != nil || exit.ExitCode() == 69) {
		return c, fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	// Names of scenarios have slashes.
	err = filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() != "checks.json" {
			return err
		}
		folder, err := filepath.Rel(dir, filepath.Dir(file))
		if err != nil {
			return err
		}
		name := ranOn.FindStringSubmatch(filepath.ToSlash(folder))
		if name == nil {
			return fmt.Errorf("what scenario is %s?", folder)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var found []verdict
		if err := json.Unmarshal(text, &found); err != nil {
			return fmt.Errorf("%s: %w in:\n%s", folder, err, text)
		}
		c.found[name[1]] = found
		return nil
	})
	if err != nil {
		return c, fmt.Errorf("read what %s found: %w\n%s", cmd, err, out)
	}
	return c, nil
}

// summary is what the suite printed after the last scenario.
func (c conformance) summary() string {
	_, text, _ := strings.Cut(c.said, "=== SUMMARY ===")
	return text
}

// about is what the suite printed about a scenario that it could not judge.
func (c conformance) about(scenario string) string {
	var lines []string
	for line := range strings.Lines(c.said) {
		if strings.Contains(line, scenario) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// bad returns the worst verdict of each check that is not as good as in the baseline, or, where
// that has no such check, not good. A check that was made there and not here is not good either.
func (c conformance) bad(scenario string, baseline conformance) map[string]verdict {
	worst := func(of []verdict) map[string]verdict {
		order := []string{"INFO", "SUCCESS", "SKIPPED", "WARNING"} // all else is worse
		rank := func(status string) int {
			if i := slices.Index(order, status); i >= 0 {
				return i
			}
			return len(order)
		}
		w := map[string]verdict{}
		for _, v := range of {
			if old, ok := w[v.ID]; !ok || rank(v.Status) > rank(old.Status) {
				w[v.ID] = v
			}
		}
		return w
	}
	passes := func(status string) bool { return status == "SUCCESS" || status == "INFO" }
	here, there := worst(c.found[scenario]), worst(baseline.found[scenario])
	bad := map[string]verdict{}
	for id, want := range there {
		if got, ok := here[id]; want.Status == "SUCCESS" && (!ok || !passes(got.Status)) {
			if !ok {
				got = verdict{ID: id, Description: want.Description, Status: "MISSING"}
			}
			bad[id] = got
		}
	}
	for id, got := range here {
		if want, ok := there[id]; !passes(got.Status) && got.Status != "SKIPPED" && !(ok && got.Status == want.Status) {
			bad[id] = got
		}
	}
	return bad
}

// scenarios reads from the suite what a revision requires of servers or of clients.
func scenarios(t testing.TB, revision, leg string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(npm.MustFolder(t),
		"node_modules/@modelcontextprotocol/conformance/requirements", revision+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	legs := map[string]yaml.Node{}
	if err := yaml.Unmarshal(text, &legs); err != nil {
		t.Fatalf("the requirements of %s: %v", revision, err)
	}
	node := legs[leg]
	var names []string
	if err := node.Decode(&names); err != nil || len(names) == 0 {
		t.Fatalf("the %s scenarios of %s are %q, %v", leg, revision, names, err)
	}
	return names
}

// exception is something of the suite that does not pass through the program.
type exception struct {
	Cells         []string // patterns of path.Match
	Scenarios     map[string][]string
	Reason        string
	Specification string // its words, or the place where it is silent
}

// mustExceptions returns what is not expected to pass, by cell, scenario and check.
func mustExceptions(t testing.TB) map[string]map[string]map[string]bool {
	t.Helper()
	file, err := os.Open("testdata/conformance.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	decoder := yaml.NewDecoder(file)
	decoder.KnownFields(true)
	var all []exception
	if err := decoder.Decode(&all); err != nil {
		t.Fatalf("%s: %v", file.Name(), err)
	}
	by := map[string]map[string]map[string]bool{}
	for i, e := range all {
		if e.Reason == "" || e.Specification == "" || len(e.Cells) == 0 || len(e.Scenarios) == 0 {
			t.Fatalf("%s: entry %d has no reason, specification, cells or scenarios: %+v", file.Name(), i, e)
		}
		for _, cell := range conformanceCells() {
			if !slices.ContainsFunc(e.Cells,
				func(pattern string) bool { ok, err := path.Match(pattern, cell); return ok && err == nil }) {
				continue
			}
			if by[cell] == nil {
				by[cell] = map[string]map[string]bool{}
			}
			for scenario, checks := range e.Scenarios {
				if by[cell][scenario] == nil {
					by[cell][scenario] = map[string]bool{}
				}
				for _, id := range checks {
					by[cell][scenario][id] = true
				}
			}
		}
	}
	return by
}

// conformanceUpstreams are the reference server by name, over each wire: one that is spoken to in
// both eras, by default over HTTP and with a line of the file over stdio; and one that is spoken to
// in one era only, of which one process tries one wire for each era. .ci/whole tries all of them,
// with three processes: the package bridge has each pair of eras over each wire.
func conformanceUpstreams() []string {
	list := []string{"dual-http", "dual-stdio", "legacy-http", "modern-stdio"}
	if harness.Processes() > 1 {
		list = append(list, "legacy-stdio", "modern-http")
	}
	return list
}

// conformanceRevisions are the revisions of which the suite has requirements.
func conformanceRevisions() []string { return []string{harness.LegacyVersion, harness.ModernVersion} }

// conformanceCells are all pairs of an upstream and a revision, as upstream/revision.
func conformanceCells() (cells []string) {
	for _, u := range conformanceUpstreams() {
		for _, r := range conformanceRevisions() {
			cells = append(cells, u+"/"+r)
		}
	}
	return cells
}

// exceptSeveralProcesses adds what passes or fails with several processes, whichever get the requests
// (JUNCTION_TEST_PROCESSES). The suite changes the lists of the reference server by a call. Over
// stdio each process has a server of its own, and the lists of the others do not change; over HTTP
// the processes list the change one after the other.
func exceptSeveralProcesses(exceptions map[string]map[string]map[string]bool) {
	for _, cell := range conformanceCells() {
		sometimes := map[string][]string{"tools-list": {"tools-list-deterministic-order"}}
		if strings.Contains(cell, "-stdio/") {
			sometimes["server-stateless"] = []string{"sep-2575-server-sends-prompts-list-changed-on-subscription",
				"sep-2575-server-sends-tools-list-changed-on-subscription"}
			// it calls the first tool of a list, which only one of the servers may have
			sometimes["http-header-validation"] = []string{"sep-2243-server-accepts-whitespace-header-value"}
		}
		if exceptions[cell] == nil {
			exceptions[cell] = map[string]map[string]bool{}
		}
		for scenario, checks := range sometimes {
			if exceptions[cell][scenario] == nil {
				exceptions[cell][scenario] = map[string]bool{}
			}
			for _, id := range checks {
				exceptions[cell][scenario][id] = false
			}
		}
	}
}

// TestConformance has the suite judge, at the endpoint of one upstream after the other, what
// clients of both eras see of the reference server.
func TestConformance(t *testing.T) {
	defer harness.Computes(t)()
	npm.MustFolder(t)
	reference := mustBuildReference(t)
	// The suite adds a tool and waits for its notification: no other test may use the same server.
	direct := map[string]string{harness.LegacyVersion: mustServeReference(t, "-stateless=false"),
		harness.ModernVersion: mustServeReference(t)}
	// The scenarios run side by side, and give up calls that ask: over stdio each has a process for itself.
	p := harness.MustProgram(t, fmt.Sprintf(`upstreams:
  dual-http: {url: %q}
  dual-stdio: {command: [%q], era: both}
  legacy-http: {url: %q, era: legacy, questions: exact}
  legacy-stdio: {command: [%q], era: legacy, questions: exact, max_links: 64}
  modern-http: {url: %q, era: modern}
  modern-stdio: {command: [%q], era: modern}
`, mustJoinEras(t, mustServeReference(t, "-stateless=false"), mustServeReference(t)), reference,
		mustServeReference(t, "-stateless=false"), reference, mustServeReference(t), reference))
	for _, u := range p.MustReady(t, harness.Patience).Upstreams {
		if want, _, _ := strings.Cut(u.Name, "-"); u.Era != want && !(want == "dual" && u.Era == "modern") {
			t.Fatalf("upstream %+v, want the %s era", u, want)
		}
	}
	baseline := map[string]conformance{}
	for _, revision := range conformanceRevisions() {
		c := mustConform(t, "server", "--url", direct[revision], "--requirements", revision)
		for _, scenario := range scenarios(t, revision, "server") {
			t.Run(path.Join("direct", revision, scenario), func(t *testing.T) { c.check(t, scenario, c, nil) })
		}
		baseline[revision] = c
	}
	exceptions := mustExceptions(t)
	if len(p.Others) > 0 {
		exceptSeveralProcesses(exceptions)
	}
	for _, up := range conformanceUpstreams() {
		if testing.Short() && !strings.HasPrefix(up, "dual-") { // the package bridge has the pairs of eras
			continue
		}
		t.Run(up, func(t *testing.T) {
			defer harness.Computes(t)()
			for _, revision := range conformanceRevisions() { // one after the other, for the tool that comes and goes
				c := mustConform(t, "server", "--url", p.URL+"/"+up, "--requirements", revision)
				if strings.HasPrefix(up, "dual-") && !c.passed && len(p.Others) == 0 {
					t.Errorf("the suite does not pass at %s:\n%.4000s", revision, c.summary())
				}
				for _, scenario := range slices.Sorted(maps.Keys(baseline[revision].found)) {
					t.Run(path.Join(revision, scenario), func(t *testing.T) {
						c.check(t, scenario, baseline[revision], exceptions[up+"/"+revision][scenario])
					})
				}
			}
		})
	}
}

// mustJoinEras makes one server of both eras of two that speak one each: over HTTP, the reference
// server keeps sessions, or it speaks the modern era.
func mustJoinEras(t testing.TB, legacy, modern string) string {
	t.Helper()
	to := func(where string) http.Handler {
		u, err := url.Parse(where)
		if err != nil {
			t.Fatal(err)
		}
		return &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) }}
	}
	eras := map[bool]http.Handler{false: to(legacy), true: to(modern)}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Given a body that is still being read, a ReverseProxy now and then cuts an answer that
		// begins at once.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		eras[r.Header.Get("Mcp-Protocol-Version") == harness.ModernVersion].ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/"
}

// check fails the test for each check of a scenario that is not as good as in the baseline, except
// those that are not expected to be, and for those that are.
func (c conformance) check(t *testing.T, scenario string, baseline conformance, exceptions map[string]bool) {
	t.Helper()
	if len(c.found[scenario]) == 0 {
		t.Fatalf("there is no verdict; the suite said:\n%s", c.about(scenario))
	}
	bad := c.bad(scenario, baseline)
	for _, id := range slices.Sorted(maps.Keys(bad)) {
		if _, excepted := exceptions[id]; !excepted {
			t.Error(bad[id])
		}
	}
	for id, always := range exceptions {
		if _, ok := bad[id]; !ok && always {
			t.Errorf("%s passes: take it out of testdata/conformance.yaml", id)
		}
	}
}
