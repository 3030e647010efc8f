package upstream

import (
	"cmp"
	"fmt"
	"net/textproto"
	"slices"
	"strings"

	"junction/upstream/client"
	"junction/upstream/http1"
	"junction/upstream/transport"
)

// This file is about forward_headers: headers of the client of a call that go on to the server. In the modern era
// each request has those of its call. A legacy server reads the headers of a session at any time, some only at its
// begin, so callers with other values have another session, whose requests all have these values. Requests for no
// caller have the values of headers of the entry; nothing of one caller reaches the session of another one.

const (
	mostForwarded = 8
	maxForwarded  = 4 << 10 // bytes of the values of one request
)

// Forwarded are the headers of a client that go to one server, in the order of the entry.
type Forwarded []client.HeaderField

// Forwarded returns the headers of a request that go to the server. The error tells the client what is wrong.
func (c *Config) Forwarded(header map[string][]string) (f Forwarded, err error) {
	size := 0
	for _, name := range c.ForwardHeaders {
		values := header[textproto.CanonicalMIMEHeaderKey(name)]
		switch {
		case len(values) == 0:
			continue
		case len(values) > 1:
			return nil, fmt.Errorf("the header %s occurs %d times; send it once", name, len(values))
		case !transport.VisibleASCII(values[0]):
			return nil, fmt.Errorf("the header %s is empty, or has other characters than visible ASCII without spaces",
				name)
		}
		if size += len(values[0]); size > maxForwarded {
			return nil, fmt.Errorf("the headers %s have more than %s together", strings.Join(c.ForwardHeaders, ", "),
				transport.FormatSize(maxForwarded))
		}
		f = append(f, client.HeaderField{Name: name, Value: values[0]})
	}
	return f, nil
}

// Again returns the headers of an earlier request, if the entry still names all of them.
func (c *Config) Again(f Forwarded) (Forwarded, bool) {
	header := map[string][]string{}
	for _, field := range f {
		name := textproto.CanonicalMIMEHeaderKey(field.Name)
		header[name] = append(header[name], field.Value)
	}
	again, err := c.Forwarded(header)
	return again, err == nil && len(again) == len(f)
}

// Names returns the names.
func (f Forwarded) Names() (names []string) {
	for _, field := range f {
		names = append(names, field.Name)
	}
	return names
}

// Key returns a text that is equal for the same headers; "" for none. It has the values.
func (f Forwarded) Key() string {
	var b strings.Builder
	for _, field := range f {
		b.WriteString(strings.ToLower(field.Name) + ":" + field.Value + "\n")
	}
	return b.String()
}

// noneForwarded is linkKey.forwarded of callers without any of the headers.
const noneForwarded = "\n"

// ofCaller returns the key of the legacy connection for the headers of a caller. It counts in the share of the
// principal. Without the headers, it is the connection of all if the entry has no values in place of them.
func (k linkKey) ofCaller(c *Call, config *Config) linkKey {
	if k.forwarded = Forwarded(c.Forwarded).Key(); k.forwarded == "" {
		if !slices.ContainsFunc(config.ForwardHeaders, config.fixes) {
			return k
		}
		k.forwarded = noneForwarded
	}
	k.user = cmp.Or(k.user, c.Principal)
	return k
}

// fields returns the headers of the callers of the link.
func (k linkKey) fields() (f Forwarded) {
	for line := range strings.Lines(k.forwarded) {
		if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ":"); ok {
			f = append(f, client.HeaderField{Name: name, Value: value})
		}
	}
	return f
}

// ofJunction returns the key of the connection for requests that have no headers of a caller.
func (k linkKey) ofJunction() linkKey {
	if k.forwarded = ""; k.holder == "" {
		k.user = ""
	}
	return k
}

// alike reports whether two links have the same callers, apart from their headers and the number of the link.
func (k linkKey) alike(other linkKey) bool {
	other.number = k.number
	return k.ofJunction() == other.ofJunction()
}

// fixes reports whether headers has a value for a name.
func (c *Config) fixes(name string) bool {
	for own := range c.Headers {
		if strings.EqualFold(own, name) {
			return true
		}
	}
	return false
}

// validateForwarded checks the names of the headers of clients.
func (c *Config) validateForwarded(bad func(path, format string, args ...any)) {
	if len(c.ForwardHeaders) > mostForwarded {
		bad("forward_headers", "has more than %d names", mostForwarded)
	}
	if len(c.ForwardHeaders) > 0 && c.MaxLinks == 1 {
		bad("max_links", "leaves no session for the headers of a caller (forward_headers), because one session reads "+
			"the lists for all; write 2 or more")
	}
	for i, name := range c.ForwardHeaders {
		at := fmt.Sprintf("forward_headers[%d]", i)
		same := func(other string) bool { return strings.EqualFold(other, name) }
		switch {
		case !http1.IsToken(name):
			bad(at, "is no HTTP header name")
		case !mayName(name, useForward):
			bad(at, "%s is not passed on, because it is about Junction itself, about a connection or about the "+
				"message; remove it", name)
		case slices.ContainsFunc(c.ForwardHeaders[:i], same):
			bad(at, "%s occurs twice; remove one of the two", name)
		case c.Auth.Mode.Row().Carries && same(c.Auth.Carrier().Name()):
			bad(at, "%s carries %s (auth.mode); remove one of the two", name, c.Auth.Mode.Row().What)
		}
	}
}
