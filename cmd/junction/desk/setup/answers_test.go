package setup

import (
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestConnectSaysWhyTheURLDoesNotWork: connect writes the entry, because Junction may start later. Its note
// tells a wrong URL and a certificate of a private CA from a Junction that does not run.
func TestConnectSaysWhyTheURLDoesNotWork(t *testing.T) {
	junction := http.NewServeMux()
	junction.HandleFunc("/mcp", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	plain := httptest.NewServer(junction)
	t.Cleanup(plain.Close)
	secure := httptest.NewUnstartedServer(junction)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	secure.StartTLS()
	t.Cleanup(secure.Close)
	for name, test := range map[string]struct{ url, want string }{
		"works": {plain.URL + "/mcp", ""},
		"a certificate of a private CA": {secure.URL + "/mcp", "this machine does not trust the certificate: install its CA, " +
			"or name a file with the CA in SSL_CERT_FILE."},
		"http to a port with TLS": {strings.Replace(secure.URL, "https", "http", 1) + "/mcp",
			"400 Bad Request; if the port speaks TLS, write https:// in --url."},
		"https to a port without TLS": {strings.Replace(plain.URL, "http", "https", 1) + "/mcp",
			"the server does not speak TLS at this port: write http://, or correct the port."},
		"another path":    {plain.URL + "/", "404 Not Found; correct the path of --url, which is /mcp for all servers."},
		"nothing answers": {"http://127.0.0.1:2/mcp", "Nothing answers at http://127.0.0.1:2/mcp now."},
	} {
		t.Run(name, func(t *testing.T) {
			home := atHome(t, map[string]string{".cursor/mcp.json": "{}\n"})
			got := runProgram(t, "", "connect", "cursor", "--url", test.url)
			said := strings.Join(strings.Fields(got.stdout), " ")
			if got.code != 0 || !strings.Contains(said, test.want) || test.want == "" && strings.Contains(said, "now") {
				t.Errorf("%+v, want %q", got, test.want)
			}
			if text, err := os.ReadFile(filepath.Join(home, ".cursor", "mcp.json")); err != nil || !strings.Contains(string(text), test.url) {
				t.Errorf("the file of the client is %q, %v", text, err)
			}
		})
	}
}
