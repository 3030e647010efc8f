package diagnose

import (
	"testing"

	"junction/cmd/junction/base/config"
)

// TestAdminIsForThisMachine: a page whose host name leads to us must not read what upstreams there
// are.
func TestAdminIsForThisMachine(t *testing.T) {
	for host, want := range map[string]bool{
		"127.0.0.1:8421": true, "127.0.0.1": true, "localhost:8421": true, "LocalHost": true, "[::1]:8421": true, "[::1]": true, "127.9.9.9:1": true,
		"[::ffff:127.0.0.1]:1": true, "": false, "evil.example": false, "evil.example:8421": false, "localhost.evil.example": false, "192.0.2.1:8421": false,
		"127.0.0.1.evil.example": false, "0.0.0.0:8421": false,
		"127.0.0.1:8421.evil.example": false, "localhost:x": false, "[::1]:8421.evil.example": false, "localhost:": true,
	} {
		if got := local(host); got != want {
			t.Errorf("local(%q) = %v, want %v", host, got, want)
		}
	}
}

// TestProbesOfMonitoringNotOfPages: monitoring asks an open admin address by IP address, by a name of
// the local network, or by a name of the configuration. Any other name may be that of a web page,
// which then reads the names of upstreams and tools from /metrics (DNS rebinding).
func TestProbesOfMonitoringNotOfPages(t *testing.T) {
	c := &config.Config{PublicURL: "https://mcp.example.com:8443",
		AllowedHosts: []string{"junction.corp.example", "ports.example:8421"}}
	for host, want := range map[string]bool{
		"10.1.2.3:8421": true, "10.1.2.3": true, "[2001:db8::1]:8421": true, "[fe80::1%eth0]:8421": true,
		"localhost:8421": true, "": true,
		"junction:8421": true, "junction.": true, "junction.monitoring.svc:8421": true,
		"10-1-2-3.junction.default.svc.cluster.local:8421": true, "junction.default.svc.cluster.local.": true,
		"ip-10-1-2-3.ec2.internal:8421": true,
		"MCP.example.com":               true, "mcp.example.com:8421": true, "junction.corp.example:8421": true,
		"ports.example:8421": true, "ports.example:8422": false,
		"evil.example": false, "evil.example:8421": false, "10.1.2.3.evil.example:8421": false,
		"svc.evil.example": false, "evilsvc": true, "evil.cluster.local": false, "evil.local": false,
		"mcp.example.com.evil.example": false, "10.1.2.3@evil.example": false,
		"10.1.2.3:8421.evil.example": false, "evil.example:8421.internal": false, "mcp.example.com:x": false,
	} {
		if got := probeHost(host, c); got != want {
			t.Errorf("probeHost(%q) = %v, want %v", host, got, want)
		}
	}
	if probeHost("evil.example", &config.Config{}) {
		t.Error("a host is allowed without configured names")
	}
}
