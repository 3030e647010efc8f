package deploy

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"junction/auth"
	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/integration/harness/needs"
	"junction/integration/harness/process"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

const host = "mcp.example.com"

// recipe reads a file of the recipes, and replaces what is of the machine. Each text must be in it.
func recipe(t *testing.T, file string, replaced ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../cmd/junction/deploy", file))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(replaced); i += 2 {
		if !strings.Contains(string(text), replaced[i]) {
			t.Fatalf("%s does not contain %q", file, replaced[i])
		}
	}
	return strings.NewReplacer(replaced...).Replace(string(text))
}

// A front is a reverse proxy in front of Junction.
type front struct {
	name  string
	start func(t *testing.T, p place) *exec.Cmd
}

// place is where a front runs: its folder with cert.pem and key.pem, its address, and those of
// Junction.
type place struct {
	dir, address string
	junction     []member
}

// member has the addresses of one process, listen and admin.
type member struct{ listen, admin string }

// lines returns one line of the recipe for each process.
func (p place) lines(of func(i int, one member) string) string {
	var all []string
	for i, one := range p.junction {
		all = append(all, of(i, one))
	}
	return strings.Join(all, "\n\t")
}

func (p place) write(t *testing.T, file, text string) string {
	t.Helper()
	name := filepath.Join(p.dir, file)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// nginx returns nginx with a site of the recipe.
func nginx(site func(t *testing.T, p place) string) front {
	return front{"nginx", func(t *testing.T, p place) *exec.Cmd {
		p.write(t, "site.conf", site(t, p))
		user := ""
		if os.Geteuid() == 0 {
			user = "user root;\n" // its workers write into our folder
		}
		file := p.write(t, "nginx.conf", user+fmt.Sprintf(`daemon off;
pid %[1]s/pid;
events {}
http {
	access_log off;
	client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	include %[1]s/site.conf;
}
`, p.dir))
		return exec.Command(program(t, "nginx"), "-p", p.dir, "-e", "stderr", "-c", file)
	}}
}

func nginxSite(t *testing.T, p place) string {
	servers := p.lines(func(_ int, one member) string { return "server " + one.listen + " max_fails=0;" })
	return recipe(t, "nginx.conf", "listen 443 ssl", "listen "+p.address+" ssl", "\tlisten [::]:443 ssl http2;\n", "",
		"listen 80;", "listen "+process.FreePort(t)+";", "\tlisten [::]:80;\n", "", "server 127.0.0.1:8420 max_fails=0;", servers,
		"/etc/letsencrypt/live/mcp.example.com/fullchain.pem", p.dir+"/cert.pem",
		"/etc/letsencrypt/live/mcp.example.com/privkey.pem", p.dir+"/key.pem")
}

func fronts() []front { return []front{haproxy(), nginx(nginxSite), caddy()} }

// caddy returns Caddy with the recipe, which gets no certificate from outside.
func caddy() front {
	return front{"Caddy", func(t *testing.T, p place) *exec.Cmd {
		addresses := strings.Fields(p.lines(func(_ int, one member) string { return one.listen }))
		file := p.write(t, "Caddyfile", "{\n\tadmin off\n\tauto_https off\n}\n"+
			recipe(t, "Caddyfile", "\n"+host+" {", "\nhttps://"+host+":"+port(p.address)+" {\n\tbind 127.0.0.1\n\ttls "+p.dir+"/cert.pem "+p.dir+"/key.pem"))
		cmd := exec.Command(program(t, "caddy"), "run", "--adapter", "caddyfile", "--config", file)
		cmd.Env = append(os.Environ(), "JUNCTION="+strings.Join(addresses, " "),
			"JUNCTION_ADMIN="+port(p.junction[0].admin), "HOME="+p.dir, "XDG_DATA_HOME="+p.dir, "XDG_CONFIG_HOME="+p.dir)
		return cmd
	}}
}

// haproxy returns HAProxy with the recipe.
func haproxy() front {
	return front{"HAProxy", func(t *testing.T, p place) *exec.Cmd {
		for _, name := range []string{"cert.pem", "key.pem"} {
			text, err := os.ReadFile(filepath.Join(p.dir, name))
			if err != nil {
				t.Fatal(err)
			}
			both, _ := os.ReadFile(filepath.Join(p.dir, "both.pem"))
			p.write(t, "both.pem", string(both)+string(text))
		}
		servers := p.lines(func(i int, one member) string {
			return fmt.Sprintf("server junction%d %s port %s", i+1, one.listen, port(one.admin))
		})
		file := p.write(t, "haproxy.cfg", recipe(t, "haproxy.cfg", "bind :::443 v4v6", "bind "+p.address,
			"bind :::80 v4v6", "bind "+process.FreePort(t), "/etc/haproxy/mcp.example.com.pem", p.dir+"/both.pem",
			"server junction1 127.0.0.1:8420", servers,
			"maxconn 16000", "maxconn 2000")) // that many descriptors the machine of a test may lack
		return exec.Command(program(t, "haproxy"), "-db", "-f", file)
	}}
}

func port(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

// program returns the path of a program of this machine.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := needs.Path(name)
	needs.Skip(t, err)
	return path
}

// stack is a reverse proxy, Junction and a server.
type stack struct {
	public string // URL
	key    string
	http   *http.Client
	output *process.Output // of the reverse proxy
}

// mustStack starts Junction with the configuration of a team, and a reverse proxy in front of it.
func mustStack(t *testing.T, f front) *stack {
	t.Helper()
	return mustStackAt(t, f, "https://"+host)
}

// mustStackAt is mustStack with a public_url. Connections lead to the reverse proxy, on any port.
func mustStackAt(t *testing.T, f front, public string) *stack {
	t.Helper()
	_, url := upstreamtest.Start(t, upstreamtest.Script{})
	key := auth.NewKey()
	authtest.Secret("an API key", key)
	hash, err := auth.HashKey(key)
	if err != nil {
		t.Fatal(err)
	}
	entry := "{ name: team, hash: \"" + hash.String() + "\" }"
	p := harness.NewProgram(t)
	p.MustConfigure(t, "public_url: "+public+"\nupstreams: { up: { url: "+url+", isolation: shared, timeout: 5m } }\n"+
		"auth: { api_keys: ["+entry+"], trusted_proxies: [127.0.0.1/32] }\n")
	p.MustServe(t)
	p.MustReady(t, harness.Patience)
	s := mustFront(t, f, public, []member{{strings.TrimPrefix(p.Origin(), "http://"), strings.TrimPrefix(p.Admin, "http://")}})
	s.key = key
	return s
}

// mustFront starts a reverse proxy in front of processes.
func mustFront(t *testing.T, f front, public string, junction []member) *stack {
	t.Helper()
	at := place{dir: t.TempDir(), address: process.FreePort(t), junction: junction}
	roots := mustCertificate(t, at)
	cmd := f.start(t, at)
	output := process.NewOutput()
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = output, output, process.ChildAttr(syscall.SIGTERM)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cmd.Wait()
	}()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		if t.Failed() {
			t.Logf("%s says:\n%s", f.name, output)
		}
	})
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, at.address)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DialContext: dial, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	s := &stack{public: public, http: &http.Client{Transport: transport}, output: output}
	s.mustAnswer(t, ended)
	return s
}

