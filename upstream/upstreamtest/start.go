package upstreamtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"junction/integration/harness/process"
)

// downKey is the key of the context that ends when the HTTP server of a request is stopped.
type downKey struct{}

// Start serves the script over Streamable HTTP on a free port until the test ends.
func Start(t testing.TB, script Script) (s *Server, url string) {
	t.Helper()
	s = New(script)
	t.Cleanup(s.Close)
	url, _ = Serve(t, "127.0.0.1:0", s.Handler())
	return s, url + "/mcp"
}

// StartSSE serves the script over HTTP+SSE on a free port until the test ends.
func StartSSE(t testing.TB, script Script) (s *Server, url string) {
	t.Helper()
	s = New(script)
	t.Cleanup(s.Close)
	url, _ = Serve(t, "127.0.0.1:0", s.SSEHandler())
	return s, url + "/sse"
}

// Serve serves a handler of a Server at an address until the test ends or stop is called, which
// cuts all connections, ends the calls on them and waits. The Server keeps its sessions: serving it
// again at the address (the host and port of url) is a network that comes back, serving another one
// a restart.
func Serve(t testing.TB, addr string, h http.Handler) (url string, stop func()) {
	t.Helper()
	l := process.ListenAt(t, addr)
	down, cancel := context.WithCancel(context.Background())
	ts := &httptest.Server{Listener: l, Config: &http.Server{Handler: h}}
	ts.Config.BaseContext = func(net.Listener) context.Context { return context.WithValue(down, downKey{}, down) }
	ts.Start()
	stop = sync.OnceFunc(func() {
		cancel()
		ts.CloseClientConnections()
		ts.Close()
	})
	t.Cleanup(stop)
	return ts.URL, stop
}

// scriptVariable is the environment variable that makes a test binary a server. Its value is the script,
// or @ and the name of a file with a script that is too long for a variable.
const (
	scriptVariable = "UPSTREAMTEST_SCRIPT"
	maxVariable    = 100 << 10
)

// RunIfChild serves over standard input and output, and exits, if this process was started with the
// command and environment of a Child. TestMain calls it first.
func RunIfChild() {
	text, ok := os.LookupEnv(scriptVariable)
	if !ok {
		return
	}
	var script Script
	var err error
	value := []byte(text)
	if file, long := strings.CutPrefix(text, "@"); long {
		value, err = os.ReadFile(file)
	}
	if err == nil {
		err = json.Unmarshal(value, &script)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "upstreamtest:", err)
		os.Exit(2)
	}
	os.Exit(runChild(script))
}

func runChild(script Script) int {
	s := New(script)
	s.exit = os.Exit
	if script.Stubborn == "term" {
		signal.Ignore(syscall.SIGTERM)
	}
	conn, err := net.Dial("tcp", script.Report)
	if err != nil {
		fmt.Fprintln(os.Stderr, "upstreamtest: report to the test:", err)
		return 2
	}
	report := json.NewEncoder(conn)
	s.tee = func(r Record) {
		if err := report.Encode(r); err != nil {
			os.Exit(4)
		}
	}
	s.add(Record{Verb: "START", PID: os.Getpid()})
	if script.Exclusive != "" {
		l, err := net.Listen("tcp", script.Exclusive)
		if err != nil {
			fmt.Fprintln(os.Stderr, "upstreamtest:", err)
			return 1
		}
		defer l.Close() // also so that it is not collected as garbage, which would close it
	}
	time.Sleep(time.Duration(script.Starts) * time.Millisecond)
	go func() { // for as long as the process lives
		orders := json.NewDecoder(conn)
		for {
			var o order
			if orders.Decode(&o) != nil {
				os.Exit(4) // the test is over; nothing of it stays behind
			}
			o.obey(s)
		}
	}()
	if err := s.ServeStdio(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "upstreamtest:", err)
		return 1
	}
	if script.Stubborn != "" {
		select {}
	}
	return 0
}

// order is what a test tells a child: the name of a method of Server, and what it is given.
type order struct {
	Verb, Name string
	Items      []json.RawMessage
	Params     json.RawMessage `json:",omitempty"`
	Rules      []Rule
}

func (o order) obey(s *Server) {
	switch o.Verb {
	case "Release":
		s.Release(o.Name)
	case "Set":
		s.Set(o.Name, o.Items)
	case "Notify":
		s.Notify(o.Name, o.Params)
	case "Updated":
		s.Updated(o.Name)
	case "Ask":
		go s.Ask(s.ctx, o.Name, o.Params)
	case "AddRules":
		s.AddRules(o.Rules...)
	}
}

