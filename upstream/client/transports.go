package client

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"junction/upstream/transport"
)

// Transport is a word of the file: a transport to a remote server.
type Transport string

const (
	TransportAuto Transport = ""     // not known yet: it is detected
	TransportHTTP Transport = "http" // Streamable HTTP
	TransportSSE  Transport = "sse"  // HTTP+SSE of 2024-11-05
)

// transports has a row for each word of transport; the first one is the default.
var transports = []transportRow{
	{transport: TransportAuto, word: "auto", next: TransportSSE, detected: true, open: openHTTP},
	{transport: TransportHTTP, word: "http", detected: true, open: openHTTP, about: "Streamable HTTP",
		alias: []string{"streamable-http", "streamable_http", "streamableHttp", "streamable"}},
	{transport: TransportSSE, word: "sse", legacy: true, open: transport.OpenSSE},
}

// A transportRow has the facts of a word.
type transportRow struct {
	transport   Transport
	word, about string   // about says what it is, beside an alias
	alias       []string // what people write instead
	// next is what is tried when a server rejects initialize over this transport; "" means nothing.
	next Transport
	// detected means that an entry without the word reaches the same servers.
	detected bool
	legacy   bool // there is no modern era
	open     func(context.Context, transport.HTTPOptions, transport.Receiver) (transport.Transport, error)
}

func openHTTP(_ context.Context, o transport.HTTPOptions, in transport.Receiver) (transport.Transport, error) {
	return transport.OpenHTTP(o, in), nil
}

// row returns the facts of the word. A Transport that is no word has those of TransportAuto.
func (t Transport) row() transportRow {
	return transports[max(0, slices.IndexFunc(transports, func(r transportRow) bool { return r.transport == t }))]
}

// OnlyLegacy reports whether the transport has no modern era.
func (t Transport) OnlyLegacy() bool { return t.row().legacy }

// Needed returns the word for an entry; "" if a server is reached without it, too.
func (t Transport) Needed() string {
	if t.row().detected {
		return ""
	}
	return t.row().word
}

// Words returns the words of the file.
func (Transport) Words() (words []string) {
	for _, row := range transports {
		words = append(words, row.word)
	}
	return words
}

// UnmarshalText parses a word of the file.
func (t *Transport) UnmarshalText(text []byte) error {
	word, words := string(text), strings.Join(t.Words(), ", ")
	for _, row := range transports {
		switch {
		case row.word == word:
			*t = row.transport
			return nil
		case slices.Contains(row.alias, word):
			return fmt.Errorf("%q is none of %s; write %s, which is %s", text, words, row.word, row.about)
		}
	}
	return fmt.Errorf("%q is none of %s", text, words)
}
