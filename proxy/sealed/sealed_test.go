package sealed

import (
	"reflect"
	"testing"

	"junction/auth/seal"
)

func mustKey(t *testing.T) *seal.Key {
	t.Helper()
	key, err := seal.NewKey(seal.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestContentIsForOnePurpose opens each kind of content as each kind.
func TestContentIsForOnePurpose(t *testing.T) {
	s := New(mustKey(t), "")
	cursor := Cursor{Print: 1<<63 + 7, Whole: 1<<62 + 5, Offset: 1000, Scope: "e\x00key:a"}
	task := Task{Upstream: "up", ID: "t1", Tool: "up__tool", Endpoint: "e", Principal: "key:a"}
	state := State{Kind: Relayed, Upstream: []byte(`"u"`), Principal: "key:a", Request: []byte{1}, Expires: 1 << 40}
	for i, text := range []string{s.Cursor(cursor), s.Task(task), s.State(state)} {
		c, isCursor := s.OpenCursor(text)
		k, isTask := s.OpenTask(text)
		st, isState := s.OpenState(text, "key:a")
		if isCursor != (i == 0) || isTask != (i == 1) || isState != (i == 2) {
			t.Errorf("content %d is opened as a cursor: %t, a task: %t, a state: %t", i, isCursor, isTask, isState)
		}
		if isCursor && c != cursor || isTask && !reflect.DeepEqual(k, task) || isState && !reflect.DeepEqual(st, state) {
			t.Errorf("content %d is opened as %+v, %+v, %+v", i, c, k, st)
		}
		if _, ok := s.OpenState(text, "key:b"); ok {
			t.Errorf("content %d is a state of another principal", i)
		}
		other := New(mustKey(t), "")
		if _, ok := other.OpenCursor(text); ok {
			t.Errorf("content %d is opened with another key", i)
		}
	}
}

// TestOnlyApprovalsHaveAMaker: a process that is alone forgets at its end which approvals were
// answered, so it accepts only its own.
func TestOnlyApprovalsHaveAMaker(t *testing.T) {
	key := mustKey(t)
	first, next := New(key, "first"), New(key, "next")
	st, ok := next.OpenState(first.State(State{Approval: "a", Expires: 1 << 40}), "")
	if !ok || next.Made(st) || !first.Made(st) {
		t.Errorf("the state %+v is opened: %t; the next process takes it for its own: %t", st, ok, next.Made(st))
	}
	if st, _ := next.OpenState(first.State(State{Kind: Parked, Expires: 1 << 40}), ""); st.Maker != "" {
		t.Errorf("a state without an approval has the maker %q", st.Maker)
	}
}
