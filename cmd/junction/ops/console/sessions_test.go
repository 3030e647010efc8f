package console

import (
	"testing"
	"testing/synctest"
	"time"
)

// mustOpened returns an invitation that a browser has opened, with the secret and the code of the browser.
func mustOpened(t *testing.T, s *Sessions) (name, secret, code string) {
	t.Helper()
	name = s.Invite()
	secret, code, first := s.Open(name)
	if !first || secret == "" || code == "" {
		t.Fatalf("the first browser gets %q, %q, %v", secret, code, first)
	}
	return name, secret, code
}

// mustSession returns a session with its secret.
func mustSession(t *testing.T, s *Sessions) (name, secret string) {
	t.Helper()
	name, secret, code := mustOpened(t, s)
	if !s.Answer(name, code, true) {
		t.Fatal("the answer of the owner does not count")
	}
	return name, secret
}

// TestSecondBrowserGetsNothing: of two browsers that open an invitation, only the first one has a code and a cookie,
// and its cookie is no session before the owner has agreed.
func TestSecondBrowserGetsNothing(t *testing.T) {
	var s Sessions
	name, secret, code := mustOpened(t, &s)
	if again, shown, first := s.Open(name); again != "" || shown != "" || first {
		t.Errorf("the second browser gets %q, %q, %v", again, shown, first)
	}
	if _, stage := s.Of(name, secret, true); stage != Opened {
		t.Errorf("before the answer, the stage is %v", stage)
	}
	for what, given := range map[string]string{"nothing": "", "the code": code, "a part": secret[:5], "more": secret + "x"} {
		if _, stage := s.Of(name, given, true); stage != Gone {
			t.Errorf("with %s as the cookie, the stage is %v", what, stage)
		}
	}
	if s.Answer(name, "AAA-AAA", true) || s.Answer("x", code, true) || !s.Answer(name, code, true) {
		t.Error("an answer counts for another code or invitation, or does not count for its own")
	}
	if _, stage := s.Of(name, secret, true); stage != Agreed {
		t.Errorf("after the answer, the stage is %v", stage)
	}
	if s.Answer(name, code, true) || s.Answer(name, "", true) {
		t.Error("a code counts twice")
	}
	if _, _, first := s.Open(name); first {
		t.Error("a session is opened again")
	}
	if stage, shown := s.Stage(name); stage != Agreed || shown != "" {
		t.Errorf("the stage of the session is %v, %q", stage, shown)
	}
}

// TestNoEndsTheInvitation: the browser that the owner has refused has nothing afterwards.
func TestNoEndsTheInvitation(t *testing.T) {
	var s Sessions
	name, secret, code := mustOpened(t, &s)
	if !s.Answer(name, code, false) || s.Known(name) {
		t.Error("a refused invitation is known")
	}
	if _, stage := s.Of(name, secret, true); stage != Gone {
		t.Errorf("the stage is %v", stage)
	}
	if s.Answer(name, code, true) {
		t.Error("the owner cannot change a no to a yes")
	}
}

// TestSessionsEnd: an invitation ends after its time, a session after an hour without use and after twelve hours
// with uses, and a stream of the session ends with it. Requests of a script are no uses.
func TestSessionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Sessions
		late, _, code := mustOpened(t, &s)
		time.Sleep(inviteTime)
		if s.Answer(late, code, true) || s.Known(late) {
			t.Error("an invitation lasts longer than its time")
		}
		unused, secret := mustSession(t, &s)
		of, _ := s.Of(unused, secret, true)
		for range 59 {
			time.Sleep(time.Minute)
			if _, stage := s.Of(unused, secret, false); stage != Agreed {
				t.Fatal("a session ends too early")
			}
		}
		time.Sleep(time.Minute)
		if _, stage := s.Of(unused, secret, true); stage != Gone || of.ctx.Err() == nil {
			t.Errorf("an hour without use leaves the session %v, and its streams: %v", stage, of.ctx.Err())
		}
		used, secret := mustSession(t, &s)
		for range 23 {
			time.Sleep(31 * time.Minute)
			if _, stage := s.Of(used, secret, true); stage != Agreed {
				t.Fatal("a session in use ends too early")
			}
		}
		time.Sleep(8 * time.Minute)
		if _, stage := s.Of(used, secret, true); stage != Gone {
			t.Errorf("twelve hours leave the session %v", stage)
		}
	})
}

// TestSessionsAreBounded: many invitations end the oldest ones and no session, and many sessions end the oldest ones.
func TestSessionsAreBounded(t *testing.T) {
	var s Sessions
	first, _ := mustSession(t, &s)
	oldest, _, code := mustOpened(t, &s)
	for range 100 * mostInvitations {
		s.Invite()
	}
	if len(s.places) != mostInvitations+1 || s.Known(oldest) || s.Answer(oldest, code, true) || !s.Known(first) {
		t.Errorf("%d places are kept", len(s.places))
	}
	for range 3 * mostSessions {
		mustSession(t, &s)
	}
	if s.Known(first) || len(s.places) > mostInvitations+mostSessions {
		t.Errorf("%d places are kept, or the oldest session", len(s.places))
	}
	if n := s.EndAll(); n != mostSessions || len(s.places) != 0 {
		t.Errorf("the end of all ends %d sessions, and leaves %d", n, len(s.places))
	}
}
