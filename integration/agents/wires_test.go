//go:build linux

package agents

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// This file has the model APIs that the agents speak, as far as they need them here.

func answerJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(value) // the agent may have gone
}

func notFound(w http.ResponseWriter, r *http.Request) {
	answerJSON(w, http.StatusNotFound, object{"error": object{"type": "not_found_error", "message": r.URL.Path}})
}

// anthropic is the Messages API.
func anthropic() wire {
	return wire{path: "/v1/messages", read: readAnthropic, write: writeAnthropic,
		other: func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/count_tokens") {
				answerJSON(w, http.StatusOK, object{"input_tokens": 100})
				return
			}
			notFound(w, r)
		}}
}

func readAnthropic(body []byte) (tools, results []string, err error) {
	var r struct {
		Tools    []struct{ Name string }
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, nil, err
	}
	for _, tool := range r.Tools {
		tools = append(tools, tool.Name)
	}
	for _, message := range r.Messages {
		if message.Role == "assistant" {
			results = nil
		}
		var blocks []struct {
			Type    string
			Content json.RawMessage
		}
		if json.Unmarshal(message.Content, &blocks) != nil {
			continue // a string
		}
		for _, b := range blocks {
			if b.Type == "tool_result" {
				results = append(results, contents(b.Content))
			}
		}
	}
	return tools, results, nil
}

func writeAnthropic(w io.Writer, a answer) {
	block, delta, reason := object{"type": "text", "text": ""}, object{"type": "text_delta", "text": a.text}, "end_turn"
	if a.tool != "" {
		block = object{"type": "tool_use", "id": "toolu_" + a.id, "name": a.tool, "input": object{}}
		delta, reason = object{"type": "input_json_delta", "partial_json": a.arguments}, "tool_use"
	}
	usage := object{"input_tokens": 10, "output_tokens": 10}
	event(w, "message_start", object{"type": "message_start", "message": object{
		"id": "msg_" + a.id, "type": "message", "role": "assistant", "model": "stand-in",
		"content": []any{}, "stop_reason": nil, "usage": usage}})
	event(w, "content_block_start", object{"type": "content_block_start", "index": 0, "content_block": block})
	event(w, "content_block_delta", object{"type": "content_block_delta", "index": 0, "delta": delta})
	event(w, "content_block_stop", object{"type": "content_block_stop", "index": 0})
	event(w, "message_delta", object{"type": "message_delta", "delta": object{"stop_reason": reason}, "usage": usage})
	event(w, "message_stop", object{"type": "message_stop"})
}

// responses is the Responses API of OpenAI.
func responses() wire {
	return wire{path: "/v1/responses", read: readResponses, write: writeResponses, other: notFound}
}

func readResponses(body []byte) (tools, results []string, err error) {
	type tool struct {
		Type, Name string
		Tools      []struct{ Name string }
	}
	var r struct {
		Tools []tool
		Input []struct {
			Type, Role string
			Output     json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, nil, err
	}
	for _, t := range r.Tools {
		if t.Type != "namespace" {
			tools = append(tools, t.Name)
		}
		for _, inner := range t.Tools {
			tools = append(tools, t.Name+"/"+inner.Name)
		}
	}
	for _, item := range r.Input {
		switch item.Type {
		case "function_call":
			results = nil
		case "function_call_output":
			results = append(results, contents(item.Output))
		}
	}
	return tools, results, nil
}

func writeResponses(w io.Writer, a answer) {
	item := object{"type": "message", "id": "msg_" + a.id, "role": "assistant", "status": "completed",
		"content": []any{object{"type": "output_text", "text": a.text, "annotations": []any{}}}}
	if a.tool != "" {
		item = object{"type": "function_call", "id": "fc_" + a.id, "call_id": a.id, "name": a.tool,
			"arguments": a.arguments, "status": "completed"}
		if namespace, name, ok := strings.Cut(a.tool, "/"); ok {
			item["namespace"], item["name"] = namespace, name
		}
	}
	response := object{"id": "resp_" + a.id, "object": "response", "status": "in_progress", "output": []any{}}
	event(w, "response.created", object{"type": "response.created", "response": response})
	event(w, "response.output_item.added", object{"type": "response.output_item.added", "output_index": 0, "item": item})
	event(w, "response.output_item.done", object{"type": "response.output_item.done", "output_index": 0, "item": item})
	event(w, "response.completed", object{"type": "response.completed", "response": object{
		"id": "resp_" + a.id, "object": "response", "status": "completed", "output": []any{item},
		"usage": object{"input_tokens": 10, "output_tokens": 10, "total_tokens": 20,
			"input_tokens_details": object{"cached_tokens": 0}, "output_tokens_details": object{"reasoning_tokens": 0}}}})
}

// completions is the Chat Completions API, which many providers have.
func completions() wire {
	return wire{path: "/chat/completions", read: readCompletions, write: writeCompletions,
		other: func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/models") {
				answerJSON(w, http.StatusOK, object{"object": "list", "data": []any{object{"id": "stand-in", "object": "model"}}})
				return
			}
			notFound(w, r)
		}}
}

