package audit

import (
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
