package proxy

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/proxy/budget"
	"junction/proxy/streams"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// This file answers the requests that begin and end subscriptions: subscriptions/listen of the modern
// era, resources/subscribe and resources/unsubscribe of the legacy era.

// maxSubscribe bounds the request of a subscriptions/listen in bytes, because it stays in memory as
// long as its stream.
const maxSubscribe = 64 << 10

// subscribe answers subscriptions/listen (2026-07-28, basic/patterns/subscriptions). It
// acknowledges the accepted subscriptions.
func subscribe(ctx context.Context, s *Core, x *Exchange) (Result, error) {
	wanted, err := x.Params.Object("notifications")
	if err == raw.ErrAbsent {
		return Result{}, Refuse(ReasonRequest, mcp.INVALID_PARAMS, "Invalid params: no notifications")
	} else if err != nil {
		return Result{}, err
	}
	if x.Size > maxSubscribe {
		return Result{}, Refuse(ReasonSize, mcp.INVALID_REQUEST,
			"a subscription has at most %d bytes", maxSubscribe)
	}
	if !x.front.Hears() {
		return Result{}, Refuse(ReasonStream, mcp.INVALID_REQUEST,
			"a subscription is answered by text/event-stream, which this request does not accept")
	}
	l := streams.NewSubscription(x.Caller, x.Msg.ID)
	var honoured []string
	for p, name := range []string{"toolsListChanged", "promptsListChanged", "resourcesListChanged"} {
		v, err := wanted.Get(name)
		if err != nil && err != raw.ErrAbsent {
			return Result{}, err
		}
		if string(v) == "true" {
			l.Want(upstream.Part(p))
			honoured = append(honoured, `"`+name+`":true`)
		}
	}
	if err := x.Grant.Reserve(budget.Streams, 1); err != nil {
		return Result{}, OveruseError(err)
	}
	h := s.listeners.Enter(x.Caller, l, nil, x.Grant.Empty())
	defer s.listeners.Leave(h)
	uris, err := wanted.Elements("resourceSubscriptions")
	if err != nil && err != raw.ErrAbsent {
		return Result{}, err
	}
	if x.Subject.Sight().Offers.Subscribe && len(uris) > 0 {
		list, without, err := s.subscribeAll(ctx, x, h, uris)
		if len(list) > 0 {
			honoured = append(honoured, `"resourceSubscriptions":[`+strings.Join(list, ",")+`]`)
		}
		if len(honoured) == 0 && err == nil { // the stream would be of no use
			err = without
		}
		if err != nil {
			return Result{}, err
		}
	}
	l.Acknowledge(honoured)
	x.Grant.Give(budget.Requests, 1) // a stream counts as one, and no longer as a request
	x.front.Listen(ctx, l)
	return Result{}, errAnswered
}

// subscribeResource answers resources/subscribe of a legacy session.
func subscribeResource(ctx context.Context, s *Core, x *Exchange) (Result, error) {
	offers := x.Subject.Sight().Offers
	if !offers.Takes(offers.Subscribe, x.Era) {
		return Result{}, x.unknownMethod()
	}
	t, err := findResource(ctx, s, x)
	if err != nil {
		return Result{}, err
	}
	if err := x.scoped(t); err != nil {
		return Result{}, err
	}
	folders, err := s.foldersOf(ctx, x, t.Backend)
	if err != nil {
		return Result{}, placeless(t.Backend, err)
	}
	h := s.listeners.Enter(x.Caller, nil, &x.Session.Streams, x.Grant.Empty())
	defer s.listeners.Leave(h)
	accepted, err := s.listeners.Subscribe(ctx, h, []*view.Target{t}, streams.Folders{t.Backend: folders})
	if !accepted[t] {
		if err == nil {
			err = InvalidParams("The upstream %s does not notify about changes of this resource", t.Backend.Name())
		}
		err = x.subscribeError(err)
		if peer, ok := err.(*jsonrpc.Error); ok {
			if err = t.RenameError(peer); peer.Code == mcp.METHOD_NOT_FOUND && !offers.Subscribe {
				err = x.unknownMethod()
			}
		}
		return Result{}, err
	}
	return Result{Body: []byte("{}")}, nil
}

// subscribeError returns the error for the client from that of a subscription.
func (x *Exchange) subscribeError(err error) error {
	if limit, ok := errors.AsType[*streams.LimitError](err); ok {
		return InvalidParams("%s", limit)
	}
	return x.filterError(OveruseError(err))
}

// unsubscribeResource answers resources/unsubscribe of a legacy session. Without a subscription it
// succeeds too.
func unsubscribeResource(ctx context.Context, s *Core, x *Exchange) (Result, error) {
	if offers := x.Subject.Sight().Offers; !offers.Takes(offers.Subscribe, x.Era) {
		return Result{}, x.unknownMethod()
	}
	t, err := findResource(ctx, s, x)
	if err != nil {
		return Result{}, err
	}
	h := s.listeners.Enter(x.Caller, nil, &x.Session.Streams, x.Grant.Empty())
	defer s.listeners.Leave(h)
	s.listeners.Unsubscribe(h, t)
	return Result{Body: []byte("{}")}, nil
}

// errNotDeclared means that an upstream was not asked, because it declares no subscriptions.
var errNotDeclared = errors.New("the server takes no subscriptions to resources")

// subscribeAll subscribes to the resources of a subscriptions/listen, and returns the accepted ones
// as JSON. Each resource is reported as a call of its own. without is the error about a server that works in
// the folder of its client, if the client has none.
func (s *Core) subscribeAll(ctx context.Context, x *Exchange, h *streams.Subscriber, uris [][]byte) (
	list []string, without, err error) {
	began, info := time.Now(), x.Info
	defer func() { x.Info = info }()
	var targets []*view.Target
	in := streams.Folders{}
	for _, v := range uris {
		uri, err := raw.String(v)
		if err == raw.ErrAbsent {
			return nil, nil, InvalidParams("Invalid params: a resource in resourceSubscriptions is no string")
		} else if err != nil {
			return nil, nil, err
		}
		x.Info = info
		t, err := x.resource(x.Era, uri)
		if err == nil {
			err = x.scoped(t)
		}
		if err == nil {
			if _, known := in[t.Backend]; !known {
				if in[t.Backend], err = s.foldersOf(ctx, x, t.Backend); err != nil {
					err = placeless(t.Backend, err)
					without = err
				}
			}
		}
		if err == nil {
			targets = append(targets, t)
		} else if s.hooks.CallDone != nil { // an unknown or denied resource is not acknowledged
			x.Info.Took, x.Info.Err = time.Since(began), err
			decideOutcome(&x.Info, err)
			s.Report(&x.Info)
		}
	}
	asked := slices.DeleteFunc(slices.Clone(targets), func(t *view.Target) bool {
		return !view.Subscribes(t.Backend.Catalog(), x.Era)
	})
	accepted, err := s.listeners.Subscribe(ctx, h, asked, in)
	if err == nil && len(asked) < len(targets) {
		err = errNotDeclared
	}
	if err = x.subscribeError(err); err != nil {
		s.log.Debug("not all subscriptions were accepted", "error", err)
	}
	for _, t := range targets {
		if one := info; s.hooks.CallDone != nil {
			one.Name, one.Upstream, one.Own, one.Took = t.Exposed, t.Backend.Name(), t.Name, time.Since(began)
			if one.Outcome = OK; !accepted[t] {
				one.Outcome, one.Err = Error, err
			}
			s.Report(&one)
		}
		if accepted[t] {
			list = append(list, string(raw.Quote(t.Exposed)))
		}
	}
	return list, without, nil
}
