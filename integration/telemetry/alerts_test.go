package telemetry

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"junction/auth"
	"junction/auth/authtest"
	"junction/cmd/junction/base/certificate/certificatetest"
	"junction/integration/harness"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// These tests ask which alerts ring in a fault, and that no others do. The series are those of the real
// program with the fault. Where a fault takes too long, or needs a provider, single values are edited.

// fault is what an alert is for.
type fault struct {
	rings []string // all alerts that ring
	// begin returns the program before the fault, and the functions that cause it and end it. fails is called
	// once, and returns the target with the fault.
	begin func(t *testing.T) (p *harness.Program, fails func() target)
}

// mustEcho returns a running program with the upstream up, further keys of it, and further sections. limit is
// of open files; 0 for none.
func mustEcho(t *testing.T, limit int, keys, sections string) (*harness.Program, *upstreamtest.Server) {
	t.Helper()
	s, url := upstreamtest.Start(t, upstreamtest.Script{})
	p := harness.NewProgram(t)
	p.MustConfigure(t, fmt.Sprintf("upstreams: { up: { url: %q%s } }\n%s\n", url, keys, sections))
	if limit == 0 {
		p.MustServe(t)
	} else {
		p.MustStart(t, exec.Command("sh", "-c", fmt.Sprintf("ulimit -n %d; exec \"$@\"", limit), "sh", harness.JunctionBinary(t),
			"--config", p.File()))
	}
	p.MustReady(t, harness.Patience)
	return p, s
}

// mustScrapeUntil returns the target as soon as its scrape has a line.
func mustScrapeUntil(t *testing.T, p *harness.Program, line string) target {
	t.Helper()
	ctx, again := harness.Patient(t), time.NewTicker(50*time.Millisecond)
	defer again.Stop()
	for {
		g := at(t, "a", p)
		if strings.Contains(g.text, "\n"+line+"\n") {
			return g
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("the scrape does not get the line %s:\n%s", line, g.text)
		}
	}
}

