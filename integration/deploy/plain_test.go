package deploy

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// A plainFront is a reverse proxy with the shortest configuration, in front of a Junction without
// authentication.
type plainFront struct {
	front
	shown string // what shows Junction the proxy; "" if nothing does
}

// plainNginx returns nginx with a location of one proxy_pass and the lines.
func plainNginx(lines string) front {
	return nginx(func(_ *testing.T, p place) string {
		return fmt.Sprintf("server { listen %s; location / { proxy_pass http://%s; %s } }\n", p.address,
			p.junction[0].listen, lines)
	})
}

func plainCaddy() front {
	return front{"Caddy", func(t *testing.T, p place) *exec.Cmd {
		file := p.write(t, "Caddyfile", fmt.Sprintf("{\n\tadmin off\n\tauto_https off\n}\nhttp://:%s {\n\tbind 127.0.0.1\n"+
			"\treverse_proxy %s\n}\n", port(p.address), p.junction[0].listen))
		cmd := exec.Command(program(t, "caddy"), "run", "--adapter", "caddyfile", "--config", file)
		cmd.Env = append(os.Environ(), "HOME="+p.dir, "XDG_DATA_HOME="+p.dir, "XDG_CONFIG_HOME="+p.dir)
		return cmd
	}}
}

func plainHAProxy(lines string) front {
	return front{"HAProxy", func(t *testing.T, p place) *exec.Cmd {
		file := p.write(t, "haproxy.cfg", fmt.Sprintf(`global
	maxconn 100
defaults
	mode http
	timeout connect 5s
	timeout client 1m
	timeout server 1m
%slisten junction
	bind %s
	server junction %s
`, lines, p.address, p.junction[0].listen))
		return exec.Command(program(t, "haproxy"), "-db", "-f", file)
	}}
}

// TestOperatePlainProxiesPublishNothing: a reverse proxy that adds a header, or sends HTTP/1.0, does
// not publish a Junction without authentication, even if a stranger chooses the Host header. The rows
// without shown are those that the README of the recipes names: nothing in their requests shows the
// proxy.
func TestOperatePlainProxiesPublishNothing(t *testing.T) {
	harness.Waits(t)
	_, url := upstreamtest.Start(t, upstreamtest.Script{})
	p := harness.MustProgram(t, "upstreams: { up: { url: "+url+" } }\n")
	p.MustReady(t, harness.Patience)
	junction := []member{{strings.TrimPrefix(p.Origin(), "http://"), strings.TrimPrefix(p.Admin, "http://")}}
	for name, f := range map[string]plainFront{
		"nginx":                  {plainNginx(""), "the version HTTP/1.0"},
		"nginx with HTTP/1.1":    {plainNginx("proxy_http_version 1.1;"), ""},
		"nginx with an address":  {plainNginx("proxy_http_version 1.1; proxy_set_header X-Real-IP $remote_addr;"), "the header X-Real-Ip"},
		"Caddy":                  {plainCaddy(), "the header X-Forwarded-"},
		"HAProxy":                {plainHAProxy(""), ""},
		"HAProxy with an option": {plainHAProxy("\toption forwardfor\n"), "the header X-Forwarded-For"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := mustFront(t, f.front, "http://localhost", junction)
			c := harness.NewClient(t, &harness.Endpoint{URL: s.public + "/mcp"}, client.EraModern)
			c.HTTP = s.http
			a := c.Call(t, "tools/list", "{}")
			if f.shown == "" {
				if a.Status != http.StatusOK {
					t.Errorf("%s; the README of the recipes says that nothing shows this proxy", a)
				}
				return
			}
			want := "This request came through a proxy (it has " + f.shown
			if text := string(a.Body); a.Status != http.StatusForbidden || !strings.Contains(text, want) ||
				!strings.Contains(text, "set auth: { none: true }") {
				t.Errorf("%s, want 403 and %q", a, want)
			}
			r, err := s.http.Get(s.public + "/")
			if err != nil {
				t.Fatal(err)
			}
			if r.Body.Close(); r.StatusCode != http.StatusForbidden {
				t.Errorf("the page of the endpoint answers %d, want 403", r.StatusCode)
			}
		})
	}
}
