package proxy

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"junction/proxy/scope"
	"junction/proxy/sealed"
	"junction/proxy/search"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/pace"
	"junction/upstream/raw"
)

// list answers with a page of a part.
func (s *Core) list(ctx context.Context, x *Exchange, p upstream.Part) (Result, error) {
	from, offset, err := s.readCursor(ctx, x, p)
	if err != nil {
		return Result{}, err
	}
	seen, k := from.Subject.Listed(), from.Kind(p, x.Era)
	searched := from.Subject.Search && p == upstream.PartTools
	text, items, next, left := from.Endpoint.Page(seen, p, k, offset, s.limits.Page, x.reader())
	r := Result{Body: text, Items: items}
	if left > 0 {
		x.Subject.Unnamed[p].Do(func() {
			s.log.Warn("items are not listed, because a policy redacts their name or URI; to hide them from calls, "+
				"too, deny them", "list", p.Member(), "items", left, "endpoint", x.Endpoint.Name,
				"principal", x.Principal.ID)
		})
	}
	r.Tail = []byte{']'}
	if next > 0 {
		c := sealed.Cursor{Print: from.Subject.Print(p, k), Whole: from.Whole(p, x.Era), Offset: uint32(next),
			Scope: x.cursorScope()}
		r.Tail = raw.AppendQuote(append(r.Tail, `,"nextCursor":`...), s.sealer.Cursor(c))
	}
	if x.Era == client.EraModern {
		ttl, public := seen.Freshness(p, time.Now())
		if searched && len(x.Subject.Always) == 0 {
			ttl, public = discovered, true
		}
		if from.Snapshot != x.Snapshot { // the list has changed
			ttl = 0
		}
		r.Tail = appendFreshness(r.Tail, ttl, public && !x.Subject.Private())
		r.Tail = append(append(r.Tail, `,"resultType":"complete","_meta":`...), s.modernMeta...)
	}
	r.Head, r.Tail = []byte(`{"`+p.Member()+`":[`), append(r.Tail, '}')
	if searched && offset == 0 {
		r.Head = append(r.Head, bytes.Join(search.Definitions(), []byte{','})...)
		if r.Items.Size+len(r.Body) > 0 {
			r.Head = append(r.Head, ',')
		}
	}
	return r, nil
}

// appendFreshness appends a comma and the members ttlMs and cacheScope.
func appendFreshness(b []byte, ttl time.Duration, public bool) []byte {
	b = strconv.AppendInt(append(b, `,"ttlMs":`...), ttl.Milliseconds(), 10)
	if public {
		return append(b, `,"cacheScope":"public"`...)
	}
	return append(b, `,"cacheScope":"private"`...)
}

// readCursor returns the offset of the request's cursor, and the caller with the list that the cursor
// belongs to: that of now, or an earlier one. The error is for an unknown cursor, or for a cursor of a
// list that has changed too long ago.
func (s *Core) readCursor(ctx context.Context, x *Exchange, p upstream.Part) (from scope.Caller, offset int,
	err error) {
	if !x.Params.Present() {
		return x.Caller, 0, nil
	}
	v, err := x.Params.Get("cursor")
	if err == raw.ErrAbsent || err == nil && string(v) == "null" {
		return x.Caller, 0, nil
	} else if err != nil {
		return from, 0, err
	}
	text, err := raw.String(v)
	if err != nil {
		return from, 0, InvalidParams("Invalid cursor")
	}
	if text == "" && x.Era == client.EraLegacy {
		return x.Caller, 0, nil // some clients of that era write it for none, and Junction never does
	}
	c, ok := s.sealer.OpenCursor(text)
	if !ok || c.Scope != x.cursorScope() {
		return from, 0, InvalidParams("Invalid cursor")
	}
	has := func(then scope.Caller) bool { return c.Print == then.Subject.Print(p, then.Kind(p, x.Era)) }
	if has(x.Caller) {
		return x.Caller, int(c.Offset), nil
	}
	if from, ok = s.earlier.Find(x.Caller, p, x.Era, c.Whole, has); ok {
		return from, int(c.Offset), nil
	}
	// Another member may have the change already, and this one a moment later.
	for limit := time.Now().Add(memberBehind); ; {
		if s.lookAgain(x); has(x.Caller) {
			return x.Caller, int(c.Offset), nil
		}
		if s.members == nil || !time.Now().Before(limit) || !pace.Sleep(ctx, memberBehind/20, nil) {
			return from, 0, InvalidParams("Invalid cursor: the list has changed; start again")
		}
	}
}

// memberBehind is how much later than another one a member may notice that a list has changed.
const memberBehind = time.Second

// cursorScope identifies the endpoint and the principal of a cursor. Elsewhere the cursor is invalid.
func (x *Exchange) cursorScope() string { return x.Endpoint.Name + "\x00" + x.Principal.ID }

