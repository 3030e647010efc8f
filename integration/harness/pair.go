package harness

import (
	"fmt"
	"testing"
	"time"

	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// EachTimeout runs f with a timeout, and with longer ones as long as f says that it was too late:
// an upstream that a slow machine keeps waiting is no failure, and what does not come with any of
// them is one.
func EachTimeout(t *testing.T, timeout time.Duration, f func(t *testing.T, timeout time.Duration) (late bool)) {
	t.Helper()
	for late := true; late; timeout *= 4 {
		t.Run(timeout.String(), func(t *testing.T) {
			if late = f(t, timeout); late && timeout > 5*time.Second {
				t.Fatalf("it is too late within %v", timeout)
			}
		})
		if t.Failed() {
			return
		}
	}
}

// Pair is a pair of eras that meet, and the transport to the upstream.
type Pair struct {
	Client, Upstream client.Era
	Transport        string // stdio, http or sse
}

// Transports returns the transports that an era has; HTTP+SSE has no modern era.
func Transports(era client.Era) []string {
	if era == client.EraModern {
		return []string{"stdio", "http"}
	}
	return []string{"stdio", "http", "sse"}
}

// Start starts a server of the pair, and returns the configuration of it and what it receives.
func (p Pair) Start(t testing.TB, script upstreamtest.Script) (upstream.Config, *upstreamtest.Journal) {
	t.Helper()
	script.Era = string(p.Upstream)
	config, journal := MustScripted(t, p.Transport, script)
	if p.Transport == "sse" {
		config.Transport = client.TransportSSE
	}
	return config, journal
}

// EachPair runs f in each pair of eras over each transport.
func EachPair(t *testing.T, f func(*testing.T, Pair)) {
	t.Helper()
	for _, client := range Eras {
		for _, up := range Eras {
			EachTransport(t, client, up, f)
		}
	}
}

// EachTransport runs f over each transport that the upstream's era has. Over several processes it
// runs f with -short over HTTP alone, because each process has its own connections to the upstream.
func EachTransport(t *testing.T, clientEra, up client.Era, f func(*testing.T, Pair)) {
	t.Helper()
	for _, transport := range Transports(up) {
		if transport != "http" && Processes() > 1 && testing.Short() {
			continue
		}
		RunPair(t, clientEra, up, transport, f)
	}
}

// EachEra runs f in each pair of eras over HTTP, for tests in which the transport does not matter.
func EachEra(t *testing.T, f func(*testing.T, Pair)) {
	t.Helper()
	for _, client := range Eras {
		for _, up := range Eras {
			RunPair(t, client, up, "http", f)
		}
	}
}

// RunPair runs f in one pair, as a subtest beside others: it runs when the test has returned.
func RunPair(t *testing.T, clientEra, up client.Era, transport string, f func(*testing.T, Pair)) {
	t.Helper()
	t.Run(fmt.Sprintf("%s client, %s %s", clientEra, up, transport),
		func(t *testing.T) {
			Waits(t)
			f(t, Pair{clientEra, up, transport})
		})
}

// ModernMeta is the _meta of a modern request.
const ModernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + ModernVersion +
	`","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},` +
	`"io.modelcontextprotocol/clientCapabilities":{}}`

// The two eras as the benchmarks name them, and the version that each speaks.
const (
	LegacyEra = "legacy"
	ModernEra = "modern"

	LegacyVersion = "2025-11-25"
	ModernVersion = "2026-07-28"
)

// Eras are the two eras as package client names them.
var Eras = []client.Era{client.EraLegacy, client.EraModern}

// AllCapabilities are the capabilities that most test clients declare: all those that Junction passes
// on. Calls of such clients use the connection that reads the catalog.
const AllCapabilities = `{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{},` +
	`"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}`

// LegacyVersions are all versions of the legacy era that Junction speaks, oldest first.
var LegacyVersions = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}
