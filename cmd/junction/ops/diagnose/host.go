package diagnose

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"junction/cmd/junction/base/config"
	"junction/upstream/loopback"
)

// This file is about the Host header of requests at the admin address. A web page can give its own
// host name the IP address of this machine, and then read what this machine answers to that name
// (DNS rebinding). Browsers send no Sec-Fetch-Site and no Origin with such a request over http, so
// that only Host shows the page.

// hostName returns the name or IP address of a Host header, without its port; false if the port is no
// number.
func hostName(host string) (string, bool) {
	name, ok := loopback.Name(host)
	return strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), ".")), ok
}

// local reports whether a Host header names this machine.
func local(host string) bool {
	name, ok := hostName(host)
	return ok && loopback.Host(name)
}

// private are the ends of names that the DNS of the internet never has: those of services of
// Kubernetes, and those that ICANN keeps for private networks.
var private = []string{".svc", ".svc.cluster.local", ".internal"}

// probeHost reports whether monitoring may use a Host header at an open admin address. Such a header
// has an IP address, a name that no page on the internet can have, or a name of the configuration:
// allowed_hosts and public_url. A name without a dot, such as that of a service of Docker Compose, is
// none that a page can have. Clients without Host are no browsers.
func probeHost(host string, c *config.Config) bool {
	name, ok := hostName(host)
	if !ok {
		return false
	}
	if _, err := netip.ParseAddr(name); err == nil || !strings.Contains(name, ".") {
		return true
	}
	if slices.ContainsFunc(private, func(end string) bool { return strings.HasSuffix(name, end) }) {
		return true
	}
	own, err := url.Parse(c.PublicURL)
	return err == nil && name == own.Hostname() || slices.Contains(c.AllowedHosts, name) ||
		slices.Contains(c.AllowedHosts, strings.ToLower(host))
}

// probeHostText is the answer to a request whose Host is none of those.
func probeHostText(host string) string {
	name := strconv.QuoteToASCII(host[:min(len(host), 100)])
	return fmt.Sprintf("Host header %s is not allowed at the admin address. Use the IP address of this machine, or "+
		"allow the host in the configuration of Junction:\n    allowed_hosts: [%s]", name, name)
}
