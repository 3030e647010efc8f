package proxy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/policy"
	"junction/proxy/budget"
	"junction/proxy/redact"
	"junction/proxy/search"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
)

// handler answers one request and completes x.Info for the log.
type handler func(ctx context.Context, s *Core, x *Exchange) (Result, error)

// errAnswered means that the handler has written the answer.
var errAnswered = errors.New("answered")

// method is a method of the protocol that the proxy knows.
type method struct {
	handle  handler
	era     client.Era // that has the method; "" for both
	calls   bool       // upstreams answer the requests
	session bool       // the method changes the session
	member  string     // of params, which the header Mcp-Name repeats; "" for none
}

// methods returns the methods that clients may call, except initialize (front/legacy.go).
func methods() map[mcp.MCPMethod]method {
	callTool, getPrompt := callTarget(findNamed(upstream.PartTools)), callTarget(findNamed(upstream.PartPrompts))
	task := method{handle: aboutTask, era: client.EraModern, calls: true, member: "taskId"}
	return map[mcp.MCPMethod]method{
		mcp.MethodToolsList:              {handle: listTools},
		mcp.MethodToolsCall:              {handle: callTool, calls: true, member: "name"},
		mcp.MethodPromptsList:            {handle: listOf(upstream.PartPrompts)},
		mcp.MethodPromptsGet:             {handle: getPrompt, calls: true, member: "name"},
		mcp.MethodResourcesList:          {handle: listOf(upstream.PartResources)},
		mcp.MethodResourcesTemplatesList: {handle: listOf(upstream.PartTemplates)},
		mcp.MethodResourcesRead:          {handle: callTarget(findResource), calls: true, member: "uri"},
		view.MethodSkillsList:            {handle: listSkills},
		view.MethodSkillsGet:             {handle: callTarget(findSkill), calls: true},
		view.MethodDirectoryRead:         {handle: callTarget(findDirectory), calls: true},
		mcp.MethodCompletionComplete:     {handle: complete, calls: true},

		mcp.MethodServerDiscover:      {handle: discover, era: client.EraModern},
		mcp.MethodSubscriptionsListen: {handle: subscribe, era: client.EraModern},
		methodTasksGet:                task,
		methodTasksUpdate:             task,
		methodTasksCancel:             task,

		mcp.MethodPing:                 {handle: ping, era: client.EraLegacy},
		mcp.MethodResourcesSubscribe:   {handle: subscribeResource, era: client.EraLegacy, calls: true, session: true},
		mcp.MethodResourcesUnsubscribe: {handle: unsubscribeResource, era: client.EraLegacy, session: true},
		mcp.MethodSetLogLevel:          {handle: setLevel, era: client.EraLegacy, session: true},
	}
}

func (s *Core) dispatch(ctx context.Context, x *Exchange) (Result, error) {
	handle := x.method.handle
	if handle == nil || x.method.era != "" && x.method.era != x.Era {
		return Result{}, x.unknownMethod()
	}
	if x.method.session && x.sessionless() {
		return Result{}, needsSession(x.Msg.Method)
	}
	if x.Subject.Search && mcp.MCPMethod(x.Msg.Method) == mcp.MethodToolsCall {
		own, err := x.unwrap()
		if err != nil {
			return Result{}, err
		}
		if own {
			handle = searchTools
		}
	}
	done, err := s.Meter(ctx, x)
	if err != nil {
		return Result{}, err
	}
	if done != nil {
		defer done()
	}
	return handle(ctx, s, x)
}

// unwrap replaces a call of a call tool by the inner call, so that every later step sees the call
// as if the client had named the tool itself. For a call of search_tools it changes nothing and
// returns true.
func (x *Exchange) unwrap() (own bool, err error) {
	name, err := x.stringParam("name")
	if err != nil || !search.Own(name) {
		return false, err
	}
	x.Info.Name = name
	if name == search.ToolName {
		return true, nil
	}
	outer, err := x.arguments()
	if err != nil {
		return false, err
	}
	class := search.Named(name)
	inner, arguments, err := search.Inner(class, outer)
	if err != nil {
		return false, InvalidParams("Invalid params: %s", err)
	}
	x.class = class
	x.Params, err = x.Params.With(raw.Edit{Name: "name", Value: inner}, raw.Edit{Name: "arguments", Value: arguments})
	if err != nil {
		return false, err
	}
	return false, OveruseError(x.Grant.Reserve(budget.Bytes, int64(len(x.Params.Text()))))
}

// redactor returns the Redactor for answers and arguments of the call. It keeps removed text if the
// policy restores it and the caller has a session, or is one program of one principal. Without a call it
// is reader.
func (x *Exchange) redactor() *redact.Redactor {
	if owner, ok := x.owner(); ok && x.target != nil {
		return x.Subject.Redact.With(&x.core.removed, owner)
	}
	return x.reader()
}

// reader returns the Redactor for what else the client reads: notifications, requests to a user, lists
// and texts of Junction. It removes kept texts, too, and keeps none: a person reads these, or they are
// not about one call.
func (x *Exchange) reader() *redact.Redactor {
	if owner, ok := x.owner(); ok {
		return x.Subject.Redact.Finding(&x.core.removed, owner)
	}
	if x.Subject == nil { // the request has no endpoint
		return nil
	}
	return x.Subject.Redact
}

// owner returns the owner of text that the policy removes and restores; ok is false if there is none.
func (x *Exchange) owner() (o redact.Owner, ok bool) {
	if x.Subject == nil || !x.Subject.Redact.Restores() {
		return o, false
	}
	o = redact.Owner{Account: x.Principal.ID, Session: x.program()}
	if o.Session == "" {
		return o, false
	}
	if x.Session == nil || x.Session.Key == "" {
		o.Session = x.Principal.ID + "\x00" + o.Session
	}
	if x.target != nil {
		o.Upstream, o.Source = x.target.Backend.Name(), x.target.Backend
	}
	return o, true
}

