package authserver

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// maxRedirect is the largest size of a redirect URI in bytes. Real ones have about a hundred.
const maxRedirect = 1024

// forbiddenSchemes run code or show content in the browser instead of opening an app. The
// configuration cannot allow them.
var forbiddenSchemes = []string{"javascript", "data", "file", "vbscript", "blob", "about", "intent", "view-source",
	"filesystem", "ws", "wss", "ftp"}

// defaultSchemes are the private schemes of well-known clients.
var defaultSchemes = []string{"cursor", "vscode", "vscode-insiders", "windsurf", "code-oss", "zed"}

// checkRedirect returns why a client may not register a redirect URI, or nil. Three kinds are
// allowed: https to a public host, http to loopback, and an allowed private scheme.
func checkRedirect(uri string, schemes []string) error {
	if uri == "" || len(uri) > maxRedirect {
		return fmt.Errorf("a redirect URI has 1 to %d bytes", maxRedirect)
	}
	for i := range len(uri) {
		// Browsers correct invalid characters in different ways, and may arrive at another host.
		if c := uri[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("\\\"<>^`{|}", c) >= 0 {
			return errors.New("it contains a character that is not allowed in a URI")
		}
	}
	u, err := url.Parse(uri)
	switch {
	case err != nil:
		return errors.New("it is not a URI")
	case strings.Contains(uri, "#"):
		return errors.New("it has a fragment")
	case u.User != nil || strings.Contains(u.Host, "@"):
		return errors.New("it has a user name")
	case u.Scheme == "":
		return errors.New("it is not absolute")
	case slices.Contains(forbiddenSchemes, u.Scheme):
		return fmt.Errorf("the scheme %s is never allowed", u.Scheme)
	case u.Scheme == "https":
		return checkHost(u)
	case u.Scheme == "http":
		if !nativeHost(u.Hostname()) || u.Opaque != "" {
			return errors.New("http is only allowed for localhost, 127.0.0.1 and [::1]; use https")
		}
		return nil
	case !slices.Contains(schemes, u.Scheme):
		return fmt.Errorf("the scheme %s is not in auth.oauth.clients.allowed_schemes", u.Scheme)
	case !strings.HasPrefix(uri[len(u.Scheme):], "://") || u.Host == "" && u.Path == "":
		return errors.New("it has no host and no path")
	}
	return nil
}

// checkHost returns why the host of an https URL is neither public nor loopback, or nil.
func checkHost(u *url.URL) error {
	name := u.Hostname()
	if !printable(name) { // %D0%BE; pages would show a letter of another script, and browsers show xn--
		return errors.New("its host has an escape; write it in ASCII (xn--)")
	}
	if ip, err := netip.ParseAddr(name); err == nil {
		if ip = ip.Unmap(); ip.IsLoopback() && ip.String() == name || ip.IsGlobalUnicast() && !ip.IsPrivate() {
			return nil
		}
		return errors.New("its address is not public")
	}
	if u.Opaque != "" || name != "localhost" &&
		(!strings.Contains(name, ".") || strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".")) {
		return errors.New("its host is not a public name")
	}
	return nil
}

// nativeHost reports whether a host is one of the three to which a program on this machine may ask to
// be redirected by http (RFC 8252, section 7.3). Other loopback addresses are not among them.
func nativeHost(host string) bool {
	return host == "127.0.0.1" || host == "::1" || strings.EqualFold(host, "localhost")
}

// isLoopback reports whether a redirect URI leads to this machine by http, so that any local
// program may receive the answer.
func isLoopback(uri string) bool {
	u, err := url.Parse(uri)
	return err == nil && u.Scheme == "http" && nativeHost(u.Hostname())
}

// matchRedirect reports whether a redirect URI is one of the registered ones. They must be equal,
// byte for byte, except for the port of http on loopback, which a client cannot know beforehand
// (RFC 8252, section 7.3). localhost and 127.0.0.1 are different hosts.
func matchRedirect(registered []string, given string) bool {
	if slices.Contains(registered, given) {
		return true
	}
	g, err := url.Parse(given)
	if err != nil || checkRedirect(given, nil) != nil || g.Scheme != "http" {
		return false
	}
	return slices.ContainsFunc(registered, func(r string) bool {
		u, err := url.Parse(r)
		return err == nil && u.Scheme == "http" && nativeHost(u.Hostname()) &&
			strings.EqualFold(u.Hostname(), g.Hostname()) &&
			u.EscapedPath() == g.EscapedPath() && u.RawQuery == g.RawQuery && u.ForceQuery == g.ForceQuery
	})
}
