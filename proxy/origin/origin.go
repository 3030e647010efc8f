// Package origin recognizes requests of web pages and of reverse proxies by their headers, and has
// the texts of their refusals.
package origin

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"junction/upstream/loopback"
)

// HostText returns the error for a rejected host, with the line that allows it.
func HostText(host string) string {
	name := strconv.QuoteToASCII(host[:min(len(host), 100)])
	return "Host header " + name + " is not allowed. A reverse proxy has to pass the Host header of the client; for " +
		"nginx:\n" +
		"    proxy_set_header Host $host;\n" +
		"Or allow this host in the configuration of Junction:\n" +
		"    allowed_hosts: [" + name + "]"
}

// HostIn reports whether a host is on the list or of this machine. The host is in lower case and may
// have a port.
func HostIn(host string, allowed []string) bool {
	name, ok := loopback.Name(host)
	return ok && (slices.Contains(allowed, host) || slices.Contains(allowed, name) ||
		loopback.Host(strings.Trim(name, "[]")))
}

// CORS lets pages of an allowed origin read the answers. It reports whether the request was a
// preflight, which it has answered.
func CORS(rw http.ResponseWriter, r *http.Request, origin string) bool {
	h := rw.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, WWW-Authenticate, X-Request-Id")
	if r.Method != http.MethodOptions {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "POST, GET, DELETE")
	if wanted := r.Header.Get("Access-Control-Request-Headers"); wanted != "" {
		h.Set("Access-Control-Allow-Headers", wanted)
	}
	h.Set("Access-Control-Max-Age", "600")
	rw.WriteHeader(http.StatusNoContent)
	return true
}

// Proxied returns what shows that a request came through a reverse proxy or a tunnel: "the header "
// and a name, or "the version HTTP/1.0". It returns "" if nothing shows a proxy, which does not mean
// that there is none: HAProxy, socat and ssh -R add nothing to a request.
func Proxied(r *http.Request) string {
	if name := Forwarded(r.Header); name != "" {
		return "the header " + name
	}
	if !r.ProtoAtLeast(1, 1) { // nginx before 1.29.7, unless proxy_http_version is set
		return "the version HTTP/1.0"
	}
	return ""
}

// Forwarded returns the name of a header that only proxies and tunnels add, or "" if there is none.
func Forwarded(h http.Header) string {
	for name := range h {
		switch name {
		case "Forwarded", "Via", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip":
			return name
		}
		for _, prefix := range proxyPrefixes {
			if strings.HasPrefix(name, prefix) {
				return name
			}
		}
	}
	return ""
}

// proxyPrefixes are the beginnings of the headers of reverse proxies, Cloudflare, ngrok, Tailscale and
// Fly.io.
var proxyPrefixes = [...]string{"X-Forwarded", "Cf-", "Ngrok-", "Tailscale-", "Fly-"}

// ProxiedText returns the error for a request that came through a proxy if there is no
// authentication: the proxy may forward requests of strangers. shown is the result of Proxied.
func ProxiedText(shown string) string {
	return fmt.Sprintf("This request came through a proxy (it has %s), and Junction has no authentication. "+
		"Configure api_keys, jwt, introspection or oauth in the section auth. "+
		"If the proxy authenticates every request itself, set auth: { none: true }.", shown)
}

// Loopback reports whether the origin is on this machine.
func Loopback(origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && loopback.Host(u.Hostname())
}

// Text returns the error for a rejected origin. For a loopback origin, it includes the line
// for the configuration, since tools such as MCP Inspector use such origins.
func Text(origins []string) string {
	const text = "This origin may not use the endpoint (allowed_origins)."
	if len(origins) != 1 || !Loopback(origins[0]) {
		return text
	}
	u, _ := url.Parse(origins[0]) // Loopback has parsed it
	return text + fmt.Sprintf(" Without authentication, MCP Inspector and other clients in a browser "+
		"need their origin in the configuration; "+
		"add allowed_origins: [%q]", u.Scheme+"://"+u.Host)
}
