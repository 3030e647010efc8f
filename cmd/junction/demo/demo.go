// Package demo is the embedded demo server: a small MCP server of both eras on standard input and
// output.
package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// Serve serves the demo server over in and out: a small MCP server of both eras with a resource, a
// prompt, and one tool for each kind of traffic (an answer, progress, an elicitation). Junction
// without a configuration runs it as its only upstream, as a child process like any other stdio
// server.
//
// Serve returns nil when in ends or ctx is done, after it has cancelled the in-flight calls. It
// returns an error only if reading in fails. When ctx ends first, a goroutine stays in in.Read
// until that returns, because a read cannot be interrupted; the process is expected to exit. A
// process can run only one Serve at a time, since mcp-go keeps the state of a stdio session in a
// global variable.
func Serve(ctx context.Context, in io.Reader, out io.Writer, stderr io.Writer) error {
	lines := &lineWriter{w: out}
	stdio := server.NewStdioServer(NewServer(lines, stderr))
	stdio.SetErrorLogger(log.New(stderr, "", 0))
	server.WithWorkerPoolSize(demoWorkers)(stdio)
	err := stdio.Listen(ctx, in, lines)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// demoWorkers is the number of concurrent calls, equal to the default concurrency of Junction.
// mcp-go queues further calls and does not notice their cancellation while they wait.
const demoWorkers = 32

const (
	demoMaxSteps   = 1000
	demoPauseMs    = 50
	demoMaxPauseMs = 60_000

	demoQuestion = "What is your name?"

	demoInstructions = "A small server to try Junction with: echo answers, count reports progress, ask puts a " +
		"question to the person."

	demoReadme = `# Junction's demo server

This text is a resource, read through Junction from the demo server behind it.

Beside it the server offers the tools ` + "`echo`, `count` and `ask`" + ` and the prompt ` + "`greet`" + `.
Write a configuration file to put your own servers in its place.
`
)

// NewServer returns the demo server. It writes progress notifications to out, one line per call of
// Write.
func NewServer(out io.Writer, stderr io.Writer) *server.MCPServer {
	s := server.NewMCPServer("junction-demo", "1.0.0",
		server.WithTitle("Junction demo"),
		server.WithDescription("Junction's embedded demo server."),
		server.WithInstructions(demoInstructions),
		server.WithToolCapabilities(false),
		server.WithResourceCapabilities(false, false),
		server.WithPromptCapabilities(false),
		server.WithLogger(slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))),
	)
	s.AddTool(demoTool("echo", "Echo", "Returns the given text unchanged, as text and as structured content.",
		mcp.WithString("text", mcp.Required(), mcp.Description("The text to return.")),
		mcp.WithOutputSchema[demoEcho](),
	), callEcho)
	s.AddTool(demoTool("count", "Count with progress",
		"Counts from 1 to n with a short pause before each step. Each step is reported as progress when the caller "+
			"asked for progress.",
		mcp.WithInteger("n", mcp.Required(), mcp.Min(1), mcp.Max(demoMaxSteps),
			mcp.Description("How many steps to count.")),
		mcp.WithInteger("ms", mcp.DefaultNumber(demoPauseMs), mcp.Min(0), mcp.Max(demoMaxPauseMs),
			mcp.Description("The pause before each step, in milliseconds.")),
		mcp.WithOutputSchema[demoCount](),
	), func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return callCount(ctx, r, out)
	})
	s.AddTool(demoTool("ask", "Ask a question",
		"Puts a question to the person at the client by elicitation and returns the answer. Says so when the client "+
			"cannot be asked.",
		mcp.WithString("question", mcp.DefaultString(demoQuestion), mcp.MinLength(1),
			mcp.Description("The question to ask.")),
		mcp.WithOutputSchema[demoAnswer](),
	), func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return callAsk(ctx, r, s)
	})
	s.AddResource(mcp.NewResource("demo://readme", "readme",
		mcp.WithResourceTitle("About the demo server"),
		mcp.WithResourceDescription("What this server is for and what it offers."),
		mcp.WithMIMEType("text/markdown"),
		mcp.WithResourceSize(int64(len(demoReadme))),
	), func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
		return []mcp.ResourceContents{mcp.TextResourceContents{URI: "demo://readme", MIMEType: "text/markdown",
			Text: demoReadme}}, nil
	})
	s.AddPrompt(mcp.NewPrompt("greet",
		mcp.WithPromptTitle("Greet someone"),
		mcp.WithPromptDescription("Asks the model for a greeting."),
		mcp.WithArgument("name", mcp.ArgumentDescription("Who is greeted. Default: the reader.")),
	), greet)
	return s
}

// demoTool describes a tool that changes nothing and reaches nothing outside this process, like all
// tools of the demo.
func demoTool(name, title, description string, opts ...mcp.ToolOption) mcp.Tool {
	return mcp.NewTool(name, append([]mcp.ToolOption{
		mcp.WithToolTitle(title),
		mcp.WithDescription(description),
		mcp.WithTitleAnnotation(title),
		mcp.WithReadOnlyHintAnnotation(true),
		mcp.WithDestructiveHintAnnotation(false),
		mcp.WithIdempotentHintAnnotation(true),
		mcp.WithOpenWorldHintAnnotation(false),
	}, opts...)...)
}

// The structured results of the tools.
type (
	demoEcho struct {
		Text string `json:"text" jsonschema:"The given text."`
	}
	demoCount struct {
		Steps int `json:"steps" jsonschema:"How many steps were counted."`
	}
	demoAnswer struct {
		Action string `json:"action" jsonschema:"What the person did: accept, decline or cancel, or unavailable when the client cannot be asked."`
		Answer string `json:"answer,omitempty" jsonschema:"What the person answered."`
	}
)

