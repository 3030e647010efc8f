// Package diagnose describes a running proxy: its readiness (admin.go) and status (status.go,
// state.go), the faults of its upstreams (doctor.go), why a caller sees an item or does not (why.go,
// why_item.go, why_hints.go), and the definitions of its tools (pins.go). The admin address serves
// these answers as JSON, to the hosts of host.go, and some to its owner alone (owner.go); package cli
// prints them. File finds the faults of upstreams without a running proxy.
package diagnose

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"

	"junction/auth"
	"junction/auth/authserver"
	"junction/auth/credentials"
	"junction/cmd/junction/base/certificate"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/health"
	"junction/cmd/junction/base/replicas"
	"junction/proxy"
	"junction/proxy/budget"
	"junction/proxy/origin"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/loopback"
	"junction/upstream/prose"
)

// Proxy is a running proxy, for the handlers of the admin listener. All fields except Page, Users,
// Console and Callback must be set.
type Proxy struct {
	Server    *proxy.Core
	Set       *upstream.Set
	Providers *auth.Providers
	File      string                   // the configuration file; "" without one
	Version   string                   // of the program
	Config    func() *config.Config    // returns the configuration in force
	Unread    func() string            // returns why the last reload failed; "" if it did not
	Warnings  func() config.Problems   // returns the likely mistakes of the file in force
	Restart   func() string            // returns which changes of the file wait for a restart; "" if none
	Partial   func() *config.Partial   // returns what of the file is not in force, beside Restart; nil if nothing
	Reloaded  func() Reloads           // returns the last reloads that have changed something
	Withheld  func() []string          // returns the API keys that are revoked beside a file that is not in force
	Process   Process                  // for /status
	Metrics   http.Handler             // answers /metrics
	Parts     func() []health.State    // returns the state of what Junction depends on
	Replicas  func() []replicas.Status // returns the processes over one database; none if there is one
	Open      bool                     // other machines can reach the admin address
	Tried     *atomic.Bool             // every upstream was tried since the start; set by Report
	// Certificate returns the certificate of TLS in use; nil if there is none.
	Certificate func() *certificate.InUse
	// Users returns the users with an e-mail address who have signed in; nil without auth.oauth.
	Users func(ctx context.Context, email string) ([]authserver.KnownUser, error)
	Page  func(chi.Router) // adds the routes of the status page; nil adds none
	// Console answers all requests below ConsolePrefix. It decides itself who may send them.
	Console       http.Handler
	ConsolePrefix string
	Owner         Owner // requests that change something, or start processes, need it; "" permits none
	// Revoked ends, here and in the other processes, what was revoked in the database. It returns the
	// addresses of the processes that do not answer.
	Revoked func(ctx context.Context) (missed []string, err error)
	// Callback is the route of Page whose requests may come from another site; "" if there is none.
	Callback string
	// Credential returns the state of the credential that all callers of an upstream use, or of the
	// sign-ins of all users.
	Credential func(upstream string) upstream.CredentialState
	// Sources are the sources of the credentials for upstreams.
	Sources *credentials.Sources
	// Secrets returns where the secrets of an upstream are kept, except those in variables.
	Secrets func(upstream string) []Secret
	// Trouble returns why the pack of an upstream was not reloaded; "" if it was, or is no pack.
	Trouble func(upstream string) string
}

// personal returns the names of the upstreams to which each user has a credential of their own, sorted.
func (p *Proxy) personal() []string { return p.Config().Personal() }

