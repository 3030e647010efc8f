package proxy

import (
	"context"
	"net/http"
	"testing"
	"time"

	"junction/policy"
	"junction/proxy/budget"
	"junction/proxy/members"
	"junction/upstream"
)

// elsewhereMembers has every session at another member, which answers at once.
type elsewhereMembers struct{}

func (elsewhereMembers) Self() string { return "self" }
func (elsewhereMembers) Owner(context.Context, [16]byte, string, time.Time) (string, error) {
	return "other", nil
}
func (elsewhereMembers) Alive(string) bool { return true }
func (elsewhereMembers) Forward(w http.ResponseWriter, _ *http.Request, _ []byte, _ string) error {
	w.WriteHeader(http.StatusOK)
	_, err := w.Write(make([]byte, 100))
	return err
}
func (elsewhereMembers) DeleteSession(context.Context, [16]byte, time.Time) error { return nil }
func (elsewhereMembers) Once(context.Context, string, time.Time) (bool, error)    { return true, nil }
func (elsewhereMembers) Enter(context.Context, string, policy.Limits, bool) (func(), time.Duration, error) {
	return func() {}, 0, nil
}

var _ members.Members = elsewhereMembers{}

// BenchmarkForward is what a member does for a request before and after the connection to the owner:
// to authenticate it, and to open the ID of its session.
func BenchmarkForward(b *testing.B) {
	s := mustServer(b, cannedBackend(b, 10, 100))
	s.members = elsewhereMembers{}
	id, _ := s.sessions.create("2025-11-25", "bench", budget.Account{Principal: "local"}, upstream.Profile{})
	s.sessions.mu.Lock()
	s.sessions.drop(s.sessions.byID[id])
	s.sessions.mu.Unlock()
	b.Run("request", func(b *testing.B) {
		repeat(b, s, http.Header{"Mcp-Session-Id": {id}, "Mcp-Protocol-Version": {"2025-11-25"}}, `{}`)
	})
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.sessions.open(id, budget.Account{Principal: "local"}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
