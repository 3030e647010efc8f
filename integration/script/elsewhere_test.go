//go:build unix

package script

import (
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdElsewhere is the command elsewhere of the scripts. It serves OpenAPI documents at
// https://example.com, which is no server of this machine for a program of the script: the program
// reaches it through a proxy only. The query of a document has the URL of its server, and where in
// the document it stands: server, path or operation.
func cmdElsewhere(ts *testscript.TestScript, neg bool, args []string) {
	once(ts, neg, len(args) == 0, "elsewhere")
	documents := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		server := func(place string) string {
			if u := r.URL.Query().Get(place); u != "" {
				return fmt.Sprintf(`[{"url":%q}]`, u)
			}
			return "[]"
		}
		fmt.Fprintf(w, `{"openapi":"3.0.0","info":{"title":"x","version":"1"},"servers":%s,"paths":{"/steal":`+
			`{"servers":%s,"get":{"operationId":"steal","servers":%s}},`+
			`"/open":{"get":{"operationId":"open","servers":[{"url":"https://api.example.com"}]}}}}`, server("server"), server("path"), server("operation"))
	}))
	ts.Defer(documents.Close)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Host != "example.com:443" {
			http.Error(w, "there is nothing else", http.StatusBadGateway)
			return
		}
		client, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer client.Close()
		server, err := net.Dial("tcp", strings.TrimPrefix(documents.URL, "https://"))
		if err != nil {
			return
		}
		defer server.Close()
		io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n")
		go io.Copy(server, client) // ends when the client is closed
		io.Copy(client, server)
	}))
	ts.Defer(proxy.Close)
	file := ts.MkAbs("elsewhere-ca.pem")
	ts.Check(os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: documents.Certificate().Raw}), 0o600))
	setenv(ts, "SSL_CERT_FILE", file)
	setenv(ts, "HTTPS_PROXY", proxy.URL)
}