// Handler serves the admin address: /healthz, /readyz, /status, /metrics, /keys, /pins, /lists,
// /why, /doctor and /revoked.
// /readyz answers 503 until every upstream has been tried once; a failed upstream does not make the
// proxy unready.
//
// Handler rejects requests whose Host is not this machine (DNS rebinding). Cross-site requests of
// web pages get only /healthz, because the other answers cost work. Requests that change something, and
// /doctor, which starts processes, and /lists need the secret of the owner (owner.go).
// If the address is open, other machines get /healthz, /metrics, and a short answer of /readyz, the
// last two only with a Host that no web page can have.
func (p *Proxy) Handler(stopping context.Context) http.Handler {
	routes := chi.NewRouter()
	routes.MethodNotAllowed(notAllowed(routes))
	get := func(path string, answer http.HandlerFunc) {
		routes.Get(path, answer)
		routes.Head(path, answer)
	}
	get("/healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	get("/readyz", func(w http.ResponseWriter, r *http.Request) {
		report := p.Report(stopping)
		if !p.showsPeople(r) {
			report.withoutPeople()
		}
		writeJSON(w, report.code(), report)
	})
	if p.Page != nil {
		p.Page(routes)
	}
	routes.Post("/revoked", p.serveRevoked)
	get("/metrics", p.Metrics.ServeHTTP)
	get("/status", p.serveStatus(stopping))
	get("/keys", p.serveKeys)
	get("/pins", p.servePins)
	get("/lists", p.Owner.only(p.serveLists))
	get("/why", p.forPeople(p.serveWhy))
	get("/doctor", p.Owner.only(p.serveDoctor(new(sync.Mutex))))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		here := local(r.Host) && (!p.Open || fromHere(r))
		if !here && !(p.Open && probes[r.URL.Path]) {
			http.Error(w, "This path is for this machine only.", http.StatusForbidden)
			return
		}
		if !here && r.URL.Path != "/healthz" && !probeHost(r.Host, p.Config()) {
			http.Error(w, probeHostText(r.Host), http.StatusForbidden)
			return
		}
		if r.URL.Path != "/healthz" && crossSite(r) && !p.returns(routes, r) {
			http.Error(w, "A web page of another site has sent this request (Sec-Fetch-Site, Origin). "+
				"Open this address in a new tab, or use curl.", http.StatusForbidden)
			return
		}
		if !here && r.URL.Path == "/readyz" {
			p.serveProbe(w, p.Report(stopping))
			return
		}
		if p.Console != nil && strings.HasPrefix(r.URL.Path, p.ConsolePrefix) {
			p.Console.ServeHTTP(w, r)
			return
		}
		if changes(routes, r) && !p.Owner.check(w, r) {
			return
		}
		routes.ServeHTTP(w, r)
	})
}

// Revoked is the answer of /revoked: all processes accept nothing any more that was revoked in the
// database before the request, except those at these addresses.
type Revoked struct {
	Missed []string `json:"missed"`
}

// serveRevoked answers /revoked, which a command asks after it has changed the database.
func (p *Proxy) serveRevoked(w http.ResponseWriter, r *http.Request) {
	missed, err := p.Revoked(r.Context())
	if err != nil {
		http.Error(w, "The database of sign-ins does not answer: "+prose.Flat(err.Error()),
			http.StatusServiceUnavailable)
		return
	}
	writeJSON(w, http.StatusOK, Revoked{append([]string{}, missed...)})
}

// notAllowed returns the handler of requests with a method that the path does not have.
func notAllowed(routes chi.Routes) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var allowed []string
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
			if routes.Match(chi.NewRouteContext(), method, r.URL.Path) {
				allowed = append(allowed, method)
			}
		}
		if allowed == nil { // a method that HTTP does not define
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
	}
}

// returns reports whether a request is that of a browser that returns from an authorization server,
// and shows the response as a page of its own.
func (p *Proxy) returns(routes chi.Routes, r *http.Request) bool {
	found := chi.NewRouteContext()
	return p.Callback != "" && routes.Match(found, r.Method, r.URL.Path) && found.RoutePattern() == p.Callback &&
		r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" &&
		r.Header["Origin"] == nil
}

// probes are the paths that other machines get without credentials.
var probes = map[string]bool{"/healthz": true, "/readyz": true, "/metrics": true}

