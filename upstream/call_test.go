package upstream

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// TestAQuestionAtTheVeryEnd has an upstream ask in the moment in which the time of the call is
// over: it was in time, and the one who is to be asked can be, or it was late.
func TestAQuestionAtTheVeryEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := upstreamtest.New(upstreamtest.Script{Era: "modern"})
		t.Cleanup(server.Close)
		_, rt := upstreamtest.NewCable(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Mcp-Method") == "tools/call" {
				time.Sleep(time.Second)
			}
			server.Handler().ServeHTTP(w, r)
		}))
		u := startOver(rt, Config{URL: "http://server/mcp", Timeout: time.Second}, Options{Version: "0", Log: authtest.Log(t)})
		t.Cleanup(u.Close)
		settle(time.Minute)
		late := 0
		for range 1000 {
			ctx, end := context.WithCancelCause(t.Context())
			c := toolCall("ask", `{}`)
			c.End = end
			a, err := u.Call(ctx, c)
			switch e, ours := errors.AsType[*Error](err); {
			case err == nil && a.Type == client.TypeInputRequired && ctx.Err() == nil:
			case ours && e.Kind == client.KindTimeout:
				late++
			default:
				t.Fatalf("Call = %s, %v; and its context ended with %v", a.Type, err, context.Cause(ctx))
			}
			end(nil)
			settle(time.Second)
		}
		t.Logf("%d of 1000 were late", late)
	})
}
