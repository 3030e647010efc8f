package oddities

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
)

// This file lets a server ask its client during a request. The answer to the request waits for the
// response of the client.

// question returns a new request to the client, whose response has a channel. s.mu is held.
func (s *server) question(asks string) string {
	method, params, _ := strings.Cut(asks, " ")
	id := fmt.Sprintf("asked-%d", len(s.replies)+1)
	s.replies[id] = make(chan string, 1)
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":%q,"params":%s}`, id, method, cmp.Or(params, "{}"))
}

// replied is a text for what a client answered: the action, the model, or that it has roots.
func replied(result json.RawMessage) string {
	var r struct {
		Action, Model string
		Roots         []any
	}
	if json.Unmarshal(result, &r) != nil || result == nil {
		return "an error"
	}
	if r.Roots != nil {
		return "roots"
	}
	return cmp.Or(r.Action, r.Model, "nothing")
}

// take delivers the response of a client to a request of the server. It reports whether an ask is one.
func (s *server) take(a *ask) bool {
	if a.reply == "" {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if waits := s.replies[unquoted(a.id)]; waits != nil {
		select {
		case waits <- a.reply:
		default: // it has a response
		}
	}
	return true
}

// replyTo waits for the response to a request of the server, and returns the answer that has it. It
// returns "" if the client is gone.
func (s *server) replyTo(question, answer string, gone <-chan struct{}) string {
	var m message
	_ = json.Unmarshal([]byte(question), &m) // question has written it
	s.mu.Lock()
	waits := s.replies[unquoted(m.ID)]
	s.mu.Unlock()
	select {
	case reply := <-waits:
		return strings.ReplaceAll(answer, "$reply", reply)
	case <-gone:
		return ""
	}
}
