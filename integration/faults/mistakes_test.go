//go:build linux

package faults

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"junction/auth"
	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/integration/harness/process"
	"junction/upstream/client"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// These tests make the mistakes of operators with several processes.

// mustProcess returns a process over a database that is not started, with the keys of another one if
// one is given.
func mustProcess(t *testing.T, dsn, url string, keys *harness.Program, sections string) *harness.Program {
	t.Helper()
	p := harness.NewProgram(t)
	dir := p.Dir
	if keys != nil {
		dir = keys.Dir
	}
	p.MustConfigure(t, fmt.Sprintf("upstreams: { up: { url: %q } }\n"+
		"storage: { driver: postgres, dsn: %q, key_file: %q }\n", url, dsn, filepath.Join(dir, "master.key"))+sections)
	text, err := os.ReadFile(p.File())
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte(filepath.Join(p.Dir, "key")), []byte(filepath.Join(dir, "key")), 1)
	if err := os.WriteFile(p.File(), text, 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

const asReplica = "replicas: { listen: 127.0.0.1:0, advertise: 127.0.0.1:0 }\n"

// TestFaultProcessWithoutReplicas starts a process that has forgotten the section replicas beside one that
// has it: it would not know of deleted sessions, and of limits.
func TestFaultProcessWithoutReplicas(t *testing.T) {
	harness.WithoutShort(t)
	harness.Waits(t)
	config, _ := harness.MustScripted(t, "http", upstreamtest.Script{})
	dsn := authtest.Schema(t)
	first := mustProcess(t, dsn, config.URL, nil, asReplica)
	first.MustServe(t)
	other := mustProcess(t, dsn, config.URL, first, "public_url: http://127.0.0.1:8420\nauth: { oauth: "+
		"{ identity_providers: [{ id: sso, issuer: \"http://127.0.0.1:9\", client_id: junction }] } }\n"+
		"policies: [{ name: all, rules: [{ allow: { upstreams: up } }] }]\n")
	_, stderr, err := harness.RunJunction(t, nil, "--config", other.File())
	if err == nil || !strings.Contains(stderr, "other processes use this database as replicas, at 127.0.0.1:") {
		t.Errorf("it ends with %v:\n%s", err, stderr)
	}
}

// TestFaultAnotherDatabase has two processes with the same key get each other's requests, although each
// has its own database: nothing is taken over, and nothing is thrown away.
func TestFaultAnotherDatabase(t *testing.T) {
	harness.WithoutShort(t)
	harness.Waits(t)
	config, _ := harness.MustScripted(t, "http", upstreamtest.Script{Era: "legacy"})
	first := mustProcess(t, authtest.Schema(t), config.URL, nil, asReplica)
	first.MustServe(t)
	other := mustProcess(t, authtest.Schema(t), config.URL, first, asReplica)
	other.MustServe(t)
	time.Sleep(1100 * time.Millisecond) // sessions know their second
	session := harness.Talk(t, first.URL, client.EraLegacy)
	modern := harness.Talk(t, first.URL, client.EraModern)
	q := harness.Asking(harness.AskForm)
	m := modern.Begin(t, q).Answer(t)
	q.Params = harness.Retried(q.Params, m,
		string(raw.Quote(harness.Requested(t, m)[0].Key))+`:`+strings.TrimPrefix(harness.Accepted, `"result":`))
	there, elsewhere := *session, *modern
	there.URL, elsewhere.URL = other.URL, other.URL
	const want = "a process with another database has this session or call; send the request again"
	if m := there.Call(t, "up__echo", `{}`); m.Error == nil || m.Error.Message != want {
		t.Errorf("the session is answered %s", m.Append(nil))
	}
	if m := elsewhere.Begin(t, q).Answer(t); m.Error == nil || m.Error.Message != want {
		t.Errorf("the answer to the question is answered %s", m.Append(nil))
	}
	session.Succeed(t, "up__echo", `{}`)
	harness.AnswersOf(t, modern.Begin(t, q).Answer(t))
	mustNote(t, other, "all processes behind one address must have the same storage.dsn")
	for r := other.MustReady(t, harness.Patience); r.Status != "degraded"; {
		r = other.MustReady(t, harness.Patience)
	}
}

// TestFaultDatabaseOfOneReplica cuts the database off from one of two processes. Only this one becomes
// unready, and only when its lease ends.
func TestFaultDatabaseOfOneReplica(t *testing.T) {
	harness.WithoutShort(t)
	harness.Waits(t)
	config, _ := harness.MustScripted(t, "http", upstreamtest.Script{})
	g := authtest.MustGate(t, authtest.Schema(t))
	dsn := "${DSN}"
	first := mustProcess(t, dsn, config.URL, nil, asReplica)
	mustLaunch(t, first, "exec \"$@\"", "DSN="+g.DSN)
	other := mustProcess(t, dsn, config.URL, first, asReplica)
	mustLaunch(t, other, "exec \"$@\"", "DSN="+g.Real())
	mustKnow(t, first, 2)
	mustKnow(t, other, 2)
	g.Close()
	c := harness.MustCaller(t, first.URL, harness.ModernEra)
	began := time.Now()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for r := first.MustReady(t, harness.Patience); r.Status != "unavailable"; <-again.C {
		if time.Since(began) < 5*time.Second {
			c.MustCall(t, "up__echo", `{}`, "{}")
		}
		r = first.MustReady(t, harness.Patience)
	}
	if after := time.Since(began); after < 6*time.Second {
		t.Errorf("the process is unready after %v, while its lease holds", after)
	}
	if r := other.MustReady(t, harness.Patience); r.Status != "ready" {
		t.Errorf("the other process is %s", r.Status)
	}
}

// TestFaultRevocationOfOneReplica revokes a key in the file of one of two processes. The command tells that the other
// one accepts the key until its own file lacks it, and so it is.
func TestFaultRevocationOfOneReplica(t *testing.T) {
	harness.WithoutShort(t)
	harness.Waits(t)
	config, _ := harness.MustScripted(t, "http", upstreamtest.Script{})
	dsn, keys, keySection := authtest.Schema(t), map[string]string{}, "auth:\n  api_keys:\n"
	for _, name := range []string{"ann", "bob"} {
		keys[name] = auth.NewKey()
		authtest.Secret("the key of "+name, keys[name])
		hash, err := auth.HashKey(keys[name])
		if err != nil {
			t.Fatal(err)
		}
		keySection += fmt.Sprintf("    - { name: %s, hash: %q }\n", name, hash)
	}
	var all []*harness.Program
	for range 2 {
		var first *harness.Program
		if len(all) > 0 {
			first = all[0]
		}
		p := mustProcess(t, dsn, config.URL, first, keySection+asReplica)
		p.MustServe(t)
		all = append(all, p)
	}
	mustKnow(t, all[0], 2)
	revoke := func(p *harness.Program, name string) string {
		out, stderr, err := harness.RunJunction(t, p.Owner(), "keys", "revoke", name, "--config", p.File())
		if err != nil {
			t.Fatalf("%v\n%s%s", err, out, stderr)
		}
		return out
	}
	accepts := func(p *harness.Program, name string) bool {
		out, stderr, err := harness.RunJunction(t, []string{"JUNCTION_KEY=" + keys[name]}, "tools", "--url", p.URL)
		if err != nil && !strings.Contains(stderr, "401") && !strings.Contains(stderr, "does not accept the token") {
			t.Errorf("%v\n%s%s", err, out, stderr)
		}
		return err == nil
	}
	const others = "It is one of 2 processes. Each of the others accepts the key until its own file lacks it."
	if out := revoke(all[0], "ann"); !strings.Contains(out, others) {
		t.Errorf("the command prints\n%s", out)
	}
	if accepts(all[0], "ann") || !accepts(all[1], "ann") {
		t.Error("the process of the file accepts the key, or the other one does not")
	}
	if out := revoke(all[1], "ann"); !strings.Contains(out, others) {
		t.Errorf("the command prints\n%s", out)
	}
	if accepts(all[1], "ann") || !accepts(all[0], "bob") || !accepts(all[1], "bob") {
		t.Error("revoked in both files, the key is accepted, or another one is not")
	}
}

// TestFaultAuditOfReplicas has three processes with one configuration write an audit: each makes a file of
// its own with an unbroken order. Without {replica} in the name, the second process does not start.
func TestFaultAuditOfReplicas(t *testing.T) {
	harness.WithoutShort(t)
	harness.Waits(t)
	config, _ := harness.MustScripted(t, "http", upstreamtest.Script{})
	dsn, dir := authtest.Schema(t), t.TempDir()
	var all []*harness.Program
	add := func(name string) *harness.Program {
		var first *harness.Program
		if len(all) > 0 {
			first = all[0]
		}
		address := process.FreePort(t)
		return mustProcess(t, dsn, config.URL, first, fmt.Sprintf("replicas: { listen: %q, advertise: %[1]q }\n"+
			"audit: { file: %q }\n", address, filepath.Join(dir, name)))
	}
	for range 3 {
		p := add("audit-{replica}.jsonl")
		p.MustServe(t)
		all = append(all, p)
	}
	_, stderr, err := harness.RunJunction(t, nil, "--config", all[0].File(), "--listen", "127.0.0.1:0")
	if err == nil || !strings.Contains(stderr, "another process writes this file; give each process its own file") {
		t.Errorf("a process with the file of another one ends with %v:\n%s", err, stderr)
	}
	for i, p := range all {
		mustKnow(t, p, len(all))
		for _, c := range through(t, p, all[(i+1)%len(all)], 3) { // the owner writes the line
			c.MustCall(t, "up__echo", `{}`, "{}")
		}
	}
	for _, p := range all {
		p.MustRestart(t)
		harness.MustCaller(t, p.URL, harness.ModernEra).MustCall(t, "up__echo", `{}`, "{}")
		p.MustStop(t)
	}
	files, err := filepath.Glob(filepath.Join(dir, "audit-127.0.0.1-*.jsonl"))
	if err != nil || len(files) != 3 {
		t.Fatalf("the files are %v, %v", files, err)
	}
	for _, file := range files {
		text, _ := os.ReadFile(file)
		if n := strings.Count(string(text), `"method":"tools/call"`); n != 4 {
			t.Errorf("%s has %d calls, want 4:\n%s", file, n, text)
		}
		if out, stderr, err := harness.RunJunction(t, nil, "audit", "verify", file); err != nil {
			t.Errorf("verify: %v\n%s%s", err, out, stderr)
		}
	}
}
