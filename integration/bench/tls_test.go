package bench

import (
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"testing"

	"junction/auth"
	"junction/auth/authtest"
	"junction/cmd/junction/base/certificate/certificatetest"
	"junction/integration/harness"
	"junction/integration/harness/process"
)

// This file measures https: the program beside nginx, with the same certificate.

// secureAddress is the beginning of an address whose clients speak TLS.
const secureAddress = "tls:"

// benchCertificate writes a certificate for loopback.
func benchCertificate(b *testing.B) (cert, key string) {
	b.Helper()
	own := certificatetest.MustSign(b, nil, "loopback", 10, func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)} })
	return certificatetest.MustWrite(b, b.TempDir(), certificatetest.PEM(own), own.MustKeyPEM(b))
}

// startSecure starts the program under test with an address for https, and a key.
func startSecure(b *testing.B, program, era string, upstreams ...upstreamEntry) benchEndpoint {
	b.Helper()
	token, addr := auth.NewKey(), process.FreePort(b)
	authtest.Secret("an API key", token)
	hash, err := auth.HashKey(token)
	if err != nil {
		b.Fatal(err)
	}
	cert, key := benchCertificate(b)
	ep := launchJunctionWith(b, program, fmt.Sprintf("public_url: https://%s\ntls: { listen: %q, cert_file: %q, key_file: %q }\n"+
		"auth: { api_keys: [{ name: bench, hash: %q }] }\n", addr, addr, cert, key, hash.String()), upstreams...)
	ep.addr, ep.token = secureAddress+addr, token
	waitTools(b, ep, era, 1)
	return ep
}

// nginxTLS is what nginx has beside a plain reverse proxy.
func nginxTLS(b *testing.B, config string) string {
	cert, key := benchCertificate(b)
	return strings.Replace(config, "listen %[2]s;", "listen %[2]s ssl;\n\t\tssl_certificate "+cert+";\n\t\tssl_certificate_key "+key+";", 1)
}

// idleConnections opens legacy sessions that each keep a connection of their own open, and send nothing on it.
func idleConnections(b *testing.B, start func(*testing.B) benchEndpoint) map[string]float64 {
	const connections = 1000
	ep := start(b)
	open := func(n int) int64 {
		for range n {
			client := newRawClient(ep.addr, harness.LegacyEra, ep.token)
			b.Cleanup(client.Close)
			if err := client.start(); err != nil {
				ep.proc.fatal(b, "open a session: %v", err)
			}
		}
		_, own := atRest(b, ep)
		return own
	}
	few := open(100)
	return map[string]float64{"KB/connection": kilobytes(open(connections)-few) / connections}
}