// restore puts the text that the policy has removed from earlier answers of the upstream back into the
// arguments. Only policy, validation, the memory of results and the upstream see these arguments. A
// user, the log and the audit get those that the client has sent (x.Params).
func (x *Exchange) restore() error {
	if x.Subject.Redact == nil || x.target.Part != upstream.PartTools && x.target.Part != upstream.PartPrompts {
		return nil
	}
	v, err := x.Params.Get("arguments")
	if err == raw.ErrAbsent {
		return nil
	} else if err != nil {
		return err
	}
	arguments, changed, err := x.redactor().Arguments(v)
	if err != nil || !changed {
		return err
	}
	if err := x.Grant.Reserve(budget.Bytes, int64(len(arguments)+len(x.Params.Text()))); err != nil {
		return OveruseError(err)
	}
	x.restored, err = x.Params.With(raw.Edit{Name: "arguments", Value: arguments})
	return err
}

// sent returns the params that the upstream gets.
func (x *Exchange) sent() raw.Object {
	if x.restored.Present() {
		return x.restored
	}
	return x.Params
}

// answerLost answers a call whose arguments restore could not complete.
func (s *Core) answerLost(x *Exchange, err error) (Result, error) {
	lost, ok := errors.AsType[*redact.MarkError](err)
	if !ok {
		return Result{}, err
	}
	text := lostText(x.Info.Name, lost)
	if x.target.Part != upstream.PartTools {
		return Result{}, InvalidParams("Invalid params: %s", text)
	}
	x.Info.Outcome = Invalid
	return s.toolText(x, text, isError), nil
}

// wrongClass returns the answer if the client has called a tool with the call tool of another
// class; nil otherwise.
func (s *Core) wrongClass(x *Exchange) *Result {
	if x.class == search.NoClass {
		return nil
	}
	is := search.ClassOf(x.target.Item.Definition)
	if is == x.class {
		return nil
	}
	x.Info.Outcome = Invalid
	return new(s.toolText(x, search.Rejection(x.Info.Name, is, x.class), isError))
}

func ping(context.Context, *Core, *Exchange) (Result, error) {
	return Result{Body: []byte("{}")}, nil
}

// setLevel answers logging/setLevel of a legacy client. It stores the level in the session; each
// call passes it to the upstream.
func setLevel(_ context.Context, _ *Core, x *Exchange) (Result, error) {
	if !x.Subject.Sight().Offers.Logging { // the levels of a session are Junction's own
		return Result{}, x.unknownMethod()
	}
	level, err := x.Params.String("level")
	if err != nil || client.Level(level) == 0 {
		return Result{}, InvalidParams("Invalid params: level is none of debug, info, notice, warning, " +
			"error, critical, alert, emergency")
	}
	x.Session.setLevel(level)
	return Result{Body: []byte("{}")}, nil
}

// Meter counts a request against the rate limits of the caller's policy. done must be called when
// the request has ended; it may be nil. The error is for the client.
func (s *Core) Meter(ctx context.Context, x *Exchange) (done func(), err error) {
	if mcp.MCPMethod(x.Msg.Method) == mcp.MethodResourcesUnsubscribe { // it releases a subscription
		return nil, nil
	}
	done, refused := s.Count(ctx, x, !x.method.calls)
	if refused == nil {
		return done, nil
	}
	if x.method.member != "" {
		x.Info.Name, _ = x.Params.String(x.method.member)
	}
	if refused.limit != "" {
		x.Info.Verdict, x.Info.Rule = policy.Deny.String(), refused.limit
		x.Info.Policy = x.Subject.Rights.LimitedBy(refused.limit)
	}
	return nil, refused
}

// Count counts a request against the limits of its principal, at all members together. other and
// done are as for budget.Counter; done is nil if there are no limits.
func (s *Core) Count(ctx context.Context, x *Exchange, other bool) (done func(), _ *Refusal) {
	limits := x.Subject.Limits
	if limits.None(other) {
		return nil, nil
	}
	var counter budget.Counter = &s.meters
	if s.members != nil {
		counter = s.members
	}
	done, wait, err := counter.Enter(ctx, x.Principal.ID, limits, other)
	if err == nil {
		return done, nil
	}
	if over, ok := errors.AsType[*budget.LimitError](err); ok {
		return nil, limited(over, wait)
	}
	return nil, UnavailableError("the limits of your policy cannot be checked now: the database cannot be reached")
}

// discover answers server/discover.
func discover(_ context.Context, s *Core, x *Exchange) (Result, error) {
	b := fmt.Appendf(nil, `{"supportedVersions":%s,"capabilities":`, s.Supported(x.Endpoint))
	b = x.Subject.Sight().Offers.AppendCapabilities(b, x.Era)
	b = x.Subject.AppendInstructions(b, x.reader())
	b = appendFreshness(b, discovered, !x.Subject.Private())
	return Result{Body: fmt.Appendf(b, `,"resultType":"complete","_meta":%s}`, s.modernMeta)}, nil
}

// discovered is the freshness of server/discover. Upstreams that start or stop can change the
// answer.
const discovered = time.Minute

// ModernVersion is the version of the modern era.
const ModernVersion = mcp.ProtocolVersion20260728

// versions returns the supported versions, newest first.
func versions() []string {
	return append([]string{ModernVersion}, mcp.LegacyProtocolVersions()...)
}
