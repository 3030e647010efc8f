package serve

import (
	"context"
	"encoding/hex"
	"os"
	"path/filepath"

	"junction/auth/authserver"
	"junction/cmd/build"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/desk/packs"
	"junction/cmd/junction/ops/console"
	"junction/cmd/junction/ops/diagnose"
	"junction/cmd/junction/ops/pages"
	"junction/proxy"
)

// adminPages are what the admin address shows.
type adminPages struct {
	*common
	place      *place
	contents   *contents
	listening  *listening
	inForce    *inForce
	recording  *recording
	measuring  *measuring
	signIns    *signIns
	membership *membership
	checks     *checks
	serving    *serving
	upstreams  *upstreams
}

// statusPage returns the page of the admin listener. Its streams end with serving.
func (p *adminPages) statusPage(stopping, serving context.Context) (*pages.Status, error) {
	return pages.NewStatus(pages.StatusOptions{
		Report: func(people bool) diagnose.Report {
			proxy := p.asSeen()
			r := proxy.Report(stopping)
			proxy.ListProcesses(&r, people)
			return r
		},
		Open:     func() bool { return p.asSeen().ShowsPeople() },
		Sessions: p.serving.sessions, Calls: &p.serving.calls, Reconnect: p.reconnect,
		SignIn: p.signIns.begin, SignedIn: p.signIns.signedIn,
		Version: build.Read().Version, File: p.file, Stopping: serving, Log: p.log,
		URL:     func() string { return runfile.Addresses(p.listening.url(), p.inForce.now().Public()) },
		Command: func(words ...string) string { return config.Command(p.file, words...) },
	})
}

// consoleOf returns the console, whose pages are those of the admin listener.
func (p *adminPages) consoleOf(page *pages.Status) (*console.Console, error) {
	return console.New(console.Options{Pages: page.Serve, Log: p.log,
		Event: func(event string) { p.recording.event(event, "", proxy.OK) }})
}

// reconnect connects an upstream again for a person at the status page.
func (p *adminPages) reconnect(upstream string) bool {
	there := p.upstreams.set.Reconnect(upstream)
	if there {
		p.recording.event("upstream_reconnected", upstream, proxy.OK)
	}
	return there
}

// asSeen returns the view of the proxy that the admin listener serves.
func (p *adminPages) asSeen() *diagnose.Proxy {
	var users func(context.Context, string) ([]authserver.KnownUser, error)
	if p.signIns.users != nil {
		users = p.signIns.users.Users
	}
	return &diagnose.Proxy{
		Owner: p.place.owner, Open: p.listening.adminIsOpen(), Parts: p.checks.states,
		Certificate: p.checks.certified.kept.InUse,
		Replicas:    p.membership.list, Tried: &p.upstreams.tried,
		Server: p.serving.server.Core, Set: &p.upstreams.set, Providers: p.signIns.providers,
		File: p.file, Users: users,
		Version:    build.Read().Version,
		Credential: p.signIns.credential, Callback: pages.CallbackPattern, Metrics: p.measuring.telemetry.Handler(),
		Secrets: p.secrets, Sources: p.signIns.sources,
		Process: p.process(),
		Config:  func() *config.Config { return p.inForce.reach.Load().config },
		Revoked: p.membership.endRevoked,
		Trouble: func(upstream string) string {
			if pack := p.inForce.reach.Load().config.Packs[upstream]; pack != "" {
				return packs.Trouble(pack)
			}
			return ""
		},
		Unread:  func() string { return deref(&p.contents.failure) },
		Restart: func() string { return deref(&p.contents.waiting) },
		Partial: p.contents.partial.Load, Reloaded: p.contents.reloads,
		Warnings: func() config.Problems {
			if list := p.contents.warnings.Load(); list != nil {
				return *list
			}
			return nil
		},
	}
}

// secrets returns where the secrets of an upstream are kept.
func (p *adminPages) secrets(upstream string) (list []diagnose.Secret) {
	for _, o := range p.inForce.now().Origins[upstream] {
		s := diagnose.Secret{Key: o.Key, From: "the file " + o.File}
		if len(o.Program) > 0 {
			s.From = "the program " + filepath.Base(o.Program[0])
			var err error
			if s.At, err = p.contents.programs.Printed(upstream, o.Program); err != nil {
				s.Error = err.Error()
			}
		} else if info, err := os.Stat(o.File); err == nil {
			s.At = info.ModTime()
		}
		list = append(list, s)
	}
	return list
}

// process describes this process for junction status.
func (p *adminPages) process() diagnose.Process {
	variables, _ := p.getenv(config.ServiceVariables)
	return diagnose.Process{
		Variables: variables, Installed: p.place.installed.other,
		Keeps: []string{p.serving.sealing.file, p.checks.certified.folder},
		URL:   runfile.URL(p.listening.public.Addr().String()), Started: p.contents.begun,
		Public:   func() string { return p.inForce.now().Public() },
		LastCall: p.serving.calls.LastOf,
		Read: func() string {
			if hash := p.contents.loadedHash.Load(); hash != nil && p.file != "" {
				return hex.EncodeToString(hash[:])
			}
			return ""
		},
	}
}
