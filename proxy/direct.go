package proxy

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// open reports whether the Guard lets in requests that show no key and no token.
func (w *world) open() bool { return w.config.Guard != nil && w.config.Guard.Verifier == nil }

// forwarded returns the name of a header that only a proxy adds, or "" if there is none.
func forwarded(h http.Header) string {
	for name := range h {
		switch {
		case strings.HasPrefix(name, "X-Forwarded-"), name == "Forwarded", name == "Via", name == "X-Real-Ip":
			return name
		}
	}
	return ""
}

// forwardedText is the answer to a request with a header of a proxy where there is no
// authentication: the proxy may let strangers in.
func forwardedText(header string) string {
	return fmt.Sprintf("This request came through a proxy (it has the header %s), and Junction has no authentication. "+
		"Configure api_keys, jwt, introspection or oauth in the section auth. "+
		"If the proxy authenticates every request itself, set auth: { none: true }.", header)
}

// originAllowed reports whether a page of the origin may send requests. With authentication every
// loopback origin may, because a page does not have the key. Without, AllowedOrigins has them all.
func (w *world) originAllowed(origin string) bool {
	if slices.Contains(w.config.AllowedOrigins, origin) {
		return true
	}
	return !w.open() && loopbackOrigin(origin)
}

// loopbackOrigin reports whether the origin is that of a page on this machine.
func loopbackOrigin(origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && loopback(u.Hostname())
}

// originText is the answer to a request from an origin that is not allowed. The origins of other
// loopback ports get the line to add, since they belong to tools such as MCP Inspector.
func originText(origins []string) string {
	const text = "This origin may not use the endpoint (allowed_origins)."
	if len(origins) != 1 || !loopbackOrigin(origins[0]) {
		return text
	}
	u, err := url.Parse(origins[0])
	if err != nil {
		return text
	}
	return text + fmt.Sprintf(" Without authentication, MCP Inspector and other clients in a browser need their origin in the configuration; "+
		"add allowed_origins: [%q]", u.Scheme+"://"+u.Host)
}
