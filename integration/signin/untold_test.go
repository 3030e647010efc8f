package signin

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"junction/auth"
	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// TestUpstreamCredentialsAreToldNowhere: a secret that a program prints, one that a failing program traces, a client
// secret, a client assertion, the key of a certificate, a token of Junction, a key of a caller, a forwarded header and
// the statement about a caller are in no log, audit, trace, crash output, status, report, backup or database, although
// the servers repeat what they are sent in their errors.
func TestUpstreamCredentialsAreToldNowhere(t *testing.T) {
	harness.Waits(t)
	var told sync.Mutex
	var assertions, statements, exported []string
	note := func(list *[]string, kind, secret string) {
		if secret == "" {
			return
		}
		authtest.Secret(kind, secret)
		told.Lock()
		defer told.Unlock()
		*list = append(*list, secret)
	}
	as := httptest.NewServer(nil)
	defer as.Close()
	as.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/.well-known/oauth-authorization-server":
			say(w, map[string]any{"issuer": as.URL, "token_endpoint": as.URL + "/token"}, nil)
		case "/token":
			_ = r.ParseForm()
			note(&assertions, "a client assertion", r.PostForm.Get("client_assertion"))
			if r.PostForm.Get("client_id") == "refused" { // an authorization server that repeats the proof
				w.WriteHeader(http.StatusBadRequest)
				fmt.Fprintf(w, `{"error":"invalid_client","error_description":%q}`, r.PostForm.Encode())
				return
			}
			fmt.Fprint(w, `{"access_token":"canary-own-token","token_type":"Bearer","expires_in":600}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	up := upstreamtest.New(upstreamtest.Script{})
	defer up.Close()
	url, _ := upstreamtest.Serve(t, "127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note(&statements, "a statement about a caller", r.Header.Get(upstream.IdentityHeader))
		if r.Header.Get("X-Fail") != "" {
			http.Error(w, fmt.Sprint(r.Header.Get("X-Key"), " ", r.Header.Get("Authorization"), " ", r.Header.Get("X-Tenant")),
				http.StatusBadRequest)
			return
		}
		up.Handler().ServeHTTP(w, r)
	}))
	traces := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		told.Lock()
		defer told.Unlock()
		exported = append(exported, string(body))
	}))
	defer traces.Close()
	p := harness.NewProgram(t)
	files := map[string]string{"printed": "canary-printed-secret", "own": "canary-client-secret"}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(p.Dir, name), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mustCertify(t, p.Dir)
	key := auth.NewKey()
	authtest.Secret("an API key", key)
	hash, err := auth.HashKey(key)
	if err != nil {
		t.Fatal(err)
	}
	const more = "forward_headers: [X-Tenant, X-Fail], identity: { audience: crm, claims: [email] }"
	p.MustConfigure(t, fmt.Sprintf(`public_url: https://junction.example.com
log: { level: debug }
audit: { file: %[1]s/audit.jsonl, arguments: true }
storage: { dsn: %[1]s/junction.db, key_file: %[1]s/master.key }
outbound: { allow_private: [127.0.0.0/8] }
auth: { api_keys: [ { name: ci, hash: %[4]q } ] }
policies: [ { name: all, rules: [ { allow: { upstreams: "*" } } ] } ]
upstreams:
  printed: { url: %[2]q, headers: { X-Key: "${exec: [cat, %[1]s/printed]}" }, %[5]s }
  traces: { url: %[2]q, headers: { X-Key: "${exec: [sh, -c, 'set -x; : canary-traced-secret; exit 3']}" } }
  signed: { url: %[2]q, auth: { mode: client_credentials, issuer: %[3]q, client_id: us, private_key_file: us.example.com.key }, %[5]s }
  secret: { url: %[2]q, auth: { mode: client_credentials, issuer: %[3]q, client_id: us, client_secret: "${exec: [cat, %[1]s/own]}" }, %[5]s }
  refused: { url: %[2]q, auth: { mode: client_credentials, issuer: %[3]q, client_id: refused, private_key_file: us.example.com.key } }
  certified: { url: %[2]q, auth: { mode: client_credentials, issuer: %[3]q, client_id: us, cert_file: us.example.com.pem, key_file: us.example.com.key } }
  given: { url: %[2]q, auth: { mode: user_key }, %[5]s }
`, p.Dir, url+"/mcp", as.URL, hash.String(), more))
	cmd := exec.Command(harness.JunctionBinary(t), "--config", p.File())
	cmd.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT="+traces.URL, "OTEL_BSP_SCHEDULE_DELAY=50",
		"OTEL_METRIC_EXPORT_INTERVAL=100")
	p.MustStart(t, cmd)
	for _, name := range []string{"printed", "signed", "secret"} {
		p.Stderr.MustMatch(t, regexp.MustCompile(`msg="upstream ready" upstream=`+name+` `), harness.Patience, p.Done)
	}
	c := &company{Program: p}
	if out, err := c.setKey(t, "canary-key-of-ci", "ci", "given"); err != nil {
		t.Fatalf("users key: %v\n%s", err, out)
	}
	harness.EachClientEra(t, func(t *testing.T, era client.Era) {
		talker := (&harness.Talker{URL: p.URL, Era: era, Version: "2025-11-25",
			Capabilities: harness.AllCapabilities, Name: "c", Key: key}).Start(t)
		for _, name := range []string{"printed", "signed", "secret", "given"} {
			for _, fail := range []string{"", "canary-forwarded-fail"} {
				q := harness.Called(name+"__echo", `{"say":"x"}`)
				q.Header = http.Header{"X-Tenant": {"canary-forwarded-tenant"}}
				if fail != "" {
					q.Header.Set("X-Fail", fail)
				}
				m := talker.Begin(t, q).Answer(t)
				if (m.Error == nil) != (fail == "") {
					t.Errorf("%s, fail %t: %v", name, fail != "", m.Error)
				}
				if m.Error != nil {
					authtest.MustTellNothing(t, "the error of a call of "+name, m.Error.Message+string(m.Error.Data))
				}
			}
		}
	})
	search := func(what, text string) {
		if text == "" {
			t.Errorf("%s has nothing to search", what)
		}
		authtest.MustTellNothing(t, what, text)
	}
	for _, words := range [][]string{{"status"}, {"status", "--json"}, {"doctor"}, {"auth", "doctor"}, {"why", "printed__echo", "--as", "ci"}} {
		out, errs, _ := harness.RunJunction(t, p.Owner(), append(words, "--config", p.File())...)
		search("junction "+strings.Join(words, " "), out+errs)
	}
	backup := filepath.Join(p.Dir, "backup.db")
	c.mustOperate(t, "storage", "backup", backup)
	if err := cmd.Process.Signal(syscall.SIGQUIT); err != nil { // the runtime prints the stacks of all goroutines
		t.Fatal(err)
	}
	<-p.Done
	p.Cmd = nil // it has not ended well
	if !strings.Contains(p.Stderr.String(), "goroutine ") {
		t.Error("the program has printed no stacks")
	}
	search("the log and the crash", p.Stdout.String()+p.Stderr.String())
	told.Lock()
	defer told.Unlock()
	search("the traces", strings.Join(exported, "\n"))
	if len(assertions) == 0 || len(statements) == 0 {
		t.Errorf("the servers got %d assertions and %d statements", len(assertions), len(statements))
	}
	found, err := filepath.Glob(filepath.Join(p.Dir, "*.db*"))
	if err != nil || len(found) < 2 {
		t.Fatal(found, err)
	}
	for _, file := range append(found, filepath.Join(p.Dir, "audit.jsonl")) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > 0 {
			search(filepath.Base(file), string(text))
		}
	}
}
