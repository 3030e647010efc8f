package deploy

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"junction/auth"
	"junction/auth/authtest"
	"junction/cmd/junction/base/certificate/certificatetest"
	"junction/integration/harness"
	"junction/integration/harness/needs"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// This file is about https without a reverse proxy.

// securePort is the address of https in the log.
var securePort = regexp.MustCompile(`msg=serving .* tls=(\S+)`)

// A team is Junction with TLS and a key.
type team struct {
	*harness.Program
	root *certificatetest.Signed
	key  string
}

// newTeam writes a certificate of a chain, and the configuration with the section tls.
func newTeam(t *testing.T, section string) *team {
	t.Helper()
	_, url := upstreamtest.Start(t, upstreamtest.Script{})
	m := &team{Program: harness.NewProgram(t), key: auth.NewKey()}
	authtest.Secret("an API key", m.key)
	hash, err := auth.HashKey(m.key)
	if err != nil {
		t.Fatal(err)
	}
	m.root = certificatetest.MustSign(t, nil, "Root", 1000, certificatetest.AsAuthority)
	middle := certificatetest.MustSign(t, m.root, "Middle", 500, certificatetest.AsAuthority)
	leaf := certificatetest.MustSign(t, middle, "leaf", 90, certificatetest.ForHost)
	cert, key := certificatetest.MustWrite(t, m.Dir, certificatetest.PEM(leaf, middle), leaf.MustKeyPEM(t))
	if section == "" {
		section = "{ listen: 127.0.0.1:0, cert_file: " + cert + ", key_file: " + key + " }"
	}
	m.MustConfigure(t, "public_url: https://"+host+"\ntls: "+section+"\nupstreams: { up: { url: "+url+
		", isolation: shared } }\nauth: { api_keys: [{ name: team, hash: \""+hash.String()+"\" }] }\n")
	return m
}

// secure returns the address of https.
func (m *team) secure(t *testing.T) string {
	t.Helper()
	return m.Stderr.MustMatch(t, securePort, harness.Patience, m.Done)[1]
}

// http returns a client that reaches every host at the address of https.
func (m *team) http(t *testing.T, roots *x509.CertPool) *http.Client {
	t.Helper()
	address := m.secure(t)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func (m *team) roots() *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AddCert(m.root.Cert)
	return roots
}

// TestOperateTLSWithoutAProxy has clients of both eras call over https without a reverse proxy: streams and uploads
// pass, and commands of this machine still use the plain address.
func TestOperateTLSWithoutAProxy(t *testing.T) {
	harness.Waits(t)
	m := newTeam(t, "")
	m.MustServe(t)
	m.MustReady(t, harness.Patience)
	s := &stack{public: "https://" + host, key: m.key, http: m.http(t, m.roots())}
	harness.EachClientEra(t, func(t *testing.T, era client.Era) {
		c := s.client(t, era)
		harness.WantEcho(t, c.Tool(t, "up__echo", `{}`))
		large := strings.Repeat("x", 8<<20)
		if a := c.Tool(t, "up__echo", `{"text":"`+large+`"}`); !strings.Contains(string(a.Body), large) {
			t.Errorf("a call with 8 MiB: %.300s", a)
		}
		stream := c.MustOpen(t)
		c.Tool(t, "up__settools", `{"tools":[`+tool("echo")+`,`+tool("settools")+`,`+tool("new-"+string(era))+`]}`)
		for e, err := stream.Read(); !strings.Contains(string(e.Data), "list_changed"); e, err = stream.Read() {
			if err != nil {
				t.Fatalf("the stream ends before the change is told: %v", err)
			}
		}
	})
	cmd := exec.Command(harness.JunctionBinary(t), "call", "up__echo", "--config", m.File())
	cmd.Env = append(os.Environ(), append(m.Owner(), "JUNCTION_KEY="+m.key)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("junction call beside it: %v\n%s", err, out)
	}
	for _, of := range [][]string{{"status"}, {"service", "status"}, {"status", "--json"}} {
		cmd := exec.Command(harness.JunctionBinary(t), append(of, "--config", m.File())...)
		cmd.Env = append(os.Environ(), m.Owner()...)
		out, _ := cmd.CombinedOutput() // the service is not installed
		if text := strings.Join(strings.Fields(string(out)), " "); !strings.Contains(text, "https://"+host+"/mcp") ||
			!strings.Contains(text, m.Origin()+"/mcp") {
			t.Errorf("junction %v lacks the public address, or that of this machine:\n%s", of, out)
		}
	}
}

// TestOperateTLSForForeignClients: the TLS of Node and of Python accepts the certificate with its chain, and rejects
// it without the root or for another host.
func TestOperateTLSForForeignClients(t *testing.T) {
	harness.Waits(t)
	needs.Node.Require(t)
	m := newTeam(t, "")
	m.MustServe(t)
	wantForeign(t, m, certificatetest.PEM(m.root))
}

