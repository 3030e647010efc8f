package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"junction/proxy/search"
	"junction/upstream/prose"
)

// endpoint is a connection to a Streamable HTTP endpoint of either era. mcp-go's client opens and
// closes it. Requests go through its transport as raw JSON: mcp-go's types drop unknown members,
// and reject a whole list because of one invalid tool.
type endpoint struct {
	url     string
	client  *client.Client
	refused *refusals
	lastID  int64
	report  *progressReport
	prompts *prompter // answers elicitations; nil without a terminal
}

// dial connects to an endpoint and negotiates the era. An empty key means no Authorization header.
func dial(ctx context.Context, address, key string, report io.Writer, prompts *prompter) (*endpoint, error) {
	var header map[string]string
	if key != "" {
		header = map[string]string{"Authorization": "Bearer " + key}
	}
	e := &endpoint{url: address, refused: &refusals{base: http.DefaultTransport}, report: &progressReport{w: report},
		lastID:  1 << 40,
		prompts: prompts}
	wire, err := transport.NewStreamableHTTP(address,
		// A redirect could lead the key and the arguments to another server, or to plain http.
		transport.WithHTTPBasicClient(&http.Client{Transport: e.refused,
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			}}),
		transport.WithHTTPHeaders(header),
		transport.WithHTTPLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", address, err)
	}
	var options []client.ClientOption
	if prompts != nil {
		options = append(options, client.WithElicitationHandler(prompts))
	}
	e.client = client.NewClient(wire, options...)
	e.client.OnNotification(e.report.notify)
	if err := e.client.Start(ctx); err != nil {
		return nil, e.explain(ctx, err)
	}
	if _, err := e.client.Initialize(ctx,
		mcp.InitializeRequest{Params: mcp.InitializeParams{ClientInfo: clientInfo()}}); err != nil {
		err = e.explain(ctx, err)
		e.close()
		return nil, err
	}
	return e, nil
}

func clientInfo() mcp.Implementation {
	return mcp.Implementation{Name: "junction-cli", Title: "Junction command line", Version: "1.0.0"}
}

// close ends the session, if there is one. An error of the endpoint is ignored.
func (e *endpoint) close() {
	e.report.end()
	_ = e.client.Close()
}

// request sends one request with the standard headers and those in header, and returns its result.
// To a modern request it adds the protocol version, client info and capabilities.
func (e *endpoint) request(ctx context.Context, method mcp.MCPMethod, params, meta map[string]any,
	header map[string]string) (json.RawMessage, error) {
	version := e.client.ProtocolVersion()
	if mcp.IsModernProtocol(version) {
		if meta == nil {
			meta = map[string]any{}
		}
		meta[mcp.MetaKeyProtocolVersion] = version
		meta[mcp.MetaKeyClientInfo] = clientInfo()
		meta[mcp.MetaKeyClientCapabilities] = e.capabilities()
	}
	if meta != nil {
		params["_meta"] = meta
	}
	body, err := json.Marshal(params)
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", method, err)
	}
	h := http.Header{}
	for k, v := range mcp.StandardHeaders(version, method, body) {
		h.Set(k, v)
	}
	for k, v := range header {
		h.Set(k, v)
	}
	e.lastID++
	e.refused.forget()
	answer, err := e.client.GetTransport().SendRequest(ctx, transport.JSONRPCRequest{
		JSONRPC: mcp.JSONRPC_VERSION, ID: mcp.NewRequestId(e.lastID), Method: string(method),
		Params: json.RawMessage(body), Header: h,
	})
	switch {
	case err != nil:
		return nil, e.explain(ctx, err)
	case answer.Error != nil:
		return nil, fmt.Errorf("%s: %s (code %d)", method, answer.Error.Message, answer.Error.Code)
	}
	return answer.Result, nil
}

// capabilities returns what the command can do for a modern server.
func (e *endpoint) capabilities() map[string]any {
	if e.prompts == nil {
		return map[string]any{}
	}
	return map[string]any{"elicitation": map[string]any{"form": struct{}{}, "url": struct{}{}}}
}

