package serve

import (
	"net"
	"net/http"
	"strconv"
	"strings"

	"junction/auth"
	"junction/cmd/junction/desk/clients"
	"junction/cmd/junction/ops/pages"
)

// publicHandler returns the handler of clients: the pages and metadata that need no authentication,
// and MCP.
func (p *program) publicHandler() http.Handler {
	ids := auth.NewRequestIDs()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ids.Stamp(w)
		if p.connect.Serves(r) {
			if p.server.CheckWay(w, r) {
				p.connect.ServeHTTP(w, r)
			}
			return
		}
		if p.signIn != nil && p.signIn.serves(r) {
			// Documents below /.well-known/ are public and the same for every caller: their Host header
			// is not checked.
			if strings.HasPrefix(r.URL.Path, "/.well-known/") || p.server.CheckWay(w, r) {
				p.signIn.ServeHTTP(w, r)
			}
			return
		}
		if strings.HasPrefix(r.URL.Path, "/.well-known/") {
			p.guard.Load().Resources.ServeHTTP(w, r)
			return
		}
		if p.connect.ServesMissing(r) {
			if p.server.CheckWay(w, r) {
				p.connect.Missing(w, r)
			}
			return
		}
		if !p.alone(w) {
			p.server.ServeHTTP(w, r)
		}
	})
}

// access returns how clients connect. Without public_url, the URL has the host that the request was
// sent to, which the server has checked.
func (p *program) access(r *http.Request) pages.Access {
	c := p.reach.Load().config
	a := pages.Access{URL: p.url(), SignIn: c.Auth.SignsIn(), Account: p.signIn != nil}
	a.Key = len(c.Auth.APIKeys) > 0 && !a.SignIn
	_, port, err := net.SplitHostPort(r.Host)
	_, bad := strconv.ParseUint(port, 10, 16)
	switch {
	case c.PublicURL != "":
		a.URL = c.PublicURL + "/mcp"
	case err == nil && bad == nil:
		a.URL = "http://" + r.Host + "/mcp"
	}
	return a
}

// clients returns what the page shows about each client.
func (p *program) clients(url string, key bool) (list []pages.Client) {
	for _, client := range clients.All() {
		target := clients.Target{Name: "junction", URL: url, Key: key}
		shown := pages.Client{Name: client.Name}
		if key {
			way := client.KeyWay(clients.User)
			shown.Reads, shown.Asks = way == clients.ByVariable, way == clients.ByInput
			if shown.Keeps = way == clients.ByFile; shown.Keeps {
				shown.KeyFile = "/path/to/key"
				target.KeyFile = shown.KeyFile
			}
		}
		s, err := client.Snippet(target)
		if err != nil {
			p.log.Error("cannot show how to connect a client", "client", client.ID, "error", err)
			continue
		}
		shown.Command, shown.Link, shown.File, shown.Entry = s.Command, s.Link, s.File, s.Entry
		list = append(list, shown)
	}
	return list
}
