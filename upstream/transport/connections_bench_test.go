package transport

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"junction/upstream/raw"
)

// BenchmarkOwnConnections is a call over a transport that stays (call), and over one of its own with a
// session (churn: initialize, a call, DELETE), at a server of HTTP/1.1 without and with TLS, and of
// HTTP/2.
func BenchmarkOwnConnections(b *testing.B) {
	for _, server := range []string{"http", "https", "h2"} {
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if r.Method == http.MethodDelete {
				return
			}
			id, _ := raw.Get(body, "id")
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Mcp-Session-Id", "s")
			io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(id)+`,"result":{}}`)
		}))
		pool := NewPool("http://server")
		if server == "http" {
			srv.Start()
		} else {
			srv.EnableHTTP2 = server == "h2"
			srv.StartTLS()
			pool = NewPool("https://server")
			pool.http.TLSClientConfig.InsecureSkipVerify = true
		}
		defer srv.Close()
		defer pool.CloseIdleConnections()
		options := HTTPOptions{URL: srv.URL, Pool: pool}
		b.Run(server+"/call", func(b *testing.B) {
			w := OpenHTTP(options, nil)
			defer w.Close()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := w.Call(b.Context(), call("7", "tools/call"), nil); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(server+"/churn", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w := OpenHTTP(options, nil)
				for _, method := range []string{"initialize", "tools/call"} {
					if _, err := w.Call(b.Context(), call("7", method), nil); err != nil {
						b.Fatal(err)
					}
				}
				w.Close()
			}
		})
	}
}
