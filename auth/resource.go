package auth

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Resources are the endpoints of this server as OAuth protected resources (RFC 9728). Each endpoint
// is a resource with its own metadata document, and a token for one is not valid at another. It is
// immutable. A nil *Resources has no documents: users cannot sign in.
//
// Every path that could be an endpoint has a document, so that the documents do not reveal which
// endpoints exist.
type Resources struct {
	origin  string   // public_url; never from a request
	servers []string // issuers of authorization servers
	scopes  []string
	entries map[string]string // the entry of the configuration of a server, by its issuer; none for ours
	others  Others            // nil if there are none
}

// offered returns the servers that all processes accept; all servers if there are none of these.
func (r *Resources) offered() []string {
	if r.others == nil {
		return r.servers
	}
	list := slices.DeleteFunc(slices.Clone(r.servers), func(issuer string) bool {
		entry := r.entries[issuer]
		return entry != "" && r.others.Lacks(entry)
	})
	if len(list) == 0 {
		return r.servers
	}
	return list
}

// NewResources returns the endpoints below publicURL, an origin, with their authorization servers.
// scopes are what every token needs. Without servers it returns nil.
func NewResources(publicURL string, servers, scopes []string) *Resources {
	if len(servers) == 0 {
		return nil
	}
	// 2026-07-28, authorization#refresh-tokens
	scopes = slices.DeleteFunc(slices.Clone(scopes), func(s string) bool { return s == "offline_access" })
	return &Resources{origin: canonical(publicURL), servers: slices.Clone(servers), scopes: scopes}
}

// Of returns the URL of the endpoint at a path, "" if the path cannot be an endpoint.
func (r *Resources) Of(path string) string {
	if r == nil || !endpointPath(path) {
		return ""
	}
	return r.origin + path
}

// is reports whether a resource is the endpoint at a path.
func (r *Resources) is(resource, path string) bool {
	rest, ok := strings.CutPrefix(resource, r.origin)
	return ok && rest == path && endpointPath(path)
}

// Canonical returns the URL of the endpoint that a client names. The case of the host, a default
// port and a trailing slash do not matter. The bare origin means the merged endpoint. The result is
// "" if the name is not an endpoint.
func (r *Resources) Canonical(resource string) string {
	if r == nil {
		return ""
	}
	c := canonical(resource)
	if c == r.origin {
		c += mergedPath
	}
	path, ok := strings.CutPrefix(c, r.origin)
	if !ok {
		return ""
	}
	return r.Of(path)
}

// mergedPath is the path of the endpoint that merges all upstreams.
const mergedPath = "/mcp"

// endpointPath reports whether a path can be an endpoint: /mcp, /mcp/NAME or /NAME/mcp.
func endpointPath(path string) bool {
	if path == mergedPath {
		return true
	}
	name, ok := strings.CutPrefix(path, mergedPath+"/")
	if !ok {
		if name, ok = strings.CutSuffix(path, mergedPath); !ok || name[0] != '/' {
			return false
		}
		name = name[1:]
	}
	return isName(name, "._-")
}

// canonical normalises a URL for comparison. Anything else is returned unchanged.
func canonical(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || strings.Contains(s, "#") {
		return s
	}
	u.Scheme = strings.ToLower(u.Scheme)
	port := map[string]string{"https": ":443", "http": ":80"}[u.Scheme]
	if port == "" {
		return s
	}
	u.Host = strings.TrimSuffix(strings.ToLower(u.Host), port)
	return strings.TrimSuffix(u.String(), "/")
}

// admit returns nil if a principal may use the endpoint at a path, and else an error for the
// client.
func (r *Resources) admit(p *Principal, path string) error {
	if p.Kind != KindUser && p.Kind != KindService {
		return nil
	}
	for _, resource := range p.Resources {
		if r == nil || resource == "" {
			continue
		}
		if r.is(resource, path) { // the usual case, without an allocation
			return nil
		}
		this, c := r.Of(path), canonical(resource)
		foreign := c != r.origin && !strings.HasPrefix(c, r.origin+"/")
		if foreign || this != "" && r.Canonical(c) == this {
			return nil
		}
	}
	this := cmp.Or(r.Of(path), "another endpoint")
	return fmt.Errorf("%w: its audience is %s, but this is %s", ErrInvalidToken, strings.Join(p.Resources, " "), this)
}

// howToAuthenticate tells a person how to authenticate.
func (r *Resources) howToAuthenticate() string {
	if r == nil {
		return "Authentication required. Send an API key as 'Authorization: Bearer jct_key_…'."
	}
	return "Authentication required. Sign in from your MCP client, " +
		"or send an API key as 'Authorization: Bearer jct_key_…'."
}

// challengeParams returns the parameters of a challenge for the endpoint at a path: the metadata
// document and the scopes. If scopes is nil, they are the ones that every token needs.
func (r *Resources) challengeParams(path string, scopes []string) string {
	if r == nil {
		return ""
	}
	if !endpointPath(path) {
		path = ""
	}
	if scopes == nil {
		scopes = r.scopes
	}
	out := ""
	if len(scopes) > 0 {
		out = `, scope="` + quotable(strings.Join(scopes, " ")) + `"`
	}
	return out + `, resource_metadata="` + r.origin + metadataPath + path + `"`
}

const insufficientScope = "insufficient_scope"

// StepUp returns a challenge for the header WWW-Authenticate, sent with status 403. It asks the
// client to sign in with these scopes added to those that every token needs (2026-07-28,
// authorization#scope-challenge-handling).
func (r *Resources) StepUp(path string, scopes []string) string {
	all := slices.Clone(scopes)
	if r != nil {
		all = append(slices.Clone(r.scopes), scopes...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return challenge(rejection{insufficientScope, (&ScopeError{all}).Error()}) + r.challengeParams(path, all)
}

// metadataPath is the path of the document of the merged endpoint. Other endpoints append their
// path (RFC 9728, section 3).
const metadataPath = "/.well-known/oauth-protected-resource"

// ServeHTTP serves the metadata documents below /.well-known/, and 404 as JSON for other paths,
// since clients that look for a sign-in parse the answers.
func (r *Resources) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if cors(w, req, "GET") {
		return
	}
	path, ok := strings.CutPrefix(req.URL.Path, metadataPath)
	if path = strings.TrimSuffix(path, "/"); path == "" {
		path = mergedPath
	}
	resource := r.Of(path)
	switch {
	case !ok || resource == "":
		write(w, http.StatusNotFound, rejection{"not_found", "no such document"})
	case req.Method != http.MethodGet && req.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		write(w, http.StatusMethodNotAllowed, rejection{"invalid_request", "use GET"})
	default:
		writeJSON(w, http.StatusOK, "max-age=60", struct {
			Resource string   `json:"resource"`
			Servers  []string `json:"authorization_servers"`
			Scopes   []string `json:"scopes_supported,omitempty"`
			Methods  []string `json:"bearer_methods_supported"`
			Name     string   `json:"resource_name"`
		}{resource, r.offered(), r.scopes, []string{"header"}, "Junction"})
	}
}

// cors allows pages of any origin to read an answer that depends on no cookie and contains no
// secret. It answers preflight requests and then returns true.
func cors(w http.ResponseWriter, r *http.Request, methods string) bool {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "WWW-Authenticate, X-Request-Id")
	if r.Method != http.MethodOptions {
		return false
	}
	h.Set("Access-Control-Allow-Methods", methods)
	if wanted := r.Header.Get("Access-Control-Request-Headers"); wanted != "" {
		h.Set("Access-Control-Allow-Headers", wanted)
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}
