package transport

import (
	"context"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"time"

	"junction/upstream/http1"
	"junction/upstream/jsonrpc"
)

// This file decides what 401 to a token means. A question of Junction's own (Request.Own) decides about the
// sign-in: its token is renewed, and if the server refuses the renewed one, too, the source of the tokens
// gets both, and ends the sign-in. Any other request may be refused for a reason of its own, by a tool or by
// a server that has lost a session. For it a token is renewed once, and then the request fails. The owner of
// the transport asks a question of its own after that.

// freshToken is the least time between two renewals that such requests cause.
const freshToken = 30 * time.Second

// Renewals are the renewals of the token of one upstream. The transports of the upstream share them, so that
// callers with connections of their own do not renew each other's tokens in turns. The zero value has none.
// It may be used by several goroutines.
type Renewals struct {
	mu      sync.Mutex
	refused string    // the token that was renewed last, or is being renewed; "" if that gave no other one
	at      time.Time // of the last renewal
}

// begin reports whether a refused token may be renewed for a request that decides nothing.
func (r *Renewals) begin(token string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refused == token { // the request joins the renewal, or gets its result
		return true
	}
	if time.Since(r.at) < freshToken {
		return false
	}
	r.refused, r.at = token, time.Now()
	return true
}

// end notes that another token came in place of a refused one.
func (r *Renewals) end(refused, other string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case other != refused && r.refused != refused:
		r.refused, r.at = refused, time.Now()
	case other == refused && r.refused == refused: // the same answer comes again: it is not asked for at once
		r.refused = ""
	}
}

// another returns the token with which a request is sent again whose tokens were refused. again is false if
// it is not sent again. m is nil for a request without a message, and challenged reports whether the last
// answer had a challenge.
func (o *origin) another(ctx context.Context, m *jsonrpc.Message, own, challenged bool, refused []string) (
	token string, again bool, err error,
) {
	last := refused[len(refused)-1]
	if !own {
		var tokens []string
		switch {
		case len(refused) > 1:
			return "", false, nil
		case o.renewals.begin(last):
			tokens = refused
		}
		if token, err = o.authorize(ctx, tokens); err == nil && tokens != nil {
			o.renewals.end(last, token)
		}
		return token, err == nil && token != last, err
	}
	if len(refused) > maxRefused || o.renews != nil && !o.renews(m, challenged) {
		return "", false, nil
	}
	token, err = o.authorize(ctx, refused)
	switch {
	case err != nil:
		return "", false, err
	case !slices.Contains(refused, token):
		o.renewals.end(last, token)
		return token, true, nil
	}
	// there is no other token, and sending the same one again would have the same answer
	return o.another(ctx, m, own, challenged, append(refused[:len(refused):len(refused)], token))
}

// otherHeaders returns the headers with which a request is sent again that was answered 401, and had no token: the
// configured ones whose values are others now. header is that of the request, and the other parameters are as for
// another.
func (o *origin) otherHeaders(ctx context.Context, header http.Header, m *jsonrpc.Message, own, challenged bool) (
	fields []http1.Field,
) {
	if own && o.renews != nil && !o.renews(m, challenged) {
		return nil
	}
	var values []string
	now := o.others(ctx, o.sent)
	for _, name := range slices.Sorted(maps.Keys(now)) {
		of := textproto.CanonicalMIMEHeaderKey(name)
		ofCaller := slices.ContainsFunc(o.callers, func(f http1.Field) bool { return strings.EqualFold(f.Name, name) })
		if len(header[of]) > 0 && !ofCaller && now[name] != o.sent[name] {
			fields, values = append(fields, http1.Field{Name: of, Value: now[name]}), append(values, now[name])
		}
	}
	if values != nil {
		o.renewed.Store(&values)
	}
	return fields
}
