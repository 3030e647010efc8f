package upstream

import (
	"context"
	"errors"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/client"
)

// This file decides which connection a client's calls use. One connection serves all clients,
// unless the configuration separates callers. Callers with a connection of their own (isolation, or
// questions: exact) may get other definitions than others, so they have catalogs of their own.

// linkKey identifies a link. Calls with the same key share it.
type linkKey struct {
	profile    client.Profile
	holder     string // the session or principal that has the link for itself; "" if all callers share it
	user       string // the principal of the holder; "" if all callers share the link
	legacySide bool   // a legacy connection to a server of both eras, for legacy clients
	// the headers of the callers (Forwarded.Key), or noneForwarded; "" for Junction's own requests, and for
	// callers whose headers do not decide
	forwarded string
	number    int // number of the link among several of the same kind: see turn.go
}

// principalHolder returns the holder of a link that one principal has for itself.
func principalHolder(principal string) string { return "principal " + principal }

// windowPrefix begins what stands for a session. The key of a session has no space.
const windowPrefix = "folder "

// WindowIn returns what stands for the session of a client that has none, with isolation: session: the folder that
// the client names. Several windows and programs of one principal can name the same one. So it decides which
// connection a call uses, and attributes no request of the server to a client.
func WindowIn(path string) string { return windowPrefix + path }

// isWindow reports whether session is what WindowIn has returned.
func isWindow(session string) bool { return strings.HasPrefix(session, windowPrefix) }

// sessionHolder returns the holder of a link that one session, or one folder of a principal, has for itself.
func sessionHolder(session, principal string) string {
	if isWindow(session) {
		return session + "\x00" + principal
	}
	return "session " + session
}

// readsCatalog reports whether the link with that key reads the catalog of its callers, and has their
// subscriptions. Other links of the same callers do not.
func (k linkKey) readsCatalog() bool { return k.number == 0 && !k.legacySide && k.forwarded == "" }

// reading returns the key of the link that reads the shared catalog. Callers that are not separated
// use the same link for calls.
func (p *pool) reading() linkKey {
	key := linkKey{profile: p.connConfig.Questions.row().declares()}
	if p.ByFolder() { // Junction answers them itself
		key.profile.Roots, key.profile.RootsChange = true, false
	}
	return key
}

// routed is the profile of a legacy connection that all clients share: the capabilities whose
// requests Junction can route to the client of a call. It has no roots: a server requests them once
// and keeps the answer, but each client has other roots. That all clients which are there have equal
// roots is no reason to declare them: the answer stays with the server when another client comes.
func routed() client.Profile {
	p := client.Everything()
	p.Roots, p.Tasks = false, false
	return p
}

// withoutTasks returns the profile without tasks, which legacy servers are not told. So tasks do not
// need a connection of their own.
func withoutTasks(p client.Profile) client.Profile {
	p.Tasks = false
	return p
}

// Separates reports whether callers may have connections of their own, so that CatalogFor may
// differ from Catalog. Processes of folders have the catalog of all callers.
func (p *pool) Separates() bool {
	return !p.ByFolder() && (p.connConfig.Questions.OfClients() || p.isolation(true).OfCallers())
}

// isolation returns Config.Isolation or its default. legacy means that the connection is of the
// legacy era: over HTTP, a modern connection keeps no state of its callers.
func (p *pool) isolation(legacy bool) Isolation {
	switch {
	case p.connConfig.Isolation != IsolationUnset:
		return p.connConfig.Isolation
	case p.separate.Load() && p.user == "" && (legacy || p.connConfig.Kind().Process):
		return IsolationPrincipal
	}
	return IsolationShared
}

// key returns the key of the link for a client's calls. legacySide selects the legacy side of a
// server that supports both eras.
func (p *pool) key(own client.Profile, session, principal string, legacySide bool) linkKey {
	key := p.reading()
	key.legacySide = legacySide
	legacy := legacySide || p.Catalog().Era != client.EraModern // in the modern era each request has its own profile
	if p.connConfig.Questions.OfClients() && legacy {
		key.profile = withoutTasks(own)
		// the server requests roots only once, so users must not share them
		if own.Roots && principal != "" {
			key.holder, key.user = principalHolder(principal), principal
		}
	}
	switch isolation := p.isolation(legacy); {
	case isolation == IsolationFolder: // Junction answers roots/list itself, if the process has folders
		key.profile.Roots, key.profile.RootsChange = p.connConfig.fixedDir() != "", false
		key.holder, key.user = principalHolder(principal), principal
	case isolation.OfSession() && session != "":
		key.holder, key.user = sessionHolder(session, principal), principal
		if !isWindow(session) && p.connConfig.Questions.Asks() && legacy {
			key.profile = withoutTasks(own) // the session has one client
		}
	case isolation.OfCallers():
		key.holder, key.user = principalHolder(principal), principal
	}
	return key
}

