package diagnose

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/health"
	"junction/upstream"
	"junction/upstream/prose"
)

// diagnose checks upstreams of the running proxy. The error is about an unknown name.
func (p *Proxy) diagnose(ctx context.Context, only selection) (Diagnosis, error) {
	var all []examinee
	var known []string
	for _, u := range p.Set.All() {
		known = append(known, u.Name())
		if only.has(u.Name()) {
			all = append(all, examineeOf(u))
		}
	}
	personal := p.personal()
	known = append(known, personal...)
	if err := unknownUpstream(only, known); err != nil {
		return Diagnosis{}, err
	}
	p.Server.Settle()
	d := examine(ctx, p.Version, p.Server.Snapshot().Config.Names, all, p.offered,
		func(string, *upstream.Report) {})
	d.leave(p.Config(), personal, only)
	for _, name := range known {
		if why := p.refusal(name); why != "" && only.has(name) {
			d.find(name, Finding{Grave: true, Text: why})
		}
	}
	d.Running, d.Config = true, p.File
	d.nameFile()
	whole := len(only) == 0
	if whole {
		inForce := p.File
		if p.Unread() != "" {
			inForce = ""
		}
		d.compareRules(p.Config(), inForce)
	}
	p.addPending(&d)
	if whole {
		d.addParts(p.Parts())
		d.addWarnings(p.Warnings())
	}
	p.addHidden(&d, only)
	p.addSecrets(&d, only)
	d.addProbes(ctx, p.Config(), p.Sources, only)
	if whole {
		p.addIssuers(&d)
	}
	d.sort()
	return d, nil
}

// offered returns the number of tools of each upstream on the merged endpoint.
func (p *Proxy) offered() map[string]int {
	p.Server.Settle()
	return p.Server.Snapshot().ToolsByUpstream()
}

// examineeOf returns an upstream of the running proxy, to check. After the check it has the status of
// then, because the check also asks over the connection in use.
func examineeOf(u *upstream.Upstream) examinee {
	s := u.Status()
	check := func(ctx context.Context) upstream.Report {
		r := u.Check(ctx)
		s = u.Status()
		return r
	}
	return examinee{u.Name(), u.Config(), check, &s, u.Catalog()}
}

// addPending adds findings for the parts of the configuration file that are not in force.
func (p *Proxy) addPending(d *Diagnosis) {
	if waiting := p.Restart(); waiting != "" {
		d.Findings = append(d.Findings, Finding{Grave: true,
			Text:   "a part of the configuration file is not in force: " + waiting,
			Advice: "restart Junction"})
	}
	if why := p.Unread(); why != "" {
		parts := append([]string{why}, p.Partial().Lines()...)
		if line := withheld(p.Withheld()); line != "" {
			parts = append(parts, line)
		}
		d.Findings = append(d.Findings, Finding{Grave: true,
			Text: "the changed configuration file is not in force: " + strings.Join(parts, "; "),
			Advice: "correct the file, or restart Junction if the change needs it; this command lists all mistakes: " +
				config.Command(p.File, "check")})
	}
}

// addHidden adds a finding for each item that the endpoints do not offer, unless it has a grave one.
func (p *Proxy) addHidden(d *Diagnosis, only selection) {
	for _, problem := range p.Server.Snapshot().Problems() {
		same := func(f Finding) bool {
			return f.Upstream == problem.Upstream && f.Name == problem.Name && f.Kind == problem.Part.String() &&
				f.Grave
		}
		if only.has(problem.Upstream) && !slices.ContainsFunc(d.Findings, same) {
			d.find(problem.Upstream, Finding{Grave: true, Kind: problem.Part.String(), Name: problem.Name,
				Text: "not offered", Detail: problem.Reason})
		}
	}
}

// addIssuers adds a finding for each issuer whose tokens cannot be verified.
func (p *Proxy) addIssuers(d *Diagnosis) {
	for _, s := range p.Providers.Status() {
		if s.Err == "" {
			continue
		}
		d.Findings = append(d.Findings, Finding{Grave: !s.Usable,
			Text: "tokens of " + s.Issuer + " cannot be verified as they should: " + prose.Flat(s.Err),
			Advice: "see that the server is reached from here, and that issuer is what its own metadata says, to " +
				"the letter (auth.jwt, auth.introspection)"})
	}
}

// addParts adds a finding for each part outside of the process that fails.
func (d *Diagnosis) addParts(parts []health.State) {
	for _, part := range parts {
		if part.OK || part.Since.IsZero() { // the first check has not ended
			continue
		}
		f := Finding{Grave: true, Text: part.Name + ": " + prose.Flat(part.Error)}
		if part.Name == health.IdentityProviders {
			f.Advice = "users cannot sign in; this command compares the file with the providers: " +
				config.Command(d.Config, "auth", "doctor")
		}
		d.Findings = append(d.Findings, f)
	}
}

// serveDoctor returns the handler of /doctor. Only one check runs at a time, because checks start
// processes.
func (p *Proxy) serveDoctor(busy *sync.Mutex) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !busy.TryLock() {
			http.Error(w, "A check is running already; try again when it has ended.", http.StatusConflict)
			return
		}
		defer busy.Unlock()
		http.NewResponseController(w).SetWriteDeadline(time.Now().Add(Limit + Patience))
		d, err := p.diagnose(r.Context(), r.URL.Query()["upstream"])
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		writeJSON(w, http.StatusOK, d)
	}
}

// Patience is how long a running proxy may take to answer, in addition to the time of the work.
const Patience = 10 * time.Second