// serveProbe answers /readyz to another machine, without names and errors.
func (p *Proxy) serveProbe(w http.ResponseWriter, r Report) {
	short := struct {
		Status string         `json:"status"`
		Parts  []health.State `json:"parts"`
	}{r.Status, slices.Clone(r.Parts)}
	for i := range short.Parts {
		short.Parts[i].Error = "" // the text may name hosts and users
	}
	writeJSON(w, r.code(), short)
}

// fromHere reports whether a request comes from this machine, and from no proxy on it that adds a
// header. HTTP/1.0 shows no proxy here, because health checks use that version.
func fromHere(r *http.Request) bool {
	if origin.Forwarded(r.Header) != "" {
		return false
	}
	return loopback.Address(r.RemoteAddr)
}

// crossSite reports whether the headers of a browser name a page of another site, or of another
// port of this machine, as the source of a request. curl and Kubernetes probes send no such
// headers.
func crossSite(r *http.Request) bool {
	other := func(site string) bool { return site != "none" && site != "same-origin" }
	foreign := func(origin string) bool { return origin != "http://"+r.Host } // of older browsers
	return slices.ContainsFunc(r.Header["Sec-Fetch-Site"], other) || slices.ContainsFunc(r.Header["Origin"], foreign)
}

// Report is the answer of /readyz.
type Report struct {
	Status    string           `json:"status"`           // ready, degraded, starting, unavailable or stopping
	Tools     int              `json:"tools"`            // on the merged endpoint
	Skills    int              `json:"skills,omitempty"` // on the merged endpoint
	Upstreams []UpstreamStatus `json:"upstreams"`
	Disabled  []string         `json:"disabled,omitempty"` // upstreams of the file
	Problems  []view.Problem   `json:"problems"`
	Parts     []health.State   `json:"parts,omitempty"` // what Junction depends on
	// of tls; none without it, or before the first one. The part of this name has why it is not renewed.
	Certificate *certificate.InUse `json:"certificate,omitempty"`
	// the processes over one database, the oldest first; none if there is one process
	Replicas []replicas.Status     `json:"replicas,omitempty"`
	Issuers  []auth.ProviderStatus `json:"issuers,omitempty"` // issuers of accepted tokens
	Reload   string                `json:"reload,omitempty"`  // why a changed file is not in force
	Restart  string                `json:"restart,omitempty"` // which changes wait for a restart
	Gone     string                `json:"gone,omitempty"`    // the configuration file; a command sets it
	Partial  *config.Partial       `json:"partial,omitempty"` // what else of the file is not in force
	// the API keys that are revoked, although the file that lacks them is not in force
	Revoked []string `json:"revoked,omitempty"`
	// the reloads of the last hour that have changed something, the newest first
	Reloaded Reloads `json:"reloaded,omitempty"`
	// likely mistakes of the file in force, as junction check prints them; at most config.MostWarnings
	Warnings     config.Problems `json:"warnings,omitempty"`
	MoreWarnings int             `json:"more_warnings,omitempty"` // that Warnings leaves out
	// callers that exceeded a limit within the last minute, the latest first
	Overuse []budget.Overuse `json:"overuse,omitempty"`
}

// Unfollowed returns sentences about what of the configuration file is not in force; none if all of it is.
func (r *Report) Unfollowed() (lines []string) {
	switch {
	case r.Gone != "":
		return []string{"The configuration file " + r.Gone + "."}
	case r.Reload == "" && r.Restart == "":
		return nil
	case r.Reload == "":
		return []string{"A part of the configuration file is not in force: " + r.Restart + "."}
	case r.Partial == nil:
		lines = []string{"The changed configuration file is not in force: " + prose.Flat(r.Reload)}
		if line := withheld(r.Revoked); line != "" {
			lines = append(lines, "But "+line+".")
		}
		return lines
	}
	lines = []string{"A part of the configuration file is not in force: " + prose.Flat(r.Reload)}
	for _, line := range r.Partial.Lines() {
		lines = append(lines, "Of this part, "+line)
	}
	return lines
}

