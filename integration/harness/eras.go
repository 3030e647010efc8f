package harness

import "junction/upstream"

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

// Eras are the two eras as package upstream names them.
var Eras = []upstream.Era{upstream.EraLegacy, upstream.EraModern}

// AllCapabilities are the capabilities that most test clients declare: all those that Junction passes
// on. Calls of such clients use the connection that reads the catalog.
const AllCapabilities = `{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{},` +
	`"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}`

// LegacyVersions are all versions of the legacy era that Junction speaks, oldest first.
var LegacyVersions = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}
