package stateful

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/pace"
	"junction/upstream/raw"
)

// Answers sends the answer to a question, or its progress, to the owner: a request of its own. An error
// means that the owner may not have it. If the owner has refused it, there is no error: the owner has
// ended the question itself.
type Answers func(ctx context.Context, number string, text []byte) error

const (
	answerPatience = 30 * time.Second // for an answer to reach the owner
	answerPause    = time.Second      // before an answer is sent again
)

// ErrLost means that the answer of the owner ended before the result.
var ErrLost = errors.New("the replica that has the state of the server has ended, or has broken the connection, " +
	"before it answered; the call may have been executed")

// Read reads the answer of the owner to a call of an upstream, passes what the server sends meanwhile to the
// peer of the call, and sets c.Rooted. It closes the body. The error is the call's error, or ErrLost. abort must end
// ctx and the reading of the body. Read calls it at the end, and if an answer cannot reach the owner:
// there the call would wait for the answer without a time limit. dropped is called for each notification of
// an extension that the peer has not taken.
func Read(ctx context.Context, abort context.CancelFunc, body io.ReadCloser, name string, c *upstream.Call,
	send Answers, dropped func()) (client.Result, error) {
	defer body.Close()
	c.Rooted = nil
	m := &asked{call: c, peer: c.Peer, send: send, dropped: dropped, abort: abort,
		cancel: map[string]context.CancelFunc{}}
	defer m.running.Wait()
	defer abort()
	return m.read(ctx, reader(body), name)
}

// asked has the questions of a call.
type asked struct {
	call    *upstream.Call
	peer    client.Peer
	send    Answers
	dropped func()
	abort   context.CancelFunc
	running sync.WaitGroup
	mu      sync.Mutex
	cancel  map[string]context.CancelFunc
}

func (m *asked) read(ctx context.Context, r *bufio.Reader, name string) (client.Result, error) {
	memory, _ := m.peer.(client.Memory)
	for {
		kind, text, err := readFrame(r, memory)
		if err != nil {
			return client.Result{}, err
		}
		switch kind {
		case frameNotify:
			method, params, _ := bytes.Cut(text, []byte{'\n'})
			m.peer.Notify(string(method), params)
		case frameExtend:
			m.extend(text)
		case frameQuestion:
			m.ask(ctx, text)
		case frameCancel:
			m.mu.Lock()
			if cancel := m.cancel[string(text)]; cancel != nil {
				cancel()
			}
			m.mu.Unlock()
		case frameRooted:
			if json.Unmarshal(text, &m.call.Rooted) != nil {
				return client.Result{}, errMessage
			}
		case frameResult:
			kind, result, _ := bytes.Cut(text, []byte{'\n'})
			o, err := raw.ParseDepth(result, depth)
			return client.Result{Object: o, Type: string(kind)}, err
		case frameError:
			return client.Result{}, errorOf(name, text)
		default:
			return client.Result{}, errMessage
		}
	}
}

// extend passes a notification of an extension to the client, which may not read the text of the server.
func (m *asked) extend(text []byte) {
	var method string
	name, params, given := bytes.Cut(text, []byte{'\n'})
	if !given {
		params = nil
	}
	e, ok := m.peer.(client.Extended)
	if err := json.Unmarshal(name, &method); err != nil || !ok || !e.Extension(method, params) {
		m.dropped()
	}
}

// ask passes a question to the client, and its answer to the owner.
func (m *asked) ask(ctx context.Context, text []byte) {
	number, rest, _ := bytes.Cut(text, []byte{'\n'})
	method, params, _ := bytes.Cut(rest, []byte{'\n'})
	id := string(number)
	q := &client.ServerRequest{Method: string(method), Progress: func(params []byte) {
		_ = m.send(ctx, id, appendFrame(nil, frameNotify, params)) // the next progress replaces it
	}}
	if len(params) > 0 {
		q.Params = params
	}
	asking, cancel := context.WithCancel(ctx)
	m.mu.Lock()
	m.cancel[id] = cancel
	full := len(m.cancel) > maxQuestions
	m.mu.Unlock()
	if full { // the owner has the same limit
		cancel()
	}
	m.running.Go(func() {
		defer func() {
			cancel()
			m.mu.Lock()
			delete(m.cancel, id)
			m.mu.Unlock()
		}()
		answer, err := m.peer.Ask(asking, q)
		if asking.Err() != nil {
			return
		}
		if err == nil {
			m.deliver(asking, id, appendFrame(nil, frameResult, answer))
			return
		}
		if _, ok := err.(*jsonrpc.Error); !ok {
			err = errUnanswered
		}
		m.deliver(asking, id, failure(err, error.Error))
	})
}

// deliver sends an answer until the owner has it, which ignores all but the first one. It ends the call
// if that takes too long. ctx ends with the question.
func (m *asked) deliver(ctx context.Context, number string, text []byte) {
	for began := time.Now(); m.send(ctx, number, text) != nil; {
		if time.Since(began) >= answerPatience {
			m.abort()
		}
		if !pace.Sleep(ctx, answerPause, nil) {
			return
		}
	}
}
