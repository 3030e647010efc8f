package auth

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Resources are our endpoints as OAuth knows them: each is a protected resource of its own, which
// has a document that names the authorization servers (RFC 9728), and a token for one is of no use
// at another. They are immutable. A nil *Resources has no documents: nobody signs in.
//
// Which endpoints there are is nobody's business before the sign-in: each path that could be one
// has its document.
type Resources struct {
	origin  string   // public_url; never what a request says of itself
	servers []string // issuers of authorization servers
	scopes  []string
}

// NewResources returns the endpoints below publicURL, an origin, whose tokens come from these
// authorization servers; scopes are what a client needs to be let in at all. Without servers it
// returns nil.
func NewResources(publicURL string, servers, scopes []string) *Resources {
	if len(servers) == 0 {
		return nil
	}
	// 2026-07-28, authorization#refresh-tokens
	scopes = slices.DeleteFunc(slices.Clone(scopes), func(s string) bool { return s == "offline_access" })
	return &Resources{canonical(publicURL), slices.Clone(servers), scopes}
}

// Of returns the name of the endpoint that is served at a path: its URL. It is "" where no endpoint
// can be.
func (r *Resources) Of(path string) string {
	if r == nil || !endpointPath(path) {
		return ""
	}
	return r.origin + path
}

// is reports whether a resource is the endpoint at the path, in the words of Of.
func (r *Resources) is(resource, path string) bool {
	rest, ok := strings.CutPrefix(resource, r.origin)
	return ok && rest == path && endpointPath(path)
}

// Canonical returns the name of the endpoint that a URL means, whatever the case of its host, with
// or without the default port and a slash at its end. The bare origin means the merged endpoint. It
// is "" for everything else.
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

// mergedPath is where the endpoint over all upstreams is.
const mergedPath = "/mcp"

// endpointPath reports whether an endpoint can be at the path: /mcp, /mcp/NAME or /NAME/mcp.
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
	for i := range len(name) {
		if !alphanumeric(name[i]) && strings.IndexByte("._-", name[i]) < 0 {
			return false
		}
	}
	return name != "" && len(name) <= maxName
}

// canonical brings a URL to the form in which resources are compared; what is no such URL stays as
// it is.
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

// admit reports, with an error for the client, whether what was verified is for the endpoint at the
// path.
func (r *Resources) admit(p *Principal, path string) error {
	if p.Kind != KindUser && p.Kind != KindService {
		return nil
	}
	for _, resource := range p.Resources {
		if r == nil || resource == "" {
			continue
		}
		if r.is(resource, path) { // as it is with most, and costs nothing
			return nil
		}
		this, c := r.Of(path), canonical(resource)
		foreign := c != r.origin && !strings.HasPrefix(c, r.origin+"/")
		if foreign || this != "" && r.Canonical(c) == this {
			return nil
		}
	}
	this := cmp.Or(r.Of(path), "another endpoint")
	return fmt.Errorf("%w: it is for %s, and this is %s", ErrInvalidToken, strings.Join(p.Resources, " "), this)
}

// invitation says to a person what a request needs.
func (r *Resources) invitation() string {
	if r == nil {
		return "this endpoint needs a key, in the header Authorization: Bearer jct_key_…"
	}
	return "this endpoint needs a sign-in: a client of MCP begins one when it is told to, or takes a key, in the " +
		"header Authorization: Bearer jct_key_…"
}

// where returns the parameters of a challenge that say where to sign in for the endpoint at the
// path, and for what; scopes nil is what everybody needs.
func (r *Resources) where(path string, scopes []string) string {
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

// StepUp returns the challenge, a value for the header WWW-Authenticate, to whom a sign-in with
// these scopes beside those that everybody needs would help with the endpoint at the path
// (2026-07-28, authorization#scope-challenge-handling). It goes with status 403.
func (r *Resources) StepUp(path string, scopes []string) string {
	all := slices.Clone(scopes)
	if r != nil {
		all = append(slices.Clone(r.scopes), scopes...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return challenge(problem{insufficientScope, (&ScopeError{all}).Error()}) + r.where(path, all)
}

// metadataPath is where the document of the merged endpoint is; those of the others, and the same
// again, have the endpoint's path behind it (RFC 9728, section 3).
const metadataPath = "/.well-known/oauth-protected-resource"

// ServeHTTP answers everything below /.well-known/, for anybody: the documents, and that the rest
// is not here. All of it is JSON, since clients that look for a sign-in read it.
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
		write(w, http.StatusNotFound, problem{"not_found", "there is no such document here"})
	case req.Method != http.MethodGet && req.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		write(w, http.StatusMethodNotAllowed, problem{"invalid_request", "use GET"})
	default:
		writeJSON(w, http.StatusOK, "max-age=60", struct {
			Resource string   `json:"resource"`
			Servers  []string `json:"authorization_servers"`
			Scopes   []string `json:"scopes_supported,omitempty"`
			Methods  []string `json:"bearer_methods_supported"`
			Name     string   `json:"resource_name"`
		}{resource, r.servers, r.scopes, []string{"header"}, "Junction"})
	}
}

// cors lets pages of any origin read an answer that has no secrets and depends on no cookie; it
// reports whether the request was a preflight, which it has answered. The methods are those of a
// request that a page may make.
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
