package auth_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth"
	"junction/auth/authtest"
)

// TestUnknownTokensLeavePlacesToKnownTokens: while a server is slow and a stranger sends many invented
// tokens, Junction still asks about a token that was valid.
func TestUnknownTokensLeavePlacesToKnownTokens(t *testing.T) {
	s := authtest.New(t)
	synctest.Test(t, func(t *testing.T) {
		g := signIn(t, s, introspects(s))
		s.Opaque("good", s.Claims(resource, nil))
		s.Opaque("other", s.Claims(resource, nil))
		p := wantIn(t, g, "good")
		time.Sleep(2 * time.Minute) // its answer is no longer in use
		wantIn(t, g, "other")
		slow := make(chan struct{})
		answer := sync.OnceFunc(func() { close(slow) })
		defer answer()
		s.Answer(authtest.Introspect, func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.PostFormValue("token"), "invented") {
				<-slow
				io.WriteString(w, `{"active":false}`)
				return
			}
			io.WriteString(w, `{"active":true,"aud":"`+resource+`","sub":"ann"}`)
		})
		var strangers sync.WaitGroup
		for k := range 100 {
			strangers.Go(func() { _, _ = g.Verifier.Verify(t.Context(), fmt.Sprint("invented", k), p.Address) })
		}
		synctest.Wait()
		wantOut(t, g, "new", 503, "")
		wantIn(t, g, "good")
		if !g.Still(p) {
			t.Error("the streams of a valid token have ended")
		}
		answer()
		strangers.Wait()
		wantIn(t, g, "new")
	})
}

// TestInvalidTokensReplaceNoValidOnes: the streams of valid tokens go on, however many invalid tokens a
// stranger sends.
func TestInvalidTokensReplaceNoValidOnes(t *testing.T) {
	s := authtest.New(t)
	g := signIn(t, s, introspects(s))
	var streams []*auth.Principal
	for k := range 100 {
		token := fmt.Sprint("opaque-valid-", k)
		s.Opaque(token, s.Claims(resource, nil))
		streams = append(streams, wantIn(t, g, token))
	}
	for k := range 12_000 { // more than the cache has entries
		if _, err := g.Verifier.Verify(t.Context(), fmt.Sprint("invented", k), streams[0].Address); err == nil {
			t.Fatal("an invented token is valid")
		}
	}
	ended := 0
	for _, p := range streams {
		if !g.Still(p) {
			ended++
		}
	}
	if ended > 0 {
		t.Errorf("the streams of %d valid tokens of %d have ended", ended, len(streams))
	}
}