// listOf returns the handler for the list of a part other than tools.
func listOf(p upstream.Part) handler {
	return func(ctx context.Context, s *Core, x *Exchange) (Result, error) { return s.list(ctx, x, p) }
}

func listTools(ctx context.Context, s *Core, x *Exchange) (Result, error) {
	if !x.Subject.Search || len(x.Subject.Always) > 0 {
		s.awaitLists(ctx, x)
	}
	return s.list(ctx, x, upstream.PartTools)
}

// searchTools answers a call of search_tools (package search).
func searchTools(ctx context.Context, s *Core, x *Exchange) (Result, error) {
	x.Info.Name = search.ToolName
	arguments, err := x.arguments()
	if err != nil {
		return Result{}, err
	}
	q, err := search.ParseQuery(arguments)
	if err != nil {
		return Result{}, InvalidParams("Invalid params: %s", err)
	}
	s.awaitLists(ctx, x)
	seen := x.Subject.Sight()
	k := seen.View.Kind(upstream.PartTools, x.Era, x.Who.Profile)
	reader := x.reader()
	clean := func(text []byte) ([]byte, bool) { return reader.Item(text, upstream.PartTools.Key()) }
	return s.toolText(x, seen.SearchAnswer(k, q, clean), ""), nil
}

// awaitLists waits briefly for starting upstreams, so that a client's first tools/list contains
// their tools. It does not wait for upstreams with a known catalog.
func (s *Core) awaitLists(ctx context.Context, x *Exchange) {
	seen, whole := x.Subject.Sight(), ctx
	ctx, cancel := context.WithTimeout(ctx, x.Snapshot.Config.FirstWait)
	defer cancel()
	for st := range seen.Stocks() {
		if st.Warm {
			s.warm(ctx, x, st.Backend)
		}
	}
	waited := s.bringAll(whole, x, seen)
	for st := range seen.Stocks() { // the first lists may be newer than the snapshot, also of a server that was tried
		waited = waited || st.Catalog.Listed.IsZero() && st.Backend.Catalog() != st.Catalog
	}
	if seen.Settled && !seen.Separates && !waited {
		return
	}
	for st := range seen.Stocks() {
		b := st.Backend
		if st.Catalog.Listed.IsZero() {
			waited = true // also if it was tried meanwhile
			select {
			case <-b.Met():
			case <-ctx.Done():
			}
		}
		waited = b.Prepare(ctx, x.Who.Profile, x.Who.Session, x.User()) || waited
	}
	if waited {
		s.lookAgain(x)
	}
}

// lookAgain moves the request to the current snapshot. If the caller has lost its rights meanwhile,
// the request keeps the old snapshot.
func (s *Core) lookAgain(x *Exchange) {
	s.Settle()
	if now := s.snapshot.Load().Adopt(x.Caller); now.Subject != nil {
		x.Caller = now
	}
}

// awaitNamed finds a tool or prompt that the lists of its upstream do not have yet. The prefix of the
// name finds the upstream. If the upstream has no catalog yet, awaitNamed waits for it like calls of
// known tools. Otherwise it has the lists read once more, also for a name that policy hides, so that
// the time does not tell the two apart. The target is nil if the tool does not exist. The error is the
// reason why the upstream is not available.
func (s *Core) awaitNamed(ctx context.Context, x *Exchange, p upstream.Part, name string) (*view.Target, error) {
	st := x.prefixed(name)
	if st == nil {
		return nil, nil
	}
	b := st.Backend
	if st.Catalog.Listed.IsZero() {
		x.Info.Upstream = b.Name()
		x.front.Begin()
		var without error
		if b.AwaitsFolder() {
			without = s.bring(ctx, x, b)
		}
		err := b.Ready(ctx)
		if without != nil && errors.As(err, new(*upstream.WaitingError)) {
			err = placeless(b, without)
		}
		s.lookAgain(x)
		if t := x.named(p, name); t != nil || err == nil || !b.Catalog().Listed.IsZero() {
			return t, nil
		}
		return nil, err
	}
	who, user := x.Who, x.User()
	if !b.Reread(ctx, who.Profile, who.Session, user) ||
		st.Catalog.Same(b.CatalogFor(who.Profile, who.Session, user)) {
		return nil, nil
	}
	s.lookAgain(x)
	return x.named(p, name), nil
}

// prefixed returns the items of the upstream whose prefix the name has; nil if the caller may use no
// item of such an upstream.
func (x *Exchange) prefixed(name string) (found *view.Stock) {
	longest := -1
	for st := range x.Subject.Sight().Stocks() {
		b, begin := st.Backend, ""
		if !x.Subject.View.Bare {
			begin = x.Snapshot.Config.Names.Full(view.PrefixOf(b), "")
		}
		if strings.HasPrefix(name, begin) && len(begin) > longest {
			found, longest = st, len(begin)
		}
	}
	return found
}
