package harness

import (
	"strings"
	"testing"

	"junction/upstream"
	"junction/upstream/upstreamtest"
)

// Way is one way to an upstream: an era and a transport.
type Way struct {
	Era, Transport string
	// its answers are framed by lines or events, so that a line break between two tokens of theirs
	// must become a space
	lines bool
	taken bool // so are the requests
}

// Ways returns all ways to an upstream.
func Ways() []Way {
	return []Way{
		{LegacyEra, "stdio", true, true}, {ModernEra, "stdio", true, true},
		{LegacyEra, "http", true, false}, {ModernEra, "http", true, false},
		{LegacyEra, "http JSON", false, false}, {ModernEra, "http JSON", false, false},
		{LegacyEra, "sse", true, false},
	}
}

// Sent returns what the upstream's side of the wire makes of a text that the upstream sends, and
// received of one that it is sent.
func (f Way) Sent(text string) string { return OnLine(f.lines, text) }

// Received returns what the upstream receives of a text that it is sent.
func (f Way) Received(text string) string { return OnLine(f.taken, text) }

// OnLine returns the text as OneLine does if line is true, else unchanged.
func OnLine(line bool, text string) string {
	if line {
		return OneLine(text)
	}
	return text
}

// BothEras are the names of both eras.
func BothEras() []string { return []string{LegacyEra, ModernEra} }

// MustScripted starts a server, in a process of its own if the wire wants that, and returns how to
// reach it.
func MustScripted(t testing.TB, wire string, script upstreamtest.Script) (upstream.Config, *upstreamtest.Journal) {
	t.Helper()
	switch wire {
	case "stdio":
		c := upstreamtest.Command(t, script)
		return upstream.Config{Command: c.Command, Env: c.Env}, &c.Journal
	case "sse":
		s, url := upstreamtest.StartSSE(t, script)
		return upstream.Config{URL: url}, &s.Journal
	case "http", "http JSON":
		s, url := upstreamtest.Start(t, script)
		return upstream.Config{URL: url}, &s.Journal
	}
	t.Fatalf("there is no server for the transport %q", wire)
	return upstream.Config{}, nil
}

// OneLine is the only change that is allowed to what a client or server wrote: where a message is
// one line, a line break between tokens becomes a space.
func OneLine(text string) string { return strings.NewReplacer("\n", " ", "\r", " ").Replace(text) }
