package proxy

import (
	"context"
	"errors"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream"
)

// handler answers one request. It fills in what it learns for the log.
type handler func(ctx context.Context, s *Server, x *exchange, info *CallInfo) (result, error)

// errAnswered means that the handler has written the answer itself.
var errAnswered = errors.New("answered")

// methods returns the handler of a method in an era, or nil. It is the only such list: what is not
// here does not exist for clients.
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
	done, err := s.meter(x, info)
	if err != nil {
		return result{}, err
	}
	if done != nil {
		defer done()
	}
	return h(ctx, s, x, info)
}

func ping(context.Context, *Server, *exchange, *CallInfo) (result, error) {
	return result{body: []byte("{}")}, nil
}

// setLevel answers logging/setLevel of a legacy client: the level is its session's, and goes to
// upstreams with each of its calls.
func setLevel(_ context.Context, _ *Server, x *exchange, _ *CallInfo) (result, error) {
	if !x.subject.Sight().Offers.Logging {
		return result{}, unknownMethod(x.era, x.msg.Method)
	}
	level, err := x.params.String("level")
	if err != nil || upstream.Level(level) == 0 {
		return result{}, invalidParams("Invalid params: level is none of debug, info, notice, warning, error, critical, alert, emergency")
	}
	x.session.mu.Lock()
	x.session.level = level
	x.session.mu.Unlock()
	return result{body: []byte("{}")}, nil
}

// logLevel returns the level that the client has set; "" when it has set none.
func (s *session) logLevel() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.level
}
