package signin

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/integration/load"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// This file breaks what a sign-in needs while people work. Package faults has the other faults, and
// the way to see the figures.

// relayed has the connections of a DSN pass through a relay. The server listens on a UNIX socket.
func relayed(t *testing.T, dsn string) (string, *load.Relay) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	socket := filepath.Join(q.Get("host"), ".s.PGSQL.5432")
	if _, err := os.Stat(socket); err != nil {
		t.Fatalf("the DSN names no socket: %v", err)
	}
	r := load.MustRelay(t, socket)
	q.Del("host")
	q.Set("sslmode", "disable")
	u.Host, u.RawQuery = r.Address, q.Encode()
	return u.String(), r
}

// working makes calls with the token of a person who is signed in.
func working(t *testing.T, p *harness.Program, token string) *load.Load {
	t.Helper()
	c := showing(t, p, client.EraModern, token, "/mcp")
	return load.Start(t, 1, func(ctx context.Context, _, _ int) error {
		body, own := c.Request("1", "tools/call", `{"name":"up__echo","arguments":{}}`)
		resp, err := c.Send(ctx, http.MethodPost, body, own...)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		var text bytes.Buffer
		if _, err := text.ReadFrom(resp.Body); err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK || !strings.Contains(text.String(), `"result"`) {
			return fmt.Errorf("%s: %.200s", resp.Status, text.String())
		}
		return nil
	})
}

// mustStandAt waits for a status of a path of the admin listener.
func mustStandAt(t *testing.T, p *harness.Program, path string, want int, words string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		resp, err := http.Get(p.Admin + path)
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		text.ReadFrom(resp.Body)
		resp.Body.Close()
		if resp.StatusCode == want && strings.Contains(text.String(), words) {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("%s says %s %s; want %d and %q", path, resp.Status, text.String(), want, words)
		}
	}
}

// TestFaultPostgres stops the storage of the sign-ins, in two ways, while a person works. Some calls
// are told to come later, and none is rejected. The person does not have to sign in again.
func TestFaultPostgres(t *testing.T) {
	harness.WithoutShort(t)
	harness.Waits(t)
	for name, stop := range map[string]func(*load.Relay){"is stopped": (*load.Relay).Close, "cannot be reached": (*load.Relay).Mute} {
		t.Run(name, func(t *testing.T) {
			harness.Waits(t)
			dsn, relay := relayed(t, authtest.Schema(t))
			_, up := upstreamtest.Start(t, upstreamtest.Script{})
			c := mustCompany(t, up, "", fmt.Sprintf("storage: { driver: postgres, dsn: %q }\n", dsn))
			app := mustRegister(t, c, "https://app.example/callback")
			status, first := app.mustExchange(t, c.origin, app.mustEnter(t, "ann"))
			if status != http.StatusOK {
				t.Fatalf("the code: %d, %+v", status, first)
			}
			ann := working(t, c.Program, first.AccessToken)
			ann.AwaitCalls(50)
			stop(relay)
			mustStandAt(t, c.Program, "/readyz", http.StatusServiceUnavailable, "storage")
			mustStandAt(t, c.Program, "/healthz", http.StatusOK, "")
			ann.AwaitFailures(1)
			if status, got := app.mustExchange(t, c.origin, refreshing(first.RefreshToken)); status != http.StatusServiceUnavailable ||
				got.Error != "temporarily_unavailable" {
				t.Errorf("a refresh without storage: %d, %+v; want 503, so that the app keeps its tokens", status, got)
			}
			relay.Open()
			over := time.Now()
			ann.AwaitCalls(50)
			ann.Stop()
			mustStandAt(t, c.Program, "/readyz", http.StatusOK, "")
			if status, got := app.mustExchange(t, c.origin, refreshing(first.RefreshToken)); status != http.StatusOK {
				t.Errorf("the refresh after it: %d, %+v", status, got)
			}
			f := ann.Figures(over)
			for _, text := range f.Texts {
				if !strings.Contains(text, "Service Unavailable") {
					t.Errorf("a person who is signed in reads %q, want only 503", text)
				}
			}
			t.Logf("FAULT Postgres %s: %v", name, f)
		})
	}
}
