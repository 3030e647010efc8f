package diagnose

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"junction/auth/credentials"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/health"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/command"
	"junction/upstream/prose"
	"junction/upstream/shell"
)

// This file finds the faults of upstreams: in the running proxy, for /doctor of the admin address,
// or without a proxy, from the file. doctor_command.go of package cli prints the result.

// Limit is the time limit of a diagnosis. The checks of all upstreams run concurrently.
const Limit = time.Minute

// Diagnosis is the answer of /doctor.
type Diagnosis struct {
	// true: a running proxy was asked; false: the upstreams were started for the check
	Running   bool       `json:"running"`
	Config    string     `json:"config,omitempty"` // the configuration file
	Version   string     `json:"version"`
	Tools     int        `json:"tools"` // of the checked upstreams, on the merged endpoint
	Bytes     int        `json:"bytes"` // total size of the tool definitions
	Upstreams []Examined `json:"upstreams"`
	Findings  []Finding  `json:"findings"` // grave ones first

	catalogs map[string][]*upstream.Catalog // that are known, by upstream
}

// Examined is the result of the check of one upstream.
type Examined struct {
	Name    string     `json:"name"`
	State   string     `json:"state,omitempty"` // in the running proxy
	Since   *time.Time `json:"since,omitempty"`
	RetryAt time.Time  `json:"retry_at,omitzero"` // as in UpstreamStatus
	Error   string     `json:"error,omitempty"`   // why it is not ready in the running proxy
	Era     string     `json:"era,omitempty"`
	Version string     `json:"version,omitempty"`
	Server  string     `json:"server,omitempty"` // the server's name for itself

	OK     bool    `json:"ok"` // the check succeeded
	Steps  []Step  `json:"steps"`
	Failed string  `json:"failed,omitempty"` // why the step after Steps failed
	Other  string  `json:"other,omitempty"`  // the error of the handshake of the other era
	Ping   float64 `json:"ping_ms,omitempty"`

	Tools     int `json:"tools"`  // on the merged endpoint
	Listed    int `json:"listed"` // tools that the server lists
	Prompts   int `json:"prompts"`
	Resources int `json:"resources"`
	Templates int `json:"resource_templates"`
	Skills    int `json:"skills,omitempty"`
	Bytes     int `json:"bytes"` // total size of the tool definitions

	Sandbox string `json:"sandbox,omitempty"` // of a command: the part that the kernel enforces
}

// Step is one step of a check.
type Step struct {
	Name string  `json:"name"`
	Took float64 `json:"ms"`
}

// Finding is one fault of an upstream, or of the proxy if Upstream is empty.
type Finding struct {
	Grave    bool   `json:"grave"` // false: it affects only some clients
	Upstream string `json:"upstream,omitempty"`
	Kind     string `json:"kind,omitempty"` // tool, prompt, resource, resource template, KindRule or KindWarning
	Name     string `json:"name,omitempty"`
	Text     string `json:"text"`
	Detail   string `json:"detail,omitempty"`
	Advice   string `json:"advice,omitempty"`
}

// manyTools and manyBytes are the sizes from which a list of tools is reported as too large.
const (
	manyTools = 128
	manyBytes = 100_000
)

// examinee is an upstream to check.
type examinee struct {
	name   string
	config upstream.Config
	check  func(context.Context) upstream.Report
	status *upstream.Status // nil without a running proxy
	// catalog is the one that the running proxy uses; nil without a running proxy
	catalog *upstream.Catalog
}

