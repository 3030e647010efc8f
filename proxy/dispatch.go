package proxy

import (
	"context"
	"errors"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/policy"
	"junction/proxy/budget"
	"junction/proxy/search"
	"junction/upstream"
	"junction/upstream/raw"
)

// handler answers one request and completes info for the log.
type handler func(ctx context.Context, s *Server, x *exchange, info *CallInfo) (result, error)

// errAnswered means that the handler has written the answer.
var errAnswered = errors.New("answered")

// methods returns the handler of a method in an era, or nil. It is the only list of methods; all
// other methods are unknown to clients.
func methods(era upstream.Era, method string) handler {
	switch mcp.MCPMethod(method) {
	case mcp.MethodToolsList:
		return listTools
	case mcp.MethodToolsCall:
		return callTool
	case mcp.MethodPromptsList:
		return listPrompts
	case mcp.MethodPromptsGet:
		return getPrompt
	case mcp.MethodResourcesList:
		return listResources
	case mcp.MethodResourcesTemplatesList:
		return listTemplates
	case mcp.MethodResourcesRead:
		return readResource
	case mcp.MethodCompletionComplete:
		return complete
	}
	if era == upstream.EraModern {
		switch mcp.MCPMethod(method) {
		case mcp.MethodServerDiscover:
			return discover
		case mcp.MethodSubscriptionsListen:
			return subscribe
		case methodTasksGet, methodTasksUpdate, methodTasksCancel:
			return aboutTask
		}
		return nil
	}
	switch mcp.MCPMethod(method) {
	case mcp.MethodPing:
		return ping
	case mcp.MethodResourcesSubscribe:
		return subscribeResource
	case mcp.MethodResourcesUnsubscribe:
		return unsubscribeResource
	case mcp.MethodSetLogLevel:
		return setLevel
	}
	return nil
}

func (s *Server) dispatch(ctx context.Context, x *exchange, info *CallInfo) (result, error) {
	h := methods(x.era, x.msg.Method)
	if h == nil {
		return result{}, unknownMethod(x.era, x.msg.Method)
	}
	if x.subject.search && mcp.MCPMethod(x.msg.Method) == mcp.MethodToolsCall {
		own, err := x.unwrap(info)
		if err != nil {
			return result{}, err
		}
		if own {
			h = searchTools
		}
	}
	done, err := s.meter(ctx, x, info)
	if err != nil {
		return result{}, err
	}
	if done != nil {
		defer done()
	}
	return h(ctx, s, x, info)
}

// unwrap replaces a call of a call tool by the inner call, so that every later step sees the call
// as if the client had named the tool itself. It reports whether the call is one of search_tools
// instead.
func (x *exchange) unwrap(info *CallInfo) (own bool, err error) {
	name, err := x.nameParam()
	if err != nil || !search.Own(name) {
		return false, err
	}
	info.Name = name
	if name == search.ToolName {
		return true, nil
	}
	outer, err := x.arguments()
	if err != nil {
		return false, err
	}
	class := search.Named(name)
	inner, arguments, err := search.Inner(class, outer)
	if err != nil {
		return false, invalidParams("Invalid params: %s", err)
	}
	text, err := x.params.Splice(raw.Edit{Name: "name", Value: inner}, raw.Edit{Name: "arguments", Value: arguments})
	if err != nil {
		return false, err
	}
	if err := x.held.Reserve(budget.Bytes, int64(len(text))); err != nil {
		return false, overuseError(err)
	}
	x.class = class
	x.params, err = raw.Parse(text)
	return false, err
}

// wrongClass returns the answer if the client has called a tool with the call tool of another
// class; nil otherwise.
func (s *Server) wrongClass(x *exchange, info *CallInfo) *result {
	if x.class == search.NoClass {
		return nil
	}
	is := search.ClassOf(x.target.Item.Definition)
	if is == x.class {
		return nil
	}
	info.Outcome = Invalid
	text := raw.AppendQuote([]byte(`"content":[{"type":"text","text":`), search.Rejection(info.Name, is, x.class))
	r := s.ownResult(x, string(append(text, `}],"isError":true`...)))
	return &r
}

func ping(context.Context, *Server, *exchange, *CallInfo) (result, error) {
	return result{body: []byte("{}")}, nil
}

// setLevel answers logging/setLevel of a legacy client. It stores the level in the session; each
// call passes it to the upstream.
func setLevel(_ context.Context, _ *Server, x *exchange, _ *CallInfo) (result, error) {
	if !x.subject.Sight().Offers.Logging {
		return result{}, unknownMethod(x.era, x.msg.Method)
	}
	level, err := x.params.String("level")
	if err != nil || upstream.Level(level) == 0 {
		return result{}, invalidParams("Invalid params: level is none of debug, info, notice, warning, " +
			"error, critical, alert, emergency")
	}
	x.session.mu.Lock()
	x.session.level = level
	x.session.mu.Unlock()
	return result{body: []byte("{}")}, nil
}

// logLevel returns the level that the client has set; "" for none.
func (s *session) logLevel() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.level
}

// meter counts a request against the rate limits of the caller's policy. done must be called when
// the request has ended; it may be nil. The error is for the client.
func (s *Server) meter(ctx context.Context, x *exchange, info *CallInfo) (done func(), err error) {
	if mcp.MCPMethod(x.msg.Method) == mcp.MethodResourcesUnsubscribe { // it releases a subscription
		return nil, nil
	}
	done, refused := s.count(ctx, x, !isCall(x.msg.Method))
	if refused == nil {
		return done, nil
	}
	if member := namedBy(x.msg.Method); member != "" {
		info.Name, _ = x.params.String(member)
	}
	if refused.outcome == Limited {
		info.Verdict, info.Rule = policy.Deny.String(), "limits.concurrent"
		if refused.retry != "" {
			info.Rule = "limits.rate"
		}
	}
	return nil, refused
}

// count counts a request against the limits of its principal, at all members together. other and
// done are as for Members.Enter; done is nil if there are no limits.
func (s *Server) count(ctx context.Context, x *exchange, other bool) (done func(), _ *refusal) {
	limits := x.subject.limits
	if limits.Rate <= 0 && (other || limits.Concurrent <= 0) {
		return nil, nil
	}
	enter := s.meters.Enter
	if s.members != nil {
		enter = s.members.Enter
	}
	done, wait, err := enter(ctx, x.principal.ID, limits, other)
	switch {
	case err == nil:
		return done, nil
	case errors.Is(err, budget.ErrTooFast), errors.Is(err, budget.ErrTooMany):
		return nil, limited(err, wait)
	}
	return nil, unavailable("the limits of your policy cannot be checked now: the database cannot be reached")
}

// isCall reports whether upstreams answer requests of the method.
func isCall(method string) bool {
	switch mcp.MCPMethod(method) {
	case mcp.MethodToolsCall, mcp.MethodPromptsGet, mcp.MethodResourcesRead, mcp.MethodCompletionComplete,
		mcp.MethodResourcesSubscribe,
		methodTasksGet, methodTasksUpdate, methodTasksCancel:
		return true
	}
	return false
}
