package signin

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"junction/integration/harness"
	"junction/integration/harness/process"
	"junction/upstream/client"
)

// The tests of this file have a server name authorization servers, honest ones and others, when people
// connect it (auth: { mode: oauth_user }).

func TestConnectRejectsWrongAuthorizationServers(t *testing.T) {
	defer harness.Computes(t)()
	cases := []struct {
		name   string
		wrong  func(l *linear)
		begins bool   // the person is sent there
		says   string // what they read
	}{
		{"issuer", func(l *linear) { l.metadata = set("issuer", "https://as.example.com") }, false,
			"the metadata of another server"},
		{"iss", func(l *linear) { l.iss = "https://as.example.com" }, true, "does not come from"},
		{"no-iss", func(l *linear) { l.iss = "-" }, true, "does not name its issuer"},
		{"place", func(l *linear) { l.placeAt = l.issuer + "/.well-known/oauth-protected-resource" }, false,
			"names metadata on another server"},
		{"resource", func(l *linear) { l.place = set("resource", "https://mcp.example.com/mcp") }, false,
			"the metadata of another server"},
		{"below", func(l *linear) { l.place = set("resource", l.url+"/other") }, false, "the metadata of another server"},
		{"token", func(l *linear) { l.metadata = set("token_endpoint", "https://169.254.169.254/token") }, false,
			"has an invalid endpoint"},
		{"plain", func(l *linear) { l.metadata = set("token_endpoint", "http://as.example.com/token") }, false,
			"has an invalid endpoint"},
		{"script", func(l *linear) { l.metadata = set("authorization_endpoint", "javascript:alert(1)") }, false,
			"has an invalid endpoint"},
		{"page", func(l *linear) { l.metadata = set("authorization_endpoint", "https://169.254.169.254/authorize") }, false,
			"has an invalid endpoint"},
		{"register", func(l *linear) { l.metadata = set("registration_endpoint", "https://169.254.169.254/register") }, false,
			"accepts only registered clients"},
		{"pkce", func(l *linear) { l.metadata = set("code_challenge_methods_supported", []string{"plain"}) }, false,
			"does not support PKCE with S256"},
	}
	var upstreams []string
	var servers []*linear
	for _, test := range cases {
		l := mustLinear(t)
		l.change(func() { test.wrong(l) })
		servers = append(servers, l)
		upstreams = append(upstreams, fmt.Sprintf("%s: { url: %q, auth: { mode: oauth_user } }", test.name, l.url))
	}
	c := mustCompanyOver(t, process.FreePort(t), "{ "+strings.Join(upstreams, ", ")+" }", "",
		"outbound: { allow_private: [127.0.0.0/8] }\n")
	ann := mustWorker(t, c, "ann")
	for i, test := range cases {
		g := ann.connect(c.origin + "/connect/" + test.name)
		if g.title() != test.name+" is not connected" || g.status != 502 || !strings.Contains(g.body, test.says) {
			t.Errorf("%s ends at %s (%d):\n%s", test.name, g.url, g.status, g.body)
		}
		if l := servers[i]; (l.count("authorize") > 0) != test.begins || l.count("token") > 0 {
			t.Errorf("%s: the authorization server was asked %q", test.name, l.asked)
		}
	}
	for _, name := range toolNames(t, ann.talk(t, client.EraModern, `{}`)) {
		if !strings.HasSuffix(name, "__connect") {
			t.Errorf("then she sees %s", name)
		}
	}
}

// set changes a member of a document.
func set(name string, value any) func(map[string]any) {
	return func(document map[string]any) { document[name] = value }
}

// TestConnectRejectsPrivateAuthorizationServers has an upstream name an authorization server in a network
// that the operator has not opened: Junction does not connect to that address.
func TestConnectRejectsPrivateAuthorizationServers(t *testing.T) {
	defer harness.Computes(t)()
	l := mustLinear(t)
	c := mustCompanyOver(t, process.FreePort(t), fmt.Sprintf(`{ linear: { url: %q, auth: { mode: oauth_user } } }`, l.url),
		"", "")
	if g := mustWorker(t, c, "ann").connect(c.origin + "/connect/linear"); g.status != 502 || l.count("metadata") > 0 {
		t.Errorf("it ends at %s (%d), and the server was asked %q", g.url, g.status, l.asked)
	}
}

func TestConnectRegistersOnce(t *testing.T) {
	defer harness.Computes(t)()
	l := mustLinear(t)
	c := mustLinearCompany(t, l, ", client_id: us, client_secret: canary-secret, issuer: \""+l.issuer+"\"", "")
	mustWorker(t, c, "ann").mustConnect(t)
	if l.count("register") != 0 || l.count("authorize us") != 1 {
		t.Errorf("with an id of the operator's the authorization server was asked %q", l.asked)
	}
	if strings.Contains(c.Stdout.String()+c.Stderr.String(), "canary-") {
		t.Error("the log shows a secret")
	}
	l = mustLinear(t)
	c = mustLinearCompany(t, l, "", "")
	var all sync.WaitGroup
	workers := []*worker{mustWorker(t, c, "ann"), mustWorker(t, c, "bob"), mustWorker(t, c, "cid")}
	for _, w := range workers {
		all.Go(func() { w.mustConnect(t) })
	}
	all.Wait()
	c.MustRestart(t)
	mustWorker(t, c, "dora").mustConnect(t)
	if l.count("register") != 1 || l.count("authorize client-0") != 4 {
		t.Errorf("four people connect, and the authorization server was asked %q", l.asked)
	}
	workers[0].talk(t, client.EraModern, `{}`).Succeed(t, "linear__echo", `{}`) // it outlives a restart
}
