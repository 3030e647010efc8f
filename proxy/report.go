package proxy

import (
	"errors"
	"net/netip"
	"time"

	"junction/policy"
	"junction/proxy/budget"
	"junction/proxy/sealed"
	"junction/proxy/view"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// Hooks are callbacks for events. Each may be nil. They must not block.
type Hooks struct {
	// CallDone is called once for each call, after its answer was written. It is also called for
	// each request of an authenticated principal that may use nothing or names an unknown endpoint.
	// Method and Name are empty then. CallDone may change the CallInfo and must not keep it.
	CallDone func(*CallInfo)
	// Problems is called with all hidden items and their reasons when a new view changes that list.
	Problems func([]view.Problem)
}

// CallInfo describes a call for the log and the audit. Only Arguments may contain secrets. An
// unknown or inapplicable text is "".
type CallInfo struct {
	// X-Request-Id of the HTTP request, also sent in its answer; "" if there is none
	RequestID string
	TraceID   [16]byte   // of the trace of the request; zero if there is none. The Observer sets it
	Principal string     // ID of the caller, such as "local" or "key:ci"
	KeyID     string     // distinguishes the API keys of one name (auth.Hash.ID); "" without a key
	Person    string     // name of a user as the issuer of the token gave it
	Email     string     // of a user, verified by the issuer
	Kind      string     // of the principal: local, key, user or service
	Address   netip.Addr // of the client; the zero Addr if unknown
	Client    string     // the name that the client gave itself (unverified)
	Session   string     // distinguishes legacy sessions; not the session ID, which is a secret
	Request   string     // the JSON-RPC id, as the client wrote it
	Era       string
	Version   string // of the protocol, as spoken with the client
	Endpoint  string // "" is the merged endpoint
	Surface   string // of the endpoint
	Upstream  string // "" if the name was unknown
	Method    string
	Name      string // as the client sent it
	Own       string // the upstream's own name

	// Verdict is deny, ask or allow; "" if policy did not decide, such as for an unknown method.
	// Policy and Rule are the source of the verdict. Missing is the missing capability, or the
	// missing scopes of the caller's token, separated by spaces.
	Verdict, Policy, Rule, Missing string
	// Approval is "" unless the verdict is ask. Otherwise it is asked, given, remembered, declined,
	// unanswered, late (the call was denied when the answer came) or impossible (the client cannot
	// ask, or the form cannot show the call).
	Approval string
	// Arguments is the JSON text of the call's arguments; nil if there are none. If the member is
	// ambiguous (duplicate, or in another letter case), it is the text of all params. It is valid
	// only during the hook.
	Arguments []byte

	// Folder is the folder of the client in which the server works (isolation: folder); "" for none.
	Folder string
	// Forwarded are the names of the headers of the client that go to the server (forward_headers)
	Forwarded []string
	Cached    bool // a kept result was the answer, and the upstream was not called
	Took      time.Duration
	Sent      int // bytes of the request's body
	Received  int // bytes of the result
	Outcome   Outcome
	Code      int64 // code of the JSON-RPC error in the answer; 0 if there was none
	Err       error
}

// Refused reports whether Junction rejected the request before it found the target that the caller
// may call. Callers can cause any number of these without an upstream.
func (c *CallInfo) Refused() bool {
	return c.Outcome == Denied || c.Upstream == "" && (c.Outcome == Invalid || c.Outcome == Limited)
}

// OnlyAsked reports whether the answer was the question for an approval. A client of the modern era sends
// the call again with the approval: that request is the call.
func (c *CallInfo) OnlyAsked() bool { return c.Approval == approvalAsked }

// Overused returns the callers that were refused within the last minute, latest first.
func (s *Core) Overused() []budget.Overuse { return s.budget.Overused() }

// Observer observes the requests of clients, for metrics and traces. Its methods are called by many
// goroutines at once and must not block.
type Observer interface {
	// Begin is called before a request is dispatched. info has the facts about the caller and the
	// method, and gets its TraceID. meta is params._meta, and header has the headers of the transport.
	// The Trace is passed to the calls of upstreams for the request, and to End.
	Begin(info *CallInfo, meta raw.Object, header map[string][]string) client.Trace
	// End is called once for each Begin, after the answer was written, with the complete info
	// except Arguments. It must not keep the CallInfo.
	End(info *CallInfo, t client.Trace)
	QuestionObserver
}

// The questions to clients are requests of upstreams, approvals, and sign-ins to upstreams. A legacy
// client answers a question on its session. A modern client answers it in another request; the sealed
// state keeps the question until then.

// ReportDropped logs that notifications of a call were dropped, because its client does not read them.
func (s *Core) ReportDropped(x *Exchange, progress, messages int) {
	s.log.Warn("notifications of a call were dropped: its client reads more slowly than the server sends",
		"principal", x.Grant.Name(), "upstream", x.Info.Upstream, "name", x.Info.Name, "progress", progress,
		"messages", messages, "limits", "limits.queue, limits.bodies")
}

// QuestionObserver observes questions, for metrics and traces. Its methods are called by many
// goroutines at once and must not block.
type QuestionObserver interface {
	// Asked is called when a question is sent to a client. The Trace is passed to Answered, and the
	// TraceContext is sent to a legacy client.
	Asked(q Question) (client.Trace, client.TraceContext)
	// Answered is called once for each Asked.
	Answered(q Question, t client.Trace, r client.Received)
	// Saved returns the trace of a request as text, for Question.Saved; "" for none.
	Saved(t client.Trace) string
}

// Question is a question to a client.
type Question struct {
	Upstream string // that asks; "" for Junction
	Method   string
	Version  string       // of the protocol, as spoken with the client
	Trace    client.Trace // of the upstream's request if it is of the legacy era, else of the client's
	// Saved is the trace of the client's request that was answered with the question, at Since. The
	// client answers in another request, whose trace is Trace.
	Saved string
	Since time.Time // zero for a question that is sent now
}

// sentQuestion is a question that was sent and is observed. A nil sentQuestion is observed by
// nothing.
type sentQuestion struct {
	Question
	observer QuestionObserver
	trace    client.Trace
	carried  client.TraceContext
	began    time.Time
}

// observeQuestion tells the QuestionObserver about a question. It returns nil if o is nil. End must
// follow.
func observeQuestion(o QuestionObserver, q Question) *sentQuestion {
	if o == nil {
		return nil
	}
	p := &sentQuestion{Question: q, observer: o, began: q.Since}
	if p.began.IsZero() {
		p.began = time.Now()
	}
	p.trace, p.carried = o.Asked(q)
	return p
}

// Join returns the params of the question with its trace.
func (p *sentQuestion) Join(params []byte) []byte {
	if p == nil {
		return params
	}
	return p.carried.Join(params)
}

// End tells the QuestionObserver about the answer, or the reason why there is none: a
// *jsonrpc.Error if the client has answered with it.
func (p *sentQuestion) End(err error) {
	if p == nil {
		return
	}
	r := client.Received{Took: time.Since(p.began)}
	if peer, ok := errors.AsType[*jsonrpc.Error](err); ok {
		r.Code = peer.Code
	} else if err != nil {
		r.Kind = client.KindUnanswered
	}
	p.observer.Answered(p.Question, p.trace, r)
}

// asks returns a question of the upstream of the call. trace is the trace of its request, nil for none.
func (x *Exchange) asks(method string, trace client.Trace) Question {
	return Question{Upstream: x.target.Backend.Name(), Method: method, Trace: trace}
}

// question tells the Observer about a question that is sent to the client.
func (x *Exchange) question(q Question) *sentQuestion {
	if q.Version = x.Info.Version; q.Trace == nil {
		q.Trace = x.trace
	}
	return observeQuestion(x.core.observer, q)
}

// asking returns the questions of an upstream, or of Junction (""), that an answer contains, for the
// next request. It returns nil if there are none, or no Observer.
func (x *Exchange) asking(from string, methods ...string) *sealed.Questions {
	if x.core.observer == nil || len(methods) == 0 {
		return nil
	}
	return &sealed.Questions{At: time.Now().UnixMilli(), Upstream: from,
		Methods: methods[:min(len(methods), MaxPending)], Trace: x.core.observer.Saved(x.trace)}
}

// returned tells the Observer about the questions that the client returns from; asked may be nil.
func (x *Exchange) returned(asked *sealed.Questions) {
	if asked == nil {
		return
	}
	var err error
	if answers, bad := x.Params.Object("inputResponses"); bad != nil || answers.Len() == 0 {
		err = ErrNoAnswer
	}
	for _, method := range asked.Methods {
		x.question(Question{Upstream: asked.Upstream, Method: method, Saved: asked.Trace,
			Since: time.UnixMilli(asked.At)}).End(err)
	}
}

// Used returns what callers use at present of each resource that they share.
func (s *Core) Used() [budget.Quotas]int64 { return s.budget.Used() }

// Exceeded returns how often callers have exceeded the limit of each resource that they share.
func (s *Core) Exceeded() [budget.Quotas]int64 { return s.budget.Exceeded() }

// Parked returns the number of calls that wait for a modern client to return with answers.
func (s *Core) Parked() int {
	s.parked.mu.Lock()
	defer s.parked.mu.Unlock()
	return len(s.parked.calls)
}

// denies reports whether the verdict of a record denies; a record without a verdict does not.
func denies(verdict string) bool {
	v, ok := policy.VerdictOf(verdict)
	return ok && v.Denies()
}
