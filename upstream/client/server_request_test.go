package client

import (
	"testing"
	"testing/synctest"
	"time"

	"junction/upstream/jsonrpc"
)

// TestQuestionOfACallThatWasGivenUp holds that the next caller is not asked what the one before was
// meant to be: where questions do not say whose they are, nobody knows when a server is done with a
// call that was cancelled.
func TestQuestionOfACallThatWasGivenUp(t *testing.T) {
	b := &base{flights: map[jsonrpc.ID]*flight{}}
	next := &flight{id: "2"}
	b.track(next)
	question := &jsonrpc.Message{ID: "1", Method: "elicitation/create"}
	if f, reason := b.callOf(nil, question); f != next {
		t.Fatalf("the question of the only call is nobody's: %s", reason)
	}
	b.noteAbandoned()
	if f, _ := b.callOf(nil, question); f != nil {
		t.Error("the question may be that of a call that was given up, and was taken for the next one's")
	}
	if f, _ := b.callOf(next, question); f != next {
		t.Error("a question on the stream of its call is not its own any more")
	}
	if b.ExclusiveUse() != nil {
		t.Error("the next call would get another connection, where a server has another state")
	}
}

// TestSafety1EarlierCallsOfOthers: a message that names no call belongs to the only call in
// progress, unless a call of another principal has ended within the grace.
func TestSafety1EarlierCallsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &base{flights: map[jsonrpc.ID]*flight{}}
		question := &jsonrpc.Message{ID: "1", Method: "elicitation/create"}
		call := func(id jsonrpc.ID, principal string) *flight {
			f := &flight{id: id, principal: principal}
			b.track(f)
			return f
		}
		ofTheOnlyCall := func(principal string) bool {
			f := call("x", principal)
			got, _ := b.callOf(nil, question)
			delete(b.flights, f.id)
			return got == f
		}
		b.untrack(call("1", "one"))
		if !ofTheOnlyCall("one") {
			t.Error("a question is not passed to the user of the earlier call")
		}
		if ofTheOnlyCall("two") {
			t.Error("a question that the call of one may have caused was passed to two")
		}
		b.untrack(call("2", "two"))
		b.untrack(call("3", "two")) // the call of one is still remembered
		if ofTheOnlyCall("two") || ofTheOnlyCall("one") || ofTheOnlyCall("three") {
			t.Error("a question was passed to a user although a call of another one has just ended")
		}
		time.Sleep(abandonedGrace)
		for _, principal := range []string{"one", "two", "three"} {
			if !ofTheOnlyCall(principal) {
				t.Errorf("after the grace a question is not passed to %s", principal)
			}
		}
	})
}
