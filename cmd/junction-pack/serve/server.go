// Package serve serves a pack with mcp-go, in both eras: its tools (server.go), prompts and resources
// (offers.go), and skills (skills.go), over stdio and Streamable HTTP (http.go). watch.go reads changed files again.
package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"junction/cmd/pack"
)

// Server serves a pack, which Use replaces.
type Server struct {
	mcp  *server.MCPServer
	log  *slog.Logger
	pack atomic.Pointer[pack.Pack] // for its skills

	prompts, resources bool // whether the last pack had some
	skills             bool // whether the first pack had the folder
}

// NewServer returns a server for the pack. Its name and instructions stay those of the first pack.
func NewServer(p *pack.Pack, log *slog.Logger) *Server {
	options := []server.ServerOption{
		server.WithTitle(p.Title),
		server.WithInstructions(p.Instructions),
		server.WithToolCapabilities(true),
		server.WithPromptCapabilities(true),
		server.WithResourceCapabilities(false, true),
		server.WithLogger(slog.New(quiet{log.Handler()})),
		server.WithRecovery(),
	}
	if p.Skills != nil {
		options = append(options, server.WithExtensions(extensions()))
	}
	s := &Server{log: log, skills: p.Skills != nil}
	s.mcp = server.NewMCPServer(p.Name, cmp.Or(p.Version, "0"), options...)
	if s.skills {
		s.skillTemplate()
	}
	s.Use(p)
	return s
}

// quiet drops what mcp-go logs about every request.
type quiet struct{ slog.Handler }

func (q quiet) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && q.Handler.Enabled(ctx, l)
}

// Use replaces the pack that the server offers, and notifies the clients. It must not be called
// concurrently. Calls in progress end with the tools of the old pack.
func (s *Server) Use(p *pack.Pack) {
	tools := make([]server.ServerTool, len(p.Tools))
	for i, t := range p.Tools {
		tools[i] = server.ServerTool{Tool: t.Definition,
			Handler: func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return t.Call(ctx, argumentsOf(r), r.Params.InputResponses)
			}}
	}
	s.pack.Store(p) // before clients are notified
	s.mcp.SetTools(tools...)
	if s.prompts || len(p.Prompts) > 0 {
		s.mcp.SetPrompts(promptsOf(p)...)
	}
	if !s.skills && p.Skills != nil {
		s.log.Warn("the pack has a folder skills now; clients get its skills after a restart of the pack")
	}
	resources := resourcesOf(p)
	if s.skills {
		resources = append(resources, skillResources(p.Skills)...)
	}
	if s.resources || s.skills || len(resources) > 0 {
		s.mcp.SetResources(resources...)
	}
	s.prompts, s.resources = len(p.Prompts) > 0, len(resources) > 0
}

// argumentsOf returns the arguments as the client sent them.
func argumentsOf(r mcp.CallToolRequest) json.RawMessage {
	if r.Params.RawArguments != nil {
		return r.Params.RawArguments
	}
	b, _ := json.Marshal(r.Params.Arguments) // it came from JSON
	return b
}

// workers is how many calls are handled at the same time. mcp-go queues further ones, and does not
// notice their cancellation while they wait.
const workers = 100

// ServeStdio serves one client over in and out. It returns when in ends or ctx is done, after the
// calls in progress. mcp-go keeps the state of a stdio session in a global variable, so that a
// process can run only one ServeStdio.
func (s *Server) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	stdio := server.NewStdioServer(s.mcp)
	stdio.SetErrorLogger(log.New(&errorLines{log: s.log}, "", 0))
	server.WithWorkerPoolSize(workers)(stdio)
	lines := &whole{w: out}
	if s.skills {
		answering := s.answering(ctx, in, lines)
		defer answering.Close()
		in = answering
	}
	err := stdio.Listen(ctx, in, lines)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read from the client: %w", err)
	}
	return nil
}

// whole keeps the lines of concurrent writers whole. mcp-go locks its answers, but not its
// requests.
type whole struct {
	mu sync.Mutex
	w  io.Writer // guarded by mu
}

// Write writes p, which must be one whole line.
func (w *whole) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(p)
}

// errorLines logs what mcp-go writes.
type errorLines struct{ log *slog.Logger }

// Write logs p.
func (l *errorLines) Write(p []byte) (int, error) {
	l.log.Warn("mcp", "error", string(p))
	return len(p), nil
}
