package signin

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"junction/integration/harness"
	"junction/integration/load"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// TestFaultUpgradeFromTheLast upgrades from the program of another commit, and goes back, with a user and an API key
// who work all the while. A change of all keys that need not be equal is rolled out beside that program. No call is
// lost, and no sign-in ends.
func TestFaultUpgradeFromTheLast(t *testing.T) {
	harness.Waits(t)
	before, now := harness.BeforeBinary(t), harness.JunctionBinary(t)
	t.Run("three processes", func(t *testing.T) {
		r := mustRolling(t)
		for _, to := range []string{before, now, before, now} {
			for _, p := range r.all {
				p.From = to
			}
			if out, err := exec.Command(now, "storage", "migrate", "--config", r.all[0].File()).CombinedOutput(); err != nil {
				t.Fatalf("junction storage migrate: %v\n%s", err, out)
			}
			r.mustRoll(t, "the program "+to, string(r.base), false)
		}
		r.mustLoseNothing(t, "an upgrade from the last program and a rollback, in three processes")
	})
	t.Run("a configuration beside the last program", func(t *testing.T) {
		r := mustRolling(t)
		kinds := map[string][]string{}
		for _, kind := range []string{"rolls", "in steps", "own"} {
			kinds[kind] = keysOf(t, kind)
		}
		r.all[2].From = before
		for _, keys := range [][]string{nil, together(kinds), nil} {
			r.mustRoll(t, fmt.Sprintf("%d keys beside the last program", len(keys)), r.with(t, keys...), false)
		}
		r.mustLoseNothing(t, "a configuration is rolled out and taken back beside the last program")
	})
	t.Run("SQLite", func(t *testing.T) {
		_, up := upstreamtest.Start(t, upstreamtest.Script{})
		c := mustCompany(t, up, "", "")
		address := c.origin[len("http://"):]
		c.MustStop(t)
		mustForget(t, c.Dir)
		c.From = before // which makes the database
		c.MustServe(t, "--listen", address)
		c.MustReady(t, harness.Patience)
		app := mustRegister(t, c, appRedirect)
		user := app.mustSignIn(t, newPerson(t, "ann"))
		way := showing(t, c.Program, client.EraModern, user.Access, "/mcp")
		for _, to := range []string{now, before, now} {
			calls := load.Start(t, 1, func(ctx context.Context, _, _ int) error {
				body, own := way.Request("1", "tools/call", `{"name":"up__echo","arguments":{}}`)
				resp, err := way.Send(ctx, http.MethodPost, body, own...)
				if err != nil {
					return err
				}
				defer resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					return fmt.Errorf("%s", resp.Status)
				}
				return nil
			})
			calls.AwaitCalls(10)
			c.From = to
			c.MustRestart(t)
			calls.AwaitCalls(10)
			calls.Stop()
			status, next := app.refresh(t, user.Refresh)
			if status != http.StatusOK {
				t.Fatalf("with %s, a refresh is answered %d", to, status)
			}
			user, way.Key = next, next.Access
		}
	})
}

// mustForget deletes the databases of a folder.
func mustForget(t *testing.T, dir string) {
	t.Helper()
	found := 0
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if match, _ := filepath.Match("*.db*", filepath.Base(path)); match && err == nil {
			found++
			return os.Remove(path)
		}
		return err
	})
	if err != nil || found == 0 {
		t.Fatalf("%d databases were deleted: %v", found, err)
	}
}