// Child is a server over stdio in a process of its own, which another program starts, perhaps several
// times or several at once: Command and Env are those of its configuration. Its Journal has what
// all of the processes received, with their PID, and their START and EXIT; an EXIT is also recorded
// of a killed one.
type Child struct {
	Journal
	Command []string
	Env     map[string]string

	conns struct {
		sync.Mutex
		all    map[net.Conn]bool
		begun  chan struct{} // closed when there is the first one
		closed bool
	}
}

// Command returns a child that is this test binary, whose TestMain calls RunIfChild. Processes that
// are left when the test ends are made to exit.
func Command(t testing.TB, script Script) *Child {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatalf("find the test binary: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen for a child's reports: %v", err)
	}
	script.Report = l.Addr().String()
	script.withDefaults() // panics here, where the test can see it
	value := mustJSON(script)
	if len(value) > maxVariable {
		file := filepath.Join(t.TempDir(), "script.json")
		if err := os.WriteFile(file, value, 0o600); err != nil {
			t.Fatal(err)
		}
		value = []byte("@" + file)
	}
	c := &Child{Command: []string{program}, Env: map[string]string{scriptVariable: string(value)}}
	c.Env["GORACE"] = "atexit_sleep_ms=0" // a process under the race detector otherwise takes a second to exit
	c.conns.all, c.conns.begun = map[net.Conn]bool{}, make(chan struct{})
	var readers sync.WaitGroup
	readers.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if c.hold(conn) {
				readers.Go(func() { c.read(conn) })
			}
		}
	})
	t.Cleanup(func() {
		l.Close()
		c.conns.Lock()
		c.conns.closed = true
		for conn := range c.conns.all {
			conn.Close()
		}
		c.conns.Unlock()
		readers.Wait()
	})
	return c
}

func (c *Child) hold(conn net.Conn) bool {
	c.conns.Lock()
	defer c.conns.Unlock()
	if c.conns.closed {
		conn.Close()
		return false
	}
	c.conns.all[conn] = true
	select {
	case <-c.conns.begun:
	default:
		close(c.conns.begun)
	}
	return true
}

// read records what one process reports.
func (c *Child) read(conn net.Conn) {
	defer conn.Close()
	reports, pid := json.NewDecoder(conn), 0
	for {
		var r Record
		if reports.Decode(&r) != nil {
			break
		}
		pid = r.PID
		c.add(r)
	}
	c.conns.Lock()
	delete(c.conns.all, conn)
	c.conns.Unlock()
	c.add(Record{Verb: "EXIT", PID: pid})
}

// Release opens a gate once in every process that runs. Like the other orders it does not wait
// until it is obeyed.
func (c *Child) Release(gate string) error { return c.tell(order{Verb: "Release", Name: gate}) }

// Set does what Server.Set does, in every process that runs.
func (c *Child) Set(method string, items []json.RawMessage) error {
	return c.tell(order{Verb: "Set", Name: method, Items: items})
}

// SetTools does what Server.SetTools does, in every process that runs.
func (c *Child) SetTools(tools []json.RawMessage) error { return c.Set("tools/list", tools) }

// Notify does what Server.Notify does, in every process that runs.
func (c *Child) Notify(method string, params []byte) error {
	return c.tell(order{Verb: "Notify", Name: method, Params: params})
}

// Updated does what Server.Updated does, in every process that runs.
func (c *Child) Updated(uri string) error { return c.tell(order{Verb: "Updated", Name: uri}) }

// Ask makes every process that runs send a request to its client outside of any call; the answer is
// a record.
func (c *Child) Ask(method string, params []byte) error {
	return c.tell(order{Verb: "Ask", Name: method, Params: params})
}

// AddRules does what Server.AddRules does, in every process that runs.
func (c *Child) AddRules(rules ...Rule) error { return c.tell(order{Verb: "AddRules", Rules: rules}) }

// tell gives an order to every process that runs. A process that a client talks to already may not
// have been seen here yet: the first one is waited for.
func (c *Child) tell(o order) error {
	select {
	case <-c.conns.begun:
	case <-time.After(time.Minute):
		return errors.New("tell a child: none was started")
	}
	c.conns.Lock()
	defer c.conns.Unlock()
	var errs []error
	for conn := range c.conns.all {
		errs = append(errs, json.NewEncoder(conn).Encode(o))
	}
	return errors.Join(errs...)
}
