package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/listeners"
	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/desk/entries"
	"junction/cmd/junction/desk/service"
	"junction/cmd/junction/ops/admin"
)

// An occupied error means that other programs have addresses of the configuration.
type occupied struct {
	who   string   // has them
	lines []string // of the configuration, with free ports for these addresses
	other string   // the command that connects the clients to the Junction that has them; "" if it may be none
	file  string   // for display
}

func (o *occupied) Error() string {
	text := o.who
	if o.other != "" {
		text += "\nTo connect the clients to that one, run:\n  " + o.other
	}
	return text + "\nTo set up Junction at free ports, write these lines into " + o.file +
		", and run the same command again:\n  " + strings.Join(o.lines, "\n  ")
}

// addresses returns the free addresses of the lines.
func (o *occupied) addresses() string {
	var list []string
	for _, line := range o.lines {
		_, address, _ := strings.Cut(line, ": ")
		list = append(list, address)
	}
	return strings.Join(list, " and ")
}

// prepare returns an error if a later step cannot succeed. If another program has an address, it offers to write
// lines with free ports into the file. Else it changes nothing.
func (g *guide) prepare(ctx context.Context) error {
	err := g.possible(ctx)
	o, is := errors.AsType[*occupied](err)
	if !is || g.yes {
		return err
	}
	e, failure := entries.Edit(io.Discard, g.file, false, true)
	if failure != nil {
		return err
	}
	text, possible := e.Listening(o.lines)
	if !possible {
		return err
	}
	agreed, failure := cli.QuestionsOf(g.cmd).YesNo(fmt.Sprintf("%s. Use %s instead?", o.who, o.addresses()), true)
	if failure != nil || !agreed {
		return cmp.Or(failure, err)
	}
	before, failure := revision.Read(g.file)
	if failure != nil {
		before = nil
	}
	g.record.begin(g.file, before)
	if err := g.record.save(); err != nil {
		return err
	}
	backup, err := e.Listen(text)
	if err != nil {
		return err
	}
	g.record.rewrote(backup)
	g.say("Wrote into %s:\n  %s", g.short(), strings.Join(o.lines, "\n  "))
	return g.record.save()
}

// possible returns an error if a later step cannot succeed. It changes nothing.
func (g *guide) possible(ctx context.Context) error {
	if _, err := service.Program(); err != nil {
		return err
	}
	e, err := entries.Read(io.Discard, g.file, false)
	if err != nil {
		return nil // the next step reports it
	}
	return g.free(ctx, e.Config())
}

// free returns an error if another program has an address at which Junction would listen: *occupied, if there are
// free ports.
func (g *guide) free(ctx context.Context, c *config.Config) error {
	own := checkOwn(ctx, g.file, c, "run: "+g.connectOther(c))
	if _, serves := admin.ServedAt(ctx, g.file); own == nil && serves {
		return nil
	}
	if p, present := runfile.Present(g.file); own == nil && present && p.Ending() {
		return nil // the start waits for its end
	}
	lines, taken := g.taken(c)
	if len(lines) == 0 {
		return cmp.Or(own, taken)
	}
	o := &occupied{who: listeners.Held(taken), lines: lines, file: g.short()}
	if _, ours := listeners.Holder(taken); own != nil || ours {
		o.other = g.connectOther(c)
	}
	if held := admin.Held(own); held != "" {
		o.who = listeners.Held(taken) + ": " + held
	}
	return o
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

// connectOther returns how the clients use the Junction of another file, which has the addresses of this one.
func (g *guide) connectOther(c *config.Config) string {
	name, url := cmp.Or(g.name, "junction"), runfile.URL(c.Listen)
	return config.CommandOf(name, "", "connect", "--all", "--url", url)
}

// notTaken returns err, or the error about an address that another program has taken meanwhile, which is the reason.
func (g *guide) notTaken(ctx context.Context, err error) error {
	e, failure := entries.Read(io.Discard, g.file, false)
	if err == nil || failure != nil {
		return err
	}
	taken := g.free(ctx, e.Config())
	if o, is := errors.AsType[*occupied](taken); is {
		return fmt.Errorf("%s; write %s into %s", o.who, strings.Join(o.lines, ", and "), o.file)
	}
	return cmp.Or(taken, err)
}
