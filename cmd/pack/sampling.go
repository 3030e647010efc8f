package pack

import (
	"context"
	"fmt"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"junction/cmd/pack/manifest"
)

// The ids of the two requests of a call.
const (
	firstAnswer  = "answer"
	secondAnswer = "corrected"
)

// runPrompt asks the model of the client, by MCP sampling, or checks the answers that the client has
// sent. It keeps no state between the rounds of a call, so that it works in both eras: mcp-go sends
// the requests to a client of the legacy era, and one of the modern era repeats the call with the
// answers. check returns the result for an answer, or an error if the answer does not fit. runPrompt
// then asks the model once more, with that error. The error of runPrompt is for the model that calls
// the tool.
func runPrompt(ctx context.Context, t *manifest.Tool, values map[string]any, responses mcp.InputResponses,
	check func(answer string) (*mcp.CallToolResult, error)) (*mcp.CallToolResult, error) {
	if !canSample(ctx) {
		return nil, fmt.Errorf("%s asks the model of the client by MCP sampling, which this client does not offer; "+
			"use a client that does", t.Name)
	}
	question := samplingMessage(mcp.RoleUser, askOf(t).Text.Text(values, nil)+instruction(t))
	if r := server.SamplingResponse(responses, secondAnswer); r != nil {
		result, err := check(answerOf(r))
		if err != nil {
			return nil, fmt.Errorf("the model of the client gave no valid answer twice: %w", err)
		}
		return result, nil
	}
	r := server.SamplingResponse(responses, firstAnswer)
	if r == nil {
		return askModel(t, values, firstAnswer, question), nil
	}
	result, err := check(answerOf(r))
	if err == nil {
		return result, nil
	}
	return askModel(t, values, secondAnswer, question, samplingMessage(mcp.RoleAssistant, answerOf(r)),
		samplingMessage(mcp.RoleUser, fmt.Sprintf("This answer cannot be used: %v\nAnswer again.", err))), nil
}

// askModel returns the result that makes the client ask its model.
func askModel(t *manifest.Tool, values map[string]any, id string, messages ...mcp.SamplingMessage) *mcp.CallToolResult {
	p := mcp.CreateMessageParams{Messages: messages, SystemPrompt: askOf(t).System.Text(values, nil),
		MaxTokens: askOf(t).MaxTokens}
	if askOf(t).Model != "" {
		p.ModelPreferences = &mcp.ModelPreferences{Hints: []mcp.ModelHint{{Name: askOf(t).Model}}}
	}
	return server.NewInputRequestBuilder("").Sample(id, p).ToolResult()
}

func samplingMessage(role mcp.Role, text string) mcp.SamplingMessage {
	return mcp.SamplingMessage{Role: role, Content: mcp.NewTextContent(text)}
}

// instruction tells the model the form of the answer.
func instruction(t *manifest.Tool) string {
	switch {
	case t.OutputSchema != nil:
		return fmt.Sprintf("\n\nAnswer with JSON that fits this JSON Schema, and with nothing else:\n%s",
			t.OutputSchema)
	case t.Output == manifest.OutputJSON:
		return "\n\nAnswer with JSON, and with nothing else."
	}
	return ""
}

// answerOf returns the text of an answer. Models put JSON into a fenced block, even if told not to.
func answerOf(r *mcp.CreateMessageResult) string {
	text := strings.TrimSpace(textOfContent(r.Content))
	inner, fenced := strings.CutPrefix(text, "```json\n")
	if !fenced {
		inner, fenced = strings.CutPrefix(text, "```\n")
	}
	if inner, closed := strings.CutSuffix(inner, "```"); fenced && closed {
		return strings.TrimSpace(inner)
	}
	return text
}

func textOfContent(content any) string {
	switch c := content.(type) {
	case mcp.TextContent:
		return c.Text
	case *mcp.TextContent:
		return c.Text
	case []mcp.Content:
		var all []string
		for _, one := range c {
			if text := textOfContent(one); text != "" {
				all = append(all, text)
			}
		}
		return strings.Join(all, "\n")
	case []any:
		var all []string
		for _, one := range c {
			all = append(all, textOfContent(one))
		}
		return strings.Join(all, "\n")
	case map[string]any: // as it was decoded
		text, _ := c["text"].(string)
		return text
	}
	return ""
}

// canSample reports whether the client of this call offers sampling.
func canSample(ctx context.Context) bool {
	if server.IsModernRequest(ctx) {
		info := server.RequestProtocolInfoFromContext(ctx)
		return info != nil && info.ClientCapabilities != nil && info.ClientCapabilities.Sampling != nil
	}
	session, ok := server.ClientSessionFromContext(ctx).(server.SessionWithClientInfo)
	return ok && session.GetClientCapabilities().Sampling != nil
}
