package upstream

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"junction/upstream/client"
	"junction/upstream/pace"
	"junction/upstream/stdio"
	"junction/upstream/transport"
)

// TestTransitions computes what a change of state means, without a link.
func TestTransitions(t *testing.T) {
	failure, signIn := errors.New("refused"), error(&SignInError{Upstream: "up"})
	for _, tt := range []struct {
		name   string
		pool   *pool
		before State // of the link, and shown
		now    linkState
		want   transition // state and err are those of now
		text   string     // the error that is shown
	}{
		{"connected", &pool{}, StateStarting, linkState{state: StateReady},
			transition{status: Status{State: StateReady}, restored: true, first: true, reported: true}, ""},
		{"failed", &pool{}, StateReady, linkState{state: StateRetrying, err: failure},
			transition{status: Status{State: StateRetrying}, lost: true, first: true, reported: true}, "refused"},
		{"an attempt does not hide the failure", &pool{}, StateRetrying, linkState{state: StateStarting, err: failure},
			transition{status: Status{State: StateRetrying}, reported: true}, ""},
		{"the same failure again", &pool{}, StateRetrying, linkState{state: StateRetrying, err: failure},
			transition{status: Status{State: StateRetrying}, lost: true, first: true}, "refused"},
		{"a user is signed out", &pool{user: "ann"}, StateReady, linkState{state: StateSignIn, err: signIn},
			transition{status: Status{State: StateSignIn}, signedOut: true, first: true}, signIn.Error()},
		{"the upstream of a user fails", &pool{user: "ann"}, StateReady, linkState{state: StateRetrying, err: failure},
			transition{status: Status{State: StateRetrying}, lost: true, first: true, logged: true}, "refused"},
		{"waits for a folder", &pool{}, StateStarting, linkState{state: StateWaiting, err: &WaitingError{failure}},
			transition{status: Status{State: StateWaiting}, restored: true, first: true, reported: true},
			waitsForFolder + "; the last attempt: refused"},
		{"closed", &pool{closed: true}, StateReady, linkState{state: StateClosed},
			transition{status: Status{State: StateClosed}, first: true}, ""},
	} {
		p := tt.pool
		p.met, p.last, p.status.State = make(chan struct{}), tt.before, tt.before
		got := p.transitionTo(tt.now)
		if got.status.Err != tt.text {
			t.Errorf("%s: shown is the error %q, want %q", tt.name, got.status.Err, tt.text)
		}
		if got.status.State != tt.want.status.State {
			t.Errorf("%s: shown is the state %v, want %v", tt.name, got.status.State, tt.want.status.State)
		}
		tt.want.state, tt.want.err, tt.want.status, got.status = tt.now.state, tt.now.err, Status{}, Status{}
		if !equalTransitions(got, tt.want) {
			t.Errorf("%s: the transition is %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func equalTransitions(a, b transition) bool {
	return a.state == b.state && a.err == b.err && a.signedOut == b.signedOut && a.lost == b.lost && a.restored == b.restored &&
		a.first == b.first && a.logged == b.logged && a.reported == b.reported
}

// TestOutcomeOfALink: the end of a working conn is no failed attempt, and a link that needs a sign-in
// shows no time of the next attempt.
func TestOutcomeOfALink(t *testing.T) {
	for _, tt := range []struct {
		name   string
		lived  time.Duration
		err    error
		state  State
		failed bool
		retry  bool
	}{
		{"no conn", 0, errors.New("refused"), StateRetrying, true, true},
		{"a conn ended", time.Minute, errors.New("broken"), StateRetrying, false, true},
		{"no sign-in", 0, &SignInError{Upstream: "up"}, StateSignIn, true, false},
		{"no sign-in of the operator", 0, &LackError{Upstream: "up", Mode: AuthOAuth}, StateSignIn, true, false},
		{"no folder", 0, &WaitingError{errors.New("exited")}, StateWaiting, true, false},
		{"no credential of a mode without a sign-in", 0, &LackError{Upstream: "up"}, StateBlocked, true, true},
	} {
		var s linkState
		o, rest := (&link{pool: &pool{}}).outcomeOf(tt.lived, tt.err, new(pace.Backoff))
		if !o.apply(&s) || s.state != tt.state || (s.attempts == 1) != tt.failed || s.retry.IsZero() == tt.retry || rest <= 0 {
			t.Errorf("%s: the state is %v after %d failed attempts, with a retry at %v in %v", tt.name, s.state, s.attempts, s.retry, rest)
		}
	}
}

// TestErrorsAreCleanedBeforeTheyAreShortened: Junction shows a failed connection as one line of 1,000
// characters. A caller reads no part of what its policy removes, also where the line ends, and where the
// server wrote several lines.
func TestErrorsAreCleanedBeforeTheyAreShortened(t *testing.T) {
	secret := regexp.MustCompile(`(?s)KEY-[a-z]{8}|BEGIN.*END`)
	clean := func(text string) string { return secret.ReplaceAllString(text, "[x]") }
	p := &pool{name: "up", connConfig: Config{Headers: map[string]string{"Authorization": "Bearer canary-of-the-server"}}}
	for _, row := range []struct{ words, want string }{
		{strings.Repeat("a", 990) + " KEY-abcdefgh", strings.Repeat("a", 990) + " [x]"},
		{strings.Repeat("a ", 480) + strings.Repeat(" ", 7_038) + "KEY-abcdefgh", strings.Repeat("a ", 480) + "[x]"},
		{"BEGIN a\n b END", "[x]"},
		{"KEY-\n KEY-abcd\x01efgh with canary-of-the-server", "KEY- [x] with …"},
	} {
		shown := p.shown(errors.New(row.words))
		for name, err := range map[string]error{"alone": shown, "wrapped": fmt.Errorf("before that: %w", shown), "own": &ownError{shown}} {
			got := (&Error{"up", client.KindUnavailable, err}).Clean(clean)
			if want := strings.Replace((&Error{"up", client.KindUnavailable, err}).Public(), shown.Error(), row.want, 1); got != want {
				t.Errorf("%.20q, %s: the caller reads\n%s, want\n%s", row.words, name, got, want)
			}
		}
	}
}

// TestErrorOfAProcessThatEndedNamesTheLog: a client does not read the output of the process, and is told where it is.
func TestErrorOfAProcessThatEndedNamesTheLog(t *testing.T) {
	const how = "exited with status 3"
	for stderr, want := range map[string]string{
		"":                 "upstream up: " + how,
		"the disk is full": "upstream up: " + how + "; ask the operator of Junction, whose log has its last output",
	} {
		exit := fmt.Errorf("before that: %w", &stdio.ExitError{How: how, Stderr: stderr})
		if got := (&Error{"up", client.KindLost, exit}).Public(); got != want {
			t.Errorf("after the output %q, a client reads %q, want %q", stderr, got, want)
		}
	}
}

// TestSecretsOfJunctionAreNotShownInPart: a policy that removes a part of a secret, or a cut within it, leaves no
// rest of the secret that Junction has sent to the server.
func TestSecretsOfJunctionAreNotShownInPart(t *testing.T) {
	long := "canary-" + strings.Repeat("k", 300)
	p := &pool{name: "up", connConfig: Config{Headers: map[string]string{"X-Api-Key": "canary-123456-rest", "X-Long": long}}}
	six := regexp.MustCompile(`[0-9]{6}`)
	clean := func(text string) string { return six.ReplaceAllString(text, "[number]") }
	for _, words := range []string{"the key canary-123456-rest is unknown", strings.Repeat("a", 100) + " " + long} {
		for _, err := range []error{errors.New(words), &transport.StatusError{Status: 401, Body: []byte(words)}} {
			shown := (&Error{"up", client.KindUnavailable, p.shown(err)})
			for who, text := range map[string]string{"everybody": shown.Public(), "a caller with a policy": shown.Clean(clean)} {
				if strings.Contains(text, "canary") || strings.Contains(text, "rest") {
					t.Errorf("%s reads\n%s", who, text)
				}
			}
		}
	}
}