// maxToolPages stops an endless list. It is far above the size of a real list.
const maxToolPages = 1000

// tools returns the tools of all pages.
func (e *endpoint) tools(ctx context.Context) ([]listedTool, error) {
	var tools []listedTool
	params := map[string]any{}
	for range maxToolPages {
		result, err := e.request(ctx, mcp.MethodToolsList, params, nil, nil)
		if err != nil {
			return nil, err
		}
		var page struct {
			Tools      []json.RawMessage `json:"tools"`
			NextCursor string            `json:"nextCursor"`
		}
		if err := json.Unmarshal(result, &page); err != nil {
			return nil, fmt.Errorf("the answer of %s to tools/list is no list: %w", e.url, err)
		}
		for _, raw := range page.Tools {
			tools = append(tools, newListedTool(raw))
		}
		if page.NextCursor == "" {
			return tools, nil
		}
		params = map[string]any{"cursor": page.NextCursor}
	}
	return nil, fmt.Errorf("the tools/list of %s has more than %d pages", e.url, maxToolPages)
}

// tool returns the tool of that name. If it does not exist, the error suggests similar names.
func (e *endpoint) tool(ctx context.Context, name string) (listedTool, error) {
	tools, err := e.tools(ctx)
	if err != nil {
		return listedTool{}, err
	}
	names := make([]string, len(tools))
	for i, t := range tools {
		if t.name == name {
			return t, nil
		}
		names[i] = t.name
	}
	if slices.Contains(names, search.ToolName) {
		if t, err := e.searched(ctx, name); err != nil || t.name != "" {
			return t, err
		}
	}
	hint := "junction tools lists what there is"
	if near := prose.Closest(names, name); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, ", ") + "?"
	}
	return listedTool{}, fmt.Errorf("no tool %q at %s; %s", name, e.url, hint)
}

// searched returns the tool of that name from the search tool of an endpoint that lists only some of
// its tools; the zero value if there is none.
func (e *endpoint) searched(ctx context.Context, name string) (listedTool, error) {
	params := map[string]any{"name": search.ToolName, "arguments": map[string]any{"query": name}}
	result, err := e.request(ctx, mcp.MethodToolsCall, params, nil, nil)
	if err != nil {
		return listedTool{}, err
	}
	var answer struct{ Content []struct{ Text string } }
	var found struct {
		Tools []struct{ Definition json.RawMessage }
	}
	if err := json.Unmarshal(result, &answer); err != nil || len(answer.Content) == 0 {
		return listedTool{}, nil
	}
	if err := json.Unmarshal([]byte(answer.Content[0].Text), &found); err != nil {
		return listedTool{}, nil // another server may have a tool of that name
	}
	for _, f := range found.Tools {
		if t := newListedTool(f.Definition); t.name == name {
			return t, nil
		}
	}
	return listedTool{}, nil
}

// callTool calls a tool and returns its result. It always requests progress notifications, because
// proxies may close a silent connection.
func (e *endpoint) callTool(ctx context.Context, t listedTool, arguments json.RawMessage) (json.RawMessage, error) {
	params := map[string]any{"name": t.name, "arguments": arguments}
	body, err := json.Marshal(params)
	if err != nil {
		return nil, fmt.Errorf("writing the arguments: %w", err)
	}
	var header map[string]string
	if mcp.IsModernProtocol(e.client.ProtocolVersion()) {
		header = mcp.GenerateParamHeaders(&mcp.Tool{Name: t.name, RawInputSchema: t.schema}, body)
	}
	for range maxRounds {
		result, err := e.request(ctx, mcp.MethodToolsCall, params, map[string]any{"progressToken": "call"}, header)
		if err != nil {
			return nil, err
		}
		given, again, err := e.prompts.answers(ctx, result)
		if err != nil || !again {
			return result, err
		}
		params["inputResponses"] = given
		delete(params, "requestState")
		if state, ok := membersOf(result)["requestState"]; ok {
			params["requestState"] = state
		}
	}
	return nil, fmt.Errorf("the tool has asked %d times without an end", maxRounds)
}

