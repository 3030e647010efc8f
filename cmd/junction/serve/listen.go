package serve

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"syscall"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/listeners"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/base/telemetry"
	"junction/upstream/loopback"
)

// listening is the listeners of clients and of the admin address.
type listening struct {
	*common
	steady
	public, admin net.Listener // admin may be nil
	bounded       *listeners.Bounded
	secure        net.Addr // of https, whose connections public accepts, too; nil without tls
	certified     *certified
	inForce       *inForce
}

// Open opens the listeners.
func (l *listening) Open(c *config.Config) error {
	if problem := c.ListenProblem(c.Listen, false, false); problem != "" {
		return cli.Usagef("--listen %s: %s", c.Listen, problem)
	}
	if err := l.openListeners(c); err != nil {
		return err
	}
	if c.TLS.On() {
		if err := l.openSecure(c.TLS.Listen); err != nil {
			return err
		}
	}
	return l.boundListeners(c)
}

// openSecure opens the listener of https, or takes that of systemd.
func (l *listening) openSecure(address string) error {
	secure, err := listeners.Inherited(l.getenv, "tls.listen", address, true)
	if secure == nil && err == nil {
		secure, err = listeners.Listen(address, "tls.listen")
	}
	if err != nil {
		return err
	}
	l.secure = secure.Addr()
	l.public = listeners.Join(l.public, secure)
	return nil
}

// Close closes the listeners.
func (l *listening) Close() {
	if l.admin != nil {
		l.admin.Close()
	}
	if l.public != nil {
		l.public.Close()
	}
}

// openListeners opens the listeners, or takes that of systemd for listen. It looks at both addresses, so that one
// error names all that are taken. It takes no admin address in vain: of two processes that start at once, one must
// get both.
func (l *listening) openListeners(c *config.Config) (err error) {
	key := "listen"
	if l.file == "" {
		key = "--listen"
	}
	if l.file != "" && !l.inner {
		l.public, err = listeners.Inherited(l.getenv, key, c.Listen, !c.TLS.On())
	}
	if l.public == nil && err == nil {
		l.public, err = listeners.Listen(c.Listen, key)
	}
	if err != nil && !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	if err == nil {
		return l.listenAdmin(*c.Admin)
	}
	if *c.Admin != "" && !l.inner && l.file != "" { // see listenAdmin
		if second := listeners.Taken(*c.Admin, "admin"); second != nil {
			return listeners.Both(err, second)
		}
	}
	return err
}

// listenAdmin opens the admin listener, unless the address is "" or the program is an inner one.
func (l *listening) listenAdmin(address string) (err error) {
	if address == "" || l.inner {
		return nil
	}
	l.admin, err = listeners.Listen(address, "admin")
	if errors.Is(err, syscall.EADDRINUSE) && l.file == "" {
		// The admin address is the default here, and cannot be changed without a file. A second
		// junction started for a test must work anyway.
		l.log.Warn("/healthz and /readyz are not served: their address is taken", "admin", address)
		return nil
	}
	return err
}

// boundListeners bounds the listener of clients, and gives that of the admin address a reserve. It
// returns an error if too few files may be open.
func (l *listening) boundListeners(c *config.Config) error {
	files := telemetry.FileLimit()
	own, err := listeners.CheckFiles(files, len(c.Upstreams), l.log)
	if err != nil {
		return err
	}
	trusted := func() []netip.Prefix {
		if g := l.inForce.guard.Load(); g != nil {
			return g.TrustedProxies
		}
		return nil
	}
	limits := c.Limits.WithDefaults()
	l.bounded = listeners.Bound(l.public, files, own, limits.Heads(), trusted, l.log)
	l.public = l.bounded
	if l.secure != nil {
		l.public = listeners.Secured(l.public, listeners.Security{Certificate: l.certified.certificate,
			Protocols: l.certified.protocols(), URL: func() string { return l.inForce.now().PublicURL },
			Limit: limits.ReadTimeout, Log: l.log})
	}
	if l.admin != nil {
		l.admin = listeners.Reserve(l.admin)
	}
	return nil
}

// adminIsOpen reports whether other machines can reach the admin address.
func (l *listening) adminIsOpen() bool {
	return l.admin != nil && !loopback.Address(l.admin.Addr().String())
}

// url returns the URL for clients on this machine.
func (l *listening) url() string { return "http://" + l.public.Addr().String() + "/mcp" }

// adminHere returns the host and port of the admin listener for commands on this machine.
func adminHere(a net.Addr) string {
	u, err := url.Parse(runfile.URL(a.String()))
	if err != nil || u.Host == "" {
		return a.String()
	}
	return u.Host
}