// A Window is what decides which callers share a state with a call.
type Window struct {
	Session   string // or what stands for one (WindowIn)
	Principal string
	Account   string   // see Call.Account
	Folders   []string // the paths of Call.Folders
}

// Holder identifies the callers that share the state of a server that declares some (stateful): a
// principal, the windows in one folder, or "" for all callers. ok is false if the server declares none, or if
// only the session of the call has it. It is the same at each member.
func (p *pool) Holder(of Window) (holder string, ok bool) {
	if !p.stateful.Load() {
		return "", false
	}
	session, principal := of.Session, of.Principal
	switch isolation := p.isolation(true); {
	case isolation == IsolationFolder && len(of.Folders) > 0:
		return pathsHolder(of.Folders, folderUser(principal, of.Account)), true
	case isolation.OfSession() && isWindow(session):
		return sessionHolder(session, principal), true
	case isolation.OfSession() && session != "":
		return "", false
	case isolation.OfCallers() || p.user != "":
		return principalHolder(principal), true
	}
	return "", true
}

// pathsHolder returns the holder of the state in folders. It has no number of a file system, because those of
// another member can be other ones.
func pathsHolder(paths []string, user string) string {
	return "folders " + user + "\x00" + strings.Join(paths, "\x00")
}

// linksOf returns the links that can have the state of a holder.
func (p *pool) linksOf(holder string) (list []*link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, l := range p.links {
		has := key.holder
		if l.folders != nil && p.ByFolder() {
			has = pathsHolder(l.folders.Paths(), key.user)
		}
		if p.user != "" && !p.ByFolder() || has == holder {
			list = append(list, l)
		}
	}
	return list
}

// Keeps reports whether there is a connection, or an attempt to connect, that can have the state of a
// holder.
func (p *pool) Keeps(holder string) bool { return len(p.linksOf(holder)) > 0 }

// Discard closes the connections that can have the state of a holder, and so ends processes and calls.
// The next call begins without state.
func (p *pool) Discard(holder string) {
	for _, l := range p.linksOf(holder) {
		if c := l.current(); c != nil {
			l.fail(c, errDiscarded)
		}
	}
}

// errDiscarded is why a connection ends whose state another replica may have now.
var errDiscarded = errors.New("another replica may have the state of the server now")

// RootsChanged notifies the servers that received the roots of a client. In the modern era a server
// requests the roots whenever it needs them.
func (u *Upstream) RootsChanged(p client.Profile, session, principal string) {
	for _, legacySide := range []bool{false, true} {
		if key := u.key(p, session, principal, legacySide); key.profile.RootsChange {
			u.tell(key, string(mcp.MethodNotificationRootsListChanged))
		}
	}
}

// CatalogFor returns the catalog for a client: the catalog of its own connection if it differs from
// Catalog. It is never nil.
func (p *pool) CatalogFor(own client.Profile, session, principal string) *Catalog {
	if !p.Separates() { // needs no key
		return p.Catalog()
	}
	return p.catalogOf(p.key(own, session, principal, false))
}

// catalogOf returns the catalog of the callers of a link.
func (p *pool) catalogOf(key linkKey) *Catalog {
	if !p.Separates() {
		return p.Catalog()
	}
	return p.lists.of(key)
}

// Prepare connects for a client whose catalog depends on its capabilities: with questions: exact, or
// with isolation: session for a client with roots, because some servers offer more tools to those. It
// waits until connecting has succeeded or failed, or ctx ends. It reports whether it had to wait.
func (p *pool) Prepare(ctx context.Context, own client.Profile, session, principal string) bool {
	alone := own.Roots && session != "" && !isWindow(session) && p.connConfig.Questions.Asks() &&
		!p.connConfig.Questions.OfClients() && p.isolation(true).OfSession()
	if !p.Separates() || !p.connConfig.Questions.OfClients() && !alone || p.Catalog().Era != client.EraLegacy {
		return false
	}
	key := p.key(own, session, principal, false)
	if key == p.reading() || p.lists.has(key) {
		return false
	}
	if l, _, err := p.take(ctx, key, waiter{}); err == nil {
		l.release()
	}
	return true
}

// forgetOwn drops the catalog of a link that has ended, unless the catalog depends only on the
// client's capabilities.
func (p *pool) forgetOwn(key linkKey) {
	if p.connConfig.Questions.OfClients() && !p.isolation(true).OfCallers() {
		return
	}
	p.lists.forget(key)
}
