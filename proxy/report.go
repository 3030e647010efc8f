package proxy

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"junction/policy"
	"junction/proxy/budget"
	"junction/proxy/pins"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/raw"
)

// Hooks report what happens. Each may be nil. They must not block.
type Hooks struct {
	// CallDone is called once for each call, after its answer was written. It is also called for
	// each request of an authenticated principal that may use nothing or names an unknown endpoint;
	// the method and the name are unknown then. It may change the CallInfo, and must not keep it.
	CallDone func(*CallInfo)
	// Problems is called with all items that are not offered, and why, when a new view has others
	// than the one before.
	Problems func([]view.Problem)
	// SessionDeleted is called when a legacy client has deleted its session, with a hash of the
	// session's id and when the id expires anyway. Options.DeletedSessions gives the hashes back to
	// a later Server with the same key.
	SessionDeleted func(hash [16]byte, until time.Time)
}

// CallInfo is what there is to know of a call, none of it secret but for Arguments. A text is ""
// where there is nothing to say.
type CallInfo struct {
	// of the HTTP request, which is in its answer too: X-Request-Id; "" where none was given
	// one
	RequestID string
	Principal string     // id of who called, such as "local" or "key:ci"
	Kind      string     // of the principal: local, key, user or service
	Address   netip.Addr // of the client; the zero Addr when it is not known
	Client    string     // the name that the client gave itself (unverified)
	Session   string     // tells legacy sessions apart; not the session id, which is a secret
	Request   string     // the JSON-RPC id, as the client wrote it
	Era       string
	Endpoint  string // "" is the merged one
	Surface   string // of the endpoint
	Upstream  string // "" when the name was unknown
	Method    string
	Name      string // as the client called it
	Own       string // as the upstream calls it

	// Verdict is deny, ask or allow; "" when nothing was decided, as about a method that does not
	// exist. Policy and Rule say what gave it, and Missing which capability is not held, or which
	// scopes the token of the caller would need, with spaces between them.
	Verdict, Policy, Rule, Missing string
	// Approval is "" unless policy says ask. Otherwise it is asked, given, remembered, declined,
	// late if the call was denied by the time of the answer, or impossible if the client cannot
	// ask.
	Approval string
	// Arguments is the JSON text of the call's arguments; nil when it has none. Where it is not
	// clear which they are, because the member is there twice or in another letter case, it is that
	// of all params. It is valid during the hook only.
	Arguments []byte

	Took     time.Duration
	Sent     int // bytes of the request's body
	Received int // bytes of the result
	// Outcome is ok, error (the upstream's own), or the kind of our error.
	Outcome string
	Code    int64 // of the JSON-RPC error that the client was answered with; 0 when there was none
	Err     error
}

// Explanation is what there is to say of one item and one subject.
type Explanation struct {
	Upstream string
	Part     upstream.Part
	Own      string // the upstream's own name or URI
	Exposed  string // under which it is, or would be, seen on the endpoint
	Listed   bool   // it is in a list; a resource may be readable and in none
	Visible  bool   // it exists for the subject, if only for some arguments or after asking
	Held     string // why pinned policies hold it back, if they do; the subject's do if Pinned
	Pinned   bool
	Problem  string // why no client, or no client of 2026-07-28, sees it; "" when it is offered
	Verdict  policy.Verdict
	Reads    bool // the verdict depends on the arguments; then Verdict is that on a call without any
	Reasons  []policy.Reason
}

// Explain returns what there is to say of the items that the name may mean on an endpoint: the name
// or URI that clients see, the upstream's own, or the full one before it was shortened. It is empty
// if nothing has that name, whatever the subject; false means that there is no such endpoint.
func (s *Server) Explain(who policy.Subject, endpoint, name string) ([]Explanation, bool) {
	w := s.snapshot.Load()
	e := w.endpoints[endpoint]
	if e == nil {
		return nil, false
	}
	who.Surface = e.surface
	rights := w.policy.For(who)
	var list []Explanation
	for p := range upstream.Parts {
		for t := range e.view.All(p) {
			if t.Exposed != name && t.Name != name && !slices.Contains(t.Names, name) {
				continue
			}
			x := explain(rights, t)
			x.Listed = x.Visible
			if t.Tool != nil && t.Tool.HeaderProblem != "" {
				x.Problem = "not offered to clients of 2026-07-28: " + t.Tool.HeaderProblem
			}
			list = append(list, x)
		}
	}
	for _, problem := range e.view.Problems {
		if problem.Name == name &&
			!slices.ContainsFunc(list, func(x Explanation) bool {
				return x.Upstream == problem.Upstream &&
					x.Part == problem.Part
			}) {
			list = append(list, Explanation{Upstream: problem.Upstream, Part: problem.Part, Own: name,
				Problem: problem.Reason})
		}
	}
	if len(list) == 0 && strings.Contains(name, ":") { // as every URI has
		if t, err := view.Everything(e.view).Resource(name); err == nil {
			list = append(list, explain(rights, t))
		}
	}
	return list, true
}

func explain(rights *policy.Rights, t *view.Target) Explanation {
	g := rights.Bind(t.PolicyItem())
	d, _ := g.Decide(raw.Object{})
	x := Explanation{Upstream: t.Backend.Name(), Part: t.Part, Own: t.Name, Exposed: t.Exposed, Held: t.Held,
		Pinned:  rights.Guards().Pinned,
		Verdict: d.Verdict, Reads: g.Reads(), Reasons: g.Explain()}
	x.Visible = g.Visible() && !(x.Pinned && x.Held != "")
	return x
}

// Definitions returns the definitions of all tools that the configuration does not leave out, in
// the order of upstreams and of their lists. They alias the catalogs.
func (s *Server) Definitions() []pins.Definition {
	var list []pins.Definition
	for _, b := range s.snapshot.Load().backends {
		catalog, config := b.Catalog(), b.Config()
		for i := range catalog.Tools {
			t := &catalog.Tools[i]
			if _, offered := config.Offers(t.Name); offered {
				list = append(list, pins.Definition{Upstream: b.Name(), Name: t.Name, Definition: t.Definition.Text()})
			}
		}
	}
	return list
}

// Problems returns the items that are not offered, and why.
func (s *Server) Problems() []view.Problem { return s.snapshot.Load().problems() }

// Tools returns how many tools clients see on the merged endpoint.
func (s *Server) Tools() int {
	n := 0
	for range s.snapshot.Load().endpoints[""].view.All(upstream.PartTools) {
		n++
	}
	return n
}

func (w *snapshot) problems() []view.Problem {
	list := w.endpoints[""].view.Problems
	for _, b := range w.backends {
		for _, p := range w.endpoints[b.Name()].view.Problems {
			if p.Upstream != "" && !has(list, p) {
				list = append(list[:len(list):len(list)], p)
			}
		}
	}
	return list
}

// has reports whether the list names the item already, for whatever endpoint.
func has(list []view.Problem, p view.Problem) bool {
	for _, o := range list {
		if o.Upstream == p.Upstream && o.Part == p.Part && o.Name == p.Name {
			return true
		}
	}
	return false
}

func equal(a, b []view.Problem) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// Overused returns the callers that were refused something within the last minute, the latest
// first.
func (s *Server) Overused() []budget.Overuse { return s.budget.Overused() }
