package harness

import "junction/upstream"

// ModernMeta is what a modern request says of its sender.
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

var Eras = []upstream.Era{upstream.EraLegacy, upstream.EraModern}

func ClientEras() []upstream.Era { return []upstream.Era{upstream.EraLegacy, upstream.EraModern} }

// AllCapabilities is what clients of the tests declare: all that is bridged, so that their calls go
// over the connection that reads the catalog.
const AllCapabilities = `{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{},` +
	`"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}`

var LegacyVersions = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}
