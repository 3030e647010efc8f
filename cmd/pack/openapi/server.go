package openapi

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"junction/cmd/pack/manifest"
)

// Server returns the URL before the path of the operation. The text is what the loader decided; a
// plan of a pack shows it.
func (o *Operation) Server() string { return o.base }

// base returns the URL before the path: of the manifest, or of the first server.
func (c *collector) base(item *openapi3.PathItem, op *openapi3.Operation) (string, error) {
	if c.api.BaseURL.Source != "" {
		return strings.TrimSuffix(c.api.BaseURL.Value(), "/"), nil
	}
	servers := c.doc.Servers
	if op.Servers != nil && len(*op.Servers) > 0 {
		servers = *op.Servers
	} else if len(item.Servers) > 0 {
		servers = item.Servers
	}
	const remedy = "add base_url: https://api.example.com"
	spec, err := url.Parse(c.api.Spec.Value())
	isFetched := err == nil && manifest.IsURL(c.api.Spec.Value())
	switch {
	case len(servers) == 0 && isFetched:
		servers = openapi3.Servers{{URL: "/"}} // the default of OpenAPI
	case len(servers) == 0 || servers[0] == nil:
		return "", fmt.Errorf("the document has no servers; %s", remedy)
	}
	text := filled(servers[0])
	if name := variable.FindString(text); name != "" {
		return "", fmt.Errorf("its server %q has the variable %s without a value; %s", text, name, remedy)
	}
	switch relative, err := url.Parse(text); {
	case err != nil || relative.IsAbs(): // AddressProblem reports the error
	case isFetched:
		text = spec.ResolveReference(relative).String()
	default:
		return "", fmt.Errorf("its server %q is relative to the URL of the document, which is a file; %s", text, remedy)
	}
	if problem := manifest.AddressProblem(text, false); problem != "" {
		return "", fmt.Errorf("its server %q %s; %s", text, problem, remedy)
	}
	to, err := url.Parse(text)
	if err != nil { // impossible: it was checked
		return "", err
	}
	if !c.out.Reach.Names(to) {
		return "", fmt.Errorf("its server is %s, whose address is not public, and a fetched document may not name "+
			"such an address; add base_url: %s", to.Host, text)
	}
	// Otherwise, the host of the document could have the credentials sent anywhere.
	if len(c.api.Auth)+len(c.api.Headers) > 0 && isFetched && !strings.EqualFold(to.Host, spec.Host) {
		return "", fmt.Errorf("its server is %s, and credentials go only to hosts that the manifest names; "+
			"add base_url: %s", strings.ToLower(to.Host), text)
	}
	return strings.TrimSuffix(text, "/"), nil
}

// variable is a variable in the URL of a server.
var variable = regexp.MustCompile(`\{[^{}]*\}`)

// filled returns the URL of a server with the defaults of its variables. A default is not searched
// for variables again: the result would depend on the order of the variables.
func filled(s *openapi3.Server) string {
	return variable.ReplaceAllStringFunc(s.URL, func(name string) string {
		if v := s.Variables[name[1:len(name)-1]]; v != nil {
			return v.Default
		}
		return name
	})
}