// mustListen opens streams of a modern client until the answer is an error, and then n more.
func mustListen(t *testing.T, p *harness.Program, n int) {
	t.Helper()
	for refused := 0; refused < n; {
		c := harness.NewClient(t, &harness.Endpoint{URL: p.URL}, client.EraModern)
		body, own := c.Request("1", "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`)
		r, err := c.Send(t.Context(), "POST", body, own...)
		if err != nil {
			t.Fatal(err)
		}
		if r.StatusCode == 200 {
			t.Cleanup(func() { r.Body.Close() })
			continue
		}
		text, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if refused++; !strings.Contains(string(text), "limits.streams") {
			t.Fatalf("a stream is refused with %s", text)
		}
	}
}

// mustHang opens connections that send the beginning of a request.
func mustHang(t *testing.T, p *harness.Program, n int, begin string) {
	t.Helper()
	for range n {
		c, err := net.Dial("tcp", strings.TrimPrefix(p.Origin(), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_, _ = io.WriteString(c, begin) // some are closed before
	}
}

// half is the beginning of a request.
const half = "POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{"

// faults are all of one process. Those that show only in edited values are of p, which has no fault.
func faults(p *harness.Program) map[string]fault {
	const up = `{junction_upstream="up"}`
	edited := func(edits map[string]string, rings ...string) fault {
		return fault{rings, func(t *testing.T) (*harness.Program, func() target) {
			return p, func() target { return at(t, "a", p).with(t, edits) }
		}}
	}
	return map[string]fault{
		"the process ends": {[]string{"JunctionDown"}, func(t *testing.T) (*harness.Program, func() target) {
			p, _ := mustEcho(t, 0, "", "")
			return p, func() target {
				p.MustStop(t)
				return target{labels: `instance="a"`}
			}
		}},
		"an upstream cannot be used": {[]string{"JunctionUpstreamDown"}, func(t *testing.T) (*harness.Program, func() target) {
			p, _ := mustEcho(t, 0, "", "")
			return p, func() target {
				p.MustReload(t, "upstreams: { ", "upstreams: { missing: { command: [/nowhere/program] }, ")
				return mustScrapeUntil(t, p, `junction_upstream_state{junction_state="retrying",junction_upstream="missing"} 1`)
			}
		}},
		"an upstream does not answer": edited(map[string]string{"junction_upstream_degraded" + up: "1"},
			"JunctionUpstreamDegraded"),
		"the operator's sign-in has ended": edited(map[string]string{
			`junction_upstream_state{junction_state="needs sign-in",junction_upstream="up"}`: "1",
			`junction_upstream_state{junction_state="ready",junction_upstream="up"}`:         "0"},
			"JunctionUpstreamNeedsSignIn"),
		"an upstream crashes again and again": edited(map[string]string{"junction_upstream_connects_total" + up: "40"},
			"JunctionUpstreamRestarts"),
		"processes of users crash": edited(map[string]string{"junction_upstream_crashes_total" + up: "40"},
			"JunctionUserProcessesCrash"),
		"users lose their processes": edited(map[string]string{"junction_upstream_evictions_total" + up: "400"},
			"JunctionUserProcessesEvicted"),
		"calls fail": {[]string{"JunctionCallsFail"}, func(t *testing.T) (*harness.Program, func() target) {
			p, _ := mustEcho(t, 0, ", timeout: 50ms", "")
			c := harness.NewClient(t, &harness.Endpoint{URL: p.URL}, client.EraModern)
			c.Tool(t, "up__echo", `{}`)
			return p, func() target {
				for range 3 {
					c.Tool(t, "up__slow", `{"ms":10000}`)
				}
				return at(t, "a", p)
			}
		}},
		"an upstream has too many calls": {[]string{"JunctionCallsFail", "JunctionCallsWait"},
			func(t *testing.T) (*harness.Program, func() target) {
				p, s := mustEcho(t, 0, ", concurrency: 1, timeout: 300ms, tools: { gate: { timeout: 5m } }", "")
				c := harness.Talk(t, p.URL, client.EraModern)
				c.Succeed(t, "up__echo", `{}`)
				return p, func() target {
					var gates []*harness.Answering
					for range 2 {
						gates = append(gates, c.Begin(t, harness.Called("up__gate", `{"gate":"end"}`)))
					}
					mustScrapeUntil(t, p, "junction_upstream_waiting"+up+" 1")
					for range 3 {
						full := c.Call(t, "up__echo", `{}`)
						if e := full.Error; e == nil || !strings.Contains(e.Message, "(concurrency: 1)") {
							t.Errorf("a call beyond the limit = %s %v, want concurrency named", full.Result, e)
						}
						harness.Reached(t, "a line with outcome=limited", func() bool {
							return strings.Contains(p.Stderr.String(), "outcome=limited")
						})
					}
					g := at(t, "a", p)
					for range gates {
						s.Release("end")
					}
					for _, call := range gates {
						call.Answer(t)
					}
					return g
				}
			}},
		"streams are refused": {[]string{"JunctionRefusesRequests"}, func(t *testing.T) (*harness.Program, func() target) {
			p, _ := mustEcho(t, 0, "", "limits: { streams: 4 }")
			return p, func() target {
				mustListen(t, p, 3)
				return at(t, "a", p)
			}
		}},
		"tokens cannot be checked": edited(map[string]string{
			`junction_tokens_checked_total{junction_result="temporarily_unavailable"}`: "40"}, "JunctionTokensNotChecked"),
		"sign-ins are limited": edited(map[string]string{`junction_signin_limited_total{junction_page="refresh"}`: "40"},
			"JunctionSignInLimited"),
		"the storage cannot write": edited(map[string]string{
			`junction_store_failures_total{junction_store_operation="write"}`: "40"}, "JunctionStoreFails"),
		"the file has a mistake": {[]string{"JunctionConfigStale"}, func(t *testing.T) (*harness.Program, func() target) {
			p, _ := mustEcho(t, 0, "", "")
			return p, func() target {
				if err := os.WriteFile(p.File(), []byte("upstreams: ["), 0o600); err != nil {
					t.Fatal(err)
				}
				return mustScrapeUntil(t, p, "junction_config_stale 1")
			}
		}},
		"the audit cannot be written": {[]string{"JunctionAuditWaits", "JunctionPartFails"},
			func(t *testing.T) (*harness.Program, func() target) {
				p, _ := mustEcho(t, 0, "", "audit: { file: audit.jsonl }")
				return p, func() target {
					return at(t, "a", p).with(t, map[string]string{"junction_audit_waiting_bytes": "2000000",
						`junction_part_up{junction_part="audit"}`: "0"})
				}
			}},
		"keys expire": {[]string{"JunctionKeysExpire"}, func(t *testing.T) (*harness.Program, func() target) {
			key := auth.NewKey()
			authtest.Secret("an API key", key)
			hash, err := auth.HashKey(key)
			if err != nil {
				t.Fatal(err)
			}
			p, _ := mustEcho(t, 0, "", fmt.Sprintf("auth: { api_keys: [{ name: a, hash: %q, expires: %s }] }", hash,
				time.Now().AddDate(0, 2, 0).Format(time.DateOnly)))
			return p, func() target {
				p.MustReload(t, time.Now().AddDate(0, 2, 0).Format(time.DateOnly), time.Now().AddDate(0, 0, 7).Format(time.DateOnly))
				return mustScrapeUntil(t, p, "junction_keys_expiring 1")
			}
		}},
		"the certificate expires": {[]string{"JunctionCertificateExpires"}, func(t *testing.T) (*harness.Program, func() target) {
			p, _ := mustSecure(t)
			return p, func() target {
				return at(t, "a", p).with(t, map[string]string{"junction_tls_certificate_expiry_seconds": "400000"})
			}
		}},
		"a certificate is replaced without its key": {[]string{"JunctionCertificateNotRenewed"},
			func(t *testing.T) (*harness.Program, func() target) {
				p, key := mustSecure(t)
				return p, func() target {
					other := certificatetest.MustSign(t, nil, "Other", 1000, certificatetest.AsAuthority)
					if err := os.WriteFile(key, []byte(other.MustKeyPEM(t)), 0o600); err != nil {
						t.Fatal(err)
					}
					return mustScrapeUntil(t, p, `junction_part_up{junction_part="certificate"} 0`)
				}
			}},
		"all connections are open": {[]string{"JunctionConnectionsWait", "JunctionFewDescriptors"},
			func(t *testing.T) (*harness.Program, func() target) {
				p, _ := mustEcho(t, 256, "", "")
				return p, func() target {
					mustHang(t, p, 200, half)
					return mustScrapeUntil(t, p, "junction_connections_waiting 1")
				}
			}},
		"most connections are open": {[]string{"JunctionFewDescriptors"}, func(t *testing.T) (*harness.Program, func() target) {
			p, _ := mustEcho(t, 256, "", "")
			return p, func() target {
				mustHang(t, p, 170, half)
				return mustScrapeUntil(t, p, "junction_connections 170")
			}
		}},
		"upstreams take most descriptors": {[]string{"JunctionFewDescriptors"}, func(t *testing.T) (*harness.Program, func() target) {
			p, _ := mustEcho(t, 256, "", "")
			return p, func() target { return at(t, "a", p).with(t, map[string]string{"junction_descriptors_open": "60"}) }
		}},
		"requests do not end": {[]string{"JunctionConnectionsClosed"}, func(t *testing.T) (*harness.Program, func() target) {
			p, _ := mustEcho(t, 0, "", "limits: { body: 512KiB, bodies: 1MiB, read_timeout: 10m }")
			return p, func() target {
				mustHang(t, p, 100, "POST /mcp HTTP/1.1\r\nHost: a\r\nX: "+strings.Repeat("y", 10_000))
				p.Stderr.MustMatch(t, regexp.MustCompile("connections are closed"), harness.Patience, p.Done)
				return at(t, "a", p)
			}
		}},
	}
}

// mustSecure returns a running program with a certificate in files, and the file of its key.
func mustSecure(t *testing.T) (p *harness.Program, key string) {
	t.Helper()
	root := certificatetest.MustSign(t, nil, "Root", 1000, certificatetest.AsAuthority)
	middle := certificatetest.MustSign(t, root, "Middle", 500, certificatetest.AsAuthority)
	leaf := certificatetest.MustSign(t, middle, "leaf", 90, certificatetest.ForHost)
	cert, key := certificatetest.MustWrite(t, t.TempDir(), certificatetest.PEM(leaf, middle), leaf.MustKeyPEM(t))
	p, _ = mustEcho(t, 0, "", fmt.Sprintf("public_url: https://mcp.example.com\n"+
		"tls: { listen: 127.0.0.1:0, cert_file: %q, key_file: %q }\nauth: { api_keys: [{ name: a, hash: %q }] }", cert, key,
		"sha256:609cac7c1dd5b06e1d3dbd6cfaf69a3bd3ba1f1d7a2b6eb5a83e17b9bd25e2ce"))
	return p, key
}

// TestAlertsRingInTheirFault: exactly the alerts of a fault ring.
func TestAlertsRingInTheirFault(t *testing.T) {
	harness.Waits(t)
	quiet, _ := mustEcho(t, 0, "", "")
	for name, f := range faults(quiet) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, fails := f.begin(t)
			r := newRecording(t)
			r.hold(5, nil, at(t, "a", p))
			minutes := 30 // alerts consider at most 15 minutes, and ring at most 15 minutes later
			switch f.rings[0] {
			case "JunctionKeysExpire", "JunctionCertificateExpires":
				minutes = 65
			case "JunctionCertificateNotRenewed":
				minutes = 6*60 + 5
			}
			r.hold(minutes, nil, fails())
			r.mustRing(f.rings...)
		})
	}
}

