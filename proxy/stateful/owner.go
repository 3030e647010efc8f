package stateful

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// Owner is the side of a call at the member that has the state. It is the client.Peer of the call: what
// the server sends goes to the other member as frames. Begin it with NewOwner.
type Owner struct {
	memory     client.Memory
	extensions []string

	mu        sync.Mutex
	out       io.Writer
	flush     func()
	number    int
	questions map[string]*question
	over      bool // the call has ended
}

// question is a server request without an answer.
type question struct {
	answer   chan answer
	progress func([]byte)
}

// answer is the client's answer to a question.
type answer struct {
	text []byte
	err  error
}

// maxQuestions bounds the questions of one call that wait for an answer.
const maxQuestions = 64

// NewOwner returns the peer of a call whose answer is written to out. memory approves large answers.
// extensions are those of the client.
func NewOwner(out io.Writer, flush func(), memory client.Memory, extensions []string) *Owner {
	return &Owner{memory: memory, extensions: extensions, out: out, flush: flush, questions: map[string]*question{}}
}

// Reserve implements client.Memory.
func (o *Owner) Reserve(n int64) error { return o.memory.Reserve(n) }

// write sends a frame; o.mu is held. An error shows at the end of the context of the request.
func (o *Owner) write(frame []byte) {
	if _, err := o.out.Write(frame); err == nil {
		o.flush()
	}
}

// Notify implements client.Peer.
func (o *Owner) Notify(method string, params []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.over {
		o.write(appendFrame(nil, frameNotify, []byte(method+"\n"), params))
	}
}

// Extensions implements client.Extended.
func (o *Owner) Extensions() []string { return o.extensions }

// Extension implements client.Extended. A notification that is too large for a frame without a share of the
// caller's memory is dropped: the loss of a notification must not end the call.
func (o *Owner) Extension(method string, params []byte) bool {
	if !slices.ContainsFunc(o.extensions, func(e string) bool { return client.IsOfExtension(method, e) }) {
		return false
	}
	name := raw.Quote(method) // the server chooses it, and it may have a line break
	if params != nil {
		name = append(name, '\n')
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over || len(name)+len(params) > small {
		return false
	}
	o.write(appendFrame(nil, frameExtend, name, params))
	return true
}

// errUnanswered means that the other member has no answer of the client.
var errUnanswered = errors.New("the client did not answer")

// Ask implements client.Peer.
func (o *Owner) Ask(ctx context.Context, r *client.ServerRequest) ([]byte, error) {
	q := &question{answer: make(chan answer, 1), progress: r.Progress}
	o.mu.Lock()
	if o.over || len(o.questions) >= maxQuestions {
		o.mu.Unlock()
		return nil, &jsonrpc.Error{Code: mcp.INTERNAL_ERROR, Message: "the client cannot be asked now"}
	}
	o.number++
	number := strconv.Itoa(o.number)
	o.questions[number] = q
	o.write(appendFrame(nil, frameQuestion, []byte(number+"\n"+r.Method+"\n"), r.Params))
	o.mu.Unlock()
	select {
	case a := <-q.answer:
		return a.text, a.err
	case <-ctx.Done():
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.questions[number] == q {
		delete(o.questions, number)
		if !o.over {
			o.write(appendFrame(nil, frameCancel, []byte(number)))
		}
	}
	return nil, errUnanswered
}

// Answer takes the answer to a question, as Answers sends it. It copies the text. It ignores the
// answer to a question that has ended, or has one.
func (o *Owner) Answer(number string, text []byte) error {
	kind, content, err := readFrame(bytes.NewReader(text), everything{})
	if err != nil {
		return errMessage
	}
	o.mu.Lock()
	q := o.questions[number]
	if kind != frameNotify {
		delete(o.questions, number)
	}
	o.mu.Unlock()
	if q == nil {
		return nil
	}
	switch kind {
	case frameNotify:
		if q.progress != nil {
			q.progress(content)
		}
	case frameResult:
		q.answer <- answer{text: content}
	case frameError:
		err := errorOf("", content)
		if _, ok := err.(*jsonrpc.Error); !ok {
			err = errUnanswered
		}
		q.answer <- answer{err: err}
	default:
		return errMessage
	}
	return nil
}

// Refuse ends a question whose answer cannot be taken, as an error of the client does. Otherwise, the call
// would wait for the answer until its time limit. first is the kind of the answer; the loss of progress
// ends nothing.
func (o *Owner) Refuse(number string, first byte, reason string) {
	if first == frameNotify {
		return
	}
	o.mu.Lock()
	q := o.questions[number]
	delete(o.questions, number)
	o.mu.Unlock()
	if q != nil {
		q.answer <- answer{err: &jsonrpc.Error{Code: mcp.INTERNAL_ERROR,
			Message: "the answer of the client is lost: " + reason}}
	}
}

// everything approves all memory: the text is there already.
type everything struct{}

func (everything) Reserve(int64) error { return nil }

// Rooted sends upstream.Call.Rooted, before Finish.
func (o *Owner) Rooted(keys []string) {
	if len(keys) == 0 {
		return
	}
	text, _ := json.Marshal(keys) // it cannot fail
	o.mu.Lock()
	defer o.mu.Unlock()
	o.write(appendFrame(nil, frameRooted, text))
}

// Finish sends the outcome of the call. text makes the text of an error that is none of an upstream.
func (o *Owner) Finish(r client.Result, err error, text func(error) string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	if err != nil {
		o.write(failure(err, text))
		return
	}
	o.write(appendFrame(nil, frameResult, []byte(r.Type+"\n"), r.Text()))
}
