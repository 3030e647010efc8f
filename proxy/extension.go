package proxy

import (
	"github.com/mark3labs/mcp-go/mcp"

	"junction/proxy/redact"
	"junction/upstream/client"
	"junction/upstream/raw"
)

// This file sends clients the notifications of extensions that they have declared and Junction does not
// know. Servers do not learn of these extensions from Junction, since their methods could not be routed.

const (
	// mostExtensions bounds the extensions that a session keeps, and maxExtension the bytes of one.
	mostExtensions = 20
	maxExtension   = 128
)

// Extensions returns the identifiers of the extensions in the capabilities of a client. Junction keeps them
// in the memory of the session: a rebuilt session has none.
func Extensions(capabilities raw.Object) (list []string) {
	declared, _ := capabilities.Object("extensions")
	for m := range declared.All() {
		if name, err := m.Name(); err == nil && len(name) <= maxExtension && len(list) < mostExtensions {
			list = append(list, name)
		}
	}
	return list
}

// Extensions implements client.Extended.
func (x *Exchange) Extensions() []string {
	switch {
	case x.Era == client.EraModern:
		capabilities, _ := x.Meta.Object(mcp.MetaKeyClientCapabilities)
		return Extensions(capabilities)
	case x.Session != nil:
		return x.Session.Extensions
	}
	return nil
}

// Extension implements client.Extended.
func (x *Exchange) Extension(method string, params []byte) bool {
	for _, extension := range x.Extensions() {
		if !client.IsOfExtension(method, extension) {
			continue
		}
		// The server chooses the end of the name, too. Another name would be another notification.
		if _, n, err := x.reader().Text(raw.Quote(method), redact.Nothing); n > 0 || err != nil {
			return false
		}
		if params != nil {
			var err error
			if params, _, err = x.reader().Text(params, redact.Nothing); err != nil {
				return false // a text that cannot be searched is not sent
			}
		}
		return x.front.Notify(method, params)
	}
	return false
}

// Extensions implements client.Extended. They are those of the request that has begun the call.
func (p *parked) Extensions() []string { return p.origin.Extensions() }

// Extension implements client.Extended. While the client is away, it drops notifications.
func (p *parked) Extension(method string, params []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.present != nil && p.present.Extension(method, params)
}
