package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// This file serves the admin address: what answers there is in the files that are about it,
// doctor.go, why.go and pins.go. ask.go asks it.

// adminHandler serves /healthz, which says that we live, and /readyz, which says whether requests
// should come here, and the state of everything. An upstream that is not there is no reason to send
// requests elsewhere; one that was not tried yet is. Requests for another host than this machine
// are refused: a web page whose host name leads to us could read the answers otherwise. Requests
// that web pages of other sites cause get /healthz alone: for the other answers the proxy does some
// work, and /doctor starts processes.
func (p *program) adminHandler(stopping context.Context) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		r := p.report(stopping)
		status := http.StatusOK
		if r.Status != "ready" {
			status = http.StatusServiceUnavailable
		}
		writeJSON(w, status, r)
	})
	mux.HandleFunc("GET /pins", p.servePins)
	mux.HandleFunc("GET /why", p.serveWhy)
	mux.HandleFunc("GET /doctor", p.serveDoctor(new(sync.Mutex)))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !local(r.Host) {
			http.Error(w, "This address is for this machine only.", http.StatusForbidden)
			return
		}
		if r.URL.Path != "/healthz" && crossSite(r) {
			http.Error(w, "A web page of another site has sent this request (Sec-Fetch-Site, Origin). "+
				"Open this address in a new tab, or use curl.", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// crossSite reports whether a browser says that a page of another site, or of another port of this
// machine, causes a request. Programs such as curl and the probes of Kubernetes say nothing of
// that.
func crossSite(r *http.Request) bool {
	for _, site := range r.Header["Sec-Fetch-Site"] {
		if site != "none" && site != "same-origin" {
			return true
		}
	}
	for _, origin := range r.Header["Origin"] { // of older browsers
		if origin != "http://"+r.Host {
			return true
		}
	}
	return false
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

// report is what /readyz says.
type report struct {
	Status    string           `json:"status"` // ready, starting or stopping
	Tools     int              `json:"tools"`  // on the merged endpoint
	Upstreams []upstreamReport `json:"upstreams"`
	Problems  []problemReport  `json:"problems"`
	Issuers   []issuerReport   `json:"issuers,omitempty"` // whose tokens are accepted
	Reload    string           `json:"reload,omitempty"`  // why a changed file is not in force
	// callers that were refused something within the last minute, the latest first
	Overuse []overuseReport `json:"overuse,omitempty"`
}

type overuseReport struct {
	Principal string    `json:"principal"` // with its program or address where there is no authentication
	Limit     string    `json:"limit"`
	Used      int64     `json:"used"`   // by the caller, now
	Others    int64     `json:"others"` // what the others use, now
	Of        int64     `json:"of"`
	Last      time.Time `json:"last"` // when it was refused last
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
	Stored  bool      `json:"stored,omitempty"` // the tools are those of an earlier run: the server has not listed yet
	Links   int       `json:"links"`
	Sandbox string    `json:"sandbox,omitempty"` // of a command: enforced, or what is not, and why
}

type problemReport struct {
	Upstream string `json:"upstream"`
	Name     string `json:"name"`
	Reason   string `json:"reason"`
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
		r.Upstreams = append(r.Upstreams, upstreamReport{s.Name, s.State.String(), s.Since, s.Err, string(s.Era), s.Version, s.Tools, s.Stored, s.Links, s.Sandbox})
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
	for _, o := range p.server.Overused() {
		r.Overuse = append(r.Overuse, overuseReport(o))
	}
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