func readCompletions(body []byte) (tools, results []string, err error) {
	var r struct {
		Tools []struct {
			Function struct{ Name string }
		}
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, nil, err
	}
	for _, t := range r.Tools {
		tools = append(tools, t.Function.Name)
	}
	for _, m := range r.Messages {
		switch m.Role {
		case "assistant":
			results = nil
		case "tool":
			results = append(results, contents(m.Content))
		}
	}
	return tools, results, nil
}

func writeCompletions(w io.Writer, a answer) {
	chunk := func(delta object, reason any) {
		event(w, "", object{"id": "chat_" + a.id, "object": "chat.completion.chunk", "created": 1, "model": "stand-in",
			"choices": []any{object{"index": 0, "delta": delta, "finish_reason": reason}}})
	}
	reason := "stop"
	if a.tool != "" {
		reason = "tool_calls"
		chunk(object{"role": "assistant", "content": nil, "tool_calls": []any{object{
			"index": 0, "id": a.id, "type": "function", "function": object{"name": a.tool, "arguments": a.arguments}}}}, nil)
	} else {
		chunk(object{"role": "assistant", "content": a.text}, nil)
	}
	chunk(object{}, reason)
	event(w, "", object{"id": "chat_" + a.id, "object": "chat.completion.chunk", "created": 1, "model": "stand-in",
		"choices": []any{},
		"usage":   object{"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}})
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// gemini is the Gemini API.
func gemini() wire {
	return wire{path: ":streamGenerateContent", read: readGemini, write: writeGemini,
		other: func(w http.ResponseWriter, r *http.Request) {
			switch {
			case strings.HasSuffix(r.URL.Path, ":countTokens"):
				answerJSON(w, http.StatusOK, object{"totalTokens": 100})
			case strings.HasSuffix(r.URL.Path, ":generateContent"):
				answerJSON(w, http.StatusOK, geminiAnswer(object{"text": "{}"}))
			default:
				notFound(w, r)
			}
		}}
}

func readGemini(body []byte) (tools, results []string, err error) {
	var r struct {
		Tools []struct {
			FunctionDeclarations []struct{ Name string }
		}
		Contents []struct {
			Role  string
			Parts []struct {
				FunctionResponse *struct{ Response json.RawMessage }
			}
		}
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, nil, err
	}
	for _, t := range r.Tools {
		for _, f := range t.FunctionDeclarations {
			tools = append(tools, f.Name)
		}
	}
	for _, c := range r.Contents {
		if c.Role == "model" {
			results = nil
		}
		for _, p := range c.Parts {
			if p.FunctionResponse != nil {
				results = append(results, string(p.FunctionResponse.Response))
			}
		}
	}
	return tools, results, nil
}

func writeGemini(w io.Writer, a answer) {
	part := object{"text": a.text}
	if a.tool != "" {
		part = object{"functionCall": object{"id": a.id, "name": a.tool, "args": json.RawMessage(a.arguments)}}
	}
	event(w, "", geminiAnswer(part))
}

func geminiAnswer(part object) object {
	return object{
		"candidates": []any{object{"index": 0, "finishReason": "STOP",
			"content": object{"role": "model", "parts": []any{part}}}},
		"usageMetadata": object{"promptTokenCount": 10, "candidatesTokenCount": 10, "totalTokenCount": 20},
	}
}
