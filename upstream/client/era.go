package client

import (
	"fmt"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"
)

// Era is an era of the protocol.
type Era string

const (
	EraAuto   Era = ""       // not known yet: it is detected
	EraLegacy Era = "legacy" // 2025-11-25 and older: a handshake, then a session
	EraModern Era = "modern" // 2026-07-28: stateless
	// EraBoth is a word of the file only: the era is detected, and a modern server gets a legacy
	// connection, too. To a Dialer it is EraAuto.
	EraBoth Era = "both"
)

// draft20241007 is the draft of 2024-11-05. The TypeScript SDK still accepts it.
const draft20241007 = "2024-10-07"

// IsLegacyVersion reports whether a version of the protocol is one of the legacy era that Junction
// supports.
func IsLegacyVersion(version string) bool {
	return version == draft20241007 || slices.Contains(mcp.LegacyProtocolVersions(), version)
}

// UnmarshalText parses auto, both, legacy or modern.
func (e *Era) UnmarshalText(text []byte) error {
	switch word := Era(text); word {
	case "auto":
		*e = EraAuto
	case EraBoth, EraLegacy, EraModern:
		*e = word
	default:
		return fmt.Errorf("%q is none of auto, both, legacy, modern", text)
	}
	return nil
}

// Transport is a transport to a remote server.
type Transport string

const (
	TransportAuto Transport = ""     // not known yet: it is detected
	TransportHTTP Transport = "http" // Streamable HTTP
	TransportSSE  Transport = "sse"  // HTTP+SSE of 2024-11-05
)

// UnmarshalText parses auto, http or sse.
func (t *Transport) UnmarshalText(text []byte) error {
	switch word := Transport(text); word {
	case "auto":
		*t = TransportAuto
	case TransportHTTP, TransportSSE:
		*t = word
	case "streamable-http", "streamable_http", "streamableHttp", "streamable":
		return fmt.Errorf("%q is none of auto, http, sse; write http, which is Streamable HTTP", text)
	default:
		return fmt.Errorf("%q is none of auto, http, sse", text)
	}
	return nil
}
