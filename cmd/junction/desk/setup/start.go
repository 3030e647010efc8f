package setup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/desk/service"
	"junction/cmd/junction/ops/admin"
	"junction/upstream"
	"junction/upstream/prose"
)

// waitForServers is how long the first attempts of the servers may take: a package may be downloaded.
const waitForServers = 3 * time.Minute

// start starts Junction unless it runs, and prints the states of the servers. It returns false if the
// person does not want to start it.
func (g *guide) start(ctx context.Context, added []string) (running bool, err error) {
	p, running := runfile.Find(g.file)
	if running {
		g.say("\nJunction serves %s already, at %s (process %d).", g.short(), p.URL, p.PID)
		if err := g.restart(ctx); err != nil {
			return true, err
		}
	} else if other, serves := admin.ServedAt(ctx, g.file); serves {
		running = true
		g.say("\nJunction serves %s already, at %s (%s).", g.short(), other.URL, other.Process())
	} else if running, err = g.launch(ctx); err != nil || !running {
		return running, err
	}
	names := added
	if len(names) == 0 {
		c, err := config.LoadForCommand(g.file)
		if err != nil {
			return running, err
		}
		names = slices.Sorted(maps.Keys(c.Upstreams))
	}
	return running, g.await(ctx, names)
}

// await waits for the first attempts of the named servers, and shows their states. Enter and the first Ctrl-C
// end the waiting only.
func (g *guide) await(ctx context.Context, names []string) error {
	rest := context.WithoutCancel(ctx)
	interrupted, stop := signal.NotifyContext(rest, os.Interrupt)
	defer stop()
	admin.WatchTried(ctx, g.file, names, &cli.Waiting{Out: g.stdout, Limit: waitForServers, Enter: cli.EnterOf(g.cmd),
		CtrlC: true, Else: "leaves the rest for later"})
	if ctx.Err() != nil {
		select {
		case <-interrupted.Done():
			g.cmd.SetContext(rest) // a second interrupt ends the process
		case <-time.After(time.Second): // another signal
			return ctx.Err()
		}
	}
	return nil
}

// signIns returns the servers of the running Junction that work as soon as the person has signed in to them.
func (g *guide) signIns(ctx context.Context) (names []string) {
	c, err := config.LoadForCommand(g.file)
	if err != nil {
		return nil
	}
	for _, u := range admin.AwaitTried(ctx, g.file, slices.Sorted(maps.Keys(c.Upstreams)), 0) {
		if u.SignIn && u.State == upstream.StateSignIn.String() {
			names = append(names, u.Name)
		}
	}
	return names
}

// launch installs the service, or starts a process in the background.
func (g *guide) launch(ctx context.Context) (bool, error) {
	h, err := service.ThisHost()
	if err != nil {
		return false, err
	}
	fmt.Fprintln(g.stdout)
	s, err := h.Of(g.file)
	if err == nil {
		err = s.Reach(ctx)
	}
	if err != nil {
		g.say("No service, which would start Junction at each login: %s.", prose.OneLine(err.Error()))
	} else if as, err := g.agree("Start Junction now, and at each login?"); err != nil {
		return false, err
	} else if as {
		if installed, err := g.install(ctx, s); err != nil || installed {
			return installed, err
		}
	}
	if now, err := g.agree("Start Junction in the background, until the machine ends?"); err != nil || !now {
		if err == nil {
			g.say("Start Junction with: %s", g.command())
		}
		return false, err
	}
	if _, err := g.keepVariables(); err != nil {
		return false, err
	}
	p, log, err := h.Background(ctx, g.file)
	if err != nil {
		return false, fmt.Errorf("cannot start Junction in the background: %w; its log: %s", g.notTaken(ctx, err), log)
	}
	g.record.PID = p.PID
	g.say("Started Junction at %s (process %d). Its log: %s", p.URL, p.PID, g.home.Short(log))
	return true, g.record.save()
}

// install installs the service. It returns false if the service could not be started; no service stays
// then.
func (g *guide) install(ctx context.Context, s *service.Service) (bool, error) {
	if _, err := g.keepVariables(); err != nil {
		return false, err
	}
	before := g.record.Service
	g.record.Service = before || !s.Installed()
	if err := g.record.save(); err != nil {
		return false, err
	}
	s.Agree = g.lose(s)
	p, err := s.Install(ctx)
	err = g.notTaken(ctx, err)
	if err == nil || s.Installed() {
		err = errors.Join(err, g.record.save())
	} else {
		g.record.Service = before
	}
	switch {
	case err == nil:
		g.say("Installed the service %s, which serves %s at %s.\n%s", s.Name(), g.short(), p.URL, s.Later())
		return true, nil
	case s.Installed():
		return false, err
	}
	g.say("No service: %s.", prose.OneLine(err.Error()))
	return false, nil
}

// keepVariables asks whether the process that serves gets the variables of this shell that the file uses: a
// service and a process in the background have no others. It returns false if they lack some. The entries
// that use these stay with their clients, because they do not work.
func (g *guide) keepVariables() (kept bool, err error) {
	lacking := service.Lacking(g.file)
	if len(lacking) == 0 {
		return true, nil
	}
	name := config.EnvironmentOf(g.file)
	keep, err := g.agree(fmt.Sprintf("The servers use variables of this shell: %s.\nKeep them for Junction in %s, "+
		"which only you can read?", strings.Join(lacking, ", "), g.home.Short(name)))
	if err != nil || !keep {
		return false, err
	}
	for _, variable := range lacking {
		g.record.Variables = append(g.record.Variables, sum([]byte(service.Line(variable))))
	}
	if err := g.record.save(); err != nil {
		return false, err
	}
	if _, err = service.KeepVariables(g.file, lacking); err != nil {
		return false, err
	}
	g.say("Kept %s in %s.", strings.Join(lacking, ", "), g.home.Short(name))
	return true, nil
}
