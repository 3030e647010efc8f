package authserver

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// maxRedirect bounds a redirect URI. Real ones have a hundred bytes.
const maxRedirect = 1024

// never are the schemes that run something, or show something, instead of leaving the browser:
// nobody can allow them.
var forbiddenSchemes = []string{"javascript", "data", "file", "vbscript", "blob", "about", "intent", "view-source",
	"filesystem", "ws", "wss", "ftp"}

// defaultSchemes are the private schemes of clients that we know.
var defaultSchemes = []string{"cursor", "vscode", "vscode-insiders", "windsurf", "code-oss", "zed"}

// checkRedirect returns what is wrong with a redirect URI of somebody who registers, if anything
// is. Three kinds are right: https to a host with a public look, http to this very machine, and a
// private scheme that is allowed.
func checkRedirect(uri string, schemes []string) error {
	if uri == "" || len(uri) > maxRedirect {
		return fmt.Errorf("a redirect URI has 1 to %d bytes", maxRedirect)
	}
	for i := range len(uri) {
		// Browsers repair what is not allowed in a URI, each in its own way, and come to another
		// host than we do.
		if c := uri[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("\\\"<>^`{|}", c) >= 0 {
			return errors.New("it has a character that no URI has")
		}
	}
	u, err := url.Parse(uri)
	switch {
	case err != nil:
		return errors.New("it is no URI")
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
		if !loopback(u.Hostname()) || u.Opaque != "" {
			return errors.New("http is for localhost, 127.0.0.1 and [::1] alone")
		}
		return nil
	case !slices.Contains(schemes, u.Scheme):
		return fmt.Errorf("the scheme %s is not allowed here (auth.oauth.clients.allowed_schemes)", u.Scheme)
	case !strings.HasPrefix(uri[len(u.Scheme):], "://") || u.Host == "" && u.Path == "":
		return errors.New("it leads nowhere")
	}
	return nil
}

// checkHost wants a host of https that looks as if it were somebody's on the net, or this machine.
func checkHost(u *url.URL) error {
	name := u.Hostname()
	if ip, err := netip.ParseAddr(name); err == nil {
		if ip = ip.Unmap(); ip.IsLoopback() && ip.String() == name || ip.IsGlobalUnicast() && !ip.IsPrivate() {
			return nil
		}
		return errors.New("its address is in no public network")
	}
	if u.Opaque != "" || name != "localhost" &&
		(!strings.Contains(name, ".") || strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".")) {
		return errors.New("its host is no public name")
	}
	return nil
}

// loopback reports whether the host of a URL is one of the three names that every browser takes for
// this machine (RFC 8252, section 7.3). No look-up: what another name means is up to whoever owns
// it.
func loopback(host string) bool {
	return host == "127.0.0.1" || host == "::1" || strings.EqualFold(host, "localhost")
}

// isLoopback reports whether a redirect URI leads to this machine by http, so that nobody knows
// which program will get it.
func isLoopback(uri string) bool {
	u, err := url.Parse(uri)
	return err == nil && u.Scheme == "http" && loopback(u.Hostname())
}

// matchRedirect reports whether a client that registered these URIs may be answered at the given
// one. It must be one of them, byte for byte, but for the port of http on this machine, which a
// program cannot know beforehand (RFC 8252, section 7.3). localhost and 127.0.0.1 are different
// hosts.
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
		return err == nil && u.Scheme == "http" && loopback(u.Hostname()) &&
			strings.EqualFold(u.Hostname(), g.Hostname()) &&
			u.EscapedPath() == g.EscapedPath() && u.RawQuery == g.RawQuery && u.ForceQuery == g.ForceQuery
	})
}
