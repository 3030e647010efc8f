package audit

import (
	"fmt"
	"strings"

	"junction/proxy"
)

// outcomes returns the outcomes that --outcome takes.
func outcomes() string {
	var names []string
	for _, o := range proxy.Outcomes() {
		names = append(names, string(o))
	}
	names = append(names, asked)
	return strings.Join(names, ", ")
}

// asked is the outcome that the command shows for a call whose client has got a request for approval, and
// has not returned with the answer yet. In the file the outcome is unanswered.
const asked = "asked"

// outcome returns the outcome for display.
func (l *line) outcome() string {
	if proxy.Outcome(l.Outcome) == proxy.Unanswered && l.Approval == asked {
		return asked
	}
	return l.Outcome
}

// approvals are the words for the approvals of calls that a user has not approved.
var approvals = map[string]string{
	"declined":   ": the user declined",
	"asked":      ": asked, no answer yet",
	"unanswered": ": asked, no answer",
	"impossible": ": the user cannot be asked",
}

// given are the words for the approvals of calls that a user has approved.
var given = map[string]string{"given": ", approved", "remembered": ", approved before"}

// verdictDeny is the verdict of a line whose call no policy allows.
const verdictDeny = "deny"

// reason returns why policy has prevented the call, or a rule that asks the user has; "" for other calls.
// junction why says the same, with the remedy.
func (l *line) reason() string {
	rule := fmt.Sprintf("policy %s, %s%s", l.Policy, l.Rule, approvals[l.Approval])
	switch outcome := proxy.Outcome(l.Outcome); {
	case l.Policy != "" && l.Approval != "" && (outcome == proxy.Declined || outcome == proxy.Unanswered):
		return rule
	case outcome == proxy.Limited && l.Policy != "":
		return rule
	case outcome == proxy.Limited:
		return l.Rule
	case outcome != proxy.Denied:
		return ""
	case l.Missing != "":
		return "the caller lacks " + l.Missing
	case l.Policy != "":
		return rule
	case l.Verdict == verdictDeny:
		return "no rule allows it"
	}
	return ""
}