// examine checks upstreams concurrently, within Limit. offered has the number of tools of each
// upstream on the merged endpoint of the running proxy; nil without one. checked is called with the result of
// each check, concurrently.
func examine(ctx context.Context, version string, names view.Names, all []examinee, offered map[string]int,
	checked func(name string, r *upstream.Report)) Diagnosis {
	ctx, cancel := context.WithTimeoutCause(ctx, Limit, fmt.Errorf("the check has ended after %v", Limit))
	defer cancel()
	reports := make([]upstream.Report, len(all))
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			reports[i] = all[i].check(ctx)
			checked(all[i].name, &reports[i])
		})
	}
	wg.Wait()
	d := Diagnosis{Version: version, Upstreams: []Examined{}, Findings: []Finding{},
		catalogs: map[string][]*upstream.Catalog{}}
	taken := map[string]bool{}
	for i := range all {
		d.catalogs[all[i].name] = all[i].known(&reports[i])
		u := d.add(names, &all[i], &reports[i], taken)
		if offered != nil {
			u.Tools = offered[u.Name]
		}
		d.Tools += u.Tools
	}
	advice := "leave out tools that no client needs (expose: listed, or enabled: false), give clients /mcp/NAME, " +
		"one upstream alone, or let them search: catalog: search"
	if d.Tools > manyTools {
		d.Findings = append(d.Findings, Finding{Text: fmt.Sprintf("%d tools: some clients take no more than %d",
			d.Tools, manyTools), Advice: advice})
	}
	if d.Bytes > manyBytes {
		d.Findings = append(d.Findings, Finding{Text: fmt.Sprintf("definitions of %d KB: a client that loads all of "+
			"them spends some %d tokens on each conversation",
			d.Bytes/1000, Tokens(d.Bytes)), Advice: advice})
	}
	d.sort()
	return d
}

