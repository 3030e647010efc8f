package serve

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"syscall"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/listeners"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/base/telemetry"
)

// openListeners opens the listeners. It looks at both addresses, so that one error names all that are taken.
// It takes no admin address in vain: of two processes that start at once, one must get both.
func (p *program) openListeners(c *config.Config) (err error) {
	key := "listen"
	if p.file == "" {
		key = "--listen"
	}
	p.public, err = listeners.Listen(c.Listen, key)
	if err != nil && !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	if err == nil {
		return p.listenAdmin(*c.Admin)
	}
	if *c.Admin != "" && !p.inner && p.file != "" { // see listenAdmin
		if second := listeners.Taken(*c.Admin, "admin"); second != nil {
			return listeners.Both(err, second)
		}
	}
	return err
}

// listenAdmin opens the admin listener, unless the address is "" or the program is an inner one.
func (p *program) listenAdmin(address string) (err error) {
	if address == "" || p.inner {
		return nil
	}
	p.admin, err = listeners.Listen(address, "admin")
	if errors.Is(err, syscall.EADDRINUSE) && p.file == "" {
		// The admin address is the default here, and cannot be changed without a file. A second
		// junction started for a test must work anyway.
		p.log.Warn("/healthz and /readyz are not served: their address is taken", "admin", address)
		return nil
	}
	return err
}

// boundListeners bounds the listener of clients, and gives that of the admin address a reserve. It returns
// an error if too few files may be open.
func (p *program) boundListeners() error {
	files := telemetry.FileLimit()
	own, err := listeners.CheckFiles(files, len(p.config.Upstreams), p.log)
	if err != nil {
		return err
	}
	trusted := func() []netip.Prefix {
		if g := p.guard.Load(); g != nil {
			return g.TrustedProxies
		}
		return nil
	}
	p.public = listeners.Bound(p.public, files, own, p.config.Limits.WithDefaults().Heads(), trusted, p.log)
	if p.admin != nil {
		p.admin = listeners.Reserve(p.admin)
	}
	return nil
}

// url returns the URL for clients on this machine.
func (p *program) url() string { return "http://" + p.public.Addr().String() + "/mcp" }

// adminHere returns the host and port of the admin listener for commands on this machine.
func adminHere(a net.Addr) string {
	u, err := url.Parse(runfile.URL(a.String()))
	if err != nil || u.Host == "" {
		return a.String()
	}
	return u.Host
}
