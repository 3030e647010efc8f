package call

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/auth"
	"junction/proxy/search"
	"junction/upstream/client"
	"junction/upstream/definition"
	"junction/upstream/jsonrpc"
	"junction/upstream/prose"
	"junction/upstream/raw"
	"junction/upstream/transport"
)

// endpoint is a connection to a Streamable HTTP endpoint of either era. It is the Peer of its calls.
type endpoint struct {
	url     string
	keyed   bool // the person has given an API key
	dialer  *client.Dialer
	conn    client.Conn
	profile client.Profile
	prompts *prompter  // answers elicitations; nil without a terminal
	asking  sync.Mutex // held while the person answers

	reporting sync.Mutex
	report    io.Writer // gets a line for each progress notification; guarded by reporting; nil discards
	aside     io.Writer // gets what Junction says about a call, such as that it waits; as report
}

// dial connects to an endpoint, with the URL and the credential of o. report and prompts may be nil. Its errors
// are for the user.
func dial(ctx context.Context, o client.Options, report io.Writer, prompts *prompter) (*endpoint, error) {
	e, err := open(ctx, o, report, prompts)
	if err != nil {
		return nil, (&endpoint{url: o.URL, keyed: len(o.Headers) > 0}).explain(ctx, err)
	}
	return e, nil
}

// open is dial, with the errors of the connection.
func open(ctx context.Context, o client.Options, report io.Writer, prompts *prompter) (*endpoint, error) {
	o.Client = []byte(`{"name":"junction-cli","title":"Junction command line","version":"1.0.0"}`)
	o.Transport, o.TokenOptional = client.TransportHTTP, true
	o.ConnectTimeout, o.MessageLimit, o.Depth = 20*time.Second, 64<<20, 256
	o.Log = slog.New(slog.DiscardHandler)
	e := &endpoint{url: o.URL, keyed: len(o.Headers) > 0, dialer: client.NewDialer(o), report: report, prompts: prompts}
	if prompts != nil {
		e.profile = client.Profile{Form: true, URL: true}
	}
	var err error
	if e.conn, err = e.dialer.Dial(ctx, e.profile, client.Hooks{Changed: func() {}}); err != nil {
		e.dialer.CloseIdle()
		return nil, err
	}
	return e, nil
}

// close ends the session, if there is one. It waits at most a second for the server.
func (e *endpoint) close() {
	_ = e.conn.Close() // a server may reject the end of its session
	e.dialer.CloseIdle()
}

// request sends one request and returns its result. name is the name of the tool, if it calls one, or the
// URI of the resource, if it reads one.
func (e *endpoint) request(ctx context.Context, method mcp.MCPMethod, name string, params map[string]any,
	header []client.HeaderField) (json.RawMessage, error) {
	body, err := json.Marshal(params)
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", method, err)
	}
	object, err := raw.Parse(body)
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", method, err)
	}
	call := &client.Call{Method: string(method), Name: name, Params: object, Header: header, Profile: e.profile,
		Peer: e}
	if e.aside != nil {
		call.LogLevel = "info" // that of Junction's messages about the call
	}
	if method == mcp.MethodResourcesRead {
		call.Member = []string{"uri"}
	}
	result, err := e.conn.Call(ctx, call, nil)
	if refusal, ok := errors.AsType[*jsonrpc.Error](err); ok && ctx.Err() == nil {
		return nil, fmt.Errorf("%s: %w", method, refusal)
	} else if err != nil {
		err = e.explain(ctx, err)
		if late, ok := errors.AsType[*lateError](err); ok && method == mcp.MethodToolsCall {
			err = &lateError{"the tool " + name, late.limit} // Junction has answered the requests before it
		}
		return nil, err
	}
	return result.Text(), nil
}

// lateError means that the time limit of the command has passed.
type lateError struct {
	from  string // an address or a tool, which has not answered
	limit time.Duration
}

func (e *lateError) Error() string {
	return fmt.Sprintf("no answer from %s within %s; --timeout waits longer", e.from, e.limit)
}

