package provider

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestUnreachableProvidersNameTheRemedy: an error of the metadata is one line that ends with a remedy.
func TestUnreachableProvidersNameTheRemedy(t *testing.T) {
	https := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(https.Close)
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/renamed/") {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"issuer":"https://login.example.com"}`)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, "<html>\n"+strings.Repeat("no such page\n", 1000))
	}))
	t.Cleanup(plain.Close)
	for issuer, want := range map[string]string{
		https.URL:               "; name the file with the authority that has signed the server's certificate: outbound.ca_file",
		"http://127.0.0.1:1":    "; no server listens there: start it, or check host and port",
		plain.URL + "/renamed":  "; write into issuer what the provider calls itself, to the letter",
		plain.URL + "/no-realm": "; check issuer; this command compares it with the provider: junction auth doctor",
	} {
		_, err := New(Config{ID: "sso", Issuer: issuer}, "", nil, time.Now).Check(t.Context())
		if err == nil || !strings.HasSuffix(err.Error(), want) || len(err.Error()) > 700 ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want a line that ends with %q", issuer, err, want)
		}
	}
}