// TestAlertsAreSilentInQuietHours: no alert rings in six hours in which clients make calls and mistakes, one
// call in hundreds fails, a burst of streams is refused, and the file is reloaded.
func TestAlertsAreSilentInQuietHours(t *testing.T) {
	harness.Waits(t)
	p, _ := mustEcho(t, 0, ", timeout: 2s", "limits: { streams: 4 }\naudit: { file: audit.jsonl }")
	c := harness.NewClient(t, &harness.Endpoint{URL: p.URL}, client.EraModern)
	c.Tool(t, "up__slow", `{"ms":10000}`)
	r := newRecording(t)
	for hour := range 6 {
		for range 40 {
			c.Tool(t, "up__echo", `{}`)
		}
		c.Tool(t, "up__none", `{}`)
		c.Call(t, "none/such", `{}`)
		minutes := 60
		switch hour {
		case 1:
			mustListen(t, p, 3)
			r.hold(1, nil, at(t, "a", p))
			minutes--
		case 2:
			c.Tool(t, "up__slow", `{"ms":10000}`)
			r.hold(1, nil, at(t, "a", p))
			minutes--
		case 3:
			p.MustReload(t, "streams: 4", "streams: 4 ")
		}
		r.hold(minutes, nil, at(t, "a", p))
	}
	r.mustRing()
}

