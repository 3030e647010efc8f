package upstream

import (
	"slices"
	"strings"
)

// headerUse is what a key of an entry wants to do with a header.
type headerUse int

const (
	useFixed   headerUse = 1 << iota // headers: send a fixed value
	useCarrier                       // auth.header: send a credential
	useForward                       // forward_headers: send what the client of a call has sent
)

const (
	useAny  = useFixed | useCarrier | useForward
	useMore = useCarrier | useForward
)

// headerRule tells for which uses an entry cannot name a header.
type headerRule struct {
	name string // in lower case; with a - at its end, the beginning of names
	not  headerUse
}

// headerRules are the headers that an entry cannot name for each use. Those of useAny concern one connection, or the
// transport writes them. The others say something else than a key or a word of the client, and a server or a proxy
// on the way may read them.
var headerRules = []headerRule{
	{"accept", useAny}, {"connection", useAny}, {"content-length", useAny}, {"content-type", useAny}, {"host", useAny},
	{"http2-settings", useAny}, {"keep-alive", useAny}, {"last-event-id", useAny}, {"mcp-method", useAny},
	{"mcp-name", useAny}, {"mcp-protocol-version", useAny}, {"mcp-session-id", useAny}, {"te", useAny},
	{"trailer", useAny}, {"transfer-encoding", useAny}, {"upgrade", useAny},

	{"accept-", useMore}, {"baggage", useMore}, {"content-", useMore}, {"cookie", useMore}, {"expect", useMore},
	{"forwarded", useMore}, {"junction-", useMore}, {"mcp-", useMore}, {"origin", useMore}, {"proxy-", useMore},
	{"sec-", useMore}, {"traceparent", useMore}, {"tracestate", useMore}, {"via", useMore}, {"x-forwarded-", useMore},
	{"x-real-ip", useMore},

	{"authorization", useForward}, // the client's for Junction
	{"user-agent", useCarrier},
}

// mayName reports whether an entry can name a header for a use.
func mayName(header string, use headerUse) bool {
	name := strings.ToLower(header)
	return !slices.ContainsFunc(headerRules, func(r headerRule) bool {
		return r.not&use != 0 && (name == r.name || strings.HasSuffix(r.name, "-") && strings.HasPrefix(name, r.name))
	})
}
