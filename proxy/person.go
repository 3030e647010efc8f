package proxy

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/auth"
	"junction/policy"
	"junction/upstream"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// This file holds what a person has for themselves: the upstreams that they sign in to, merged into the endpoints as they see them, and the offer to connect one that is
// not. What an upstream has for one person is in no view of anybody else's.

// People finds the upstreams that people sign in to themselves.
type People interface {
	// Of returns those of a principal in the order of their names, the same ones for as long as nothing about them changes; none for whoever is no person that can sign
	// in to one. It does not block.
	Of(*auth.Principal) []*upstream.Upstream
}

// persons are the endpoints of a world as people see them, made when they are first asked for.
type persons struct {
	mu sync.Mutex
	of map[string]*person // by principal
}

// person is one of them. Guarded by persons.mu.
type person struct {
	own       []*upstream.Upstream
	sources   []*upstream.Catalog // of own
	endpoints map[string]*endpoint
}

// maxPersons bounds those that are remembered; with more people they are made again.
const maxPersons = 1024

// own returns the upstreams that are the principal's alone.
func (w *world) own(p *auth.Principal) []*upstream.Upstream {
	if w.config.People == nil {
		return nil
	}
	return w.config.People.Of(p)
}

// endpoint returns the endpoint of that name as the principal sees it; nil if there is none.
func (w *world) endpoint(name string, p *auth.Principal) *endpoint {
	shared, own := w.endpoints[name], w.own(p)
	if len(own) == 0 {
		return shared
	}
	sources := make([]*upstream.Catalog, len(own))
	for i, u := range own {
		sources[i] = u.Catalog()
	}
	w.persons.mu.Lock()
	defer w.persons.mu.Unlock()
	its := w.persons.of[p.ID]
	before := map[string]*endpoint{}
	if its != nil {
		before = its.endpoints
	}
	if its == nil || !slices.Equal(its.own, own) || !slices.Equal(its.sources, sources) {
		if w.persons.of == nil || len(w.persons.of) >= maxPersons {
			w.persons.of = map[string]*person{}
		}
		its = &person{own, sources, map[string]*endpoint{}}
		w.persons.of[p.ID] = its
	}
	e := its.endpoints[name]
	if e == nil {
		if e = w.withOwn(name, shared, own, before[name]); e != shared { // there is no end to the names of what is not there
			its.endpoints[name] = e
		}
	}
	return e
}

// withOwn makes an endpoint of the shared one, which may be nil, and of what a person has for themselves. before is what they saw until now; nil for nothing.
func (w *world) withOwn(name string, shared *endpoint, own []*upstream.Upstream, before *endpoint) *endpoint {
	e := &endpoint{name: name, shares: new(shares)}
	var last *view // whose names stay
	if before != nil {
		last = before.view
	}
	if i := slices.IndexFunc(own, func(u *upstream.Upstream) bool { return u.Name() == name }); i >= 0 {
		e.view = compile(name, []backend{own[i]}, w.config.Names, true, last)
	} else if shared == nil || name != "" && !strings.HasSuffix(name, "/") {
		return shared
	} else {
		var backends []backend
		its := w.config.Endpoints[strings.TrimSuffix(name, "/")].Upstreams
		for _, u := range own {
			if len(its) == 0 || slices.Contains(its, u.Name()) {
				backends = append(backends, u)
			}
		}
		if len(backends) == 0 {
			return shared
		}
		e.surface, e.view = shared.surface, shared.view.with(name, backends, w.config.Names, last)
	}
	if w.policy.Pins() {
		e.view.hold(w.config.Pins)
	}
	return e
}

// with returns the view of an endpoint that has more backends than v: its items are those of v, and theirs.
func (v *view) with(endpoint string, own []backend, names Names, old *view) *view {
	switch {
	case old == nil:
		old = v
	case !old.settled:
		old = old.last
	}
	all := append(slices.Clone(v.backends), own...)
	slices.SortStableFunc(all, func(a, b backend) int { return strings.Compare(a.Name(), b.Name()) })
	n := newView(v.bare)
	for _, b := range all {
		if i := slices.Index(v.backends, b); i < 0 {
			n.addAll(endpoint, b, b.Catalog(), names, old)
		} else {
			n.include(b, v.sources[i])
			n.share(endpoint, b, v, old)
		}
	}
	n.finish(endpoint, old)
	return n
}

// share adds the items that another view of the endpoint has of a backend.
func (v *view) share(endpoint string, b backend, from, old *view) {
	for p := range from.parts {
		own := v.parts[p].byOwn
		for _, t := range from.parts[p].targets {
			if t.backend != b {
				continue
			}
			_, shared := own[t.name]
			if t.named() && !v.bare {
				own[t.name] = nil
			}
			if v.take(endpoint, t, old) && t.named() && !v.bare && !shared && from.parts[p].byOwn[t.name] == t {
				own[t.name] = t
			}
		}
	}
}

// meet waits a moment for those of the principal's upstreams that were started just now: a client that asks for the tools once should find them.
func (w *world) meet(ctx context.Context, p *auth.Principal) {
	for _, u := range w.own(p) {
		u.Meet(ctx)
	}
}

// connectTool is the tool that an upstream has for a person who is not connected to it.
const connectTool = "connect"

