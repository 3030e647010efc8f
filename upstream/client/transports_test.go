package client

import (
	"strings"
	"testing"
)

// TestEachTransportIsARow: the word of a row is read as its transport, has a way to open it, and leads to
// another row or to none. An alias is a mistake whose error names the word.
func TestEachTransportIsARow(t *testing.T) {
	for i, row := range transports {
		var read Transport
		if err := read.UnmarshalText([]byte(row.word)); err != nil || read != row.transport {
			t.Errorf("the word %s is read as %q (%v)", row.word, read, err)
		}
		if row.open == nil {
			t.Errorf("%s has no way to open it", row.word)
		}
		if i > 0 && string(row.transport) != row.word {
			t.Errorf("the value of %s is %q, which is shown to people", row.word, row.transport)
		}
		if row.next != "" && row.next.row().transport != row.next {
			t.Errorf("after %s comes %q, which has no row", row.word, row.next)
		}
		if needed := row.transport.Needed(); needed != "" && needed != row.word {
			t.Errorf("an entry needs %q for %s", needed, row.word)
		}
		for _, alias := range row.alias {
			if err := read.UnmarshalText([]byte(alias)); err == nil || row.about == "" ||
				!strings.HasSuffix(err.Error(), "; write "+row.word+", which is "+row.about) {
				t.Errorf("%s gives %v", alias, err)
			}
		}
	}
	if transports[0].transport != TransportAuto || TransportAuto.row().next != TransportSSE || !TransportSSE.OnlyLegacy() {
		t.Error("without a word, a server is reached by Streamable HTTP, then by HTTP+SSE of the legacy era")
	}
}
