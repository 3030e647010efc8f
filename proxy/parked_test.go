package proxy

import (
	"strings"
	"testing"
	"time"

	"junction/auth"
	"junction/proxy/budget"
	"junction/proxy/proxytest"
	"junction/proxy/scope"
	"junction/upstream/client"
	"junction/upstream/raw"
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

// TestAnswerOfAnAbsentClientTakesTheShare: the answer of a parked call counts for its user until the client
// has returned, or is given up. If there is no room, the client reads the reason in its place.
func TestAnswerOfAnAbsentClientTakesTheShare(t *testing.T) {
	const size = 1 << 20
	answer, err := raw.Parse([]byte(`{"content":[],"x":"` + strings.Repeat("x", size) + `"}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		room        int64
		leftAlready bool
	}{"room": {1 << 30, false}, "no room": {size, false}, "given up before": {1 << 30, true}} {
		t.Run(name, func(t *testing.T) {
			b := proxytest.NewBudget(t, [budget.Quotas]int64{budget.Bytes: test.room})
			grant := b.Grant(budget.Account{Principal: "key:ann"}, "")
			l := &parkedCalls{max: 1, patience: time.Minute, calls: map[string]*parked{}, perUser: map[string]int{}}
			p := &parked{calls: l, id: "p", origin: &Exchange{Caller: scope.Caller{Principal: auth.Local}}, held: &grant,
				cancel: func(error) {}, changed: make(chan struct{}, 1)}
			if !l.admit(p) {
				t.Fatal("the call is not admitted")
			}
			if test.leftAlready {
				p.giveUp()
			}
			p.finish(client.Result{Object: answer}, nil)
			used := b.Used()[budget.Bytes]
			if (used >= size) != (name == "room") || (p.err != nil) != (name == "no room") {
				t.Errorf("%d bytes are used for the answer, and its error is %v", used, p.err)
			}
			p.giveUp()
			p.giveUp()
			if used := b.Used()[budget.Bytes]; used != 0 {
				t.Errorf("%d bytes are used afterwards", used)
			}
		})
	}
}
