package serve

import (
	"context"
	"fmt"
	"slices"
	"time"

	"junction/auth"
	"junction/auth/authserver"
	"junction/auth/oauth"
	"junction/cmd/build"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/desk/packs"
	"junction/cmd/junction/ops/diagnose"
	"junction/cmd/junction/ops/pages"
	"junction/proxy"
	"junction/proxy/front"
	"junction/upstream"
	"junction/upstream/loopback"
	"junction/upstream/prose"
)

// statusPage returns the page of the admin listener. Its streams end with serving.
func (p *program) statusPage(stopping, serving context.Context) (*pages.Status, error) {
	return pages.NewStatus(pages.StatusOptions{
		Report:   func() diagnose.Report { return p.asSeen().Report(stopping) },
		Sessions: p.sessions, Calls: &p.calls, Reconnect: p.reconnect, SignIn: p.beginSignIn, SignedIn: p.signedIn,
		Version: build.Read().Version, URL: p.url(), File: p.file, Stopping: serving, Log: p.log,
		Command: func(words ...string) string { return config.Command(p.file, words...) },
	})
}

// reconnect connects an upstream again for a person at the status page.
func (p *program) reconnect(upstream string) bool {
	there := p.set.Reconnect(upstream)
	if there {
		p.recording.event("upstream_reconnected", upstream, proxy.OK)
	}
	return there
}

// beginSignIn prepares a sign-in of the operator for the status page at origin.
func (p *program) beginSignIn(ctx context.Context, name, origin string) (pages.SignIn, error) {
	if !slices.Contains(p.reach.Load().config.OperatorSignIns(), name) || p.vault.Load() == nil {
		return nil, fmt.Errorf("%s has no OAuth sign-in of the operator (auth.mode: %s)", prose.Quote(name),
			upstream.SignInMode(upstream.OwnerOperator))
	}
	attempt, err := p.vault.Load().oauth.Login(ctx, name, origin+oauth.CallbackPath(name), p.credential(name).Lacks...)
	if err != nil {
		return nil, plainProblem(err)
	}
	return attempt, nil
}

// signedIn uses a sign-in of the status page at once.
func (p *program) signedIn(upstream string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := auditOperator(ctx, p.vault.Load().oauth, "upstream_connected", upstream); err != nil {
		p.log.Error("a sign-in was not audited", "upstream", upstream, "error", err)
	}
	p.set.Reconnect(upstream)
}

// sessions returns the latest legacy sessions, and how many there are. Names of clients are redacted
// as in the log.
func (p *program) sessions() ([]front.SessionStatus, int) {
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
		Owner: p.owner, Open: p.admin != nil && !loopback.Address(p.admin.Addr().String()), Parts: p.health.States,
		Replicas: p.memberList, Tried: &p.tried,
		Server: p.server.Core, Set: &p.set, Providers: p.providers, File: p.file, Users: users,
		Version:    build.Read().Version,
		Credential: p.credential, Callback: pages.CallbackPattern, Metrics: p.measuring.telemetry.Handler(),
		Process: p.process(),
		Config:  func() *config.Config { return p.reach.Load().config },
		Revoked: p.endRevoked,
		Trouble: func(upstream string) string {
			if pack := p.reach.Load().config.Packs[upstream]; pack != "" {
				return packs.Trouble(pack)
			}
			return ""
		},
		Unread:  func() string { return deref(&p.reloadError) },
		Restart: func() string { return deref(&p.waiting) },
		Partial: p.partial.Load,
		Warnings: func() config.Problems {
			if list := p.warnings.Load(); list != nil {
				return *list
			}
			return nil
		},
	}
}
