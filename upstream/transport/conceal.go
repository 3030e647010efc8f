package transport

import (
	"encoding/json"
	"html"
	"maps"
	"net/url"
	"slices"
	"strings"

	"junction/upstream/http1"
	"junction/upstream/jsonrpc"
)

// This file keeps what lets Junction into a session out of the errors of its server: callers, logs and pages
// show these errors, and some servers repeat in them what they were sent. Results stay as they are.

// leastConcealed is the least length of a value that is concealed: a shorter one may be part of other words.
// mostConcealed bounds the values of one session.
const (
	leastConcealed = 8
	mostConcealed  = 8
)

// conceals sets the values of a session that its errors must not have.
func (o *origin) conceals(session ...string) {
	session = slices.DeleteFunc(session, func(s string) bool { return len(s) < leastConcealed })
	session = session[:min(len(session), mostConcealed)]
	o.private.Store(&session)
}

// endpointSecrets returns the parts of an endpoint of HTTP+SSE that identify the session: a value of the
// query, or the last part of the path in a server that has no query.
func endpointSecrets(u *url.URL) (list []string) {
	for _, values := range u.Query() {
		list = append(list, values...)
	}
	if len(list) == 0 && strings.ContainsAny(u.Path, "0123456789") {
		list = append(list, u.Path[strings.LastIndexByte(u.Path, '/')+1:])
	}
	return list
}

// secrets returns the values, as Written does. forwarded are the headers of the client of the request.
func (o *origin) secrets(forwarded []http1.Field) (list []string) {
	for _, f := range slices.Concat(o.callers, forwarded) {
		if len(f.Value) >= leastConcealed {
			list = append(list, f.Value)
		}
	}
	if session := o.private.Load(); session != nil {
		list = append(list, *session...)
	}
	if token := o.last.Load(); token != nil && len(*token) >= leastConcealed {
		list = append(list, *token)
	}
	values := slices.Collect(maps.Values(o.sent))
	if renewed := o.renewed.Load(); renewed != nil {
		values = append(values, *renewed...)
	}
	for _, value := range values {
		_, credential, _ := strings.Cut(value, " ") // after the scheme, such as Bearer
		for _, secret := range []string{value, credential} {
			if len(secret) >= leastConcealed {
				list = append(list, secret)
			}
		}
	}
	return Written(list)
}

// Written returns secrets with the ways in which JSON, URLs and HTML write them, the longest ones first. PHP escapes
// slashes in JSON, and Go what HTML could take for its own.
func Written(secrets []string) (list []string) {
	for _, secret := range secrets {
		quoted, _ := json.Marshal(secret) // cannot fail
		inJSON := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(secret)
		for _, text := range []string{secret, inJSON, string(quoted[1 : len(quoted)-1]), url.QueryEscape(secret),
			url.PathEscape(secret), html.EscapeString(secret)} {
			list = append(list, text, strings.ReplaceAll(text, "/", `\/`))
		}
	}
	slices.Sort(list)
	list = slices.Compact(list)
	slices.SortStableFunc(list, func(a, b string) int { return len(b) - len(a) })
	return list
}

// conceal returns words of the server without the values.
func conceal(words string, secrets []string) string {
	for _, secret := range secrets {
		words = strings.ReplaceAll(words, secret, "…")
	}
	return words
}

// concealed removes the values from the error of a message; nil is permitted. It returns m. forwarded is as for
// secrets.
func (o *origin) concealed(m *jsonrpc.Message, forwarded []http1.Field) *jsonrpc.Message {
	if m == nil || m.Error == nil {
		return m
	}
	secrets := o.secrets(forwarded)
	if message := conceal(m.Error.Message, secrets); message != m.Error.Message {
		m.Error = m.Error.WithMessage(message)
	}
	if data := conceal(string(m.Error.Data), secrets); data != string(m.Error.Data) {
		if !json.Valid([]byte(data)) { // the value was a number
			data = `"…"`
		}
		m.Error = m.Error.WithData([]byte(data))
	}
	return m
}

// concealIn removes the values from what people are shown of a response without success.
func (o *origin) concealIn(e *StatusError, forwarded []http1.Field) {
	secrets := o.secrets(forwarded)
	e.Body, e.media = []byte(conceal(string(e.Body), secrets)), conceal(e.media, secrets)
	o.concealed(e.Message, forwarded)
	if e.location != nil {
		to := *e.location
		to.Path, to.RawPath = conceal(to.Path, secrets), ""
		e.location = &to
	}
}
