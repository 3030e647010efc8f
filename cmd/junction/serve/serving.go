package serve

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"junction/auth"
	"junction/auth/oauth"
	"junction/cmd/build"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/listeners"
	"junction/cmd/junction/base/stored"
	"junction/cmd/junction/desk/clients"
	"junction/cmd/junction/ops/pages"
	"junction/proxy/front"
	"junction/proxy/scope"
	"junction/upstream"
	"junction/upstream/prose"
)

// serving is the proxy itself, and the pages for its clients.
type serving struct {
	*common
	server     *front.Server
	ended      *stored.Sessions // nil if deleted sessions are not stored
	connect    *pages.Connect
	calls      pages.Calls
	sealing    *sealing
	listening  *listening
	inForce    *inForce
	recording  *recording
	measuring  *measuring
	signIns    *signIns
	membership *membership
}

// Open makes the server.
func (s *serving) Open(c *config.Config) (err error) {
	if s.connect, err = pages.NewConnect(s.access, s.clients, clients.KeyVariable, s.log); err != nil {
		return err
	}
	options := front.Options{
		Limits: c.Limits, Sessions: c.Sessions, Key: s.sealing.key, Log: s.log,
		Version: build.Read().Version, Hooks: s.hooks(),
		Observer: s.measuring.telemetry.Requests(), Members: s.membership.forProxy(),
	}
	s.ended, options.DeletedSessions = stored.OpenSessions(s.sealing.dir, c.Limits.WithDefaults().Sessions, s.log)
	if s.ended != nil {
		options.SessionDeleted = s.ended.Add
	}
	s.server = front.New(options)
	return nil
}

// Prepare prepares nothing: upstreams call apply.
func (s *serving) Prepare(*config.Config) (prepared, error) { return prepared{}, nil }

// Close writes what is left of the deleted sessions.
func (s *serving) Close() { s.ended.Close() }

// apply directs the calls of clients to the running upstreams of a configuration, by the rules in
// force.
func (s *serving) apply(c *config.Config, running []*upstream.Upstream) {
	next := scope.Config{Guard: s.inForce.guard.Load(), Policy: s.inForce.reach.Load().policy,
		Pins:      s.inForce.pinned.pins,
		FirstWait: c.Catalog.FirstWait, Endpoints: c.Endpoints, Names: c.Names, BehindProxy: c.Auth.None,
		AllowedOrigins: append(listeners.Origins(s.listening.public.Addr()), c.AllowedOrigins...),
		AllowedHosts:   c.AllowedHosts}
	if guard, err := c.FolderGuard(s.file, s.getenv); err == nil { // else none is permitted
		next.Folders = guard
	}
	if u, err := url.Parse(c.PublicURL); c.PublicURL != "" && err == nil {
		next.AllowedOrigins = append(next.AllowedOrigins, c.PublicURL)
		// The name with any port: a reverse proxy may pass Host without the port of public_url.
		next.AllowedHosts = append(slices.Clip(next.AllowedHosts), u.Hostname())
	}
	if len(c.Personal()) > 0 {
		next.People = s.signIns
	}
	s.server.Apply(next, running)
	s.membership.judge(c)
}

// publicHandler returns the handler of clients: the pages and metadata that need no authentication,
// and MCP.
func (s *serving) publicHandler() http.Handler {
	ids := auth.NewRequestIDs()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ids.Stamp(w)
		if s.connect.Serves(r) {
			if s.server.CheckWay(w, r) {
				s.connect.ServeHTTP(w, r)
			}
			return
		}
		if r.URL.Path == oauth.KeysPath {
			if s.server.CheckWay(w, r) {
				s.signIns.serveKeys(w, r)
			}
			return
		}
		if s.signIns.users != nil && s.signIns.users.serves(r) {
			// Documents below /.well-known/ are public and the same for every caller: their Host
			// header is not checked.
			if strings.HasPrefix(r.URL.Path, "/.well-known/") || s.server.CheckWay(w, r) {
				s.signIns.users.ServeHTTP(w, r)
			}
			return
		}
		if strings.HasPrefix(r.URL.Path, "/.well-known/") {
			s.inForce.guard.Load().Resources.ServeHTTP(w, r)
			return
		}
		if s.connect.ServesMissing(r) {
			if s.server.CheckWay(w, r) {
				s.connect.Missing(w, r)
			}
			return
		}
		if !s.membership.alone(w) {
			s.server.ServeHTTP(w, r)
		}
	})
}

// access returns how clients connect. Without public_url, the URL has the host that the request was
// sent to, which the server has checked.
func (s *serving) access(r *http.Request) pages.Access {
	c := s.inForce.reach.Load().config
	a := pages.Access{URL: s.listening.url(), SignIn: c.Auth.SignsIn(), Account: s.signIns.users != nil}
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
func (s *serving) clients(url string, key bool) (list []pages.Client) {
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
		snippet, err := client.Snippet(target)
		if err != nil {
			s.log.Error("cannot show how to connect a client", "client", client.ID, "error", err)
			continue
		}
		shown.Command, shown.Link, shown.File, shown.Entry = snippet.Command, snippet.Link, snippet.File, snippet.Entry
		list = append(list, shown)
	}
	return list
}

// sessions returns the latest legacy sessions, and how many there are. Names of clients are
// redacted as in the log.
func (s *serving) sessions() ([]front.SessionStatus, int) {
	latest, total := s.server.Sessions()
	for i := range latest {
		latest[i].Client = prose.Flat(auth.Redact(latest[i].Client))
	}
	return latest, total
}
