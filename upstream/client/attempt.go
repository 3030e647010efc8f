package client

import (
	"context"
	"slices"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/jsonrpc"
)

// attempt is one call of Dial. It opens one transport, or two if the first one fails in a way that
// another one may not. At most one of them is open at a time.
type attempt struct {
	*Dialer
	profile Profile
	hooks   Hooks
	tokens  *tokens // nil if requests need no token, and have no other headers
}

func (d *Dialer) attempt(p Profile, h Hooks) *attempt {
	a := &attempt{Dialer: d, profile: p, hooks: h}
	if d.options.Token != nil || d.options.Others != nil {
		a.tokens = &tokens{ask: d.options.Token, known: d.options.Era == EraModern}
	}
	return a
}

// remote returns the transport to begin with: the word of the entry. With TransportAuto the transport is
// found out. Only Dial may know another one from an earlier attempt.
func (a *attempt) remote() Transport { return a.options.Transport }

// tokens are the access tokens of one attempt. To the source of the tokens, all handshakes of the
// attempt are one request, so that an attempt renews a token at most once. After the attempt,
// tokens change nothing.
type tokens struct {
	ask func(ctx context.Context, refused ...string) (string, error) // Options.Token

	mu      sync.Mutex
	known   bool     // the server speaks the modern era
	refused []string // by the handshakes of this attempt
	failed  bool     // ask has returned an error
	over    bool     // the attempt has ended
}

// token is Options.Token for the transports of the attempt.
func (t *tokens) token(ctx context.Context, refused ...string) (string, error) {
	t.mu.Lock()
	if !t.over && len(refused) > 0 {
		for i, token := range refused { // twice the same: there is no other one
			if !slices.Contains(t.refused, token) || slices.Contains(refused[:i], token) {
				t.refused = append(t.refused, token)
			}
		}
		refused = slices.Clone(t.refused)
	}
	t.mu.Unlock()
	token, err := t.ask(ctx, refused...)
	if err != nil && ctx.Err() == nil {
		t.mu.Lock()
		t.failed = true
		t.mu.Unlock()
	}
	return token, err
}

// renews reports whether a request that was answered 401 is sent again with another token. If the
// era is unknown, 401 without a challenge to server/discover may be the answer of a legacy server to
// an unknown method: the token may be good, and initialize shows whether it is.
func (t *tokens) renews(m *jsonrpc.Message, challenged bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over || t.known || m == nil || m.Method != string(mcp.MethodServerDiscover) {
		return true
	}
	return challenged && len(t.refused) == 0
}

// end ends the attempt.
func (t *tokens) end() {
	if t != nil {
		t.mu.Lock()
		t.over = true
		t.mu.Unlock()
	}
}

// hasFailed reports whether no token could be had.
func (t *tokens) hasFailed() bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}

// expect notes that the server has spoken the modern era.
func (t *tokens) expect(era Era) {
	if t != nil && era == EraModern {
		t.mu.Lock()
		t.known = true
		t.mu.Unlock()
	}
}