// Notify implements client.Peer. It writes progress notifications, and what Junction says about a call, as lines.
func (e *endpoint) Notify(method string, params []byte) {
	e.said(method, params)
	var p struct {
		Progress, Total json.RawMessage
		Message         string
	}
	if e.report == nil || method != string(mcp.MethodNotificationProgress) || json.Unmarshal(params, &p) != nil {
		return
	}
	line := string(p.Progress)
	if p.Total != nil {
		line += "/" + string(p.Total)
	}
	e.reporting.Lock()
	defer e.reporting.Unlock()
	fmt.Fprintln(e.report, prose.Flat(strings.TrimSpace(line+" "+p.Message)))
}

// said writes a log message of Junction itself. Those of servers are not for the person.
func (e *endpoint) said(method string, params []byte) {
	var p struct{ Logger, Data string }
	if e.aside == nil || method != string(mcp.MethodNotificationMessage) || json.Unmarshal(params, &p) != nil ||
		p.Logger != "junction" {
		return
	}
	e.reporting.Lock()
	defer e.reporting.Unlock()
	fmt.Fprintln(e.aside, prose.Flat(p.Data))
}

// Ask implements client.Peer, for the questions of a legacy endpoint.
func (e *endpoint) Ask(ctx context.Context, q *client.ServerRequest) ([]byte, error) {
	if e.prompts == nil || q.Method != string(mcp.MethodElicitationCreate) {
		return nil, &jsonrpc.Error{Code: mcp.METHOD_NOT_FOUND, Message: "this command cannot answer " + q.Method}
	}
	e.asking.Lock()
	defer e.asking.Unlock()
	a, err := e.prompts.ask(ctx, q.Params)
	if err != nil {
		return nil, &jsonrpc.Error{Code: mcp.INVALID_PARAMS, Message: err.Error()}
	}
	return json.Marshal(a)
}

// maxPages stops an endless list. It is far above the size of a real list.
const maxPages = 1000

// tools returns the tools of all pages.
func (e *endpoint) tools(ctx context.Context) ([]listedTool, error) {
	list, err := e.list(ctx, mcp.MethodToolsList, "tools")
	tools := make([]listedTool, len(list))
	for i, definition := range list {
		tools[i] = newListedTool(definition)
	}
	return tools, err
}

// list returns the items of all pages of a list. member is the member of a page that has them.
func (e *endpoint) list(ctx context.Context, method mcp.MCPMethod, member string) (items []json.RawMessage, err error) {
	params := map[string]any{}
	for range maxPages {
		result, err := e.request(ctx, method, "", params, nil)
		if err != nil {
			return nil, err
		}
		var page []json.RawMessage
		members := membersOf(result)
		if err := json.Unmarshal([]byte(cmp.Or(string(members[member]), "[]")), &page); err != nil {
			return nil, fmt.Errorf("the answer of %s to %s is no list: %w", e.url, method, err)
		}
		items = append(items, page...)
		next := stringOf(members["nextCursor"])
		if next == "" {
			return items, nil
		}
		params = map[string]any{"cursor": next}
	}
	return nil, fmt.Errorf("the %s of %s has more than %d pages", method, e.url, maxPages)
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
	return listedTool{}, &noToolError{name: name, url: e.url, hint: hint}
}

// noToolError means that the list of the caller does not have a tool, so that no call was sent.
type noToolError struct {
	name, url, hint string
	why             string // the command that shows the reason; "" if it is not known
}

func (e *noToolError) Error() string {
	why := ""
	if e.why != "" {
		why = " (the reason: " + e.why + ")"
	}
	text := fmt.Sprintf("no tool %q at %s; not sent: the list of this caller does not have it%s", e.name, e.url, why)
	if e.hint != "" {
		text += "; " + e.hint
	}
	return text
}

