package main

import (
	"context"
	"net"
	"net/http"
	"strconv"

	"junction/auth"
	"junction/auth/authserver"
	"junction/cmd/junction/config"
	"junction/cmd/junction/diagnose"
	"junction/cmd/junction/pages"
	"junction/cmd/junction/prose"
	"junction/proxy"
)

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

// statusPage returns the page of the admin listener.
func (p *program) statusPage(stopping context.Context) (*pages.Status, error) {
	return pages.NewStatus(pages.StatusOptions{
		Report:   func() diagnose.Report { return p.asSeen().Report(stopping) },
		Sessions: p.sessions, Calls: &p.calls, Reconnect: p.reconnect,
		Version: version(), Stopping: stopping, Log: p.log,
	})
}

// reconnect connects an upstream again for a person at the status page.
func (p *program) reconnect(upstream string) bool {
	there := p.set.Reconnect(upstream)
	if there {
		p.record("upstream_reconnected", upstream, proxy.OK)
	}
	return there
}

// sessions returns the latest legacy sessions, and how many there are. Names of clients are redacted
// as in the log.
func (p *program) sessions() ([]proxy.SessionStatus, int) {
	latest, total := p.server.Sessions()
	for i := range latest {
		latest[i].Client = prose.Flat(auth.Redact(latest[i].Client))
	}
	return latest, total
}

// asSeen returns the view of the proxy that the admin listener serves.
func (p *program) asSeen() *diagnose.Proxy {
	var users func(context.Context, string) ([]authserver.KnownUser, error)
	if p.signIn != nil {
		users = p.signIn.Users
	}
	return &diagnose.Proxy{
		Server: p.server, Set: &p.set, Providers: p.providers, File: p.file, Version: version(), Users: users, Metrics: p.telemetry.Handler(),
		Process: p.process(),
		Config:  func() *config.Config { return p.reach.Load().config },
		Unread: func() string {
			if why := p.unread.Load(); why != nil {
				return *why
			}
			return ""
		},
	}
}