func (d *Diagnosis) sort() {
	slices.SortStableFunc(d.Findings, func(a, b Finding) int {
		if a.Grave != b.Grave {
			if a.Grave {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Upstream, b.Upstream)
	})
}

// add adds the result of one upstream. taken are the names of tools on the merged endpoint.
func (d *Diagnosis) add(names view.Names, e *examinee, r *upstream.Report, taken map[string]bool) *Examined {
	u := Examined{Name: e.name, OK: r.Err == nil, Era: string(r.Era), Version: r.Version, Server: r.Server,
		Ping: ms(r.Latency), Bytes: r.Bytes, Steps: []Step{}}
	for _, s := range r.Steps {
		u.Steps = append(u.Steps, Step{s.Name, ms(s.Took)})
	}
	find := func(f Finding) {
		f.Upstream = e.name
		d.Findings = append(d.Findings, f)
	}
	ready := true
	if s := e.status; s != nil {
		ready = s.State == upstream.StateReady || s.State == upstream.StateClosed
		u.State, u.Since, u.Error, u.RetryAt = s.State.String(), &s.Since, s.Err, s.Retry
		if s.Unasked != "" {
			find(Finding{Text: unaskedText, Advice: fmt.Sprintf("set %q in upstreams.%s", s.Unasked, e.name)})
		}
		for _, r := range s.Reported {
			find(Finding{Text: problem(e.config, r.Text), Advice: packAdvice(e.config)})
		}
	}
	if u.Sandbox = r.Sandbox; u.Sandbox != "" && u.Sandbox != command.Enforced && !e.config.Sandbox.Require {
		find(Finding{Grave: true, Text: "the sandbox is " + u.Sandbox,
			Advice: "set sandbox.require: true; the command then starts only with its whole sandbox"})
	}
	switch {
	case r.Err != nil:
		u.Failed = prose.Flat(r.Err.Error())
		f := Finding{Grave: true, Text: fmt.Sprintf("%s failed: %s", r.Steps[len(r.Steps)-1].Name, u.Failed),
			Advice: r.Advice}
		if u.Other = prose.Flat(r.Other); u.Other != "" {
			f.Detail = "the answer to " + u.Other
		}
		if config.ServesPack(e.config) && f.Advice != "" {
			f.Advice = packAdvice(e.config)
			if _, err := exec.LookPath(e.config.Program()); err != nil {
				f.Advice = config.NoPackProgram
			}
		}
		if e.status != nil && e.status.State == upstream.StateReady {
			f.Grave, f.Text = false, "the connection in use works, and a second one does not: "+u.Failed
			if !config.ServesPack(e.config) {
				f.Advice = "clients that can be asked different things get connections of their own, unless " +
					"questions: false has all of them share one"
			}
		}
		mistakes := config.PackMistakes(e.config)
		for _, m := range mistakes {
			find(Finding{Grave: f.Grave, Text: m, Advice: f.Advice})
		}
		if len(mistakes) == 0 {
			find(f)
		}
	case r.InUse != nil:
		find(Finding{Grave: true, Text: "the server answers over a new connection, and not over the one in use",
			Detail: prose.Flat(r.InUse.Error()),
			Advice: "this command closes that connection, and opens another one: " +
				shell.Join("junction", "reconnect", e.name)})
	case e.status != nil && e.status.State == upstream.StateDegraded:
		find(Finding{Grave: true, Text: "the server answers over a new connection, and not over the one in use",
			Detail: u.Error, Advice: e.status.Advice})
	case !ready:
		find(Finding{Grave: true, Text: "the proxy has no connection (" + u.State + ")", Detail: u.Error,
			Advice: "the check could connect: the proxy will, with its next attempt or call"})
	}
	if r.Catalog != nil {
		u.Listed, u.Prompts = r.Catalog.Items(upstream.PartTools), r.Catalog.Items(upstream.PartPrompts)
		u.Resources, u.Templates = r.Catalog.Items(upstream.PartResources), r.Catalog.Items(upstream.PartTemplates)
		u.Skills = r.Catalog.Items(upstream.PartSkills)
		u.Tools = d.exposed(names, e, r.Catalog, taken)
	}
	for _, f := range r.Findings {
		find(Finding{f.Grave, "", f.Part.String(), f.Name, f.Text, f.Detail, f.Advice})
	}
	d.Upstreams = append(d.Upstreams, u)
	return &d.Upstreams[len(d.Upstreams)-1]
}

// problem returns the text of a problem that a server has reported. That of a pack names the file, and
// needs no more words.
func problem(c upstream.Config, text string) string {
	if config.ServesPack(c) {
		return text
	}
	return "the server reported a problem: " + text
}

// packAdvice returns how to find the mistakes of a pack; "" for other upstreams.
func packAdvice(c upstream.Config) string {
	if !config.ServesPack(c) {
		return ""
	}
	return "correct the pack; this command lists its mistakes: " +
		shell.Join("junction-pack", "check", c.Command[len(c.Command)-1])
}

// exposed reports the names of a catalog that had to be changed. It returns the number of tools that
// clients of the merged endpoint see, and adds their names to taken.
func (d *Diagnosis) exposed(names view.Names, e *examinee, c *upstream.Catalog, taken map[string]bool) (tools int) {
	prefix := e.config.PrefixOr(e.name)
	for p := upstream.PartTools; p <= upstream.PartPrompts; p++ {
		for i := range c.Items(p) {
			item := c.Item(p, i)
			name, advice := item.Name, "give the upstream a shorter prefix"
			if p == upstream.PartTools {
				rule, offered := e.config.Offers(name)
				if !offered {
					continue
				}
				d.cacheOf(e, item)
				name = cmp.Or(rule.As, name)
				advice = "give it another name with tools.NAME.as, or the upstream a shorter prefix"
			}
			seen, full := names.Expose(prefix, name)
			if p == upstream.PartTools && !taken[seen] { // the first of several tools keeps the name
				taken[seen] = true
				tools++
				d.Bytes += len(item.Definition.Text())
			}
			if seen != full {
				d.Findings = append(d.Findings, Finding{false, e.name, p.String(), item.Name,
					"names that are too long for clients, or have characters that they change",
					"seen as " + seen, advice})
			}
		}
	}
	return tools
}

// cacheOf reports a tool whose results are not reused although the configuration has a cache for it.
func (d *Diagnosis) cacheOf(e *examinee, tool *upstream.Item) {
	if text, effect := view.Reused(tool.Definition, e.config.CacheOf(tool.Name)); text != "" && !effect {
		d.Findings = append(d.Findings, Finding{false, e.name, upstream.PartTools.String(), tool.Name,
			"cache: " + text, "", "set tools.NAME.cache: 0s for such tools, or remove cache"})
	}
}

// ms returns a duration in milliseconds.
func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// diagnose checks upstreams of the running proxy: those named in only, or all if only is empty. The
// error is about an unknown name.
func (p *Proxy) diagnose(ctx context.Context, only []string) (Diagnosis, error) {
	var all []examinee
	var known []string
	for _, u := range p.Set.All() {
		known = append(known, u.Name())
		if len(only) > 0 && !slices.Contains(only, u.Name()) {
			continue
		}
		s := u.Status()
		check := func(ctx context.Context) upstream.Report {
			r := u.Check(ctx)
			s = u.Status() // the check has asked over the connection in use
			return r
		}
		all = append(all, examinee{u.Name(), u.Config(), check, &s, u.Catalog()})
	}
	personal := p.personal()
	if err := unknownUpstream(only, append(known, personal...)); err != nil {
		return Diagnosis{}, err
	}
	p.Server.Settle()
	d := examine(ctx, p.Version, p.Server.Snapshot().Config.Names, all, p.Server.Snapshot().ToolsByUpstream(),
		func(string, *upstream.Report) {})
	d.leave(p.Config(), personal, only)
	for _, name := range append(known, personal...) {
		if why := p.refusal(name); why != "" && (len(only) == 0 || slices.Contains(only, name)) {
			d.Findings = append(d.Findings, Finding{Grave: true, Upstream: name, Text: why})
		}
	}
	d.Running, d.Config = true, p.File
	d.nameFile()
	if len(only) == 0 {
		inForce := p.File
		if p.Unread() != "" {
			inForce = ""
		}
		d.compareRules(p.Config(), inForce)
	}
	if waiting := p.Restart(); waiting != "" {
		d.Findings = append(d.Findings, Finding{Grave: true,
			Text:   "a part of the configuration file is not in force: " + waiting,
			Advice: "restart Junction"})
	}
	if why := p.Unread(); why != "" {
		d.Findings = append(d.Findings, Finding{Grave: true,
			Text: "the changed configuration file is not in force: " + strings.Join(append([]string{why},
				p.Partial().Lines()...), "; "),
			Advice: "correct the file, or restart Junction if the change needs it; this command lists all mistakes: " +
				config.Command(p.File, "check")})
	}
	if len(only) == 0 {
		d.addParts(p.Parts())
		d.addWarnings(p.Warnings())
	}
	for _, problem := range p.Server.Snapshot().Problems() {
		same := func(f Finding) bool {
			return f.Upstream == problem.Upstream && f.Name == problem.Name && f.Kind == problem.Part.String() &&
				f.Grave
		}
		if (len(only) == 0 || slices.Contains(only, problem.Upstream)) && !slices.ContainsFunc(d.Findings, same) {
			d.Findings = append(d.Findings, Finding{true, problem.Upstream, problem.Part.String(), problem.Name,
				"not offered", problem.Reason, ""})
		}
	}
	for _, s := range p.Providers.Status() {
		if s.Err != "" && len(only) == 0 {
			d.Findings = append(d.Findings, Finding{Grave: !s.Usable,
				Text: "tokens of " + s.Issuer + " cannot be verified as they should: " + prose.Flat(s.Err),
				Advice: "see that the server is reached from here, and that issuer is what its own metadata says, to " +
					"the letter (auth.jwt, auth.introspection)"})
		}
	}
	d.sort()
	return d, nil
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

// unknownUpstream returns an error for the first wanted name that is not known, nil if all are.
func unknownUpstream(wanted, known []string) error {
	for _, name := range wanted {
		if slices.Contains(known, name) {
			continue
		}
		if near := prose.Nearest(name, known); near != "" {
			return fmt.Errorf("there is no upstream %s; did you mean %s?", prose.Quote(name), near)
		}
		return fmt.Errorf("there is no upstream %s, or it is not enabled; there is %s", prose.Quote(name),
			cmp.Or(strings.Join(known, ", "), "none"))
	}
	return nil
}

// Progress is told which upstreams are checked, and what becomes of each. Its functions may be called
// concurrently.
type Progress struct {
	Begin func(upstream string)
	End   func(upstream, result string) // result is in one line
}

// File starts and checks the upstreams of a file: those named in only, or all if only is empty.
func File(ctx context.Context, version, file string, c *config.Config, only []string, tell Progress) (Diagnosis,
	error) {
	limits := c.Limits.WithDefaults()
	executable, _ := os.Executable()
	o := upstream.Options{
		Defaults: c.Defaults, MessageLimit: limits.Message, Depth: limits.Nesting, Items: limits.Items,
		Version: version, Self: executable,
		Sandboxes: config.Sandboxes(config.KeyDir(c.Sessions.KeyFile, os.LookupEnv), file),
		Log:       slog.New(slog.DiscardHandler),
	}
	o.Writable = append(upstream.Writable(c.Upstreams, o.Sandboxes), c.Writable...)
	var set upstream.Set
	sources := credentials.New(credentials.Options{}) // without the database, which a proxy may use
	defer sources.Close()
	sources.Use(c.Upstreams)
	var all []examinee
	var known, personal []string
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		u := c.Upstreams[name]
		if u.Off() {
			continue
		}
		known = append(known, name)
		if u.Personal() && u.Blocked == "" {
			personal = append(personal, name)
			continue
		}
		if len(only) == 0 || slices.Contains(only, name) {
			own := o
			if !u.Auth.Mode.Row().Stores {
				own.Credentials = sources
			}
			all = append(all, examinee{name: name, config: u,
				check: func(ctx context.Context) upstream.Report { return set.Check(ctx, name, u, own) }})
		}
	}
	if err := unknownUpstream(only, known); err != nil {
		return Diagnosis{}, err
	}
	for _, e := range all {
		tell.Begin(e.name)
	}
	d := examine(ctx, version, c.Names, all, nil, func(name string, r *upstream.Report) { tell.End(name, resultOf(r)) })
	d.Config = file
	d.nameFile()
	if len(only) == 0 {
		d.compareRules(c, file)
		_, warnings, _ := config.Load(file, os.LookupEnv)
		d.addWarnings(warnings)
	}
	d.leave(c, personal, only)
	return d, nil
}

// resultOf returns the result of a check in one line.
func resultOf(r *upstream.Report) string {
	if r.Err == nil {
		return "ok"
	}
	return "failed: " + prose.Flat(r.Err.Error())
}

// nameFile adds the configuration file to suggested sign-ins.
func (d *Diagnosis) nameFile() {
	for i := range d.Upstreams {
		u := &d.Upstreams[i]
		u.Error, u.Failed = signInOf(d.Config, u.Name, u.Error), signInOf(d.Config, u.Name, u.Failed)
	}
	for i := range d.Findings {
		d.Findings[i].Text = signInOf(d.Config, d.Findings[i].Upstream, d.Findings[i].Text)
	}
}

// leave adds a finding for each upstream with credentials of subjects: a diagnosis has no subject and
// cannot check it.
func (d *Diagnosis) leave(c *config.Config, personal, only []string) {
	for _, name := range personal {
		if len(only) == 0 || slices.Contains(only, name) {
			row := c.Upstreams[name].Auth.Mode.Row()
			d.Findings = append(d.Findings, Finding{Upstream: name,
				Text:   row.About(row.Left, name) + " (auth.mode), so that it was not looked at",
				Advice: row.About(row.LeftAdvice, name)})
		}
	}
	d.sort()
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

// Tokens estimates the number of model tokens of definitions of that many bytes.
func Tokens(bytes int) int { return (bytes/4 + 99) / 100 * 100 }
