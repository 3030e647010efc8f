//go:build linux

package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// This file has the MCP server behind Junction: a process that the test controls over a connection.
// The process reports its id and each call. The test sends it the names of the tools to offer; the
// server answers nothing before the first of these lists.

// upstreamVariable holds the address of the controlling test.
const upstreamVariable = "JUNCTION_AGENTS_UPSTREAM"

// report is a line from the server to the test.
type report struct {
	PID    int    `json:"pid,omitempty"`
	Called string `json:"called,omitempty"`
}

// serveUpstream is the main function of the server process.
func serveUpstream(address string) error {
	control, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer control.Close()
	out := json.NewEncoder(control)
	if err := out.Encode(report{PID: os.Getpid()}); err != nil {
		return err
	}
	s := server.NewMCPServer("agents-upstream", "1", server.WithToolCapabilities(true))
	lists := json.NewDecoder(control)
	var offered []string
	next := func() error {
		var want []string
		if err := lists.Decode(&want); err != nil {
			return err
		}
		offer(s, offered, want, func(tool string) { out.Encode(report{Called: tool}) })
		offered = want
		return nil
	}
	if err := next(); err != nil {
		return err
	}
	go func() {
		for next() == nil { // the process ends with its standard input
		}
	}()
	return server.ServeStdio(s)
}

// offer adds and removes tools until the server has the wanted ones.
func offer(s *server.MCPServer, have, want []string, called func(tool string)) {
	for _, name := range want {
		if slices.Contains(have, name) {
			continue
		}
		tool := mcp.NewTool(name, mcp.WithDescription("Returns the text with the name of the tool."),
			mcp.WithString("text", mcp.Required(), mcp.Description("any text")))
		s.AddTool(tool, func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			called(name)
			return mcp.NewToolResultText(name + " returns " + r.GetString("text", "nothing")), nil
		})
	}
	for _, name := range have {
		if !slices.Contains(want, name) {
			s.DeleteTools(name)
		}
	}
}

// upstream is the test's side of all server processes that Junction starts.
type upstream struct {
	name, address string

	mu      sync.Mutex
	tools   []string
	delay   time.Duration // between the start of a process and its first list
	running map[net.Conn]int
	calls   map[string]int
}

// startUpstream listens for server processes until the test ends.
func startUpstream(t *testing.T, name string, delay time.Duration, tools ...string) *upstream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &upstream{name: name, address: l.Addr().String(), tools: tools, delay: delay,
		running: map[net.Conn]int{}, calls: map[string]int{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { u.control(t.Context(), c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		u.mu.Lock()
		for c := range u.running {
			c.Close()
		}
		u.mu.Unlock()
		all.Wait()
	})
	return u
}

// control follows one server process until its connection ends.
func (u *upstream) control(ctx context.Context, c net.Conn) {
	defer c.Close()
	defer func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.running, c)
	}()
	lines := json.NewDecoder(c)
	for {
		var r report
		if err := lines.Decode(&r); err != nil {
			return
		}
		if r.PID != 0 {
			u.mu.Lock()
			delay := u.delay
			u.mu.Unlock()
			select {
			case <-time.After(delay):
			case <-ctx.Done():
				return
			}
		}
		u.mu.Lock()
		if r.PID != 0 {
			u.running[c] = r.PID
			json.NewEncoder(c).Encode(u.tools) // an error shows as the end of the connection
		} else {
			u.calls[r.Called]++
		}
		u.mu.Unlock()
	}
}

// setDelay sets how long processes need to start from now on.
func (u *upstream) setDelay(delay time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.delay = delay
}

// setTools changes the tools of all running processes and of later ones.
func (u *upstream) setTools(tools ...string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.tools = tools
	for c := range u.running {
		json.NewEncoder(c).Encode(tools)
	}
}

// mustKill kills every running server process, and waits until they have ended.
func (u *upstream) mustKill(t *testing.T) {
	t.Helper()
	u.mu.Lock()
	killed := slices.Collect(maps.Values(u.running))
	u.mu.Unlock()
	if len(killed) == 0 {
		t.Fatal("no server process is running")
	}
	for _, pid := range killed {
		p, err := os.FindProcess(pid)
		if err == nil {
			err = p.Kill()
		}
		if err != nil {
			t.Errorf("kill server process %d: %v", pid, err)
		}
		for p.Signal(syscall.Signal(0)) == nil { // until Junction has reaped it, and its pipes are closed for certain
			runtime.Gosched()
		}
	}
}

// called returns how often a tool was executed, over all processes.
func (u *upstream) called(tool string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.calls[tool]
}

// config returns the upstream's entry in the configuration, in YAML's flow style.
func (u *upstream) config(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s: { command: [%q], env: { %s: %q } }", u.name, self, upstreamVariable, u.address)
}