// wantForeign has foreign clients check the certificate of a program. root is what they trust, in PEM.
func wantForeign(t *testing.T, m *team, root string) {
	t.Helper()
	_, port, _ := net.SplitHostPort(m.secure(t))
	file := filepath.Join(t.TempDir(), "root.pem")
	if err := os.WriteFile(file, []byte(root), 0o600); err != nil {
		t.Fatal(err)
	}
	const node = `const https=require("https");const [port,name,ca]=process.argv.slice(1);
https.get({host:"127.0.0.1",port,servername:name,headers:{host:name},path:"/mcp",
  ca:ca?require("fs").readFileSync(ca):undefined},r=>{console.log("status",r.statusCode);r.resume()})
  .on("error",e=>{console.log("error",e.code)})`
	const python = `import ssl,socket,sys
port,name,ca=sys.argv[1],sys.argv[2],(sys.argv[3:]+[None])[0] or None
c=ssl.create_default_context(cafile=ca)
try:
    s=c.wrap_socket(socket.create_connection(("127.0.0.1",int(port))),server_hostname=name)
    s.sendall(("GET /mcp HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n"%name).encode())
    print("status",s.recv(100).split()[1].decode())
except ssl.SSLError as e: print("error",e.reason)
`
	for name, words := range map[string][]string{"Node": {"node", "-e", node}, "Python": {"python3", "-c", python}} {
		for _, test := range []struct{ name, ca, want string }{{host, file, "status 401"}, {host, "", "error"},
			{"other.example.com", file, "error"}} {
			words := append(words[:len(words):len(words)], port, test.name)
			if test.ca != "" {
				words = append(words, test.ca)
			}
			out, err := exec.CommandContext(t.Context(), words[0], words[1:]...).CombinedOutput()
			if err != nil || !bytes.HasPrefix(out, []byte(test.want)) {
				t.Errorf("%s as a client of %s, with the root %q: %v, %s; want %s", name, test.name, test.ca, err, out, test.want)
			}
		}
	}
}

// TestOperateSocketOfSystemd: a process takes the port from systemd, and connections wait in it while the process is
// started again. A port that is not that of the file prevents a start.
func TestOperateSocketOfSystemd(t *testing.T) {
	harness.Waits(t)
	needs.Bash.Require(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	socket, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	m := newTeam(t, "{ listen: "+l.Addr().String()+", cert_file: CERT, key_file: KEY }")
	text, err := os.ReadFile(m.File())
	if err != nil {
		t.Fatal(err)
	}
	m.MustWrite(t, strings.NewReplacer("CERT", m.Dir+"/cert.pem", "KEY", m.Dir+"/key.pem").Replace(string(text)))
	passed := func(names string) *exec.Cmd {
		// sh keeps its process, so that its number is that of junction
		cmd := exec.Command("bash", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=`+names+` exec "$0" --config "$1"`,
			harness.JunctionBinary(t), m.File())
		cmd.ExtraFiles = []*os.File{socket}
		return cmd
	}
	m.MustStart(t, passed("tls"))
	if address := m.secure(t); address != l.Addr().String() {
		t.Errorf("https is at %s, want the socket %s", address, l.Addr())
	}
	c := m.http(t, m.roots())
	ask := func() error {
		resp, err := c.Get("https://" + host + "/mcp")
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	if err := ask(); err != nil {
		t.Error(err)
	}
	m.MustStop(t)
	c.CloseIdleConnections()
	answered := make(chan error, 1)
	go func() { answered <- ask() }()
	m.MustStart(t, passed("tls"))
	if err := <-answered; err != nil {
		t.Errorf("a request during the restart: %v", err)
	}
	m.MustStop(t)
	m.MustWrite(t, strings.NewReplacer("CERT", m.Dir+"/cert.pem", "KEY", m.Dir+"/key.pem", l.Addr().String(), "127.0.0.1:1").Replace(string(text)))
	cmd := passed("tls")
	cmd.Env = append(os.Environ(), m.Owner()...)
	if out, err := cmd.CombinedOutput(); err == nil || !bytes.Contains(out, []byte(fmt.Sprintf("systemd has opened %s, and tls.listen is 127.0.0.1:1", l.Addr()))) {
		t.Errorf("with another port in the file: %v\n%s", err, out)
	}
}

// TestOperateListenSocketOfSystemd: a process without tls takes the port of listen from systemd, and a connection waits
// in it while the process is started again.
func TestOperateListenSocketOfSystemd(t *testing.T) {
	harness.Waits(t)
	needs.Bash.Require(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	socket, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	_, url := upstreamtest.Start(t, upstreamtest.Script{})
	m := harness.NewProgram(t)
	m.MustWrite(t, "listen: "+l.Addr().String()+"\nadmin: 127.0.0.1:0\nupstreams: { up: { url: "+url+", isolation: shared } }\n")
	passed := func() *exec.Cmd {
		// sh keeps its process, so that its number is that of junction
		cmd := exec.Command("bash", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=listen exec "$0" --config "$1"`,
			harness.JunctionBinary(t), m.File())
		cmd.ExtraFiles = []*os.File{socket}
		return cmd
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func() error {
		resp, err := c.Get("http://" + l.Addr().String() + "/mcp")
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	m.MustStart(t, passed())
	if err := ask(); err != nil {
		t.Error(err)
	}
	m.MustStop(t)
	answered := make(chan error, 1)
	go func() { answered <- ask() }()
	m.MustStart(t, passed())
	if err := <-answered; err != nil {
		t.Errorf("a request during the restart: %v", err)
	}
	m.MustStop(t)
}
