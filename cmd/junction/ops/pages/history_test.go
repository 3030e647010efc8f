package pages

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"junction/cmd/junction/ops/diagnose"
	"junction/upstream"
)

// TestHistoryOfAServer: attempts that fail for one reason are one state, the fifty newest states stay, and a server that
// the file no longer has is forgotten.
func TestHistoryOfAServer(t *testing.T) {
	var h History
	note := func(s upstream.State, why string) {
		c := upstream.Change{Name: "a", State: s}
		if why != "" {
			c.Err = errors.New(why)
		}
		h.Note(c)
	}
	note(upstream.StateStarting, "")
	for range 3 {
		note(upstream.StateRetrying, "no\nroute")
		note(upstream.StateStarting, "no\nroute")
	}
	note(upstream.StateRetrying, "other")
	note(upstream.StateReady, "")
	got := ""
	for _, p := range h.Of("a") {
		got += fmt.Sprintf("%s %s %d, ", p.State, p.Reason, p.Times)
	}
	if want := "ready  1, retrying other 1, retrying no route 3, starting  1, "; got != want {
		t.Errorf("the states are %q, want %q", got, want)
	}
	for i := range 100 {
		note(upstream.StateRetrying, strings.Repeat("x", 1000)+fmt.Sprint(i))
		note(upstream.StateReady, "")
	}
	list := h.Of("a")
	if len(list) != mostStates || list[0].State != "ready" || len(list[1].Reason) > mostReason+len("…") {
		t.Errorf("%d states; the newest are %+v", len(list), list[:2])
	}
	h.Note(upstream.Change{Name: "b"})
	if h.Keep(func(name string) bool { return name == "b" }); len(h.Of("a")) > 0 || len(h.Of("b")) != 1 {
		t.Errorf("after a change of the file: %v, %v", h.Of("a"), h.Of("b"))
	}
}

// TestHistoryIsForPeople: with authentication, the open page of a server does not have the reasons of its past.
func TestHistoryIsForPeople(t *testing.T) {
	for open, want := range map[bool]bool{true: true, false: false} {
		s := mustSite(t, diagnose.UpstreamStatus{Name: "a", State: "ready"})
		s.Site.Open = func() bool { return open }
		s.Site.History.Note(upstream.Change{Name: "a", State: upstream.StateRetrying, Err: errors.New("canary-reason")})
		answer := s.get("/servers/a")
		if answer.Code != http.StatusOK || strings.Contains(answer.Body.String(), "canary-reason") != want {
			t.Errorf("without authentication %t: %d\n%s", open, answer.Code, answer.Body)
		}
	}
}
