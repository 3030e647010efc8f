package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"junction/upstream/definition"
	"junction/upstream/jsonrpc"
	"junction/upstream/pace"
	"junction/upstream/raw"
	"junction/upstream/transport"
)

// This file calls tools of legacy servers that answer only by a task (2025-11-25,
// basic/utilities/tasks; experimental, and removed in 2026-07-28). Clients do not see the task: they
// get the result, as for any other call.

const (
	methodTasksGet    = "tasks/get"
	methodTasksResult = "tasks/result"
	methodTasksCancel = "tasks/cancel"

	leastPoll = 100 * time.Millisecond
	mostPoll  = 5 * time.Second
)

// callAsTask makes the call as a task, polls the task until it has ended, and requests the result.
// Each answer to a poll counts as a sign of life.
func (l *legacyConn) callAsTask(ctx context.Context, c *Call, clock *Clock) (Result, error) {
	id := l.nextID()
	params, f, err := l.prepare(id, c, clock, nil)
	if err != nil {
		return Result{}, err
	}
	if params, err = raw.Set(params, []byte("{}"), "task"); err != nil {
		return Result{}, err
	}
	if f == nil {
		f = &flight{id: id, window: c.window(), item: Item{c.Method, c.Name}, profile: c.Profile, clock: clock}
	}
	if f.ctx = ctx; clock != nil {
		clock.setPinger(l)
	}
	l.track(f)
	defer l.untrack(f)
	created, err := l.within(ctx, f, jsonrpc.Message{ID: id, Method: c.Method, Params: params}, c.Signed,
		c.carried.header(nil)...)
	if err != nil {
		if unfinished(err) {
			l.abandoned(f)
		}
		return Result{}, err
	}
	task, err := created.Object("task")
	if err != nil {
		return Result{created, TypeComplete}, nil // the server has answered without a task
	}
	name, err := task.Get("taskId")
	text, bad := raw.String(name)
	if err != nil || bad != nil || text == "" {
		return Result{}, fmt.Errorf("%w: a task without taskId", transport.ErrInvalid)
	}
	l.mu.Lock()
	f.task = text
	l.mu.Unlock()
	about := aboutTask(name)
	result, err := l.await(ctx, f, task, about)
	if err != nil {
		_, answered := err.(*jsonrpc.Error)
		if !answered || ctx.Err() != nil {
			l.abandoned(f)
		}
		if ctx.Err() != nil {
			l.cancelTask(about)
		}
		switch {
		case answered || ctx.Err() != nil:
		case errors.Is(err, transport.ErrNotSent):
			// Text hides ErrNotSent: the server has received the call, so it must not be sent again
			err = fmt.Errorf("the connection broke while the task was in progress: %w", transport.Text(err))
		default:
			err = &BegunError{err}
		}
		return Result{}, err
	}
	// the task concerns only Junction and the server
	if own, err := raw.Set(result.Text(), nil, "_meta", keyRelatedTask); err == nil {
		result, _ = raw.Parse(own)
	}
	return Result{result, TypeComplete}, nil
}

// BegunError is the error of a later request for a call that the server has begun. The call must not be
// sent again, whatever the error says about that request.
type BegunError struct{ err error }

func (e *BegunError) Error() string { return e.err.Error() }
func (e *BegunError) Unwrap() error { return e.err }

// aboutTask returns the params of a request about a task; id is JSON.
func aboutTask(id []byte) []byte { return append(append([]byte(`{"taskId":`), id...), '}') }

// cancelTask tells the server that the result of a task is not needed. about comes from aboutTask.
func (b *base) cancelTask(about []byte) {
	b.post(&jsonrpc.Message{ID: b.nextID(), Method: methodTasksCancel, Params: about})
}

// cancelBegun cancels the task that the server has begun for a call, if it has. m is the response, which
// came after the end of the call. Before it, the call cannot be cancelled: tasks have no other
// cancellation (2025-11-25, basic/utilities/cancellation), and it needs the ID of the task.
func (b *base) cancelBegun(m *jsonrpc.Message) bool {
	task, err := m.Body.Object("task")
	if err != nil || b.era != EraLegacy {
		return false
	}
	id, err := task.Get("taskId")
	if err == nil {
		b.cancelTask(aboutTask(id))
	}
	return err == nil
}

// await polls the task until it has ended or needs input. Then it requests the result. The server
// may send requests on the stream of that response.
func (l *legacyConn) await(ctx context.Context, f *flight, task raw.Object, about []byte) (raw.Object, error) {
	for {
		switch status, _ := task.String("status"); status {
		case "working", "submitted":
		default: // input_required, completed, failed, cancelled
			return l.within(ctx, f, jsonrpc.Message{ID: l.nextID(), Method: methodTasksResult, Params: about}, nil)
		}
		if f.clock != nil {
			f.clock.Touch()
		}
		every := leastPoll
		if v, err := task.Get("pollInterval"); err == nil {
			if ms, ok := definition.WholeNumber(v); ok {
				every = min(max(time.Duration(min(ms, 60_000))*time.Millisecond, leastPoll), mostPoll)
			}
		}
		if !pace.Sleep(ctx, every, nil) {
			return raw.Object{}, context.Cause(ctx)
		}
		var err error
		task, err = l.within(ctx, f, jsonrpc.Message{ID: l.nextID(), Method: methodTasksGet, Params: about}, nil)
		if err != nil {
			return task, err
		}
	}
}

// within sends a request that is part of the call f. Messages on the stream of the response belong to
// that call. signed is Call.Signed, for the call itself.
func (l *legacyConn) within(
	ctx context.Context, f *flight, m jsonrpc.Message, signed []HeaderField, header ...HeaderField,
) (raw.Object, error) {
	req := &transport.Request{Message: m, Header: header, Forwarded: signed}
	req.Memory, _ = f.peer.(Memory)
	if f.clock != nil {
		req.Observer = f.clock
	}
	answer, err := l.transport.Call(ctx, req, func(m *jsonrpc.Message) { l.deliver(f, m) })
	if err != nil {
		return raw.Object{}, err
	}
	return resultOf(answer)
}
