package proxy

import (
	"testing"
	"time"

	"junction/auth"
	"junction/proxy/scope"
)

// TestLateQuestionKeepsNoPlace has a question come when its call is over: the call does not go back
// to where others wait for a place.
func TestLateQuestionKeepsNoPlace(t *testing.T) {
	l := &parkedCalls{max: 1, patience: time.Minute, calls: map[string]*parked{}, perUser: map[string]int{}}
	origin := &Exchange{Caller: scope.Caller{Principal: auth.Local}}
	over, next := &parked{calls: l, id: "over", origin: origin}, &parked{calls: l, id: "next", origin: origin}
	l.remove(over)
	if l.admit(over) {
		t.Error("a call that is over was admitted")
	}
	if !l.admit(next) {
		t.Error("the next call of the user was not admitted")
	}
	l.remove(next)
	if len(l.calls)+len(l.perUser) > 0 {
		t.Errorf("%d calls of %d users are left", len(l.calls), len(l.perUser))
	}
}
