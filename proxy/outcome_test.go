package proxy

import (
	"context"
	"strings"
	"testing"
	"time"

	"junction/proxy/budget"
	"junction/upstream"
)

// TestDecideOutcome: what a person has decided counts more than how the call went on, and a limit
// more than the verdict that goes with it.
func TestDecideOutcome(t *testing.T) {
	few := overuseRefusal(&budget.Exceeded{Quota: budget.Streams, Own: 1, Others: 997, Total: 1000})
	if few.reason != ReasonBusy || !strings.Contains(few.Error(), "1 for you and 997 for others (limits.streams)") {
		t.Errorf("a user with one stream is blamed for a thousand: %v %s", few.reason, few.Error())
	}
	limited := overuseRefusal(&budget.Exceeded{Quota: budget.Requests, Total: 1})
	for _, tt := range []struct {
		name string
		info CallInfo
		err  error
		want Outcome
	}{
		{"declined", CallInfo{Approval: approvalDeclined, Verdict: "ask"}, nil, Declined},
		{"declined, and no tool call", CallInfo{Approval: approvalDeclined, Verdict: "ask"}, unknownNamed(upstream.PartTools, "x"), Declined},
		{"not answered", CallInfo{Approval: approvalUnanswered, Verdict: "ask"}, nil, Unanswered},
		{"asked", CallInfo{Approval: approvalAsked, Verdict: "ask"}, nil, Unanswered},
		{"cancelled while asked", CallInfo{Approval: approvalUnanswered}, context.Canceled, Cancelled},
		{"denied while asked", CallInfo{Approval: approvalLate, Verdict: "deny"}, unknownNamed(upstream.PartTools, "x"), Denied},
		{"approved", CallInfo{Approval: approvalGiven, Verdict: "ask"}, nil, OK},
		{"approved, and failed", CallInfo{Approval: approvalGiven, Outcome: ToolError}, nil, ToolError},
		{"a rate limit", CallInfo{Verdict: "deny"}, limited, Limited},
		{"an answer that is too large", CallInfo{Outcome: ToolError, Verdict: "allow"}, limited, Limited},
		{"a token without a scope", CallInfo{Verdict: "allow"}, &Refusal{Outcome: Denied}, Denied},
	} {
		info := tt.info
		if decideOutcome(&info, tt.err); info.Outcome != tt.want {
			t.Errorf("%s: the outcome is %s, want %s", tt.name, info.Outcome, tt.want)
		}
	}
}

// TestLimitedNamesItsKey: the error of a limit has the key of that limit, also one that is new.
func TestLimitedNamesItsKey(t *testing.T) {
	for _, test := range []struct {
		over *budget.LimitError
		wait time.Duration
		want string
		key  string
	}{
		{budget.ErrTooFast, 1500 * time.Millisecond,
			"too many requests (limits.rate of your policy); the next is possible in 2 s", "limits.rate"},
		{budget.ErrTooMany, 0,
			"too many of your calls are in progress (limits.concurrent of your policy); wait for one of them",
			"limits.concurrent"},
		{&budget.LimitError{Key: "limits.new", Text: "too much", Remedy: "call less"}, 0,
			"too much (limits.new of your policy); call less", "limits.new"},
	} {
		if r := limited(test.over, test.wait); r.text != test.want || r.limit != test.key || r.Outcome != Limited {
			t.Errorf("%q (%s, %s), want %q (%s)", r.text, r.limit, r.Outcome, test.want, test.key)
		}
	}
}