func (s *stack) client(t *testing.T, era client.Era) *harness.Client {
	t.Helper()
	c := harness.NewClient(t, &harness.Endpoint{URL: s.public + "/mcp"}, era)
	c.Key, c.HTTP = s.key, s.http
	if era == client.EraLegacy {
		c.MustInitialize(t, "2025-11-25")
	}
	return c
}

// mustAnswer waits until the reverse proxy answers.
func (s *stack) mustAnswer(t *testing.T, ended <-chan struct{}) {
	t.Helper()
	enough, again := time.After(harness.Patience), time.NewTicker(20*time.Millisecond)
	defer again.Stop()
	for {
		r, err := s.http.Get(s.public + "/mcp")
		if err == nil {
			r.Body.Close()
			return
		}
		select {
		case <-again.C:
		case <-ended:
			t.Fatalf("the reverse proxy has ended: %v", err)
		case <-enough:
			t.Fatalf("the reverse proxy does not answer: %v", err)
		}
	}
}

// mustCertificate writes a certificate and its key for the host, and returns who trusts it.
func mustCertificate(t *testing.T, p place) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{host}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	p.write(t, "cert.pem", string(text))
	p.write(t, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	return roots
}

// TestOperateRecipesOfReverseProxies runs Junction behind each reverse proxy with its recipe: streams,
// uploads, the Host of the client and calls that are silent for more than a minute pass.
func TestOperateRecipesOfReverseProxies(t *testing.T) {
	harness.Waits(t)
	for _, f := range fronts() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			s := mustStack(t, f)
			harness.EachClientEra(t, func(t *testing.T, era client.Era) {
				c := s.client(t, era)
				harness.WantEcho(t, c.Tool(t, "up__echo", `{}`))

				large := strings.Repeat("x", 8<<20)
				if a := c.Tool(t, "up__echo", `{"text":"`+large+`"}`); !strings.Contains(string(a.Body), large) {
					t.Errorf("a call with 8 MiB: %.300s", a)
				}

				stream := c.MustOpen(t)
				c.Tool(t, "up__settools", `{"tools":[`+tool("echo")+`,`+tool("settools")+`,`+tool("slow")+`,`+tool("new-"+string(era))+`]}`)
				for e, err := stream.Read(); !strings.Contains(string(e.Data), "list_changed"); e, err = stream.Read() {
					if err != nil {
						t.Fatalf("the stream ends before the change is told: %v", err)
					}
				}
			})
			t.Run("silent for 65 seconds", func(t *testing.T) {
				harness.WithoutShort(t)
				if a := s.client(t, client.EraModern).Tool(t, "up__slow", `{"ms":65000}`); a.Status != http.StatusOK || a.Message.Error != nil {
					t.Errorf("a call of 65 seconds: %.300s", a)
				}
			})
		})
	}
}

