package diagnose

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"junction/cmd/junction/base/config"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/command"
	"junction/upstream/prose"
	"junction/upstream/shell"
)

// This file makes findings of the checks of upstreams. doctor_proxy.go checks those of the running
// proxy, for /doctor of the admin address, and doctor_file.go those of a file, without a proxy.
// doctor_command.go of package admin prints the result.

// Limit is the time limit of a diagnosis. The checks of all upstreams run concurrently.
const Limit = time.Minute

// Diagnosis is the answer of /doctor.
type Diagnosis struct {
	// true: a running proxy was asked; false: the upstreams were started for the check
	Running   bool       `json:"running"`
	Config    string     `json:"config,omitempty"`    // the configuration file
	Variables string     `json:"variables,omitempty"` // the file whose variables the check has used, without a proxy
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
	Stuck   int        `json:"stuck,omitempty"`   // connections of users that do not work there
	Era     string     `json:"era,omitempty"`
	Version string     `json:"version,omitempty"`
	Server  string     `json:"server,omitempty"` // the server's name for itself

	OK     bool    `json:"ok"`              // the check succeeded
	Waits  bool    `json:"waits,omitempty"` // for the folder of a client: upstream.StateWaiting
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
	Kind     string `json:"kind,omitempty"` // tool, prompt, resource, resource template, KindRule, KindWarning or KindNote
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

// examine checks upstreams concurrently, within Limit. offered returns the number of tools of each
// upstream on the merged endpoint of the running proxy, after the checks; nil without one. checked is called
// with the result of each check, concurrently.
func examine(ctx context.Context, version string, names view.Names, all []examinee, offered func() map[string]int,
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
	tools := map[string]int{}
	if offered != nil {
		tools = offered()
	}
	d := Diagnosis{Version: version, Upstreams: []Examined{}, Findings: []Finding{},
		catalogs: map[string][]*upstream.Catalog{}}
	taken := map[string]bool{}
	for i := range all {
		d.catalogs[all[i].name] = all[i].known(&reports[i])
		u := d.add(names, &all[i], &reports[i], taken)
		if offered != nil {
			u.Tools = tools[u.Name]
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
	u := e.result(r)
	d.find(e.name, e.reported()...)
	if u.Sandbox != "" && u.Sandbox != command.Enforced && !e.config.Sandbox.Require {
		d.find(e.name, Finding{Grave: true, Text: "the sandbox is " + u.Sandbox,
			Advice: "set sandbox.require: true; the command then starts only with its whole sandbox"})
	}
	switch {
	case r.Err != nil:
		d.find(e.name, e.failure(&u, r)...)
	case r.Waits != nil:
		d.find(e.name, Finding{Text: prose.Flat(r.Waits.Error()), Advice: r.Advice})
	default:
		d.find(e.name, e.connection(&u, r)...)
	}
	d.find(e.name, e.stuck()...)
	if r.Catalog != nil {
		u.Tools = d.exposed(names, e, r.Catalog, taken)
	}
	if text, advice := e.config.Sessionless(); text != "" {
		d.find(e.name, Finding{Text: text, Advice: advice})
	}
	switch {
	case e.status != nil && e.status.Rootless:
		d.find(e.name, Finding{Text: rootlessText, Advice: fmt.Sprintf(rootlessAdvice, e.name)})
	case r.Rootless:
		d.find(e.name, Finding{Kind: KindNote, Text: asksText, Advice: fmt.Sprintf(asksAdvice, e.name)})
	}
	for _, f := range r.Findings {
		d.find(e.name, Finding{f.Grave, "", f.Part.String(), f.Name, f.Text, f.Detail, f.Advice})
	}
	d.Upstreams = append(d.Upstreams, u)
	return &d.Upstreams[len(d.Upstreams)-1]
}

// find adds findings about an upstream.
func (d *Diagnosis) find(name string, list ...Finding) {
	for _, f := range list {
		f.Upstream = name
		d.Findings = append(d.Findings, f)
	}
}

// result returns the result of a check. The number of tools on the merged endpoint is not known yet.
func (e *examinee) result(r *upstream.Report) Examined {
	u := Examined{Name: e.name, OK: r.Err == nil && r.Waits == nil, Waits: r.Waits != nil, Era: string(r.Era),
		Version: r.Version, Server: r.Server, Ping: ms(r.Latency), Bytes: r.Bytes, Steps: []Step{}, Sandbox: r.Sandbox}
	for _, s := range r.Steps {
		u.Steps = append(u.Steps, Step{s.Name, ms(s.Took)})
	}
	if s := e.status; s != nil {
		u.State, u.Since, u.Error, u.RetryAt, u.Stuck = s.State.String(), &s.Since, s.Err, s.Retry, len(s.Stuck)
	}
	if r.Err != nil {
		u.Failed, u.Other = prose.Flat(r.Err.Error()), prose.Flat(r.Other)
	}
	if c := r.Catalog; c != nil {
		u.Listed, u.Prompts = c.Items(upstream.PartTools), c.Items(upstream.PartPrompts)
		u.Resources, u.Templates = c.Items(upstream.PartResources), c.Items(upstream.PartTemplates)
		u.Skills = c.Items(upstream.PartSkills)
	}
	return u
}

// reported returns the problems that the running proxy knows of: questions that the server may not
// ask, and problems that the server reports.
func (e *examinee) reported() (list []Finding) {
	if e.status == nil {
		return nil
	}
	if unasked := e.status.Unasked; unasked != "" {
		list = append(list, Finding{Text: unaskedText, Advice: fmt.Sprintf("set %q in upstreams.%s", unasked, e.name)})
	}
	for _, r := range e.status.Reported {
		list = append(list, Finding{Text: problem(e.config, r.Text), Advice: packAdvice(e.config)})
	}
	return list
}

// failure returns the reasons of a check that failed: the mistakes of a pack, else the step.
func (e *examinee) failure(u *Examined, r *upstream.Report) (list []Finding) {
	f := Finding{Grave: true, Text: fmt.Sprintf("%s failed: %s", r.Steps[len(r.Steps)-1].Name, u.Failed),
		Advice: r.Advice}
	if u.Other != "" {
		f.Detail = "the answer to " + u.Other
	}
	pack := config.ServesPack(e.config)
	if pack && f.Advice != "" {
		f.Advice = packAdvice(e.config)
		if _, err := exec.LookPath(e.config.Program()); err != nil {
			f.Advice = config.NoPackProgram
		}
	}
	if e.status != nil && e.status.State == upstream.StateReady && r.InUse == nil {
		f.Grave, f.Text = false, "the connection in use works, and a second one does not: "+u.Failed
		if !pack && !r.Unreached() {
			f.Advice = "clients that can be asked different things get connections of their own, unless " +
				"questions: false has all of them share one"
		}
	}
	for _, m := range config.PackMistakes(e.config) {
		list = append(list, Finding{Grave: f.Grave, Text: m, Advice: f.Advice})
	}
	if len(list) == 0 {
		list = append(list, f)
	}
	return list
}

// connection returns why the running proxy does not reach a server that the check has reached.
func (e *examinee) connection(u *Examined, r *upstream.Report) []Finding {
	const onlyNew = "the server answers over a new connection, and not over the one in use"
	switch {
	case r.InUse != nil:
		return []Finding{{Grave: true, Text: onlyNew, Detail: prose.Flat(r.InUse.Error()),
			Advice: "this command closes that connection, and opens another one: " +
				shell.Join("junction", "reconnect", e.name)}}
	case e.status == nil || !e.status.State.Broken() && e.status.State != upstream.StateStarting:
		return nil
	case e.status.State == upstream.StateStarting:
		return []Finding{{Text: "the running Junction still starts it, and has no tools of it yet",
			Advice: "the check could connect: wait, and run this command again"}}
	case e.status.State == upstream.StateDegraded:
		return []Finding{{Grave: true, Text: onlyNew, Detail: u.Error, Advice: e.status.Advice}}
	}
	return []Finding{{Grave: true, Text: "the proxy has no connection (" + u.State + ")", Detail: u.Error,
		Advice: "the check could connect: the proxy will, with its next attempt or call"}}
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

// selection has the names of the upstreams to check. An empty one selects all.
type selection []string

func (s selection) has(name string) bool { return len(s) == 0 || slices.Contains(s, name) }

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
func (d *Diagnosis) leave(c *config.Config, personal []string, only selection) {
	for _, name := range personal {
		if only.has(name) {
			row := c.Upstreams[name].Auth.Mode.Row()
			d.Findings = append(d.Findings, Finding{Upstream: name,
				Text:   row.About(row.Left, name) + " (auth.mode), so that it was not looked at",
				Advice: row.About(row.LeftAdvice, name)})
		}
	}
	d.sort()
}

// Tokens estimates the number of model tokens of definitions of that many bytes.
func Tokens(bytes int) int { return (bytes/4 + 99) / 100 * 100 }
