package replicas

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"

	"junction/policy"
	"junction/proxy/members"
	"junction/upstream/http1"
)

// This file has each forwarded request judged by the policies of both members, while these differ. A request
// has the digest of the policies of the member that forwards it. Before the first one, that member sends the
// policies themselves.

const (
	// headerRules has the digest of the policies of the member that forwards a request. In a request of its
	// own, with headerRulesText, it is that of the policies in the body. In an answer, it says that the process
	// judges by them (rulesTaken), or that it cannot.
	headerRules     = "Junction-Rules"
	headerRulesText = "Junction-Rules-Text"

	rulesTaken   = "taken"
	rulesRefused = "refused" // this version cannot read them
	rulesUnknown = "unknown" // they were not sent, or were dropped; nothing was executed

	maxRules    = 16 << 20 // of the policies of one member, in bytes; a configuration file has at most 10 MiB
	rulesOfMost = 16       // configurations of other members that are kept
)

// Rules are the policies by which this process judges requests of other members: its own, and theirs. The zero
// value has none: then only the owner of a session judges. All methods may be called concurrently.
type Rules struct {
	mu     sync.Mutex
	digest string // of text
	text   []byte // of the own policies, by policy.Carry
	others []foreignRules
}

// foreignRules are the policies of another member.
type foreignRules struct {
	digest string
	policy *policy.Policy
}

// Set replaces the own policies by those of a text of policy.Carry. Call it when they are in force: until then,
// requests of a member that has them are judged by both.
func (r *Rules) Set(text []byte) {
	sum := sha256.Sum256(text)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.digest, r.text = hex.EncodeToString(sum[:16]), text
}

// own returns the own policies; "" if there are none.
func (r *Rules) own() (digest string, text []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.digest, r.text
}

// of returns the policies of a digest; nil for the own ones. known is false if another member has to send them.
func (r *Rules) of(digest string) (p *policy.Policy, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if digest == r.digest {
		return nil, true
	}
	for _, o := range r.others {
		if o.digest == digest {
			return o.policy, true
		}
	}
	return nil, false
}

// take keeps the policies of another member, in place of the oldest ones.
func (r *Rules) take(digest string, text []byte) error {
	if _, known := r.of(digest); known {
		return nil
	}
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:16]) != digest {
		return errors.New("the policies of another replica are not those of their digest")
	}
	p, err := policy.FromText(text)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.others = append(r.others, foreignRules{digest, p})
	if more := len(r.others) - rulesOfMost; more > 0 {
		r.others = slices.Delete(r.others, 0, more)
	}
	return nil
}

// mark returns the request with the policies by which the member that has forwarded it judges. It returns nil if
// these are unknown: then it has answered the request.
func (r *Rules) mark(w http.ResponseWriter, q *http.Request) *http.Request {
	digest := q.Header.Get(headerRules)
	if digest == "" { // of a version that does not send them
		return q
	}
	p, known := r.of(digest)
	switch {
	case !known:
		w.Header().Set(headerRules, rulesUnknown)
		w.WriteHeader(http.StatusMisdirectedRequest)
		return nil
	case p == nil:
		return q
	}
	return q.WithContext(members.WithRules(q.Context(), p))
}

// receive answers a request of its own, with the policies of another member. It returns an error that explains
// why this process cannot judge by them.
func (r *Rules) receive(w http.ResponseWriter, q *http.Request) error {
	text, err := io.ReadAll(io.LimitReader(q.Body, maxRules))
	if err == nil {
		err = r.take(q.Header.Get(headerRules), text)
	}
	if err != nil {
		w.Header().Set(headerRules, rulesRefused)
		w.WriteHeader(http.StatusConflict)
		return err
	}
	w.Header().Set(headerRules, rulesTaken)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// errRules means that another member cannot judge by the policies of this process.
var errRules = errors.New("another replica cannot judge by the policies of this process")

// judging sends requests to one member, with the policies of this process.
type judging struct {
	m *Member
	p *otherMember
}

// forward is Member.forward. The member judges the request by the policies of this process, too.
func (j judging) forward(w http.ResponseWriter, r *http.Request, body []byte) (outcome, error) {
	once := body == nil && r.ContentLength > 0
	for again := false; ; again = true {
		fields, err := j.tell(r.Context())
		if err != nil {
			return failed, err
		}
		outcome, err := j.m.forward(w, r, body, j.p, fields...)
		if !errors.Is(err, errRules) {
			return outcome, err
		}
		j.p.conns.rules.Store(nil)
		if once || again {
			return gone, members.ErrUnreachable
		}
	}
}

// tell sends the member the policies of this process, unless it has them. It returns the header field for a request.
func (j judging) tell(ctx context.Context) ([]http1.Field, error) {
	digest, text := j.m.o.Rules.own()
	if digest == "" {
		return nil, nil
	}
	field := http1.Field{Name: headerRules, Value: digest}
	if has := j.p.conns.rules.Load(); has != nil && *has == digest {
		return []http1.Field{field}, nil
	}
	q := &http.Request{Method: http.MethodPost, URL: &url.URL{Path: "/"}, Body: io.NopCloser(bytes.NewReader(text)),
		ContentLength: int64(len(text))}
	x := new(http1.Exchange)
	defer context.AfterFunc(ctx, x.Abort)()
	resp, _, err := j.m.exchange(ctx, j.p, x, q, []http1.Field{{Name: headerHop, Value: j.p.id + " 127.0.0.1:1"},
		{Name: headerLatest, Value: j.m.latest()}, field, {Name: headerRulesText, Value: "1"}}, false)
	switch {
	case errors.Is(err, errLost) && ctx.Err() == nil: // nothing of the client was sent
		return nil, members.ErrGone
	case err != nil:
		return nil, err
	}
	defer resp.Body.Close()
	if x.Get(headerRules) == rulesRefused {
		j.m.o.Log.Warn("another replica cannot read the policies of this process; requests for its sessions get 503 "+
			"while the two differ", "address", j.p.address)
		return nil, fmt.Errorf("%w: %w", members.ErrUnreachable, errRules)
	}
	// Without the header, it is of a version that judges by its own policies only.
	j.p.conns.rules.Store(&digest)
	return []http1.Field{field}, nil
}