// addConnect adds what offers to connect an upstream: a tool in the lists while there is nothing else to list, and the way to it for who was on it when that changed.
func (v *view) addConnect(endpoint string, b backend, catalog *upstream.Catalog, names Names, old *view) {
	text := raw.AppendQuote([]byte(`{"name":"`+connectTool+`","title":`), "Connect "+b.Name())
	text = raw.AppendQuote(append(text, `,"description":`...), b.Name()+" is not connected for the person that you work for, so that none of its tools are here yet. Calling this tool "+
		"gives the address of a page where they connect it with their own account. Once they have, its tools appear in the list.")
	text = append(text, `,"inputSchema":{"type":"object","properties":{}},"annotations":{"readOnlyHint":true,"openWorldHint":true}}`...)
	definition, err := raw.Parse(text)
	if err != nil {
		return // it is JSON
	}
	t := &target{backend: b, part: upstream.PartTools, name: connectTool, exposed: connectTool, bare: v.bare, connects: true, requires: b.Config().Capabilities}
	t.tool = &upstream.Tool{Item: upstream.Item{Name: connectTool, Definition: definition}}
	t.item = &t.tool.Item
	if t.rename(names) != nil {
		return // it has no URI
	}
	v.connects = append(v.connects, t)
	if catalog.SignIn {
		v.take(endpoint, t, old)
	}
}

// connecting returns what offers to connect the upstream that a name means, if that is what a call of it is about: t is the tool of that name, nil for none. Names of tools
// that an upstream had until its person was signed out are about that as well.
func (x *exchange) connecting(t *target, name string) *target {
	if t != nil {
		if t.connects {
			return t
		}
		return nil
	}
	v := x.share.view
	for _, c := range v.connects {
		begin := x.world.config.Names.full(prefixOf(c.backend), "")
		if c.exposed == name || c.backend.Catalog().SignIn && (v.bare || begin != "" && strings.HasPrefix(name, begin)) {
			return c
		}
	}
	return nil
}

// connectRounds bounds for how long a call waits for a person who is connecting the upstream just now: about half a minute.
const connectRounds = 18

// connect answers the call that offers to connect an upstream.
func (s *Server) connect(ctx context.Context, x *exchange, t *target, info *CallInfo) (result, error) {
	x.target = t
	info.Upstream, info.Own, info.Verdict = t.backend.Name(), t.name, policy.Allow.String()
	x.reply.begin()
	var st state
	if x.era == upstream.EraModern {
		var err error
		if st, err = s.takeState(x, x.call(t, nil), true); err != nil {
			return result{}, err
		}
	}
	err := t.backend.SignedIn(ctx)
	for round := 0; st.Kind == stateConnect && round < connectRounds && needsSignIn(err) != nil; round++ {
		if err := pause(ctx, round); err != nil {
			return result{}, err
		}
		err = t.backend.SignedIn(ctx)
	}
	if need := needsSignIn(err); need != nil {
		return s.offer(x, need)
	}
	if err != nil {
		return result{}, err
	}
	return s.own(x, string(raw.AppendQuote([]byte(`"content":[{"type":"text","text":`), t.backend.Name()+" is connected. Its tools are in the list now."))+"}]"), nil
}

// needsSignIn returns what a person has to do before a call can be made, nil if the error is about something else.
func needsSignIn(err error) *upstream.SignInError {
	need, _ := err.(*upstream.SignInError) // (*upstream.Upstream).Call and SignedIn return it as it is
	return need
}

// offer answers a call that a person has to sign in to an upstream for, in the way that the client can show best: a page to open in the browser, or words.
func (s *Server) offer(x *exchange, need *upstream.SignInError) (result, error) {
	x.offered = true
	message := signInMessage(need)
	if need.URL != "" && x.profile.URL && (x.era == upstream.EraModern && mcp.MCPMethod(x.msg.Method) != mcp.MethodCompletionComplete ||
		x.era == upstream.EraLegacy && x.session.version >= mcp.ProtocolVersion20251125) {
		data := raw.AppendQuote([]byte(`{"elicitations":[{"mode":"url","elicitationId":`), "junction-"+rand.Text())
		data = raw.AppendQuote(append(data, `,"url":`...), need.URL)
		data = append(raw.AppendQuote(append(data, `,"message":`...), message), "}]}"...)
		if x.era == upstream.EraModern {
			return s.elicitURLs(x, &jsonrpc.Error{Code: mcp.URL_ELICITATION_REQUIRED, Message: message, Data: data})
		}
		return result{}, &refusal{status: http.StatusOK, code: mcp.URL_ELICITATION_REQUIRED, text: message, data: data}
	}
	if need.URL != "" {
		message += ": open " + need.URL + " in your browser, and then try again."
	}
	if mcp.MCPMethod(x.msg.Method) != mcp.MethodToolsCall {
		e := failure(need.Upstream, signInKind(need), message)
		return result{}, &refusal{status: http.StatusOK, code: e.Code, text: e.Message, data: e.Data}
	}
	members := raw.AppendQuote([]byte(`"content":[{"type":"text","text":`), message)
	members = append(members, `}],"isError":true,"structuredContent":{"code":"`+signInKind(need)+`"`...)
	if need.URL != "" {
		members = raw.AppendQuote(append(members, `,"connect_url":`...), need.URL)
	}
	return s.own(x, string(append(members, '}'))), nil
}

// The kinds of our error for what a person has to sign in for: at first, and once more.
const (
	kindNotConnected = "upstream_not_connected"
	kindReconnect    = "upstream_needs_reconnect"
)

func signInKind(need *upstream.SignInError) string {
	if need.Again {
		return kindReconnect
	}
	return kindNotConnected
}

func signInMessage(need *upstream.SignInError) string {
	if need.Again {
		return fmt.Sprintf("%s has to be connected again with your account there", need.Upstream)
	}
	return fmt.Sprintf("%s is not connected with your account there yet", need.Upstream)
}
