package serve

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"junction/cmd/junction/ops/diagnose"
	"junction/upstream/upstreamtest"
)

// mustRun runs a whole command line.
func mustRun(t *testing.T, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	got := runProgram(t, "", args...)
	if got.code != want {
		t.Fatalf("junction %s = %d, want %d:\n%s%s", strings.Join(args, " "), got.code, want, got.stdout, got.stderr)
	}
	return got.stdout, got.stderr
}

func mustContain(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in:\n%s", w, text)
		}
	}
}

// fine are tools about which there is nothing to say.
func fine(names ...string) (list []json.RawMessage) {
	for _, name := range names {
		list = append(list, fmt.Appendf(nil, `{"name":%q,"description":"It does.","inputSchema":{"type":"object","properties":{}}}`, name))
	}
	return list
}

// TestDoctorOfARunningProxy: what is wrong is said with what to do, and what is right is not talked
// about.
func TestDoctorOfARunningProxy(t *testing.T) {
	_, good := upstreamtest.Start(t, upstreamtest.Script{Tools: fine("a", "b")})
	_, twin := upstreamtest.Start(t, upstreamtest.Script{Tools: fine("a")})
	_, closed := upstreamtest.Start(t, upstreamtest.Script{Rules: []upstreamtest.Rule{{Method: "*", Status: 401}}})
	_, odd := upstreamtest.Start(t, upstreamtest.Script{Tools: append(fine("a thing"), []byte(`{"name":"x","inputSchema":{"type":"string"}}`))})
	const served = "upstreams:\n  closed: { url: %s }\n  good: { url: %s, prefix: \"\" }\n  odd: { url: %s }\n"
	r := mustServe(t, fmt.Sprintf(served, closed, good, odd))
	r.own(t)
	r.stderr.mustSay(t, "state=ready", 2) // a name belongs to the server that was ready first
	text, err := os.ReadFile(r.file)
	if err != nil {
		t.Fatal(err)
	}
	twins := fmt.Sprintf("upstreams:\n  twin: { url: %s, tools: { a: { as: b } }, prefix: \"\" }\n", twin)
	mustWrite(t, r.file, strings.Replace(string(text), "upstreams:\n", twins, 1))
	r.stderr.mustSay(t, "state=ready", 3)
	r.stderr.mustSay(t, "state=blocked", 1)
	r.stderr.mustSay(t, "not offered", 1)
	admin := r.listening.admin.Addr().String()
	out, said := mustRun(t, 1, "doctor", "--admin", admin)
	mustContain(t, out, "Asked the running proxy of "+r.file, "closed    blocked", "good      ready", "\nProblems\n",
		"closed: handshake failed: the server answered 401 Unauthorized", "→ the server requires authentication: set headers",
		"odd: tool x: left out (inputSchema.type is not \"object\")", "→ tell the server's author",
		"twin: tool a: not offered (its name b belongs to b of good already; set\n    upstreams.twin.tools.a.as", "\nProblems with some clients\n",
		"odd: tool a thing: names that are too long for clients")
	if strings.Contains(out, "good:") || said != "junction: 3 problems, and 1 with some clients\n" {
		t.Errorf("the good one is complained about, or the count is not 3: %s%s", out, said)
	}
	out, said = mustRun(t, 0, "doctor", "--admin", "http://"+admin, "good")
	mustContain(t, out, "2 tools for clients of /mcp", "No problems found.")
	if strings.Contains(out, "closed") || said != "" {
		t.Errorf("others are spoken of: %s%s", out, said)
	}
	_, said = mustRun(t, 1, "doctor", "--admin", admin, "god")
	mustContain(t, said, `there is no upstream "god"; did you mean good?`)

	out, _ = mustRun(t, 1, "doctor", "--admin", admin, "odd", "-o", "json")
	var d diagnose.Diagnosis
	if err := json.Unmarshal([]byte(out), &d); err != nil || !d.Running || len(d.Upstreams) != 1 || d.Upstreams[0].Tools != 1 || len(d.Findings) != 2 || !d.Findings[0].Grave {
		t.Errorf("%v, %+v, want odd with one tool and two findings:\n%s", err, d, out)
	}
}

// TestDoctorWithoutAProxy: the file alone is enough.
func TestDoctorWithoutAProxy(t *testing.T) {
	_, url := upstreamtest.Start(t, upstreamtest.Script{Tools: fine("a")})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := l.Addr().String()
	l.Close()
	file := filepath.Join(t.TempDir(), "config.yaml")
	with := func(admin, more string) {
		mustWrite(t, file, fmt.Sprintf("admin: %s\nupstreams:\n  off: { command: [x], enabled: false }\n  a: { url: %s }\n%s", admin, url, more))
	}
	for _, admin := range []string{free, `""`, "127.0.0.1:0"} {
		with(admin, "")
		out, _ := mustRun(t, 0, "doctor", "--config", file)
		mustContain(t, out, "No proxy was asked; the upstreams of "+file+" were started for this check.", "a         ok     modern      1", "No problems found.")
		if strings.Contains(out, "off") {
			t.Errorf("what is not enabled was checked:\n%s", out)
		}
	}
	with(free, "  gone: { command: [there-is-no-such-program] }\n")
	out, said := mustRun(t, 1, "doctor", "--config", file)
	mustContain(t, out+said, "gone      failed", "gone: start failed: there-is-no-such-program: not found in PATH", "→ install there-is-no-such-program", "junction: 1 problem\n")
	mustWrite(t, file, "upstreams: 1\n")
	_, said = mustRun(t, 1, "doctor", "--config", file)
	mustContain(t, said, "has 1 mistake; junction check --config")
	_, said = mustRun(t, 1, "doctor", "--admin", free)
	mustContain(t, said, "no junction is running at "+free+"; start one, name its admin address with --admin, or check the upstreams of a file with --config FILE")
	_, said = mustRun(t, 2, "doctor", "--admin", "8421")
	mustContain(t, said, "is no address")
	_, said = mustRun(t, 2, "doctor", "--admin", free, "--config", file)
	mustContain(t, said, "not both")
	_, said = mustRun(t, 2, "doctor", "-o", "xml")
	mustContain(t, said, "text or json")
}

