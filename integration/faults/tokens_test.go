package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/integration/load"
	"junction/upstream/upstreamtest"
)

// minting is an authorization server whose tokens last for a minute, and the way to servers that take only these.
type minting struct {
	URL string
	to  http.Handler

	mu      sync.Mutex
	minted  map[string][]time.Time // by server, of the tokens
	used    map[string]bool        // by token
	refused []string
	enough  chan struct{} // closed when each server has had so many tokens
	tokens  int
}

func mustMint(t *testing.T, to http.Handler, servers, tokens int) *minting {
	t.Helper()
	m := &minting{to: to, minted: map[string][]time.Time{}, used: map[string]bool{}, enough: make(chan struct{}),
		tokens: tokens}
	for i := range servers {
		m.minted[fmt.Sprint(i)] = nil
	}
	m.URL, _ = upstreamtest.Serve(t, "127.0.0.1:0", m)
	return m
}

func (m *minting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	server, isServer := strings.CutPrefix(r.URL.Path, "/mcp/")
	switch {
	case isServer:
		if token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); !m.takes(server, token) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		r.URL.Path = "/mcp"
		m.to.ServeHTTP(w, r)
	case r.URL.Path == "/.well-known/oauth-authorization-server":
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": m.URL, "token_endpoint": m.URL + "/token",
			"token_endpoint_auth_methods_supported": []string{"client_secret_basic"}})
	case r.URL.Path == "/token":
		fmt.Fprintf(w, `{"access_token":%q,"token_type":"bearer","expires_in":60}`, m.mint(r.FormValue("audience")))
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// mint returns a new token, which names its server and its number.
func (m *minting) mint(server string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.minted[server] = append(m.minted[server], time.Now())
	done := true
	for _, all := range m.minted {
		done = done && len(all) >= m.tokens
	}
	if done && m.enough != nil {
		close(m.enough)
		m.enough = nil
	}
	return fmt.Sprintf("canary-minted-%s-%d", server, len(m.minted[server]))
}

// takes reports whether a token is one for the server, and has not expired.
func (m *minting) takes(server, token string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	number, its := strings.CutPrefix(token, "canary-minted-"+server+"-")
	if _, err := fmt.Sscan(number, &n); its && err == nil && n > 0 && n <= len(m.minted[server]) &&
		time.Since(m.minted[server][n-1]) < time.Minute {
		m.used[token] = true
		return true
	}
	if token != "" { // Junction asks without one what the server is called
		m.refused = append(m.refused, server+" "+token)
	}
	return false
}

// TestFaultTokensOfAMinute: ten servers take tokens of client credentials that last for a minute, and three processes
// with 1,000 callers share them. Each token is requested by one process, before the one before has expired. No call is
// lost, no server is sent the token of another one, and none an expired one.
func TestFaultTokensOfAMinute(t *testing.T) {
	harness.Long(t)
	harness.Waits(t)
	const servers, callers, tokens = 10, 1000, 4
	authtest.Secret("a token", "canary-minted-")
	scripted := upstreamtest.New(upstreamtest.Script{Era: "modern"})
	t.Cleanup(scripted.Close)
	m := mustMint(t, scripted.Handler(), servers, tokens)
	enough := m.enough
	text := "outbound: { allow_private: [127.0.0.0/8] }\n" + asReplica + "limits: { requests: 4000 }\nupstreams:\n"
	for i := range servers {
		text += fmt.Sprintf("  up%d: { url: %q, concurrency: 200, auth: { mode: client_credentials, issuer: %q, client_id: us, "+
			"client_secret: canary-own-secret, audience: \"%[1]d\" } }\n", i, fmt.Sprintf("%s/mcp/%d", m.URL, i), m.URL)
	}
	dsn := authtest.Schema(t)
	var all []*harness.Program
	for range 3 {
		p := harness.NewProgram(t)
		if len(all) > 0 {
			p.Dir = all[0].Dir
		} else {
			p.MustConfigure(t, text+fmt.Sprintf("storage: { driver: postgres, dsn: %q, key_file: %q }\n", dsn, p.Dir+"/master.key"))
		}
		p.MustServe(t)
		all = append(all, p)
	}
	for _, p := range all {
		mustKnow(t, p, len(all))
		if r := p.MustReady(t, harness.Patience); r.Tools < servers {
			t.Fatalf("the process offers %d tools", r.Tools)
		}
	}
	by := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}}
	defer by.CloseIdleConnections()
	list := make([]*harness.Caller, callers)
	for i := range list {
		list[i] = harness.MustCallerBy(t, by, all[i%len(all)].URL, harness.ModernEra)
	}
	calls := load.Start(t, callers, func(ctx context.Context, i, n int) error {
		err := load.Call(ctx, list[i], fmt.Sprintf("up%d__echo", (i+n)%servers), `{"a":1}`)
		next := time.NewTimer(3 * time.Second) // a caller is an agent, which thinks
		defer next.Stop()
		select {
		case <-next.C:
		case <-ctx.Done():
		}
		return err
	})
	<-enough
	calls.Stop()
	mustLoseNothing(t, calls)
	report(t, fmt.Sprintf("%d servers with tokens of a minute, %d callers, three processes", servers, callers), calls.Figures(time.Time{}))
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.refused) > 0 {
		t.Errorf("%d requests had a wrong or an expired token: %q", len(m.refused), m.refused[:min(len(m.refused), 5)])
	}
	for server, at := range m.minted {
		for n := 1; n < len(at); n++ {
			if at[n].Sub(at[n-1]) < time.Minute/4 {
				t.Errorf("server %s: token %d was requested %v after the one before", server, n+1, at[n].Sub(at[n-1]))
			}
			if !m.used[fmt.Sprintf("canary-minted-%s-%d", server, n)] {
				t.Errorf("server %s: nothing used token %d", server, n)
			}
		}
		t.Logf("FAULT server %s: %d tokens in %v", server, len(at), at[len(at)-1].Sub(at[0]).Round(time.Second))
	}
}