func callEcho(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	text, err := r.RequireString("text")
	if err != nil {
		return mcp.NewToolResultError(err.Error()), nil
	}
	return mcp.NewToolResultStructured(demoEcho{Text: text}, text), nil
}

// callCount writes its progress itself. mcp-go queues notifications separately from results, so
// that the result could overtake the last progress notification.
func callCount(ctx context.Context, r mcp.CallToolRequest, out io.Writer) (*mcp.CallToolResult, error) {
	n, err := r.RequireInt("n")
	ms := r.GetInt("ms", demoPauseMs)
	switch {
	case err != nil:
		return mcp.NewToolResultError(err.Error()), nil
	case n < 1 || n > demoMaxSteps:
		return mcp.NewToolResultErrorf("n is %d; it must be from 1 to %d", n, demoMaxSteps), nil
	case ms < 0 || ms > demoMaxPauseMs:
		return mcp.NewToolResultErrorf("ms is %d; it must be from 0 to %d", ms, demoMaxPauseMs), nil
	}
	pause := time.Duration(ms) * time.Millisecond
	var token mcp.ProgressToken
	if r.Params.Meta != nil {
		token = r.Params.Meta.ProgressToken
	}
	total := float64(n)
	for i := 1; i <= n; i++ {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, fmt.Errorf("counting to %d: stopped after %d: %w", n, i-1, context.Cause(ctx))
		}
		if token == nil {
			continue
		}
		message := fmt.Sprintf("step %d of %d", i, n)
		err := writeJSON(out, struct {
			JSONRPC string `json:"jsonrpc"`
			mcp.ProgressNotification
		}{mcp.JSONRPC_VERSION, mcp.NewProgressNotification(token, float64(i), &total, &message)})
		if err != nil {
			return nil, fmt.Errorf("reporting progress: %w", err)
		}
	}
	return mcp.NewToolResultStructured(demoCount{Steps: n}, fmt.Sprintf("Counted %d steps.", n)), nil
}

// callAsk elicits in the way of the caller's era. A legacy client gets a server request while its
// call is in flight. A modern client gets the elicitation as the result, and repeats the call with
// the answer. So callAsk runs twice for it, and keeps no state between the two.
func callAsk(ctx context.Context, r mcp.CallToolRequest, s *server.MCPServer) (*mcp.CallToolResult, error) {
	if answer := server.ElicitationResponse(r.Params.InputResponses, "answer"); answer != nil {
		return answered(answer), nil
	}
	if !canAsk(ctx) {
		return unavailable("this client does not offer elicitation"), nil
	}
	question := mcp.ElicitationParams{
		Mode:    mcp.ElicitationModeForm,
		Message: r.GetString("question", demoQuestion),
		RequestedSchema: json.RawMessage(`{"type":"object","required":["answer"],` +
			`"properties":{"answer":{"type":"string","title":"Answer","description":"Your answer."}}}`),
	}
	if server.IsModernRequest(ctx) {
		return server.NewInputRequestBuilder("").Elicit("answer", question).ToolResult(), nil
	}
	answer, err := s.RequestElicitation(ctx, mcp.ElicitationRequest{Params: question})
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("asking: %w", context.Cause(ctx))
	case err != nil:
		return unavailable(err.Error()), nil
	}
	return answered(answer), nil
}

// canAsk reports whether the client of this call supports form elicitation. A capability without
// modes means form, because older revisions have no modes.
func canAsk(ctx context.Context) bool {
	var caps mcp.ClientCapabilities
	if server.IsModernRequest(ctx) {
		caps = *server.RequestProtocolInfoFromContext(ctx).ClientCapabilities
	} else if session, ok := server.ClientSessionFromContext(ctx).(server.SessionWithClientInfo); ok {
		caps = session.GetClientCapabilities()
	}
	e := caps.Elicitation
	return e != nil && (e.Form != nil || e.URL == nil)
}

func unavailable(why string) *mcp.CallToolResult {
	return mcp.NewToolResultStructured(demoAnswer{Action: "unavailable"}, "The person could not be asked: "+why+".")
}

func answered(answer *mcp.ElicitationResult) *mcp.CallToolResult {
	result := demoAnswer{Action: string(answer.Action)}
	switch answer.Action {
	case mcp.ElicitationResponseActionAccept:
		content, _ := answer.Content.(map[string]any)
		result.Answer, _ = content["answer"].(string)
		return mcp.NewToolResultStructured(result, "The answer is: "+result.Answer)
	case mcp.ElicitationResponseActionDecline:
		return mcp.NewToolResultStructured(result, "The person declined to answer.")
	default:
		return mcp.NewToolResultStructured(result, "The person closed the question without an answer.")
	}
}

func greet(_ context.Context, r mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	name := cmp.Or(r.Params.Arguments["name"], "the reader")
	return mcp.NewGetPromptResult("A greeting for "+name, []mcp.PromptMessage{
		mcp.NewPromptMessage(mcp.RoleUser, mcp.NewTextContent("Greet "+name+" warmly, in one sentence.")),
	}), nil
}

// lineWriter keeps the lines of concurrent writers whole. mcp-go locks its answers, but neither its
// server requests nor the progress of this package.
type lineWriter struct {
	mu sync.Mutex
	w  io.Writer // guarded by mu
}

// Write writes p, which must be one whole line.
func (l *lineWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// writeJSON writes v as one line.
func writeJSON(w io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}