// TestOperateWrongHost: without the line for Host, nginx sends the name of its upstream. The answer
// names it, and both remedies work.
func TestOperateWrongHost(t *testing.T) {
	harness.Waits(t)
	s := mustStack(t, nginx(func(t *testing.T, p place) string {
		return strings.Replace(nginxSite(t, p), "proxy_set_header Host $host;", "", 1)
	}))
	c := harness.NewClient(t, &harness.Endpoint{URL: "https://" + host + "/mcp"}, client.EraModern)
	c.Key, c.HTTP = s.key, s.http
	a := c.Call(t, "tools/list", `{}`)
	for _, want := range []string{`"junction"`, "proxy_set_header Host $host;", `allowed_hosts: ["junction"]`} {
		if a.Status != http.StatusForbidden || !strings.Contains(string(a.Body), want) {
			t.Errorf("%s: want 403 and %s in it", a, want)
		}
	}
}

// TestOperateAnotherPort: with the recipe of nginx, Host has no port. A public_url with a port works
// nevertheless.
func TestOperateAnotherPort(t *testing.T) {
	harness.Waits(t)
	s := mustStackAt(t, nginx(nginxSite), "https://"+host+":8543")
	harness.EachClientEra(t, func(t *testing.T, era client.Era) {
		harness.WantEcho(t, s.client(t, era).Tool(t, "up__echo", `{}`))
	})
}

func tool(name string) string { return `{"name":"` + name + `","inputSchema":{"type":"object"}}` }
