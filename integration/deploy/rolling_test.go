//go:build linux

package deploy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"junction/auth"
	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/integration/harness/process"
	"junction/integration/load"
	"junction/upstream/upstreamtest"
)

// keyed sends a key with each request.
type keyed struct {
	http.RoundTripper
	key string
}

func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+k.key)
	return k.RoundTripper.RoundTrip(r)
}

// mustProcesses starts three processes over one database, which drain for three seconds. Each has an
// address of its own, and all have the same ports, as on different machines.
func mustProcesses(t *testing.T) (all []*harness.Program, at []member, key string) {
	t.Helper()
	_, url := upstreamtest.Start(t, upstreamtest.Script{})
	key = auth.NewKey()
	authtest.Secret("an API key", key)
	hash, err := auth.HashKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dsn, listen, admin := authtest.Schema(t), port(process.FreePort(t)), port(process.FreePort(t))
	for i := range 3 {
		p := harness.NewProgram(t)
		dir := p.Dir
		if i > 0 {
			dir = all[0].Dir
		}
		ip := fmt.Sprintf("127.0.0.%d:", i+2)
		p.MustWrite(t, fmt.Sprintf("listen: %q\nadmin: %q\nsessions: { key_file: %q }\npublic_url: https://%s\n"+
			"upstreams: { up: { url: %q, isolation: shared } }\ndrain_delay: 3s\nlog: { level: debug }\n"+
			"replicas: { listen: 127.0.0.1:0, advertise: 127.0.0.1:0 }\n"+
			"storage: { driver: postgres, dsn: %q, key_file: %q }\n"+
			"auth: { api_keys: [{ name: team, hash: %q }], trusted_proxies: [127.0.0.1/32] }\n", ip+listen, ip+admin,
			filepath.Join(dir, "key"), host, url, dsn, filepath.Join(dir, "master.key"), hash))
		p.MustServe(t)
		p.MustReady(t, harness.Patience)
		all, at = append(all, p), append(at, member{ip + listen, ip + admin})
	}
	return all, at, key
}

// TestOperateRecipesRollOut restarts three processes behind each reverse proxy one after the other, each
// in less than ten seconds. A reverse proxy that asks /readyz loses no call, and nginx loses at most the
// calls in flight.
func TestOperateRecipesRollOut(t *testing.T) {
	harness.Waits(t)
	harness.WithoutShort(t)
	for _, f := range fronts() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			all, at, key := mustProcesses(t)
			s := mustFront(t, f, "https://"+host, at)
			var list []*harness.Caller
			for i := range 6 {
				transport := s.http.Transport.(*http.Transport).Clone()
				t.Cleanup(transport.CloseIdleConnections)
				by := &http.Client{Transport: keyed{transport, key}}
				list = append(list, harness.MustCallerBy(t, by, s.public+"/mcp", harness.BothEras()[i%2]))
			}
			calls := load.Start(t, len(list), func(ctx context.Context, i, n int) error {
				return load.Call(ctx, list[i], "up__echo", `{"a":1}`)
			})
			calls.AwaitCalls(50)
			if n := forwarded(t, at); f.name == "HAProxy" && n > 0 || f.name == "nginx" && n == 0 {
				t.Errorf("%d requests were forwarded: HAProxy keeps a session at its process, and nginx does not", n)
			}
			for _, p := range all {
				began := time.Now()
				p.MustStop(t)
				p.MustServe(t)
				p.MustReady(t, harness.Patience)
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("a restart took %v", took)
				}
				calls.AwaitCalls(20)
			}
			calls.Stop()
			figures := calls.Figures(time.Now())
			t.Logf("ROLLOUT %s: %v", f.name, figures)
			most := map[string]int{"HAProxy": 0, "Caddy": 0, "nginx": len(all) * len(list)}[f.name]
			for _, text := range figures.Texts {
				if !strings.Contains(text, "Bad Gateway") {
					t.Errorf("a call failed with %q", text)
				}
			}
			if figures.Lost > most {
				t.Errorf("%v, want at most %d calls lost", figures, most)
			}
		})
	}
}

// forwarded returns how many requests the processes have forwarded to each other.
func forwarded(t *testing.T, at []member) (sum int) {
	t.Helper()
	for _, one := range at {
		r, err := http.Get("http://" + one.admin + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(string(text), "\n") {
			if n := 0; strings.HasPrefix(line, "junction_replicas_forwarded_total{") {
				_, _ = fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &n)
				sum += n
			}
		}
	}
	return sum
}
