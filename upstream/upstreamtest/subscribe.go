package upstreamtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// errGraceful ends a subscription with its result.
var errGraceful = errors.New("ended by the server")

// listen is one subscriptions/listen. Its out is written under mu, so that nothing comes before the
// acknowledgement.
type listen struct {
	id      jsonrpc.ID
	out     *stream
	changes map[string]bool // the notifications of changed lists that it hears
	uris    []string        // the resources whose updates it hears
	tasks   []string        // the tasks that it hears of
	mu      sync.Mutex
	finish  context.CancelCauseFunc // with errGraceful: after the result
}

// listen serves one subscription until the client or the server ends it.
func (c *call) listen(ctx context.Context) {
	wanted, err := raw.Get(c.m.Params, "notifications")
	if err != nil {
		c.fail(200, -32602, "notifications is missing", nil)
		return
	}
	if _, err := raw.Get(wanted, "taskIds"); err == nil && !c.declares("extensions", extensionTasks) {
		c.lacks(`{"extensions":{"` + extensionTasks + `":{}}}`)
		return
	}
	ctx, finish := context.WithCancelCause(ctx)
	defer finish(nil)
	l := &listen{id: c.m.ID, out: c.out, finish: finish, changes: map[string]bool{}}
	honoured := c.honour(l, wanted)
	if gate := c.s.script.ListenGate; gate != "" && !c.pause(ctx, arguments{Gate: gate}) {
		return
	}
	l.mu.Lock() // nothing is written before the acknowledgement, and no change after it is missed
	c.s.state.Lock()
	c.s.listens[l] = true
	c.s.state.Unlock()
	l.write("notifications/subscriptions/acknowledged", `"notifications":{`+honoured+`},`)
	l.mu.Unlock()
	defer func() {
		c.s.state.Lock()
		defer c.s.state.Unlock()
		delete(c.s.listens, l)
	}()
	<-ctx.Done()
	if context.Cause(ctx) == errGraceful {
		c.answer(fmt.Appendf(nil, `{"resultType":"complete","_meta":{"%s":%s}}`, keySubscription, l.id))
	}
}

// honour makes the subscription hear what is wanted and can be had, and returns it as the
// acknowledgement says it.
func (c *call) honour(l *listen, wanted []byte) string {
	script, members := c.s.script, []string{}
	for _, flag := range []struct {
		name, notification string
		has                bool
	}{
		{"toolsListChanged", "notifications/tools/list_changed", true},
		{"promptsListChanged", "notifications/prompts/list_changed", script.prompts()},
		{"resourcesListChanged", "notifications/resources/list_changed", script.resources()},
	} {
		if v, _ := raw.Get(wanted, flag.name); string(v) == "true" && flag.has && !script.NoListChanged {
			l.changes[flag.notification] = true
			members = append(members, `"`+flag.name+`":true`)
		}
	}
	texts := func(name string, has bool) (list []string) {
		v, err := raw.Get(wanted, name)
		if err != nil || !has {
			return nil
		}
		elements, _ := raw.Elements(v)
		for _, e := range elements {
			s, _ := raw.String(e)
			list = append(list, s)
		}
		members = append(members, `"`+name+`":`+string(v))
		return list
	}
	l.uris = texts("resourceSubscriptions", script.resources() && !script.NoSubscribe)
	l.tasks = texts("taskIds", script.Tasks)
	return strings.Join(members, ",")
}

// write sends a notification of the subscription; mu is held.
func (l *listen) write(method, members string) {
	params := fmt.Appendf(nil, `{%s"_meta":{"%s":%s}}`, members, keySubscription, l.id)
	l.out.notify(method, params)
}

// tell is write for those who do not hold mu.
func (l *listen) tell(method, members string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.write(method, members)
}

// notify sends a notification.
func (o *stream) notify(method string, params []byte) error {
	return o.send(bytes.NewReader(jsonrpc.AppendRequest(nil, "", method, params)), false)
}

// listeners returns who could be told something: the legacy sessions that are initialized, and the
// subscriptions.
func (s *Server) listeners() (sessions []*session, listens []*listen) {
	s.state.Lock()
	sessions, listens = slices.Collect(maps.Values(s.sessions)), slices.Collect(maps.Keys(s.listens))
	s.state.Unlock()
	return slices.DeleteFunc(sessions, func(se *session) bool { return !se.ready() }), listens
}

// Notify sends a notification to every legacy session that is initialized, outside of any call. A
// change of a list also goes to the subscriptions that hear it.
func (s *Server) Notify(method string, params []byte) {
	sessions, listens := s.listeners()
	for _, se := range sessions {
		se.out.notify(method, params)
	}
	for _, l := range listens {
		if l.changes[method] {
			l.tell(method, "")
		}
	}
}

// Updated says of a resource that it has changed, to those who have subscribed to it or to what it
// is a part of.
func (s *Server) Updated(uri string) {
	const method = "notifications/resources/updated"
	member := `"uri":` + string(raw.Quote(uri))
	concerns := func(subscribed string) bool {
		return uri == subscribed || strings.HasPrefix(uri, strings.TrimSuffix(subscribed, "/")+"/")
	}
	sessions, listens := s.listeners()
	for _, se := range sessions {
		se.mu.Lock()
		wanted := slices.ContainsFunc(slices.Collect(maps.Keys(se.subscribed)), concerns)
		se.mu.Unlock()
		if wanted {
			se.out.notify(method, []byte("{"+member+"}"))
		}
	}
	for _, l := range listens {
		if slices.ContainsFunc(l.uris, concerns) {
			l.tell(method, member+",")
		}
	}
}

// subscribe answers resources/subscribe and resources/unsubscribe, of resources that need not
// exist.
func (c *call) subscribe() {
	c.se.mu.Lock()
	if uri := c.param("uri"); c.m.Method == "resources/subscribe" {
		c.se.subscribed[uri] = true
	} else {
		delete(c.se.subscribed, uri)
	}
	c.se.mu.Unlock()
	c.result("")
}
