package authserver

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestRegistrableRedirects(t *testing.T) {
	s := mustStand(t, nil)
	for uri, want := range map[string]string{ // "" is that it may
		"http://localhost:61802/callback":                "",
		"http://127.0.0.1/":                              "",
		"http://127.0.0.1:33418/":                        "",
		"http://[::1]:8080/cb?x=1":                       "",
		"https://vscode.dev/redirect":                    "",
		"https://claude.ai/api/mcp/auth_callback":        "",
		"https://xn--bcher-kva.example/cb":               "",
		"https://localhost:8443/cb":                      "",
		"https://127.0.0.1/x":                            "",
		"https://8.8.8.8/x":                              "",
		"cursor://anysphere.cursor-mcp/oauth/callback":   "",
		"javascript:alert(1)":                            "never allowed",
		"JavaScript:alert(1)":                            "never allowed",
		"javascript://app.example.com/%0aalert(1)":       "never allowed",
		"data:text/html,x":                               "never allowed",
		"file:///etc/passwd":                             "never allowed",
		"vbscript:x":                                     "never allowed",
		"blob:https://a.example/x":                       "never allowed",
		"about:blank":                                    "never allowed",
		"intent://x#Intent;end":                          "fragment",
		"https://a.example/cb#x":                         "fragment",
		"https://a.example/cb#":                          "fragment",
		"https://user@a.example/cb":                      "user name",
		"https://a.example@evil.example/cb":              "user name",
		"https://a.example\\@evil.example/cb":            "not allowed in a URI",
		"https://a.example/c b":                          "not allowed in a URI",
		"https://a.example/\r\nLocation: x":              "not allowed in a URI",
		"https://bücher.example/cb":                      "not allowed in a URI",
		"https://b%C3%BCcher.example/cb":                 "write it in ASCII",
		"https://g%D0%BE%D0%BEgle.example/cb":            "write it in ASCII",
		"https:a.example/cb":                             "not a public name",
		"https:///cb":                                    "not a public name",
		"https://intranet/cb":                            "not a public name",
		"https://10.0.0.1/cb":                            "not public",
		"https://[::ffff:10.0.0.1]/cb":                   "not public",
		"https://[::ffff:127.0.0.1]/cb":                  "not public",
		"https://169.254.169.254/cb":                     "not public",
		"http://localhost.evil.com/cb":                   "http is only allowed for",
		"http://127.0.0.1.nip.io/cb":                     "http is only allowed for",
		"http://127.0.0.2/cb":                            "http is only allowed for",
		"http://127.1/cb":                                "http is only allowed for",
		"http://0x7f000001/cb":                           "http is only allowed for",
		"http://[::ffff:10.0.0.1]/cb":                    "http is only allowed for",
		"http://[::ffff:127.0.0.1]/cb":                   "http is only allowed for",
		"http://xn--lcalhost-54a.example/cb":             "http is only allowed for",
		"http://a.example/cb":                            "http is only allowed for",
		"http:localhost/cb":                              "http is only allowed for",
		"mailto:x@y.example":                             "not in auth.oauth.clients.allowed_schemes",
		"com.example.app:/cb":                            "not in auth.oauth.clients.allowed_schemes",
		"cursor:x":                                       "has no host and no path",
		"/cb":                                            "not absolute",
		"":                                               "1 to",
		"https://a.example/" + strings.Repeat("x", 1024): "1 to",
	} {
		err := checkRedirect(uri, defaultSchemes)
		if want == "" && err != nil && !strings.Contains(uri, "9999") || want != "" &&
			(err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.80q: %v, want %q", uri, err, want)
		}
		text, err := json.Marshal(map[string]any{"redirect_uris": []string{uri}})
		if err != nil {
			t.Fatal(err)
		}
		status, body := s.post(t, "/oauth/register", "application/json", string(text))
		if description := member(t, body, "error_description"); status == 201 != (want == "") || status != 201 &&
			(status != 400 || member(t, body, "error") != "invalid_redirect_uri" ||
				!strings.Contains(description, want)) {
			t.Errorf("%.80q is registered with %d %s, want %q", uri, status, body, want)
		}
	}
	for _, scheme := range forbiddenSchemes {
		if checkRedirect(scheme+"://x/y", forbiddenSchemes) == nil {
			t.Errorf("%s can be allowed", scheme)
		}
	}
}

func TestMatchRedirect(t *testing.T) {
	registered := []string{
		"http://localhost/callback", "http://127.0.0.1:33418/", "http://[::1]/cb?x=1", "https://127.0.0.1/x",
		"https://a.example/cb", "cursor://a/cb",
	}
	for given, want := range map[string]bool{
		"http://localhost/callback":         true,
		"http://localhost:61802/callback":   true,
		"http://LOCALHOST:61802/callback":   true,
		"http://127.0.0.1:5/":               true,
		"http://[::1]:5/cb?x=1":             true,
		"https://a.example/cb":              true,
		"cursor://a/cb":                     true,
		"http://127.0.0.1:5/callback":       false, // another host than localhost
		"http://localhost:5/":               false,
		"http://localhost:5/Callback":       false,
		"http://localhost:5/callback/":      false,
		"http://localhost:5/call%62ack":     false,
		"http://localhost:5/callback?x":     false,
		"http://localhost:5/callback?":      false,
		"http://localhost:5/callback#x":     false,
		"http://u@localhost:5/callback":     false,
		"http://[::1]:5/cb":                 false,
		"http://[::1]:5/cb?x=2":             false,
		"https://localhost/callback":        false,
		"http://127.0.0.1:9/x":              false, // registered with https
		"https://127.0.0.1:9/x":             false,
		"https://a.example:8443/cb":         false,
		"https://a.example/cb/":             false,
		"https://a.example/cb?x":            false,
		"https://A.example/cb":              false,
		"cursor://a/cb2":                    false,
		"http://localhost.evil.com/x":       false,
		"http://127.0.0.1:80:80/":           false,
		"":                                  false,
		"http://localhost:61802/callback\n": false,
	} {
		if got := matchRedirect(registered, given); got != want {
			t.Errorf("%q: %v, want %v", given, got, want)
		}
	}
}