// searched returns the tool of that name from the search tool of an endpoint that lists only some of
// its tools; the zero value if there is none.
func (e *endpoint) searched(ctx context.Context, name string) (listedTool, error) {
	params := map[string]any{"name": search.ToolName, "arguments": map[string]any{"query": name}}
	result, err := e.request(ctx, mcp.MethodToolsCall, search.ToolName, params, nil)
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
	params := map[string]any{"name": t.name, "arguments": arguments, "_meta": map[string]any{"progressToken": "call"}}
	var header []client.HeaderField
	if given, err := raw.Parse(arguments); err == nil {
		if declared, err := definition.Headers(t.schema, nil); err == nil {
			header = definition.EncodeHeaders(declared, given)
		}
	}
	return e.answered(ctx, mcp.MethodToolsCall, t.name, params, header)
}

// answered sends a request, with the person's answers if the endpoint asks something, and returns the
// result of the last round.
func (e *endpoint) answered(ctx context.Context, method mcp.MCPMethod, name string, params map[string]any,
	header []client.HeaderField) (json.RawMessage, error) {
	for range maxRounds {
		result, err := e.request(ctx, method, name, params, header)
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
	return nil, fmt.Errorf("the endpoint asked for input %d times in one call; report it to the owner of the server",
		maxRounds)
}

// explain returns a one-line error for the user instead of an error of the connection.
func (e *endpoint) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var (
		said   *jsonrpc.Error
		status *transport.StatusError
		token  *transport.TokenError
		dialed *net.OpError
	)
	switch {
	case errors.As(err, &said):
		return fmt.Errorf("%s answered: %s (code %d)", e.url, prose.Flat(said.Message), said.Code)
	case errors.As(err, &status) && status.Status >= 300:
		return fmt.Errorf("%s answered %s", e.url, statusText(status, e.keyed))
	case errors.As(err, &token):
		return token.Err
	case errors.As(err, &dialed) && dialed.Op == "dial":
		reason := dialed.Err
		if errno, ok := errors.AsType[syscall.Errno](err); ok {
			reason = errno
		}
		return &unreachedError{url: e.url, reason: reason}
	case TLSAdvice(err) != "":
		return fmt.Errorf("no MCP endpoint at %s: %w; %s", e.url, err, TLSAdvice(err))
	case client.KindOf(err) == client.KindLost:
		return fmt.Errorf("the connection to %s broke before the answer; is junction still running?", e.url)
	}
	return fmt.Errorf("no MCP endpoint at %s: %w", e.url, err)
}

// statusText returns an HTTP error, with its reason if the endpoint gave one. keyed means that the person has given
// an API key.
func statusText(e *transport.StatusError, keyed bool) string {
	text := strings.TrimSpace(fmt.Sprintf("%d %s", e.Status, http.StatusText(e.Status)))
	if to := e.Location(); to != "" {
		return fmt.Sprintf("%s: it redirects to %s; if that is the endpoint, put it into --url", text, prose.Flat(to))
	}
	reason := stringOf(membersOf(e.Body)["error_description"]) // of the Guard, without JSON-RPC
	if reason != "" && e.Status == http.StatusUnauthorized {
		next := "give the key with --key or in JUNCTION_KEY"
		switch {
		case strings.HasSuffix(reason, auth.NotFromHere):
			next = "use the key on a machine whose address its cidrs have, or ask the operator of Junction"
		case keyed:
			next = "correct the key that you have given, with --key or in JUNCTION_KEY"
		}
		reason = strings.TrimSuffix(reason, ".") + "; " + next
	}
	if reason = cmp.Or(prose.Flat(reason), e.Reason()); reason != "" {
		text += ": " + reason
	}
	return text
}

// unreachedError means that nothing listens at the URL of an endpoint.
type unreachedError struct {
	url    string
	reason error
	start  string // the command that starts the Junction of the URL; "" if it is not known
}

func (e *unreachedError) Error() string {
	next := "is junction running?"
	if e.start != "" {
		next = "start Junction: " + e.start
	}
	return fmt.Sprintf("no endpoint at %s: %v; %s", e.url, e.reason, next)
}

func (e *unreachedError) Unwrap() error { return e.reason }
