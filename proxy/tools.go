package proxy

import (
	"context"
	"net/http"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/proxy/schema"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/raw"
)

func listTools(ctx context.Context, s *Server, x *exchange, _ *CallInfo) (result, error) {
	s.awaitLists(ctx, x)
	return s.list(x, upstream.PartTools)
}

// callTool passes a call on to the tool's upstream.
func callTool(ctx context.Context, s *Server, x *exchange, info *CallInfo) (result, error) {
	name, err := x.params.String("name")
	if err == raw.ErrAbsent {
		return result{}, invalidParams("Invalid params: no name")
	} else if err != nil {
		return result{}, err
	}
	t := x.named(upstream.PartTools, name, info)
	if c := x.connecting(t, name); c != nil {
		return s.connect(ctx, x, c, info)
	}
	if t == nil {
		if t, err = s.awaitNamed(ctx, x, upstream.PartTools, name, info); err != nil {
			return result{}, err
		}
	}
	if t == nil || x.era == upstream.EraModern && t.Tool.HeaderProblem != "" {
		return result{}, unknownTool(name)
	}
	if err := x.permit(t, info, func() error { return unknownTool(name) }); err != nil {
		return result{}, err
	}
	var extra []upstream.HeaderField
	if x.era == upstream.EraModern {
		if extra, err = checkParamHeaders(x, t.Tool); err != nil {
			return result{}, err
		}
	}
	if x.share.Guards.Validate {
		if wrong, err := s.checkArguments(x, t); err != nil {
			return result{}, err
		} else if wrong != nil {
			info.Outcome = "invalid_arguments"
			return s.own(x, string(wrong[1:len(wrong)-1])), nil
		}
	}
	return s.call(ctx, x, t, extra)
}

// checkArguments compares the arguments of a call with the tool's schema. It returns the result
// that says what is wrong with them; nil when nothing is, or when the schema cannot be used.
func (s *Server) checkArguments(x *exchange, t *view.Target) ([]byte, error) {
	arguments, err := x.arguments()
	if err != nil {
		return nil, err
	}
	problems, err := s.schemas.Check(t.Item.Definition.Text(), arguments)
	if err != nil {
		s.log.Warn("the arguments of a tool are not checked: its schema cannot be used", "upstream", t.Backend.Name(), "name", t.Name, "error", err)
	}
	if len(problems) == 0 {
		return nil, nil
	}
	return schema.InvalidResult(t.Exposed, problems), nil
}

// checkParamHeaders compares the Mcp-Param headers with the arguments that they repeat (2026-07-28,
// streamable-http#server-validation), and returns those that no argument is declared for.
func checkParamHeaders(x *exchange, tool *upstream.Tool) ([]upstream.HeaderField, error) {
	var extra []upstream.HeaderField
	const prefix = "Mcp-Param-"
	for name, values := range x.header {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		declared := false
		for _, p := range tool.Params {
			declared = declared || strings.EqualFold(name, p.Header())
		}
		if !declared {
			for _, v := range values {
				extra = append(extra, upstream.HeaderField{Name: name, Value: v})
			}
		}
	}
	if len(tool.Params) == 0 {
		return extra, nil
	}
	arguments, err := x.params.Object("arguments")
	if err != nil && err != raw.ErrAbsent {
		return nil, err
	}
	for _, p := range tool.Params {
		want, given := p.Value(arguments)
		values := x.header[http.CanonicalHeaderKey(p.Header())]
		switch {
		case !given && len(values) == 0:
		case !given:
			return nil, mismatch("%s is set, and the argument that it repeats is not", p.Header())
		case len(values) != 1:
			return nil, mismatch("%s is missing, or occurs twice", p.Header())
		default:
			got, ok := mcp.DecodeHeaderValue(strings.TrimSpace(values[0]))
			if !ok || !p.Matches(got, want) {
				return nil, mismatch("%s differs from the argument that it repeats", p.Header())
			}
		}
	}
	return extra, nil
}