// members are three processes over one database.
type members []*harness.Program

func mustMembers(t *testing.T, dsn string) (all members) {
	t.Helper()
	_, url := upstreamtest.Start(t, upstreamtest.Script{})
	for i := range 3 {
		p := harness.NewProgram(t)
		if i == 0 {
			p.MustConfigure(t, fmt.Sprintf("upstreams: { up: { url: %q } }\n"+
				"replicas: { listen: 127.0.0.1:0, advertise: 127.0.0.1:0 }\n"+
				"storage: { driver: postgres, dsn: %q, key_file: %q }\n", url, dsn, filepath.Join(p.Dir, "master.key")))
		} else if text, err := os.ReadFile(all[0].File()); err != nil { // with the paths of the keys
			t.Fatal(err)
		} else if err := os.WriteFile(p.File(), text, 0o600); err != nil {
			t.Fatal(err)
		}
		p.MustServe(t)
		all = append(all, p)
	}
	for _, p := range all {
		p.MustJoin(t, len(all))
	}
	return all
}

// places are how Prometheus finds the processes.
type place struct {
	name   string
	labels func(instance string) string
	other  func(wanted int) map[string]float64 // what else Prometheus has
	// forgets says that a process that does not run is no target.
	forgets bool
}

func places() []place {
	return []place{
		{"machines", func(instance string) string { return `instance="` + instance + `"` },
			func(int) map[string]float64 { return nil }, false},
		{"Kubernetes", func(instance string) string {
			return `namespace="n",deployment="junction",pod="` + instance + `",instance="` + instance + `"`
		}, func(wanted int) map[string]float64 {
			return map[string]float64{
				`kube_deployment_spec_replicas{job="kube-state-metrics",namespace="n",deployment="junction"}`: float64(wanted),
				`kube_deployment_spec_replicas{job="kube-state-metrics",namespace="n",deployment="other"}`:    30}
		}, true},
	}
}

// moment is what Prometheus has scraped for some minutes: the texts by instance, "" for no answer.
type moment struct {
	minutes, wanted int
	texts           map[string]string
}

// mustSee scrapes those of the programs that run.
func mustSee(t *testing.T, minutes, wanted int, all map[string]*harness.Program) moment {
	t.Helper()
	m := moment{minutes, wanted, map[string]string{}}
	for instance, p := range all {
		m.texts[instance] = ""
		if p != nil {
			m.texts[instance] = mustScrape(t, p)
		}
	}
	return m
}

// recorded returns the moments as Prometheus has them in a place.
func (w place) recorded(t *testing.T, moments []moment) *recording {
	t.Helper()
	r := newRecording(t)
	for _, m := range moments {
		var targets []target
		for instance, text := range m.texts {
			if text != "" || !w.forgets {
				targets = append(targets, target{labels: w.labels(instance), text: text})
			}
		}
		r.hold(m.minutes, w.other(m.wanted), targets...)
	}
	return r
}

