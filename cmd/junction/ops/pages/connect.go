package pages

import (
	"html/template"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"junction/cmd/junction/ops/pages/frame"
	"junction/proxy/front"
)

// Access is what clients need to connect.
type Access struct {
	URL     string // of the merged endpoint
	Key     bool   // requests need an API key
	SignIn  bool   // the client opens a browser, in which its user signs in
	Account bool   // /account has a page for each user
}

// Connect is the page that shows how to connect each client. It contains nothing about upstreams,
// since everybody who reaches the listener can read it.
type Connect struct {
	page     *frame.Page
	missing  *frame.Page
	access   func(*http.Request) Access
	clients  Clients
	variable string
	log      *slog.Logger
}

// NewConnect returns the page. access and clients are called for each request that is served. variable is
// the environment variable in which clients find the API key.
func NewConnect(access func(*http.Request) Access, clients Clients, variable string, log *slog.Logger) (
	*Connect, error) {
	p, err := newPage("connect", "form-action 'none'", "clients")
	if err != nil {
		return nil, err
	}
	missing, err := newPage("missing", "form-action 'none'")
	return &Connect{p, missing, access, clients, variable, log}, err
}

// Serves reports whether a request is that of a browser for the page. An MCP client, which accepts
// an event stream or sends a header of its own, never gets the page.
func (c *Connect) Serves(r *http.Request) bool {
	if r.Method != http.MethodGet && (r.Method != http.MethodHead || r.URL.Path != "/") {
		return false
	}
	if path := r.URL.Path; path != "/" && path != "/mcp" && path != "/mcp/" {
		return false
	}
	return fromBrowser(r)
}

// ServesMissing reports whether a browser asks for a path where no MCP endpoint can be.
func (c *Connect) ServesMissing(r *http.Request) bool {
	path := strings.TrimSuffix(r.URL.Path, "/")
	return r.Method == http.MethodGet && !strings.HasPrefix(path, "/mcp/") && !strings.HasSuffix(path, "/mcp") &&
		!strings.HasPrefix(path, "/.well-known/") && fromBrowser(r)
}

// Missing answers 404 with a page. The caller has checked the Host header.
func (c *Connect) Missing(w http.ResponseWriter, r *http.Request) {
	w.Header().Add("Vary", "Accept")
	c.missing.Serve(w, c.log, http.StatusNotFound, struct{ Title, Text string }{
		"Page not found", front.NothingAt(r.URL.Path)})
}

// fromBrowser reports whether a person opens a page. An MCP client accepts an event stream or sends a
// header of its own.
func fromBrowser(r *http.Request) bool {
	accept := strings.ToLower(strings.Join(r.Header["Accept"], ","))
	if !strings.Contains(accept, "text/html") || strings.Contains(accept, "text/event-stream") {
		return false
	}
	for _, name := range []string{"Mcp-Session-Id", "Mcp-Protocol-Version", "Last-Event-Id", "Authorization"} {
		if len(r.Header[name]) > 0 {
			return false
		}
	}
	return true
}

// connectData is the data of the page.
type connectData struct {
	Access
	Title    string
	Variable string // that holds the API key
	Remote   bool   // the URL is https, as other machines use it
	Clients  []Client
	Links    []Client // those of Clients with a link
}

// newConnectData returns what a page shows about clients.
func newConnectData(a Access, clients Clients, variable string) *connectData {
	d := &connectData{Access: a, Variable: variable, Remote: strings.HasPrefix(a.URL, "https://")}
	d.Clients = clients(d.URL, d.Key)
	d.Links = slices.DeleteFunc(slices.Clone(d.Clients), func(c Client) bool { return c.Link == "" })
	return d
}

// A Client is a program that connects to Junction, and what a person needs for it.
type Client struct {
	Name    string
	Command string // of the client, for a shell
	Link    string // a URL that the client opens; it contains no secret
	File    string // of the client, for a person to find
	Entry   string // the content of File, if it has no other server
	// how the client gets the API key; all are false without keys
	Reads, Asks, Keeps bool
	KeyFile            string // the placeholder in Entry for the path of a file with the key
}

// Clients returns the clients for an endpoint, which wants an API key or not.
type Clients func(url string, key bool) []Client

// Open returns the link. Its scheme is one of a client.
func (c Client) Open() template.URL { return template.URL(c.Link) }

// ServeHTTP answers with the page. The caller has checked the Host header.
func (c *Connect) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d := newConnectData(c.access(r), c.clients, c.variable)
	d.Title = "Connect to Junction"
	w.Header().Add("Vary", "Accept")
	c.page.Serve(w, c.log, http.StatusOK, d)
}

// connect builds the page about clients.
func (s *Site) connect(_ *http.Request, d *pageData) bool {
	d.Title = "Connect a client"
	d.Data = newConnectData(s.Access(), s.SiteOptions.Clients, s.Variable)
	return true
}
