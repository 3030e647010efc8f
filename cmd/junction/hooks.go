package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"junction/auth"
	"junction/proxy"
	"junction/upstream"
	"junction/upstream/jsonrpc"
)

// proxyHooks write one line per call, and one per item that is not offered.
func (p *program) proxyHooks() proxy.Hooks {
	log, calls := p.log, callLog(p.log)
	return proxy.Hooks{
		CallDone: func(c proxy.CallInfo) {
			for _, text := range [...]*string{&c.Client, &c.Request, &c.Method, &c.Name, &c.Own} { // where a client may put its key by mistake
				*text = auth.Redact(*text)
			}
			p.audited(&c)
			level := slog.LevelInfo
			if c.Outcome == "refused" {
				level = slog.LevelDebug // anybody can cause these, as many as they like
			}
			if !calls.Enabled(context.Background(), level) {
				return
			}
			attrs := append(make([]slog.Attr, 0, 13),
				slog.String("client", c.Client), slog.String("era", c.Era), slog.String("method", c.Method), slog.String("name", c.Name),
				slog.String("upstream", c.Upstream), slog.String("outcome", c.Outcome), slog.Duration("took", c.Took),
				slog.Int("sent", c.Sent), slog.Int("received", c.Received),
			)
			if c.RequestID != "" {
				attrs = append(attrs, slog.String("request_id", c.RequestID))
			}
			if c.Kind != string(auth.KindLocal) {
				attrs = append(attrs, slog.String("principal", c.Principal))
			}
			if c.Endpoint != "" {
				attrs = append(attrs, slog.String("endpoint", c.Endpoint))
			}
			if peer, ok := errors.AsType[*jsonrpc.Error](c.Err); ok {
				attrs = append(attrs, slog.Int64("code", peer.Code)) // its words are the upstream's, and may repeat arguments
			} else if c.Err != nil {
				attrs = append(attrs, slog.String("error", auth.Redact(c.Err.Error())))
			}
			r := slog.NewRecord(time.Now(), level, "call", 0) // as LogAttrs does, but for the caller's address, which nobody reads
			r.AddAttrs(attrs...)
			calls.Handler().Handle(context.Background(), r) // there is nobody to tell when that fails
		},
		Problems: func(list []proxy.Problem) {
			for _, p := range list {
				log.Warn("not offered: "+p.Reason, "upstream", p.Upstream, "name", p.Name, "endpoint", p.Endpoint)
			}
		},
	}
}

// upstreamHooks write one line per change of state, and have changed catalogs taken over.
func (p *program) upstreamHooks() upstream.Hooks {
	return upstream.Hooks{
		StateChanged: func(name string, s upstream.State, err error) {
			level := slog.LevelInfo
			if s == upstream.StateWaiting || s == upstream.StateBlocked {
				level = slog.LevelWarn
				p.catalogChanged() // names may be settled now
			}
			attrs := []any{"upstream", name, "state", s.String()}
			if err != nil && level == slog.LevelWarn {
				attrs = append(attrs, "error", err)
			}
			p.log.Log(context.Background(), level, "upstream "+s.String(), attrs...)
		},
		CatalogChanged:  func(string) { p.catalogChanged() },
		OwnChanged:      func(string) { nudge(p.recheck) },
		ResourceUpdated: func(name, person, uri string) { p.server.Updated(name, person, uri) },
	}
}

// catalogChanged wakes refreshLoop.
func (p *program) catalogChanged() { nudge(p.refresh) }

// report is what /readyz says.
type report struct {
	Status    string           `json:"status"` // ready, starting or stopping
	Tools     int              `json:"tools"`  // on the merged endpoint
	Upstreams []upstreamReport `json:"upstreams"`
	Problems  []problemReport  `json:"problems"`
	Issuers   []issuerReport   `json:"issuers,omitempty"` // whose tokens are accepted
	Reload    string           `json:"reload,omitempty"`  // why a changed file is not in force
}

type issuerReport struct {
	Issuer string `json:"issuer"`
	Usable bool   `json:"usable"` // its tokens can be verified; one that was not needed yet may not be
	Error  string `json:"error,omitempty"`
}

type upstreamReport struct {
	Name    string    `json:"name"`
	State   string    `json:"state"`
	Since   time.Time `json:"since"`
	Error   string    `json:"error,omitempty"`
	Era     string    `json:"era,omitempty"`
	Version string    `json:"version,omitempty"`
	Tools   int       `json:"tools"`
	Links   int       `json:"links"`
}

type problemReport struct {
	Upstream string `json:"upstream"`
	Name     string `json:"name"`
	Reason   string `json:"reason"`
}

// adminHandler serves /healthz, which says that we live, and /readyz, which says whether requests should come here, and the state of everything. An upstream that
// is not there is no reason to send requests elsewhere; one that was not tried yet is. Requests for another host than this machine are refused: a web page
// whose host name leads to us could read the answers otherwise.
func (p *program) adminHandler(stopping context.Context) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		r := p.report(stopping)
		w.Header().Set("Content-Type", "application/json")
		if r.Status != "ready" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.Encode(r)
	})
	mux.HandleFunc("GET /pins", p.servePins)
	mux.HandleFunc("GET /why", p.serveWhy)
	mux.HandleFunc("GET /doctor", p.serveDoctor(new(sync.Mutex)))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !local(r.Host) {
			http.Error(w, "This address is for this machine only.", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// local reports whether a Host header means this machine.
func local(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	ip, err := netip.ParseAddr(name)
	return strings.EqualFold(name, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

func (p *program) report(stopping context.Context) report {
	statuses := p.statuses()
	p.server.Settle() // who reads that an upstream is ready finds its tools
	r := report{Status: "ready", Tools: p.server.Tools(), Upstreams: []upstreamReport{}, Problems: []problemReport{}}
	switch {
	case stopping.Err() != nil:
		r.Status = "stopping"
	case starting(statuses):
		r.Status = "starting"
	}
	for _, s := range statuses {
		r.Upstreams = append(r.Upstreams, upstreamReport{s.Name, s.State.String(), s.Since, s.Err, string(s.Era), s.Version, s.Tools, s.Links})
		for _, left := range s.Left {
			r.Problems = append(r.Problems, problemReport{s.Name, left.Name, left.Reason})
		}
	}
	for _, name := range p.reach.Load().personal() {
		r.Upstreams = append(r.Upstreams, upstreamReport{Name: name, State: byPerson})
	}
	if why := p.unread.Load(); why != nil {
		r.Reload = *why
	}
	for _, s := range p.providers.Status() {
		r.Issuers = append(r.Issuers, issuerReport{s.Issuer, s.Usable, s.Err})
	}
	for _, problem := range p.server.Problems() {
		r.Problems = append(r.Problems, problemReport{problem.Upstream, problem.Name, problem.Reason})
	}
	return r
}
