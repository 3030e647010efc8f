package serve

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"time"

	"junction/auth/authserver"
	"junction/cmd/build"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/desk/clients"
	"junction/cmd/junction/desk/packs"
	"junction/cmd/junction/ops/console"
	"junction/cmd/junction/ops/diagnose"
	"junction/cmd/junction/ops/pages"
	"junction/proxy"
	"junction/proxy/budget"
	"junction/upstream/prose"
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

// statusPages returns the pages of the admin listener. Their streams end with serving.
func (p *adminPages) statusPages(stopping, serving context.Context) (*pages.Site, error) {
	return pages.NewSite(pages.SiteOptions{
		Report: func(people bool) diagnose.Report {
			proxy := p.asSeen()
			r := proxy.Report(stopping)
			proxy.ListProcesses(&r, people)
			return r
		},
		Open:     func() bool { return p.asSeen().ShowsPeople() },
		Streams:  func() int64 { return p.serving.server.Used()[budget.Streams] },
		Sessions: p.serving.sessions, Calls: &p.serving.calls, Reconnect: p.reconnect,
		History: &p.measuring.history, Memory: diagnose.MemoryOf,
		SignIn: p.signIns.begin, SignedIn: p.signIns.signedIn,
		Version: build.Read().Version, File: p.file, Stopping: serving, Log: p.log,
		Access:  func() pages.Access { return p.serving.access(&http.Request{}) },
		Clients: p.serving.clients, Variable: clients.KeyVariable, Ends: p.ends,
		URL:     func() string { return runfile.Addresses(p.listening.url(), p.inForce.now().Public()) },
		Command: func(words ...string) string { return config.Command(p.file, words...) },
	})
}

// ends returns sentences about certificates, and keys if people may be named, that end soon.
func (p *adminPages) ends(people bool) (list []string) {
	now := time.Now()
	if in := p.checks.certified.kept.InUse(); in != nil && in.Expires.Sub(now) < certificateNotice {
		list = append(list, in.Sentence(now))
	}
	for _, k := range p.inForce.expiring(now) {
		if people {
			list = append(list, fmt.Sprintf("The API key %s expires at %s. Create another key of that name, and "+
				"hand it out.", prose.Quote(k.Name), k.Expires.Format("2006-01-02 15:04 UTC")))
		}
	}
	return list
}

// certificateNotice is how long before its end a certificate is on the first page.
const certificateNotice = 14 * 24 * time.Hour

// consoleOf returns the console, whose pages are those of the admin listener.
func (p *adminPages) consoleOf(page *pages.Site) (*console.Console, error) {
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
		Partial: p.contents.partial.Load, Reloaded: p.contents.reloads, Withheld: p.contents.withheld,
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
		s := diagnose.Secret{Key: o.Key, From: o.From()}
		if len(o.Program) > 0 {
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
