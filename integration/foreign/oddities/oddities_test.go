package oddities

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"junction/integration/harness"
	"junction/integration/harness/process"
)

// odd is a row over one wire, behind Junction.
type odd struct {
	*row
	number  int      // of the upstream
	clients []string // of Junction, of kindsOfClient
	wire    string
	server  *server
	socket  string // over stdio

	signIn  error  // why the operator cannot sign in
	state   string // as Junction reports it; "" is not known yet
	why     string
	lists   bool          // Junction has read a list with tools
	decided chan struct{} // closed when state is
}

// title tells the row, the kind of server and the wire.
func (o *odd) title() string {
	title := o.row.Name + "-" + o.server.kind + "-" + o.wire
	if len(o.clients) == 1 {
		title += "-" + o.clients[0]
	}
	return title
}

// name is that of the upstream, which has at most 32 characters.
func (o *odd) name() string { return fmt.Sprintf("odd-%d", o.number) }

// entry is the upstream of the file.
func (o *odd) entry(t testing.TB) string {
	keys := fmt.Sprintf("url: %q", o.server.mcpURL())
	if o.wire == wireStdio {
		binary, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		keys = fmt.Sprintf("command: [%q, %q], env: {JUNCTION_ROLE: %s}", binary, o.socket, relayRole)
	}
	if o.SignIn != "" && !strings.Contains(o.Entry, "auth:") {
		keys += ", auth: {mode: oauth}"
	}
	if o.Junction != works { // it does not keep the test waiting
		keys += ", timeout: 1s, connect_timeout: 30s"
	}
	if o.Entry != "" {
		keys += ", " + o.server.expand(o.Entry, &ask{}, "")
	}
	return fmt.Sprintf("  %s: {%s}\n", o.name(), keys)
}

// mustServe serves a row over one wire to one client.
func mustServe(t testing.TB, r *row, kind, wire string) *odd {
	t.Helper()
	o := &odd{row: r, wire: wire, decided: make(chan struct{})}
	if wire == wireStdio {
		o.server, o.socket = mustServeStdio(t, r, kind)
	} else {
		o.server = mustServeHTTP(t, r, kind, wire)
	}
	return o
}

// mustServeAll serves a row to one client: each kind of server over each wire.
func mustServeAll(t testing.TB, r *row) (all []*odd) {
	t.Helper()
	for _, kind := range r.Servers {
		for _, wire := range r.Wires {
			all = append(all, mustServe(t, r, kind, wire))
		}
	}
	return all
}

// TestOddities runs Junction over all rows, and compares it with the reference clients.
func TestOddities(t *testing.T) {
	defer harness.Computes(t)()
	var all []*odd
	dir := t.TempDir()
	config := fmt.Sprintf("storage: { dsn: %q, key_file: %q }\ndefaults: { timeout: 10s, connect_timeout: 2m }\n"+
		"outbound: { allow_private: [127.0.0.1/32], ca_file: %q }\nupstreams:\n",
		filepath.Join(dir, "junction.db"), filepath.Join(dir, "master.key"), mustWriteAuthority(t))
	wanted := regexp.MustCompile(*rows)
	for _, r := range mustTable(t) {
		if !wanted.MatchString(r.Name) {
			continue
		}
		for _, clients := range r.clients() {
			for _, o := range mustServeAll(t, r) {
				o.number, o.clients = len(all)+1, clients
				config += o.entry(t)
				all = append(all, o)
			}
		}
	}
	config += "endpoints:\n"
	for _, o := range all {
		config += o.endpoint()
	}
	p, first := harness.NewProgram(t), &states{open: map[string]*odd{}}
	for _, o := range all {
		first.open[o.name()] = o
	}
	p.Stderr.Copy(first)
	p.MustConfigure(t, config)
	signIn(t, p, all)
	cmd := exec.Command(harness.JunctionBinary(t), "--config", p.File(), "--listen", process.FreePort(t))
	cmd.Env = append(os.Environ(), trust(t)...)
	p.MustStart(t, cmd)
	t.Run("rows", func(t *testing.T) {
		for _, o := range all {
			t.Run(o.title(), func(t *testing.T) {
				t.Parallel()
				did := o.junction(t, p)
				t.Logf("%s: Junction %s", o.title(), did)
				if why := o.judge(did); why != "" {
					t.Errorf("%s:%d: %s: %s", o.file, o.line, o.Story, why)
				}
			})
		}
	})
}

// states is a writer of the log of Junction, which tells the first state of each upstream: the first
// attempt to connect counts.
type states struct {
	mu   sync.Mutex
	part []byte          // of a line
	open map[string]*odd // whose state is not known
}

// stateLine is a line of the log.
var stateLine = regexp.MustCompile(` msg="upstream [^"]*" upstream=(odd-\d+) state=("[^"]*"|\S+)` +
	`(?: tools=(\d+))?(?:.* error=(".*"|\S+))?`)

func (s *states) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.part = append(s.part, text...)
	for {
		line, rest, whole := bytes.Cut(s.part, []byte("\n"))
		if !whole {
			return len(text), nil
		}
		s.part = rest
		if m := stateLine.FindSubmatch(line); m != nil {
			s.decide(m)
		}
	}
}

// decide keeps the first state of an upstream that has ended its attempt.
func (s *states) decide(m [][]byte) {
	o, state := s.open[string(m[1])], unquoted(m[2])
	if o == nil || state == "starting" || o.Later && state != "ready" {
		return
	}
	o.state, o.why, o.lists = state, unquoted(m[4]), len(m[3]) > 0 && string(m[3]) != "0"
	close(o.decided)
	delete(s.open, o.name())
}

// unquoted is a value of the log.
func unquoted(value []byte) string {
	if text, err := strconv.Unquote(string(value)); err == nil {
		return text
	}
	return string(value)
}

// junction lists and calls through Junction, with a client of each era.
func (o *odd) junction(t *testing.T, p *harness.Program) outcome {
	t.Helper()
	if o.signIn != nil {
		return o.failed(o.signIn.Error())
	}
	select {
	case <-o.decided:
	case <-p.Done:
		t.Fatal("junction has ended")
	case <-harness.Patient(t).Done():
		return o.failed("no attempt to connect has ended")
	}
	if o.state != "ready" {
		return o.failed(o.state + ": " + o.why)
	}
	var all []outcome
	for _, kind := range o.clients {
		did, err := o.through(t, p, kind)
		if err != nil {
			return o.failed(err.Error())
		}
		all = append(all, did.outcome())
	}
	if len(slices.Compact(all)) > 1 {
		return o.failed(fmt.Sprintf("the clients differ: %q", all))
	}
	return all[0]
}

// failed is the outcome of a client that failed. Addresses of this run become words.
func (o *odd) failed(why string) outcome {
	for word, url := range o.server.origin {
		why = strings.ReplaceAll(why, url, "$"+word)
		why = strings.ReplaceAll(why, hostOf(url), "%"+word)
	}
	return outcome(fails + ": " + why)
}

// abbreviated is a reason in one short line.
func abbreviated(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > 110 {
		text = string(runes[:110]) + "…"
	}
	return text
}
