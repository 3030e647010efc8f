package sealed

import (
	"encoding/json"
	"time"
)

// State is the content of Junction's requestState, which a modern client sends back when it repeats
// its request with answers. It is sealed and valid only for the same request of the same user. The
// client is not trusted (2026-07-28, basic/patterns/mrtr#security-considerations), and an upstream
// that binds its state to a user sees only Junction.
type State struct {
	Kind     StateKind       `json:"k"`
	Upstream json.RawMessage `json:"u,omitempty"` // Relayed: the upstream's own state, a JSON string
	Parked   string          `json:"p,omitempty"` // Parked: ID of the call
	Member   string          `json:"m,omitempty"` // Parked: the process that has the call; "" if it is alone
	// Approval: ID of the approval request; with Approved: ID of an answer that permits one
	// more call
	Approval string `json:"a,omitempty"`
	Approved bool   `json:"y,omitempty"` // the user has approved the request, if policy requires it
	Maker    string `json:"i,omitempty"` // with Approval: Sealer.maker
	Spans    []byte `json:"d,omitempty"` // Approval: digest of the tool and the server that the form offered
	App      []byte `json:"b,omitempty"` // with Approval: digest of the client that has shown the form

	Roots  []string   `json:"f,omitempty"` // URIs of the roots that the client has given; the request has their folder
	Rooted []string   `json:"g,omitempty"` // Relayed: upstream.Call.Rooted
	Asked  *Questions `json:"q,omitempty"` // for the Observer

	Principal string `json:"w"`
	Request   []byte `json:"r"`           // Request.Digest
	Shown     []byte `json:"s,omitempty"` // with Approval: Request.ApprovalDigest
	Expires   int64  `json:"e"`           // Unix seconds
}

// StateKind says why the client got the state.
type StateKind string

// The kinds of states.
const (
	None    StateKind = ""
	Relayed StateKind = "relayed" // the upstream is called again with its own state
	Parked  StateKind = "parked"  // the call is in progress and gets the answers
	Again   StateKind = "again"   // the upstream rejected the call, which is made again
	// Approval: the call was not made yet and waits for the user's approval
	Approval StateKind = "approval"
	Connect  StateKind = "connect" // the user is connecting the upstream
	Roots    StateKind = "roots"   // the client is asked for its roots; nothing was called
)

// Questions are the questions of one answer to a modern client, until the client returns.
type Questions struct {
	At       int64    `json:"t"` // Unix milliseconds
	Upstream string   `json:"u,omitempty"`
	Methods  []string `json:"m"`
	Trace    string   `json:"c,omitempty"` // the saved trace of the request
}

// State returns a sealed requestState. It sets the Maker of a state with an Approval.
func (s *Sealer) State(st State) string {
	if st.Approval != "" {
		st.Maker = s.maker
	}
	text, _ := json.Marshal(st) // cannot fail: the upstream's state was parsed before
	return s.states.Seal(text)
}

// OpenState returns the content of a requestState, if the principal got it. It returns false if the
// principal did not, or if the state has expired: then only the Kind of st is set.
func (s *Sealer) OpenState(sealed, principal string) (st State, ok bool) {
	text, err := s.states.Open(sealed)
	switch {
	case err != nil || json.Unmarshal(text, &st) != nil || st.Principal != principal:
		return State{}, false
	case time.Now().Unix() > st.Expires:
		return State{Kind: st.Kind}, false
	}
	return st, true
}

// Made reports whether this process, or one of its members, has made a state with an Approval. A
// process that was alone and has ended counts as another one.
func (s *Sealer) Made(st State) bool { return st.Maker == s.maker }
