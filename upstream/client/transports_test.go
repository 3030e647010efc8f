package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"junction/auth/authtest"
	"junction/upstream/transport"
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

// TestAttemptsBeginWithTheTransportOfTheEntry: a word of the entry is opened by each way to a conn. Without a
// word, the first attempt finds the transport out, and the next ones begin with the one that it has found.
func TestAttemptsBeginWithTheTransportOfTheEntry(t *testing.T) {
	none := errors.New("not in this test")
	ways := map[string]func(d *Dialer) error{
		"Dial": func(d *Dialer) error { return second(d.Dial(t.Context(), Profile{}, Hooks{})) },
		"Dial, initialize alone": func(d *Dialer) error {
			d.known.initializeAlone()
			return second(d.Dial(t.Context(), Profile{}, Hooks{}))
		},
		"Dial, legacy before": func(d *Dialer) error {
			d.Expect(EraLegacy)
			return second(d.Dial(t.Context(), Profile{}, Hooks{}))
		},
		"Dial, era legacy": func(d *Dialer) error {
			d.options.Era = EraLegacy
			return second(d.Dial(t.Context(), Profile{}, Hooks{}))
		},
		"Dial, era modern": func(d *Dialer) error {
			d.options.Era = EraModern
			return second(d.Dial(t.Context(), Profile{}, Hooks{}))
		},
		"DialLegacy":        func(d *Dialer) error { return second(d.DialLegacy(t.Context(), Profile{}, Hooks{})) },
		"DialLegacySession": func(d *Dialer) error { return second(d.DialLegacySession(t.Context(), Profile{}, Hooks{})) },
	}
	for way, dial := range ways {
		for _, row := range transports {
			if row.legacy && strings.Contains(way, "modern") {
				continue // the file is rejected
			}
			var opened []Transport
			d := NewDialer(Options{URL: "https://mcp.example", Transport: row.transport, Log: authtest.Log(t)})
			d.kind = &ServerKind{HTTP: true, open: func(_ *attempt, _ context.Context, remote Transport,
				_ transport.Receiver, _ func(error)) (transport.Transport, error) {
				opened = append(opened, remote)
				return nil, none
			}}
			if err := dial(d); !errors.Is(err, none) || !slices.Equal(opened, []Transport{row.transport}) {
				t.Errorf("transport %s: %s opens %q (%v)", row.word, way, opened, err)
			}
		}
	}
	d := NewDialer(Options{URL: "https://mcp.example", Log: authtest.Log(t)})
	d.known.learn(EraLegacy, d.options.Transport.row().next, assumed)
	d.kind = &ServerKind{HTTP: true, open: func(_ *attempt, _ context.Context, remote Transport,
		_ transport.Receiver, _ func(error)) (transport.Transport, error) {
		if remote != transports[0].next {
			t.Errorf("after %s has succeeded, Dial opens %q", transports[0].next, remote)
		}
		return nil, none
	}}
	if _, err := d.Dial(t.Context(), Profile{}, Hooks{}); !errors.Is(err, none) {
		t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }
