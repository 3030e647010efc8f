package openapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"junction/cmd/pack/manifest"
	"junction/cmd/pack/web"
)

// fetchedFrom makes the operation /a of a document as if a server with the address had answered.
func fetchedFrom(t *testing.T, spec string, from netip.Addr, servers, item, operation string) (base string, warnings []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pack.yaml")
	if err := os.WriteFile(file, []byte("openapi: { x: { spec: '"+spec+"' } }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := manifest.Load(file, nil, manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	doc, err := openapi3.NewLoader().LoadFromData(fmt.Appendf(nil,
		"openapi: 3.0.0\ninfo: {title: x, version: x}\nservers: %s\npaths: {/a: {servers: %s, get: {servers: %s, operationId: a}}}",
		servers, item, operation))
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	c := collector{api: p.Manifests[0].OpenAPI[0], doc: doc, matched: map[string]bool{}, names: map[string]bool{},
		without: map[string]int{}, out: &API{Reach: web.ReachOf(at, from)}}
	if err := c.collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, o := range c.out.Operations {
		base = o.Server()
	}
	return base, c.out.Warnings
}

// TestServersOfAFetchedDocument: no place of a document of another machine may name this machine or a
// private network: not the document, a path, an operation, a variable, or a relative URL.
func TestServersOfAFetchedDocument(t *testing.T) {
	const elsewhere, here, inside = "https://docs.example/v1/openapi", "http://127.0.0.1:1/openapi", "https://docs.corp.example/openapi"
	public, loopback, private := netip.MustParseAddr("93.184.215.14"), netip.MustParseAddr("127.0.0.1"),
		netip.MustParseAddr("10.0.0.7")
	one := func(u string) string { return "[{url: '" + u + "'}]" }
	const good = "https://api.example.com"
	for name, test := range map[string]struct {
		spec                     string
		from                     netip.Addr
		servers, item, operation string
		want                     string // "" if the operation is left out
	}{
		"public":           {elsewhere, public, one(good), "[]", "[]", good},
		"relative":         {elsewhere, public, one("/api"), "[]", "[]", "https://docs.example/api"},
		"none":             {elsewhere, public, "[]", "[]", "[]", "https://docs.example"},
		"none, and inside": {inside, private, "[]", "[]", "[]", "https://docs.corp.example"},
		"beside":           {elsewhere, public, one("api"), "[]", "[]", "https://docs.example/v1/api"},
		"above":            {elsewhere, public, one("../v2/"), "[]", "[]", "https://docs.example/v2"},
		"another host":     {elsewhere, public, one("//other.example/api"), "[]", "[]", "https://other.example/api"},
		"without a scheme": {elsewhere, public, one("//127.0.0.1/api"), "[]", "[]", ""},
		"document":         {elsewhere, public, one("http://127.0.0.1:8080"), "[]", "[]", ""},
		"path":             {elsewhere, public, one(good), one("http://localhost:8080"), "[]", ""},
		"operation":        {elsewhere, public, one(good), one(good), one("https://169.254.169.254/latest"), ""},
		"variable":         {elsewhere, public, "[{url: 'https://{h}/x', variables: {h: {default: 10.0.0.1}}}]", "[]", "[]", ""},
		"variable in a variable": {elsewhere, public,
			"[{url: 'https://{a}/x', variables: {a: {default: '{b}'}, b: {default: good.example}}}]", "[]", "[]", ""},
		"variable without a value": {elsewhere, public, one("https://{h}.example/x"), "[]", "[]", ""},
		"mapped":                   {elsewhere, public, one("https://[::ffff:127.0.0.1]:8443"), "[]", "[]", ""},
		"ULA":                      {elsewhere, public, one("https://[fd00::1]"), "[]", "[]", ""},
		"this machine to itself":   {here, loopback, one("http://127.0.0.1:8080"), "[]", "[]", "http://127.0.0.1:8080"},
		"this machine by name":     {here, loopback, one("http://localhost:8080"), "[]", "[]", "http://localhost:8080"},
		"this machine to another":  {here, loopback, one("https://10.0.0.1"), "[]", "[]", ""},
		"its own private host":     {inside, private, one("https://docs.corp.example/api"), "[]", "[]", "https://docs.corp.example/api"},
		"another private address":  {inside, private, one("https://10.0.0.8"), "[]", "[]", ""},
		"a private one to this":    {inside, private, one("http://127.0.0.1"), "[]", "[]", ""},
		"through a proxy":          {here, netip.Addr{}, one("http://127.0.0.1:8080"), "[]", "[]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			base, warnings := fetchedFrom(t, test.spec, test.from, test.servers, test.item, test.operation)
			if base != test.want || base == "" && (len(warnings) != 1 || !strings.Contains(warnings[0], "base_url")) {
				t.Errorf("sends to %q with the warnings %q, want %q", base, warnings, test.want)
			}
		})
	}
}

// TestAPathStaysBehindTheHost: a path that does not begin with / would be a part of the host.
func TestAPathStaysBehindTheHost(t *testing.T) {
	for _, path := range []string{".evil.example/a", "@evil.example/a", ":8080/a", "evil"} {
		dir := t.TempDir()
		text := "openapi: 3.0.0\ninfo: {title: x, version: x}\nservers: [{url: 'https://good.example'}]\npaths: {'" + path +
			"': {get: {operationId: a}}}"
		if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		api, err := load(t, dir, "a.yaml")
		if err == nil || !strings.Contains(err.Error(), "its path does not begin with /") || len(api.Operations) > 0 {
			t.Errorf("%q: %v, %d operations, %q", path, err, len(api.Operations), api.Warnings)
		}
	}
}

// TestAFetchedDocumentKnowsWhereItCameFrom: a document of this machine may name this machine; a
// redirect and a reference stay on the host.
func TestAFetchedDocumentKnowsWhereItCameFrom(t *testing.T) {
	var s *httptest.Server
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/openapi", http.StatusFound)
		case "/away":
			http.Redirect(w, r, strings.Replace(s.URL, "127.0.0.1", "localhost", 1)+"/openapi", http.StatusFound)
		case "/circle":
			http.Redirect(w, r, "/circle", http.StatusFound)
		case "/item":
			fmt.Fprint(w, "a: {get: {operationId: a, servers: [{url: 'http://localhost:9/there'}]}}")
		default:
			fmt.Fprint(w, "openapi: 3.0.0\ninfo: {title: x, version: x}\npaths: {/a: {$ref: 'item#/a'}}")
		}
	}))
	t.Cleanup(s.Close)
	for path, want := range map[string]string{"/openapi": "", "/moved": "", "/away": "redirects to another host", "/circle": "redirects more than"} {
		api, err := load(t, t.TempDir(), s.URL+path)
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", path, err, want)
			}
			continue
		}
		if err != nil || len(api.Operations) != 1 || api.Operations[0].Server() != "http://localhost:9/there" || !api.Reach.Local ||
			api.Reach.Any {
			t.Errorf("%s: %v, %+v", path, err, api)
		}
	}
	if api, err := load(t, t.TempDir(), s.URL+"/openapi", "base_url: http://localhost:8"); err != nil || !api.Reach.Any ||
		api.Operations[0].Server() != "http://localhost:8" {
		t.Errorf("with base_url: %v, %+v", err, api)
	}
}
