package oddities

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
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
	"time"

	"junction/integration/harness"
	"junction/integration/harness/process"
)

// odd is a row over one wire, behind Junction.
type odd struct {
	*row
	number int      // of the upstream
	eras   []string // of the clients of Junction
	wire   string
	server *server
	socket string // over stdio

	signIn  error  // why the operator cannot sign in
	state   string // as Junction reports it; "" is not known yet
	why     string
	lists   bool          // Junction has read a list with tools
	decided chan struct{} // closed when state is
}

// title tells the row, the kind of server and the wire.
func (o *odd) title() string {
	title := o.row.Name + "-" + o.server.kind + "-" + o.wire
	if len(o.eras) == 1 {
		title += "-" + o.eras[0]
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
		keys += ", timeout: 1s"
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

// clients returns the eras of the clients that share a server. Where the server answers anew from a
// time of asking on, the clients of each era have a server of their own.
func (r *row) clients() [][]string {
	if !slices.ContainsFunc(r.Script, func(r rule) bool { return r.At != "" || r.Then == "lose" || r.Then == "close" }) {
		return [][]string{harness.BothEras()}
	}
	var own [][]string
	for _, era := range harness.BothEras() {
		own = append(own, []string{era})
	}
	return own
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
	config := fmt.Sprintf("storage: { dsn: %q, key_file: %q }\ndefaults: { timeout: 10s, connect_timeout: 10s }\n"+
		"outbound: { allow_private: [127.0.0.1/32] }\nupstreams:\n",
		filepath.Join(dir, "junction.db"), filepath.Join(dir, "master.key"))
	for _, r := range mustTable(t) {
		for _, eras := range r.clients() {
			for _, o := range mustServeAll(t, r) {
				o.number, o.eras = len(all)+1, eras
				config += o.entry(t)
				all = append(all, o)
			}
		}
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
	for _, era := range o.eras {
		did, err := o.through(harness.MustCaller(t, p.URL+"/"+o.name(), era))
		if err != nil {
			return o.failed(err.Error())
		}
		all = append(all, did.outcome())
	}
	if all[0] != all[len(all)-1] {
		return o.failed(fmt.Sprintf("clients of the eras differ: %q", all))
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

// done is what a client has got of a server.
type done struct {
	Tools   []string `json:"tools"`
	Answers []string `json:"answers"`
	Error   string   `json:"error"`
}

// outcome compares it with that of a server without faults.
func (d done) outcome() outcome {
	tools, answers := strings.Join(slices.Sorted(slices.Values(d.Tools)), " "), strings.Join(slices.Compact(d.Answers), "; ")
	switch {
	case d.Error != "":
		return outcome(fails + ": " + d.Error)
	case tools == "echo" && answers == "hello":
		return works
	}
	return outcome(fmt.Sprintf("%s: %s: %s", works, cmp.Or(tools, "no tools"), answers))
}

// through lists and calls as one client of Junction.
func (o *odd) through(c *harness.Caller) (d done, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	// The list is offered a moment after it was read.
	for d.Tools, err = listed(ctx, c); err == nil && len(d.Tools) == 0 && o.lists; d.Tools, err = listed(ctx, c) {
		select {
		case <-again.C:
		case <-ctx.Done():
			return d, ctx.Err()
		}
	}
	if err != nil || len(d.Tools) == 0 {
		return d, err
	}
	// A server that has lost its session works again a moment later.
	moment := harness.Promptly
	if o.Open != "" || o.Junction == fails {
		moment = time.Second
	}
	enough := time.After(moment)
	for range o.Calls {
		text, err := call(ctx, c, d.Tools[0])
		for ; err != nil && o.Again; text, err = call(ctx, c, d.Tools[0]) {
			select {
			case <-again.C:
				continue
			case <-enough:
			}
			break
		}
		if err != nil {
			return d, err
		}
		d.Answers = append(d.Answers, text)
	}
	return d, nil
}

// listed lists the tools.
func listed(ctx context.Context, c *harness.Caller) (tools []string, err error) {
	list, err := c.Do(ctx, "tools/list", "", "", "")
	if err != nil {
		return nil, err
	}
	var page struct {
		Result struct{ Tools []struct{ Name string } }
	}
	if err := json.Unmarshal([]byte(list.Answer), &page); err != nil {
		return nil, fmt.Errorf("tools/list: %w: %s", err, list.Answer)
	}
	for _, tool := range page.Result.Tools {
		tools = append(tools, tool.Name)
	}
	return tools, nil
}

// call calls a tool. The answer of a tool that fails begins with error.
func call(ctx context.Context, c *harness.Caller, tool string) (string, error) {
	x, err := c.Call(ctx, tool, "{}")
	if err != nil {
		return "", err
	}
	var answer struct {
		Result *struct{ Content, IsError any }
		Error  struct{ Message string }
	}
	if err := json.Unmarshal([]byte(x.Answer), &answer); err != nil {
		return "", fmt.Errorf("tools/call: %w: %s", err, x.Answer)
	}
	if answer.Result == nil {
		return "", errors.New(answer.Error.Message)
	}
	text := ""
	parts, _ := answer.Result.Content.([]any) // other content has no text
	for _, part := range parts {
		if part, ok := part.(map[string]any); ok && part["text"] != nil {
			text += fmt.Sprint(part["text"])
		}
	}
	if answer.Result.IsError == true {
		text = "error: " + text
	}
	return text, nil
}

// abbreviated is a reason in one short line.
func abbreviated(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > 110 {
		text = string(runes[:110]) + "…"
	}
	return text
}
