package signin

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/integration/harness/npm"
	"junction/upstream/upstreamtest"
)

// signedIn is what sign-in.mjs says.
type signedIn struct {
	Authorize string
	Tools     []string
	Tokens    struct {
		AccessToken  string `json:"access_token"`
		RefreshToken string `json:"refresh_token"`
		ExpiresIn    int    `json:"expires_in"`
		Scope        string
	}
	Client struct {
		ID string `json:"client_id"`
	}
	Error string
}

// MustSay returns what sign-in.mjs says next.
func mustSay(n *npm.Script) (said signedIn) {
	n.T.Helper()
	n.MustRead(&said)
	tokenPair{Access: said.Tokens.AccessToken, Refresh: said.Tokens.RefreshToken}.keep()
	return said
}

// TestSDKSignsIn has the OAuth clients of both versions of the TypeScript SDK find
// everything by themselves: they register, send a person through the provider's pages, redeem the
// code, list, and refresh.
func TestSDKSignsIn(t *testing.T) {
	harness.WithoutShort(t)
	defer harness.Computes(t)()
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "", "")
	for _, version := range []string{"v1", "v2"} {
		t.Run(version, func(t *testing.T) {
			client, ann := mustNode(t, "sign-in.mjs", version, c.origin+"/mcp"), newPerson(t, "ann")
			said := mustSay(client)
			if said.Authorize == "" {
				t.Fatalf("it does not ask for a browser: %+v", said)
			}
			q, err := url.Parse(said.Authorize)
			if err != nil || q.Query().Get("resource") != c.origin+"/mcp" ||
				!strings.HasPrefix(q.Query().Get("client_id"), "dcr_") {
				t.Errorf("it asks for %s", said.Authorize)
			}
			back := ann.mustAllow(said.Authorize)
			if back.Query().Get("iss") != c.origin || back.Query().Get("code") == "" {
				t.Fatalf("it is answered with %s; the pages were %q", back, ann.seen)
			}
			client.MustWrite(back.String())
			said = mustSay(client)
			if !slices.Contains(said.Tools, "up__echo") || !strings.HasPrefix(said.Tokens.AccessToken, "jct_at_") ||
				said.Tokens.ExpiresIn != 3600 {
				t.Fatalf("signed in it says %+v", said)
			}
			first := said
			client.MustWrite("again")
			said = mustSay(client)
			if !slices.Equal(said.Tools, first.Tools) || said.Tokens.AccessToken == first.Tokens.AccessToken ||
				said.Tokens.RefreshToken == first.Tokens.RefreshToken {
				t.Errorf("refreshed it says %+v, before it was %+v", said, first)
			}
		})
	}
}
