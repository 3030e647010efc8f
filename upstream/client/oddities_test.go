package client

import (
	"testing"

	"junction/upstream/jsonrpc"
)

// hearing is a Peer that keeps the notifications.
type hearing struct {
	Peer
	heard []string
}

func (h *hearing) Notify(method string, params []byte) {
	h.heard = append(h.heard, method+" "+string(params))
}

// TestProgressTokenByValue: progress reaches its call also if the server writes the token in another
// form, and never the call of another token.
func TestProgressTokenByValue(t *testing.T) {
	b, peer, other := &base{flights: map[jsonrpc.ID]*flight{}}, new(hearing), new(hearing)
	b.track(&flight{id: "7", peer: peer, token: []byte(`"mine"`)})
	b.track(&flight{id: "70", peer: other, token: []byte(`"other"`)})
	for _, token := range []string{`7`, `"7"`, `7.0`, `70e-1`, `"x7"`, `7.5`, `8`, `null`} {
		m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`+token+`,"progress":1}}`), 10)
		if err != nil {
			t.Fatal(err)
		}
		b.receive(&m)
	}
	if len(peer.heard) != 4 || peer.heard[1] != `notifications/progress {"progressToken":"mine","progress":1}` {
		t.Errorf("the call got %q", peer.heard)
	}
	if len(other.heard) != 0 {
		t.Errorf("another call got %q", other.heard)
	}
}

// TestLateAnswerByValue: the late answer to an abandoned call ends the doubt about it, also if the server
// writes the id in another form.
func TestLateAnswerByValue(t *testing.T) {
	b := &base{flights: map[jsonrpc.ID]*flight{}}
	b.abandoned(&flight{id: "7", window: window{"one", "y"}})
	b.receive(&jsonrpc.Message{ID: `"8"`, Result: []byte("{}")})
	if len(b.doubts) != 1 {
		t.Fatalf("%d doubts after the answer to another call", len(b.doubts))
	}
	b.receive(&jsonrpc.Message{ID: `"7"`, Result: []byte("{}")})
	if len(b.doubts) != 0 {
		t.Errorf("%d doubts after the answer", len(b.doubts))
	}
}