// TestAlertsOfReplicas: a rollout and a scale-down ring no alarm. A member that is killed does, for as long as it
// is missing, and one that loses its lease. So do all of them without the database. Half a rollout of the
// configuration rings one, too.
func TestAlertsOfReplicas(t *testing.T) {
	harness.Waits(t)
	harness.WithoutShort(t)
	g := authtest.MustGate(t, authtest.Schema(t))
	all := mustMembers(t, g.DSN)
	now := map[string]*harness.Program{"a": all[0], "b": all[1], "c": all[2]}
	see := func(minutes, wanted int) moment { return mustSee(t, minutes, wanted, now) }
	check := func(name string, of func(w place) []string, moments ...moment) {
		t.Helper()
		for _, w := range places() {
			t.Run(name+" "+w.name, func(t *testing.T) { w.recorded(t, moments).mustRing(of(w)...) })
		}
	}
	silent := func(place) []string { return nil }
	before := see(10, 3)

	rollout := []moment{before}
	for _, instance := range []string{"a", "b", "c"} {
		p := now[instance]
		p.MustStop(t)
		now[instance] = nil
		rollout = append(rollout, see(1, 3))
		delete(now, instance)
		p.MustServe(t)
		p.MustJoin(t, len(all))
		now[instance+"2"] = p // a pod has another name
		rollout = append(rollout, see(2, 3))
	}
	check("rollout", silent, append(rollout, see(20, 3))...)

	killed := see(10, 3)
	slow := see(30, 3)
	for instance, text := range slow.texts {
		edits := map[string]string{}
		for _, le := range []string{"1", "5", "+Inf"} { // 1,000 writes of more than half a second
			edits[`junction_store_duration_seconds_bucket{junction_store_operation="write",le="`+le+`"}`] = "2000"
		}
		slow.texts[instance] = edit(t, text, edits)
	}
	check("slow storage", func(place) []string { return []string{"JunctionStoreSlow"} }, killed, slow)
	lost := see(10, 3)
	lost.texts["a2"] = edit(t, lost.texts["a2"], map[string]string{
		`junction_replicas_forwarded_total{junction_forward_outcome="lost"}`: "3"})
	check("forwards lost", func(place) []string { return []string{"JunctionForwardsLost"} }, killed, lost)
	const section = "policies: [{ name: all, rules: [{ allow: { tools: \"*\" } }] }]\n"
	now["a2"].MustReload(t, "upstreams: {", section+"upstreams: {")
	mustScrapeUntil(t, now["a2"], `junction_replicas_differing{junction_config_key="policies"} 2`)
	check("half a rollout", func(place) []string { return []string{"JunctionReplicasDiffer"} }, killed, see(60, 3))
	check("a rollout of the file", silent, killed, see(5, 3), killed)
	now["a2"].MustReload(t, section, "")
	now["c2"].MustKill(t)
	now["c2"] = nil
	now["a2"].MustJoin(t, 2)
	now["b2"].MustJoin(t, 2)
	check("killed", func(w place) []string {
		if w.forgets {
			return []string{"JunctionFewerReplicas"}
		}
		return []string{"JunctionDown", "JunctionFewerReplicas"}
	}, killed, see(70, 3))
	delete(now, "c2")
	check("scale-down", silent, killed, see(20, 2))

	with := see(10, 2)
	g.Close()
	for _, p := range now {
		mustScrapeUntil(t, p, "junction_replicas_lease_seconds 0")
		mustScrapeUntil(t, p, "junction_replicas 0") // the leases of the others expire a moment later, or earlier
	}
	check("no database", func(place) []string { return []string{"JunctionLeaseLost", "JunctionPartFails"} }, with, see(20, 2))
	g.MustOpen(t)
}

// TestEachAlertHasAFault: each alert rings in a test above.
func TestEachAlertHasAFault(t *testing.T) {
	harness.Waits(t)
	// those of TestAlertsOfReplicas
	rings := map[string]bool{"JunctionFewerReplicas": true, "JunctionLeaseLost": true, "JunctionReplicasDiffer": true,
		"JunctionForwardsLost": true, "JunctionStoreSlow": true}
	for _, f := range faults(nil) {
		for _, name := range f.rings {
			rings[name] = true
		}
	}
	var rules struct {
		Groups []struct{ Rules []struct{ Alert string } }
	}
	if err := yaml.Unmarshal([]byte(mustRead(t, "cmd/junction/deploy/alerts.yaml")), &rules); err != nil {
		t.Fatal(err)
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if !rings[r.Alert] {
				t.Errorf("no test has the fault of %s", r.Alert)
			}
		}
	}
}
