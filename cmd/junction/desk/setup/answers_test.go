package setup

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"junction/cmd/junction/base/certificate/certificatetest"
)

// TestConnectSaysWhyTheURLDoesNotWork: connect writes an entry that may work later, because Junction may not run
// yet, or a certificate may be installed. It writes none for a URL at which another service answers, and says
// what to correct.
func TestConnectSaysWhyTheURLDoesNotWork(t *testing.T) {
	works := mustGuarded(t, eras["modern"], "", "")
	junction := http.NewServeMux()
	answer := func(path string, status int, kind, text string) {
		junction.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, text)
		})
	}
	answer("/mcp", http.StatusUnauthorized, "text/plain", "")
	answer("/page", http.StatusOK, "text/html", "<!doctype html><title>Router</title>")
	answer("/json", http.StatusOK, "application/json", `{"status":"up"}`)
	answer("/gateway", http.StatusBadGateway, "text/html", "<title>nginx</title>")
	answer("/forbidden", http.StatusForbidden, "text/plain", "Host header 'j' is not allowed.")
	plain := httptest.NewServer(junction)
	t.Cleanup(plain.Close)
	secure := httptest.NewUnstartedServer(junction)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	secure.StartTLS()
	t.Cleanup(secure.Close)
	for name, test := range map[string]struct {
		url, want string
		written   bool
	}{
		"works": {works.url, "", true},
		"needs a key": {plain.URL + "/mcp", "Cursor needs an API key of Junction, and there is no terminal to ask for it; run this command again with " +
			"the key in JUNCTION_KEY: ", false},
		"a certificate of a private CA": {secure.URL + "/mcp", "this machine does not trust the certificate: install its CA " +
			"in the store of the system, which Cursor reads.", true},
		"http to a port with TLS": {strings.Replace(secure.URL, "https", "http", 1) + "/mcp",
			"if the port speaks TLS, it is " + secure.URL + "/mcp; nothing was changed", false},
		"https to a port without TLS": {strings.Replace(plain.URL, "http", "https", 1) + "/mcp",
			"the server does not speak TLS at this port: write http://, or correct the port; nothing was changed", false},
		"another path": {plain.URL + "/", "does not work as an endpoint of Junction: it answered 404 Not Found: 404 page not found; " +
			"correct --url, whose path is /mcp for all servers; nothing was changed", false},
		"a page":          {plain.URL + "/page", "does not work as an endpoint of Junction: its answer is none of MCP: ", false},
		"JSON":            {plain.URL + "/json", "does not work as an endpoint of Junction: its answer is none of MCP: ", false},
		"forbidden":       {plain.URL + "/forbidden", "it answered 403 Forbidden: Host header 'j' is not allowed; nothing was changed", false},
		"a gateway":       {plain.URL + "/gateway", "does not work now: it answered 502 Bad Gateway", true},
		"nothing answers": {"http://127.0.0.1:2/mcp", "Nothing answers at http://127.0.0.1:2/mcp now.", true},
	} {
		t.Run(name, func(t *testing.T) {
			home := atHome(t, map[string]string{".cursor/mcp.json": "{}\n"})
			t.Setenv("JUNCTION_KEY", "")
			got := runProgram(t, "", "connect", "cursor", "--url", test.url)
			said := strings.Join(strings.Fields(got.stdout+got.stderr), " ")
			if (got.code == 0) != test.written || !strings.Contains(said, test.want) || test.want == "" && strings.Contains(said, "now") {
				t.Errorf("%+v, want %q", got, test.want)
			}
			text, err := os.ReadFile(filepath.Join(home, ".cursor", "mcp.json"))
			if err != nil || strings.Contains(string(text), test.url) != test.written || !test.written && string(text) != "{}\n" {
				t.Errorf("the file of the client is %q, %v", text, err)
			}
		})
	}
}

// TestConnectSaysWhichCertificatesAClientTrusts: a client that connects itself may not read the variable by which
// this command trusts a certificate. Each gets the way that it has, also before anything trusts the certificate.
func TestConnectSaysWhichCertificatesAClientTrusts(t *testing.T) {
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	real := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}))
	other := certificatetest.PEM(certificatetest.MustSign(t, nil, "Other", 100, certificatetest.AsAuthority))
	const store, by = "install its CA in the store of the system", "junction trusts the certificates of SSL_CERT_FILE; "
	for name, test := range map[string]struct {
		client, file, node string // values of SSL_CERT_FILE and NODE_EXTRA_CA_CERTS
		want, not          string
	}{
		"Node":         {"claude-code", "ca.pem", "", by + "Claude Code does not read that. Set NODE_EXTRA_CA_CERTS to a file with the CA where Claude Code starts", ""},
		"Node, set":    {"gemini", "ca.pem", "real.pem", "", by},
		"Node, other":  {"claude-code", "ca.pem", "other.pem", by + "Claude Code reads NODE_EXTRA_CA_CERTS, and ", ""},
		"Node, empty":  {"claude-code", "ca.pem", "ca.pem", " there does not have the CA: append the CA to that file", ""},
		"Node, gone":   {"gemini", "ca.pem", "gone.pem", " there does not have the CA: append the CA to that file", ""},
		"the store":    {"vscode", "ca.pem", "", by + "VS Code trusts the store of the system: install the CA there", "NODE_EXTRA"},
		"Codex":        {"codex", "real.pem", "", by + "Codex reads SSL_CERT_FILE, too, but rejects the certificate there", "NODE_EXTRA"},
		"Codex, a CA":  {"codex", "ca.pem", "", "", by},
		"a command":    {"claude-desktop", "", "", store + ", or name a file with the CA in SSL_CERT_FILE and run this command again, so that the entry gets the variable.", by},
		"nothing set":  {"vscode", "", "", store + ", which VS Code reads. When it works, run this command again: it could not ask whether Junction needs an API key.", "SSL_CERT_FILE"},
		"Node, none":   {"claude-code", "", "", store + ", or name a file with the CA in SSL_CERT_FILE for junction, and in NODE_EXTRA_CA_CERTS where Claude Code starts.", by},
		"Codex, none":  {"codex", "", "", store + ", or name a file with the CA in SSL_CERT_FILE, also where Codex starts.", by},
		"entry has it": {"claude-desktop", "ca.pem", "", "The entry sets SSL_CERT_FILE to ", by},
	} {
		t.Run(name, func(t *testing.T) {
			home := atHome(t, map[string]string{"ca.pem": "", "real.pem": real, "other.pem": other, ".codex/config.toml": "", ".gemini/settings.json": "{}",
				".config/Code/User/mcp.json": "{}", ".config/Claude/claude_desktop_config.json": "{}"})
			value := func(name string) string {
				if name == "" {
					return ""
				}
				return filepath.Join(home, name)
			}
			t.Setenv("SSL_CERT_FILE", value(test.file))
			t.Setenv("SSL_CERT_DIR", "")
			t.Setenv("NODE_EXTRA_CA_CERTS", value(test.node))
			t.Setenv("JUNCTION_KEY", "")
			got := runProgram(t, "", "connect", test.client, "--url", secure.URL+"/mcp")
			said := strings.Join(strings.Fields(got.stdout+got.stderr), " ")
			if got.code != 0 || !strings.Contains(said, test.want) || test.not != "" && strings.Contains(said, test.not) {
				t.Errorf("%+v\nwant %q, not %q", got, test.want, test.not)
			}
		})
	}
}