// explain returns a one-line error for the user instead of an error of the transport.
func (e *endpoint) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	code, said, ended := e.refused.seen()
	if said != "" {
		return &statusError{code, fmt.Sprintf("%s answered %s", e.url, said)}
	}
	dial, isDial := errors.AsType[*net.OpError](err)
	if isDial && dial.Op == "dial" {
		var reason error = dial.Err
		if errno, ok := errors.AsType[syscall.Errno](err); ok {
			reason = errno
		}
		return fmt.Errorf("no endpoint at %s: %w; is junction running?", e.url, reason)
	}
	if ended || brokeOff(err) {
		return fmt.Errorf("the connection to %s broke before the answer; is junction still running?", e.url)
	}
	if wrapped, ok := errors.AsType[*transport.Error](err); ok {
		err = wrapped.Err
	}
	return fmt.Errorf("no MCP endpoint at %s: %w", e.url, err)
}

// statusError means that the endpoint answered with an HTTP error.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return e.text }

// brokeOff reports whether the connection was lost before the answer.
func brokeOff(err error) bool {
	_, sending := errors.AsType[*url.Error](err) // without a url.Error, EOF is an empty answer
	return sending && errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET)
}

// refusals is a RoundTripper that records information that mcp-go does not return: the message of
// the last HTTP error, and the end of an event stream.
type refusals struct {
	base http.RoundTripper
	mu   sync.Mutex
	last string // guarded by mu
	code int    // HTTP status of last; guarded by mu
	over bool   // guarded by mu
}

// watched is the event stream of an answer, whose end it records.
type watched struct {
	io.ReadCloser
	by *refusals
}

// Read implements io.Reader.
func (w watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if err != nil {
		w.by.mu.Lock()
		w.by.over = true
		w.by.mu.Unlock()
	}
	return n, err
}

// RoundTrip implements http.RoundTripper.
func (r *refusals) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.base.RoundTrip(req)
	if err != nil || req.Method != http.MethodPost {
		return resp, err
	}
	if resp.StatusCode < 300 {
		if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
			resp.Body = watched{resp.Body, r}
		}
		return resp, nil
	}
	start, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		resp.Body.Close()
		return nil, err
	}
	rest := resp.Body
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(start), rest), rest}
	said := fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	answer := membersOf(start)
	if where, err := resp.Location(); err == nil && resp.StatusCode < 400 {
		said += fmt.Sprintf(": it redirects to %s; if that is the endpoint, put it into --url",
			prose.Flat(where.Redacted()))
	} else if message := stringOf(membersOf(answer["error"])["message"]); message != "" {
		said += ": " + prose.Flat(message)
	} else if text := stringOf(answer["error_description"]); text != "" { // of the Guard, without JSON-RPC
		said += ": " + prose.Flat(text)
		if resp.StatusCode == http.StatusUnauthorized {
			said += " (--key or JUNCTION_KEY has the key)"
		}
	} else if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") && utf8.Valid(start) {
		said += ": " + prose.Cut(prose.Flat(string(start)), 200)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last, r.code = said, resp.StatusCode
	return resp, nil
}

// seen returns the last HTTP error since forget, and whether an event stream has ended. An answer
// that has not arrived by then never arrives.
func (r *refusals) seen() (code int, text string, ended bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.code, r.last, r.over
}

func (r *refusals) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last, r.over = "", false
}

// progressReport writes progress notifications as lines. mcp-go calls notify from a goroutine that
// may outlive the call, so that access is locked, and end stops the output.
type progressReport struct {
	mu sync.Mutex
	w  io.Writer // guarded by mu; nil if progress is not wanted or the call is over
}

func (p *progressReport) notify(n mcp.JSONRPCNotification) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.w == nil || n.Method != string(mcp.MethodNotificationProgress) {
		return
	}
	fields := n.Params.AdditionalFields
	line := fmt.Sprint(fields["progress"])
	if total, ok := fields["total"]; ok {
		line += fmt.Sprint("/", total)
	}
	if message, ok := fields["message"].(string); ok {
		line += " " + prose.Flat(message)
	}
	fmt.Fprintln(p.w, line)
}

func (p *progressReport) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.w = nil
}
