package client

import (
	"context"
	"time"

	"junction/upstream/transport"
)

// A ServerKind is how Junction reaches a server. Each kind has one row of facts, which is all that other
// code knows of it: no place outside of this file compares Command or URL to find out the kind. A new
// kind is a row here, its fields in Options and in the entry of the file, and its open.
type ServerKind struct {
	// Key is the key of an entry with the address of the server. Name is the key with its article, and
	// About says what it is, for people.
	Key, Name, About string

	// Process means that each connection starts a process of its own, on this machine. It has its own
	// state, may end, and may download its program first. The connections of other kinds all end in the
	// same server.
	Process bool
	// HTTP means that requests are sent by HTTP: the server may speak HTTP+SSE, rejects requests with a
	// status, and may lose a legacy session while its connection stays.
	HTTP bool

	// ConnectTimeout and MaxLinks are the defaults of these keys of an entry.
	ConnectTimeout time.Duration
	MaxLinks       int

	// Connects is what Junction does to connect, before the name of the upstream. ConnectsForUser is why a
	// call fails that waits for a connection of one user alone.
	Connects, ConnectsForUser string
	// Advice for the operator: about a server that does not answer calls, about one that does not answer
	// the handshake, about one that may still download its program, and about one that closes the
	// connection without an answer. "" means that this does not happen, or that other advice fits.
	Frozen, Silent, Downloads, Closed string

	given func(command []string, url string) bool
	open  func(a *attempt, ctx context.Context, remote Transport, in transport.Receiver, doubted func(error)) (
		transport.Transport, error)
}

// Command is a server that Junction starts as a child process, and that speaks MCP over its standard
// input and output.
var Command = &ServerKind{
	Key: "command", Name: "a command", About: "a child process",
	Process:        true,
	ConnectTimeout: 2 * time.Minute, // npx may install the package first, and an aborted installation stays broken
	MaxLinks:       8,

	Connects:        "starts a process of",
	ConnectsForUser: "a process for this user alone is still starting",
	Frozen:          "if it stays, use Reconnect on the status page: it ends the process, and starts another one",
	Silent: "run the command by hand: it writes nothing to its standard output; raise connect_timeout if it " +
		"only takes long to start",
	Downloads: "the command may have to download the package first: raise connect_timeout, or remove it (default: 2m)",

	given: func(command []string, _ string) bool { return len(command) > 0 },
	open:  (*attempt).openProcess,
}

// Remote is a server with a URL.
var Remote = &ServerKind{
	Key: "url", Name: "a url", About: "a remote server",
	HTTP:           true,
	ConnectTimeout: 20 * time.Second,
	MaxLinks:       256, // a session of a remote server costs less than a process

	Connects:        "connects to",
	ConnectsForUser: "still connecting",
	Frozen:          "look at the server itself: it takes connections and does not answer; restart it if it stays",
	Silent: "the server accepts the connection and does not answer: read its log; raise connect_timeout if " +
		"it only takes long",
	Closed: "the server or a proxy before it closed the connection without an answer: read its log, and check " +
		"scheme, port and path of url",

	given: func(_ []string, url string) bool { return url != "" },
	open:  (*attempt).openRemote,
}

// serverKinds are the kinds of servers. If an entry names several of them, by mistake, the last one counts.
var serverKinds = []*ServerKind{Command, Remote}

// ServerKinds returns all kinds of servers, in the order in which texts name them.
func ServerKinds() []*ServerKind { return serverKinds }

// ServerKindsOf returns the kinds of the servers that an entry or Options name: one, unless there is a mistake.
func ServerKindsOf(command []string, url string) (kinds []*ServerKind) {
	for _, k := range serverKinds {
		if k.given(command, url) {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// ServerKindOf returns the kind of the server that an entry or Options name. Without an address, which is
// a mistake, it is a command that cannot start.
func ServerKindOf(command []string, url string) *ServerKind {
	kind := Command
	for _, k := range serverKinds {
		if k.given(command, url) {
			kind = k
		}
	}
	return kind
}

// ServerKindOfKey returns the kind of server whose address is at a key of an entry; nil for none.
func ServerKindOfKey(key string) *ServerKind {
	for _, k := range serverKinds {
		if k.Key == key {
			return k
		}
	}
	return nil
}
