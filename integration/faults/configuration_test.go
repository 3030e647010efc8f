//go:build linux

package faults

import (
	"database/sql"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"junction/auth"
	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/upstream/client"
)

// mustAnother starts a process with the file of another one, in which one text is replaced by another.
func mustAnother(t *testing.T, of *harness.Program, before, after string) *harness.Program {
	t.Helper()
	text, err := os.ReadFile(of.File()) // with the paths of the keys
	if err != nil {
		t.Fatal(err)
	}
	p := harness.NewProgram(t)
	if before == "" {
		text, before = append(text, '\n'), "\x00" // at the end
		text = append(text, before...)
	}
	if !strings.Contains(string(text), before) {
		t.Fatalf("the file has no %q:\n%s", before, text)
	}
	p.MustWrite(t, strings.Replace(string(text), before, after, 1))
	p.MustServe(t)
	return p
}

// hardKey is a key that all processes must have equal, with two values of it: lines of the file.
type hardKey struct {
	before, after string
	named         string // in the log of a process with the other value
}

// hardKeys returns the kinds of hard keys, by name, and an API key for those that need one.
func hardKeys(t *testing.T) (keys map[string]hardKey, secret string) {
	t.Helper()
	secret = auth.NewKey()
	authtest.Secret("an API key", secret)
	hash, err := auth.HashKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	with := func(more string) string {
		return fmt.Sprintf("auth: { api_keys: [{ name: ci, hash: %q }]%s }\n", hash, more)
	}
	provider := func(issuer string) string {
		return "public_url: http://localhost:1\n" + with(`, oauth: { identity_providers: [{ id: sso, issuer: "`+issuer+
			`", client_id: c, client_secret: canary-hard }] }`)
	}
	const issuer = `, jwt: [{ issuer: "http://127.0.0.1:1/i", audiences: [x]`
	return map[string]hardKey{
		"names":              {"", "names: { separator: \"-\" }\n", "in names.separator, which all"},
		"public_url":         {"", "public_url: http://localhost:1\n", "in public_url, which all"},
		"authentication on":  {"", with(""), "in auth, which all"},
		"authentication off": {with(""), "\n", "in auth, which all"},
		"the subject":        {with(issuer + " }]"), with(issuer + ", claims: { subject: [oid] } }]"), "claims.subject, which all"},
		"an issuer": {provider("http://127.0.0.1:1/i"), provider("http://127.0.0.1:1/k"),
			"in auth.oauth.identity_providers.sso.issuer, which all"},
	}, secret
}

// TestFaultHardKeyIsReplaced replaces three processes by three with another value of a key that all must have
// equal. The new ones wait, and name the key. They join as soon as the last one is told to stop, before it has
// ended: so calls find a process all the while. A call in flight ends well at its own process. An old process that
// a second signal ends gives its lease back. With JUNCTION_TEST_EACH_KEY=1 it does so for each kind of key; otherwise
// for names alone.
func TestFaultHardKeyIsReplaced(t *testing.T) {
	harness.Waits(t)
	harness.WithoutShort(t)
	keys, secret := hardKeys(t)
	for name, key := range keys {
		if name == "names" || os.Getenv("JUNCTION_TEST_EACH_KEY") != "" {
			t.Run(name, func(t *testing.T) { key.replaced(t, secret) })
		}
	}
}

// replaced is the test for one key.
func (key hardKey) replaced(t *testing.T, secret string) {
	dsn := authtest.Schema(t)
	old := mustReplicas(t, dsn, key.before)
	talk := func(p *harness.Program, lines string) *harness.Talker {
		c := &harness.Talker{URL: p.URL, Era: client.EraLegacy, Version: "2025-11-25", Capabilities: harness.AllCapabilities}
		if strings.Contains(lines, "api_keys") {
			c.Key = secret
		}
		return c.Start(t)
	}
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var next []*harness.Program
	for range 3 {
		next = append(next, mustAnother(t, old[0], key.before, key.after))
	}
	for _, p := range next {
		mustNote(t, p, key.named+" processes must have equal")
	}
	var flights []*harness.Answering
	var talkers []*harness.Talker
	for _, p := range old {
		c := talk(p, key.before)
		c.Succeed(t, "up__echo", `{}`)
		flights, talkers = append(flights, c.Begin(t, harness.Called("up__hang", `{}`))), append(talkers, c)
	}
	began := time.Now()
	for i, p := range old {
		for _, n := range next {
			if strings.Contains(n.Stderr.String(), "joined the replicas") {
				t.Errorf("a new one has joined beside %d old ones", len(old)-i)
			}
		}
		mustSignal(t, p, syscall.SIGTERM)
	}
	for _, p := range next {
		mustNote(t, p, "joined the replicas")
		tool := "up__echo"
		if strings.Contains(key.after, "separator") {
			tool = "up-echo"
		}
		talk(p, key.after).Succeed(t, tool, `{"a":1}`)
	}
	t.Logf("FAULT a hard key is replaced in 3 processes: the new ones serve %v after the first signal",
		time.Since(began).Round(time.Millisecond))
	for i, p := range old {
		select {
		case <-p.Done:
			t.Errorf("the old process %d has ended before its call", i)
		default:
		}
	}
	known := strings.Contains(key.before, "api_keys") == strings.Contains(key.after, "api_keys")
	for i, p := range old[1:] { // a request of the session reaches its owner through a new process
		if !known { // that does not know its caller
			mustSignal(t, p, syscall.SIGTERM)
			<-p.Done
			p.Cmd = nil
			continue
		}
		talkers[i+1].URL = next[i].URL
		talkers[i+1].Notify(t, "notifications/cancelled", `"requestId":`+flights[i+1].ID)
		harness.WantOwnError(t, flights[i+1].Answer(t), "up", client.KindCancelled)
		<-p.Done
		if !p.Cmd.ProcessState.Success() {
			t.Errorf("an old process ended with %v", p.Cmd.ProcessState)
		}
		p.Cmd = nil
	}
	mustSignal(t, old[0], syscall.SIGTERM) // the second signal ends its calls
	<-old[0].Done
	old[0].Cmd = nil
	rows := 0
	if err := db.QueryRow(`SELECT count(*) FROM members`).Scan(&rows); err != nil || rows != len(next) {
		t.Errorf("after a second signal there are %d members, %v; want %d", rows, err, len(next))
	}
	late := mustAnother(t, next[0], "", "")
	mustNote(t, late, "joined the replicas")
	if strings.Contains(late.Stderr.String(), "cannot join") {
		t.Errorf("a process that was killed keeps another one out:\n%s", late.Stderr.Tail(1000))
	}
}
