package openapi

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// credentials are the headers and other fields that authenticate the requests of an operation.
type credentials struct {
	header  http.Header
	query   url.Values
	cookies []string
	keys    []key // that the model must not set
	names   []string
}

type key struct{ name, in string }

// schemes checks that the manifest has credentials only for schemes of the document.
func (c *collector) schemes() error {
	known := map[string]bool{}
	if c.doc.Components != nil {
		for name := range c.doc.Components.SecuritySchemes {
			known[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.api.Auth)) {
		if len(known) == 0 {
			return fmt.Errorf("auth has %q, but the document has no security schemes; send the credential in headers",
				name)
		}
		if !known[name] {
			return fmt.Errorf("auth has %q, which is no security scheme of the document; it has %s", name,
				strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
	return nil
}

// statesSecurity reports whether the document says which security schemes its operations need.
func statesSecurity(doc *openapi3.T) bool {
	if len(doc.Security) > 0 {
		return true
	}
	if doc.Paths == nil {
		return false
	}
	for _, item := range doc.Paths.Map() {
		if item == nil {
			continue
		}
		for _, op := range item.Operations() {
			if op.Security != nil && len(*op.Security) > 0 {
				return true
			}
		}
	}
	return false
}

// unsent warns of credentials that no chosen operation sends.
func (c *collector) unsent() {
	for _, name := range slices.Sorted(maps.Keys(c.api.Auth)) {
		if !c.sent[name] {
			c.warn("auth has %q, which no chosen operation needs or which another credential replaces; "+
				"it is not sent. Remove it, or send it in headers", name)
		}
	}
}

// send adds the credential with the name of a security scheme.
func (c *collector) send(to *credentials, name string) {
	c.sent[name], to.names = true, append(to.names, name)
	to.add(c.doc.Components.SecuritySchemes[name], c.api.Auth[name].Value())
}

// Credentials returns the names of the security schemes whose credentials the requests have.
func (o *Operation) Credentials() []string { return o.auth.names }

// credentials returns the credentials of an operation: the first alternative of its security for which the
// manifest has everything.
func (c *collector) credentials(op *openapi3.Operation) credentials {
	all := credentials{header: http.Header{}, query: url.Values{}}
	for name, value := range c.api.Headers {
		all.header.Set(name, value.Value())
	}
	security := c.doc.Security
	if op.Security != nil {
		security = *op.Security
	}
	if op.Security == nil && c.unstated { // the document never says which credential is for what
		for _, name := range slices.Sorted(maps.Keys(c.api.Auth)) {
			c.send(&all, name)
		}
		return all
	}
	if len(security) == 0 {
		return all
	}
	var names []string
	for _, alternative := range security {
		complete := true
		for name := range alternative {
			_, has := c.api.Auth[name]
			complete = complete && has
			names = append(names, name)
		}
		if !complete {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(alternative)) {
			c.send(&all, name)
		}
		return all
	}
	if len(c.api.Headers) == 0 {
		slices.Sort(names)
		c.without[strings.Join(slices.Compact(names), " or ")]++
	}
	return all
}

func (all *credentials) add(ref *openapi3.SecuritySchemeRef, value string) {
	if ref == nil || ref.Value == nil {
		return
	}
	switch s := ref.Value; {
	case s.Type == "apiKey":
		all.keys = append(all.keys, key{s.Name, s.In})
		switch s.In {
		case "header":
			all.header.Set(s.Name, value)
		case "query":
			all.query.Set(s.Name, value)
		default:
			all.cookies = append(all.cookies, s.Name+"="+value)
		}
	case s.Type == "http" && strings.EqualFold(s.Scheme, "basic"):
		all.header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(value)))
	case s.Type == "http" && !strings.EqualFold(s.Scheme, "bearer"):
		all.header.Set("Authorization", s.Scheme+" "+value)
	default: // a token of OAuth or OpenID Connect is a bearer token
		all.header.Set("Authorization", "Bearer "+value)
	}
}