// TestDoctorComparesRules: a rule with a typo is reported by a running proxy and without one, and
// is no problem of an upstream. A check of one upstream does not compare the rules.
func TestDoctorComparesRules(t *testing.T) {
	_, good := upstreamtest.Start(t, upstreamtest.Script{Tools: fine("read_file", "rm")})
	r := mustServe(t, fmt.Sprintf("upstreams:\n  good: { url: %s }\npolicies:\n  - name: all\n    rules:\n"+
		"      - deny: { tools: good__raed_file }\n      - ask: { tools: [good__rm, \"good__del*\"] }\n"+
		"      - allow: { upstreams: \"*\" }\n", good))
	r.own(t)
	r.stderr.mustSay(t, "state=ready", 1)
	admin := r.listening.admin.Addr().String()
	for _, args := range [][]string{{"--admin", admin}, {"--config", r.file}} {
		out, said := mustRun(t, 0, append([]string{"doctor"}, args...)...)
		text, err := os.ReadFile(r.file)
		if err != nil {
			t.Fatal(err)
		}
		line := strings.Count(strings.SplitAfter(string(text), "raed_file")[0], "\n") + 1
		mustContain(t, out, "\nRules that match nothing\n  rule policies[0].rules[0].deny.tools: \"good__raed_file\" matches no tool; did\n"+
			fmt.Sprintf("    you mean good__read_file? (policy all, line %d)", line),
			"rule policies[0].rules[1].ask.tools[1]: \"good__del*\" matches no tool (policy")
		if strings.Contains(out, "some clients\n") || said != "" {
			t.Errorf("a rule is counted as a problem: %s%s", out, said)
		}
	}
	out, _ := mustRun(t, 0, "doctor", "--admin", admin, "good")
	mustContain(t, out, "No problems found.")
}

// TestDoctorOneAtATime: a check starts processes, so requests, and above all those of a web page, cannot
// start many.
func TestDoctorOneAtATime(t *testing.T) {
	s, url := upstreamtest.Start(t, upstreamtest.Script{Era: "modern", Tools: fine("a")})
	r := mustServe(t, "upstreams: { a: { url: "+url+", connect_timeout: 2s } }\n")
	r.own(t)
	r.stderr.mustSay(t, "state=ready", 1)
	get := func(header ...string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.listening.admin.Addr().String()+"/doctor", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = r.owned()
		for i := 0; i+1 < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	s.AddRules(upstreamtest.Rule{Method: "server/discover", Times: 1, Hang: true})
	first := make(chan int)
	go func() {
		status, _ := get()
		first <- status
	}()
	handshakes := 0
	if _, err := s.Await(t.Context(), func(r upstreamtest.Record) bool {
		if r.Message.Method == "server/discover" {
			handshakes++
		}
		return handshakes == 2
	}); err != nil {
		t.Fatal(err)
	}
	if status, text := get(); status != http.StatusConflict {
		t.Errorf("a second check beside the first: %d %s, want 409", status, text)
	}
	if status := <-first; status != http.StatusOK {
		t.Errorf("the first check: %d", status)
	}
	if status, text := get("Sec-Fetch-Site", "cross-site"); status != http.StatusForbidden {
		t.Errorf("a web page: %d %s, want 403", status, text)
	}
	if status, text := get(); status != http.StatusOK || !strings.Contains(text, `"ok": true`) {
		t.Errorf("afterwards: %d %s", status, text)
	}
}

// TestDoctorNamesPartsThatFail: an identity provider that was off at the start is a problem, with the command that
// finds the reason.
func TestDoctorNamesPartsThatFail(t *testing.T) {
	_, good := upstreamtest.Start(t, upstreamtest.Script{Tools: fine("a")})
	r := mustServe(t, fmt.Sprintf(`public_url: http://127.0.0.1:1
storage: { dsn: %[1]s/junction.db, key_file: %[1]s/master.key }
auth: { oauth: { identity_providers: [{ id: sso, name: Acme SSO, issuer: "http://127.0.0.1:1", client_id: junction, client_secret: canary-s3cret }] } }
upstreams: { good: { url: %[2]q } }
`, t.TempDir(), good))
	r.own(t)
	r.stderr.mustSay(t, "state=ready", 1)
	r.stderr.mustSay(t, "part=identity_providers", 1)
	out, said := mustRun(t, 1, "doctor", "--admin", r.listening.admin.Addr().String())
	text := strings.Join(strings.Fields(out), " ")
	mustContain(t, text, "identity_providers: Acme SSO: discover http://127.0.0.1:1: ",
		"; no server listens there: start it, or check host and port",
		"→ users cannot sign in; this command compares the file with the providers: junction auth doctor --config "+r.file)
	mustContain(t, said, "junction: 1 problem\n")
	if strings.Contains(out+said, "canary") {
		t.Errorf("doctor prints the secret:\n%s%s", out, said)
	}
}