// withheld returns a sentence about API keys that are revoked beside a file that is not in force; "" if there are none.
func withheld(keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	shown, more := keys[:min(len(keys), mostReloaded)], ""
	if n := len(keys) - len(shown); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return "the revocation of " + strings.Join(shown, ", ") + more + " is in force"
}

// code returns the HTTP status for the report.
func (r *Report) code() int {
	if r.Status == "ready" || r.Status == "degraded" {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

// A Key is an API key that a proxy accepts.
type Key struct {
	Name string `json:"name,omitempty"` // for the owner
	Hash string `json:"hash"`           // as in the file
}

// serveKeys answers /keys with the API keys of the configuration in force. To another reader than the owner, it
// tells only whether there are keys with the hashes of the query.
func (p *Proxy) serveKeys(w http.ResponseWriter, r *http.Request) {
	list, asked := []Key{}, r.URL.Query()["hash"]
	for _, k := range p.Config().Auth.APIKeys {
		switch hash := k.Hash.String(); {
		case p.showsPeople(r):
			list = append(list, Key{k.Name, hash})
		case slices.Contains(asked, hash):
			list = append(list, Key{Hash: hash})
		}
	}
	writeJSON(w, http.StatusOK, list)
}

// Report returns what /readyz answers. stopping ends when the program begins to shut down.
func (p *Proxy) Report(stopping context.Context) Report {
	statuses := p.Statuses()
	p.Server.Settle() // the tools of every upstream that is reported as ready are listed
	offered, skills := p.Server.Snapshot().ToolsByUpstream(), p.Server.Snapshot().SkillsByUpstream()
	r := Report{Status: "ready", Upstreams: []UpstreamStatus{}, Problems: []view.Problem{}, Parts: p.Parts(),
		Certificate: p.Certificate(), Replicas: p.Replicas()}
	switch {
	case stopping.Err() != nil:
		r.Status = "stopping"
	case slices.ContainsFunc(r.Parts, func(s health.State) bool { return !s.Ready && s.Since.IsZero() }):
		r.Status = "starting"
	case slices.ContainsFunc(r.Parts, func(s health.State) bool { return !s.Ready }):
		r.Status = "unavailable"
	case !p.Tried.Load() && starting(statuses): // a new upstream is like one that is down
		r.Status = "starting"
	default:
		p.Tried.Store(true)
		if slices.ContainsFunc(r.Parts, func(s health.State) bool { return !s.OK }) {
			r.Status = "degraded"
		}
	}
	for _, n := range offered {
		r.Tools += n
	}
	for _, s := range statuses {
		u := p.statusOf(&s, offered[s.Name])
		u.Skills = skills[s.Name]
		r.Skills += u.Skills
		r.Upstreams = append(r.Upstreams, u)
		for _, left := range s.Left {
			r.Problems = append(r.Problems, view.Problem{Upstream: s.Name, Name: left.Name, Reason: left.Reason})
		}
	}
	for _, name := range p.personal() {
		c := p.Config().Upstreams[name]
		r.Upstreams = append(r.Upstreams, UpstreamStatus{Name: name, State: PerUser, Error: p.refusal(name),
			Auth: string(c.Auth.Mode), Note: prose.Flat(p.Credential(name).Notes),
			Secrets: p.Secrets(name), Sends: c.Sends()})
	}
	configured := p.Config().Upstreams
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		if configured[name].Off() {
			r.Disabled = append(r.Disabled, name)
		}
	}
	r.Reload, r.Restart, r.Partial, r.Revoked = p.Unread(), p.Restart(), p.Partial(), p.Withheld()
	r.Reloaded = p.Reloaded().Lately(time.Now())
	r.Warnings, r.MoreWarnings = config.Lasting(p.Warnings())
	r.Issuers = p.Providers.Status()
	r.Problems = append(r.Problems, p.Server.Snapshot().Problems()...)
	r.Overuse = p.Server.Overused()
	return r
}

// writeJSON writes the answer of an admin address.
func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	e.Encode(v)
}
