package proxy

import (
	"context"
	"testing"

	"junction/proxy/budget"
	"junction/upstream"
)

// TestDecideOutcome: what a person has decided counts more than how the call went on, and a limit
// more than the verdict that goes with it.
func TestDecideOutcome(t *testing.T) {
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
