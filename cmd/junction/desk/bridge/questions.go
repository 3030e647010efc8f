package bridge

import (
	"fmt"
	"sync"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// questions are the server requests that the client has not answered yet. The bridge gives each an
// id of its own, because each session numbers its requests from the beginning: a late answer to a
// request of an earlier session must not become the answer to another request.
type questions struct {
	mu    sync.Mutex
	last  int
	asked map[jsonrpc.ID]question
}

type question struct {
	session *session
	id      jsonrpc.ID       // of the session
	call    *jsonrpc.Message // the client's request on whose response it came; nil for the listening stream
}

// ask returns the id under which the client gets a server request.
func (q *questions) ask(from question) jsonrpc.ID {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.last++
	id := jsonrpc.ID(fmt.Sprintf("%q", fmt.Sprintf("junction-%d", q.last)))
	if q.asked == nil {
		q.asked = map[jsonrpc.ID]question{}
	}
	q.asked[id] = from
	return id
}

// answered returns the session and the id of a server request, and removes it.
func (q *questions) answered(id jsonrpc.ID) (*session, jsonrpc.ID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	from := q.asked[id]
	delete(q.asked, id)
	return from.session, from.id
}

// withdraw removes the server requests for which gone is true, and returns their ids.
func (q *questions) withdraw(ended func(question) bool) []jsonrpc.ID {
	q.mu.Lock()
	defer q.mu.Unlock()
	var ids []jsonrpc.ID
	for id, from := range q.asked {
		if ended(from) {
			ids = append(ids, id)
			delete(q.asked, id)
		}
	}
	return ids
}

// deliver passes a message of the endpoint to the client. call is the request to which it belongs,
// or nil.
func (b *bridge) deliver(s *session, call *jsonrpc.Message, m *jsonrpc.Message) {
	switch {
	case m.IsRequest():
		m.ID = b.questions.ask(question{s, m.ID, call})
	case m.Method == methodCancelled:
		id, err := m.Body.Get("requestId")
		if err != nil {
			return
		}
		b.withdraw(func(from question) bool { return from.session == s && from.id == jsonrpc.ID(id) })
		return
	}
	b.out.write(m)
}

// withdraw tells the client which server requests need no answer any more.
func (b *bridge) withdraw(ended func(question) bool) {
	for _, id := range b.questions.withdraw(ended) {
		params := append([]byte(`{"requestId":`), id...)
		params = raw.AppendQuote(append(params, `,"reason":`...), "the request was withdrawn")
		b.out.tell(methodCancelled, append(params, '}'))
	}
}
