package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"junction/auth"
	"junction/auth/authtest"
)

// TestKeysExpired: an entry that is over is a warning, and no reason not to start.
func TestKeysExpired(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	mustWrite(t, file, `auth:
  api_keys:
    - { name: old, hash: "sha256:`+strings.Repeat("0a", 32)+`", expires: 2020-06-30 }
    - { name: new, hash: "sha256:`+strings.Repeat("0b", 32)+`", expires: 2999-06-30 }
upstreams: { a: { command: [junction, demo] } }
`)
	got := runProgram(t, "", "check", "--config", file)
	want := "warning: " + file + ":3: auth.api_keys[0].expires: is in the past: the key of old is refused; remove the entry, or create another key\nok: 1 upstream\n"
	if got.code != 0 || got.stdout != want {
		t.Errorf("check gave %+v, want %s", got, want)
	}
}

// TestPublicURLNeedsAuthentication has junction check and the start refuse a public server
// that authenticates nobody, unless the file states it.
func TestPublicURLNeedsAuthentication(t *testing.T) {
	const entry = "auth: { api_keys: [{ name: ci, hash: 'sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a' }] }\n"
	const public, none = "public_url: https://mcp.example.com\n", "auth: { none: true }\n"
	for text, want := range map[string]string{
		public:                             ":1: public_url: needs authentication: everybody who reaches the URL could use every tool; add auth.api_keys or auth.oauth, or auth: { none: true } if",
		public + "auth: { none: false }\n": ":1: public_url: needs authentication",
		public + "auth: { nine: true }\n":  ":2: auth.nine: unknown key",
		public + none:                      "",
		public + entry:                     "",
		"public_url: http://localhost:1\n": "note: auth: there is no authentication: every program and user of this machine can connect. ",
		"":                                 "note: auth: there is no authentication: every program and user of this machine can connect. ",
		none:                               "",
		strings.Replace(entry, "}] }", "}], none: true }", 1):   ":1: auth.none: contradicts the rest of auth",
		"auth: { trusted_proxies: [10.0.0.0/8] }\n":             "warning: FILE:1: auth.trusted_proxies: has no effect: without authentication, requests through a proxy are refused",
		"auth: { trusted_proxies: [10.0.0.0/8], none: true }\n": "",
	} {
		file := filepath.Join(t.TempDir(), "c.yaml")
		mustWrite(t, file, text+"upstreams: { a: { command: [junction, demo] } }\n")
		mistake := strings.HasPrefix(want, ":")
		if mistake {
			want = file + want
		}
		if want == "" {
			want = "ok: 1 upstream\n"
		}
		want = strings.Replace(want, "FILE", file, 1)
		if got := runProgram(t, "", "check", "--config", file); (got.code != 0) != mistake || !strings.HasPrefix(got.stdout, want) {
			t.Errorf("check of %s gave %+v, want a mistake: %v, and %s", text, got, mistake, want)
		} else if !mistake || got.code == 0 { // what starts does not end
			continue
		}
		if got := runProgram(t, "", "--config", file); got.code == 0 || !strings.Contains(got.stderr, want) {
			t.Errorf("the start with %s gave %+v, want the mistake", text, got)
		}
	}
}

// TestClientKey: the commands that are clients send a key, the flag's before the environment's, and
// never where others can read it.
func TestClientKey(t *testing.T) {
	flag, env := auth.NewKey(), auth.NewKey()
	var sent string
	guarded := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = r.Header.Get("Authorization")
		hash, _ := auth.HashKey(auth.NewKey())
		guard := (&auth.Config{APIKeys: []auth.Key{{Name: "other", Hash: hash}}}).Guard(nil, "", nil)
		guard.Log = authtest.Log(t)
		guard.Authenticate(w, r)
	}))
	defer guarded.Close()
	for _, tt := range []struct {
		name, url, flag, env string
		code                 int
		sent, stderr         string
	}{
		{"none", guarded.URL, "", "", 1, "", "answered 401 Unauthorized: Authentication required. Send an API key as 'Authorization: Bearer jct_key_…'; give the key with --key or in JUNCTION_KEY"},
		{"environment", guarded.URL, "", env + "\n", 1, "Bearer " + env, "answered 401 Unauthorized: the token is not valid: this server does not know the key; correct the key that you have given, with --key or in JUNCTION_KEY"},
		{"flag", guarded.URL, flag, env, 1, "Bearer " + flag, "answered 401 Unauthorized: the token is not valid: this server does not know the key; correct the key that you have given, with --key or in JUNCTION_KEY"},
		{"in the open", "http://192.0.2.1/mcp", flag, "", 2, "", `--url "http://192.0.2.1/mcp" is not https: the key would cross the network in plain text`},
		{"environment in the open", "http://mcp.example.com/mcp", "", env, 2, "", "is not https"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("JUNCTION_KEY", tt.env)
			sent = ""
			args := []string{"tools", "--url", tt.url}
			if tt.flag != "" {
				args = append(args, "--key", tt.flag)
			}
			got := runProgram(t, "", args...)
			if got.code != tt.code || sent != tt.sent || !strings.Contains(got.stderr, tt.stderr) {
				t.Errorf("got %+v and sent %q, want %d, %q and %q", got, sent, tt.code, tt.stderr, tt.sent)
			}
			if help := runProgram(t, "", "tools", "--help"); strings.Contains(help.stdout, "jct_key_") {
				t.Errorf("the help shows the key of the environment: %s", help.stdout)
			}
		})
	}
}
