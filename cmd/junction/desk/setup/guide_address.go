package setup

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"strings"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/listeners"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/desk/entries"
	"junction/cmd/junction/desk/service"
	"junction/cmd/junction/ops/admin"
)

// possible returns an error if a later step cannot succeed. It changes nothing.
func (g *guide) possible(ctx context.Context) error {
	if _, err := service.Program(); err != nil {
		return err
	}
	e, err := entries.Read(io.Discard, g.file, false)
	if err != nil {
		return nil // the next step reports it
	}
	c := e.Config()
	if err := checkOwn(ctx, g.file, c, g.connectOther(c)); err != nil {
		return g.withFree(err, c)
	}
	return g.free(ctx, c)
}

// free returns an error if another program has an address at which Junction would listen, with lines of the
// configuration that have free ports.
func (g *guide) free(ctx context.Context, c *config.Config) error {
	if _, serves := admin.ServedAt(ctx, g.file); serves {
		return nil
	}
	if p, present := runfile.Present(g.file); present && p.Ending() {
		return nil // the start waits for its end
	}
	_, taken := g.taken(c)
	if taken == nil {
		return nil
	}
	return g.withFree(taken, c)
}

// taken returns an error if another program has an address of the configuration, and lines with free ports for these
// addresses.
func (g *guide) taken(c *config.Config) (lines []string, taken error) {
	for _, a := range []struct{ key, address string }{{"listen", c.Listen}, {"admin", *c.Admin}} {
		host, port, err := net.SplitHostPort(a.address)
		if err != nil || port == "0" {
			continue
		}
		if err = listeners.Taken(a.address, a.key); err == nil {
			continue
		}
		if taken == nil {
			taken = err
		} else {
			taken = listeners.Both(taken, err)
		}
		if l, err := net.Listen("tcp", net.JoinHostPort(host, "0")); err == nil {
			_, port, _ = net.SplitHostPort(l.Addr().String())
			l.Close()
			lines = append(lines, a.key+": "+net.JoinHostPort(host, port))
		}
	}
	return lines, taken
}

// withFree adds lines with free ports to an error about the addresses of the configuration.
func (g *guide) withFree(err error, c *config.Config) error {
	lines, _ := g.taken(c)
	if len(lines) == 0 {
		return err
	}
	return fmt.Errorf("%w; free now: write %s into %s", err, strings.Join(lines, ", and "), g.short())
}

// connectOther returns how the clients use the Junction of another file, which has the addresses of this one.
func (g *guide) connectOther(c *config.Config) string {
	name, url := cmp.Or(g.name, "junction"), runfile.URL(c.Listen)
	return "run: " + config.CommandOf(name, "", "connect", "--all", "--url", url)
}

// notTaken returns err, or the error about an address that another program has taken meanwhile, which is the reason.
func (g *guide) notTaken(ctx context.Context, err error) error {
	e, failure := entries.Read(io.Discard, g.file, false)
	if err == nil || failure != nil {
		return err
	}
	c := e.Config()
	if own := checkOwn(ctx, g.file, c, g.connectOther(c)); own != nil {
		return g.withFree(own, c)
	}
	if taken := g.free(ctx, c); taken != nil {
		return taken
	}
	return err
}
