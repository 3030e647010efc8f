package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"junction/auth"
	"junction/auth/keyfile"
	"junction/policy"
	"junction/upstream"
	"junction/upstream/files"
	"junction/upstream/prose"
	"junction/upstream/shell"
	"junction/upstream/yamlread"
)

// Print writes all mistakes, warnings and notes to w, and then "ok: N upstreams", or which of them a service lacks.
// If the file has mistakes, the error counts them, and tells whether the program could start with them. What a
// reload does is written in any case.
func (r *Report) Print(w io.Writer) error {
	PrintProblems(w, r.Mistakes, r.Warnings)
	if err := r.Err(); err != nil {
		if r.Reload != nil { // a mistake in one entry leaves the rest as it is
			fmt.Fprintln(w, r.Reload.Report())
		}
		return err
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
	if upstreams := prose.Count(r.Upstreams, "upstream"); len(r.LostInService) == 0 {
		fmt.Fprintf(w, "ok: %s\n", upstreams)
	} else {
		fmt.Fprintf(w, "ok in this shell: %s; as a service, Junction starts without %s\n", upstreams,
			strings.Join(r.LostInService, ", "))
	}
	if r.Reload != nil {
		fmt.Fprintln(w, r.Reload.Report())
	}
	return nil
}

// Report is what Inspect finds.
type Report struct {
	File      string   `json:"file"`
	Upstreams int      `json:"upstreams"` // 0 if there are mistakes
	Mistakes  Problems `json:"mistakes"`
	Rejecting Problems `json:"rejecting"` // the mistakes with which the program does not start
	Blocked   []string `json:"blocked"`   // the upstreams that the other mistakes block
	Warnings  Problems `json:"warnings"`
	Notes     []string `json:"notes"`
	// the upstreams that a service blocks; none if the check has judged the file as a service reads it
	LostInService []string `json:"lost_in_service,omitempty"`
	Reload        *Change  `json:"reload,omitempty"` // what a reload does; nil if that was not asked
	// the mistakes with which a running Junction does not load the file
	NotLoading Problems `json:"not_loading,omitempty"`
	// whether a running Junction serves the file; the caller sets it
	Served bool `json:"served,omitempty"`
}

// Err returns an error that counts the mistakes, and tells whether the program could start with
// them. It returns nil if there are no mistakes.
func (r *Report) Err() error {
	if len(r.Mistakes) == 0 {
		return nil
	}
	effect := "Junction starts without " + strings.Join(r.Blocked, ", ")
	if len(r.Rejecting) > 0 {
		effect = "Junction does not start because of " + linesOf(r.Rejecting)
	}
	if r.Served && len(r.NotLoading) > 0 {
		effect += "; the running Junction does not load the file because of " + linesOf(r.NotLoading)
	}
	has := "has"
	if slices.ContainsFunc(r.Mistakes, func(p Problem) bool { return p.File != r.File }) {
		has = "and its packs have"
	}
	return fmt.Errorf("%s %s %s; %s", r.File, has, prose.Count(len(r.Mistakes), "mistake"), effect)
}

// linesOf returns the lines of problems, such as "lines 3, 4".
func linesOf(ps Problems) string {
	var lines []string
	for _, p := range ps {
		lines = append(lines, strconv.Itoa(p.Line))
	}
	if lines = slices.Compact(lines); len(lines) == 1 {
		return "line " + lines[0]
	}
	return "lines " + strings.Join(lines, ", ")
}

// Inspect loads the file. obstacles returns what else prevents a start with the file, each with the path of its
// key; the report has these as mistakes. The error means that the file could not be read.
func Inspect(file string, getenv func(string) (string, bool), obstacles func(*Config) []Problem) (*Report, error) {
	c, d, warnings, err := load(file, getenv, nil)
	problems, isProblems := errors.AsType[Problems](err)
	if err != nil && !isProblems {
		return nil, err
	}
	prevent := d.obstacles(obstacles(c))
	warnings = slices.DeleteFunc(warnings, func(p Problem) bool { return slices.Contains(prevent, p) })
	r := &Report{File: file, Mistakes: append(Problems{}, problems...), Warnings: append(Problems{}, warnings...),
		Rejecting: Problems{}, Blocked: []string{}, Notes: []string{}}
	packs, ofPacks := c.packProblems(d)
	r.Warnings = append(r.Warnings, ofPacks...)
	r.Mistakes = append(r.Mistakes, prevent...)
	r.Mistakes.Sort()
	if isProblems || len(packs)+len(prevent) > 0 {
		r.Rejecting = append(append(r.Rejecting, c.Rejecting(problems)...), prevent...)
		r.Rejecting.Sort()
		for _, p := range problems {
			if name, one := c.blockedBy(p); one && !slices.Contains(r.Blocked, name) {
				r.Blocked = append(r.Blocked, name)
			}
		}
		r.NotLoading = c.block(d, problems, true)
		for _, p := range packs {
			if r.Mistakes = append(r.Mistakes, p.Problem); !slices.Contains(r.Blocked, p.upstream) {
				r.Blocked = append(r.Blocked, p.upstream)
			}
		}
		return r, nil
	}
	r.Upstreams, r.LostInService = len(c.Upstreams), c.lostInService(d)
	note := func(format string, args ...any) { r.Notes = append(r.Notes, fmt.Sprintf(format, args...)) }
	if c.Auth.Open() {
		note("auth: there is no authentication: every program and user of this machine can connect. Junction refuses " +
			"the requests of a reverse proxy or a tunnel if a header or HTTP/1.0 shows it, but HAProxy, newer nginx " +
			"and ssh -R show nothing; add auth.api_keys or auth.oauth before you start one")
	}
	if host, _, problem := splitAddress(*c.Admin, DefaultAdmin); problem == "" && !host.IsLoopback() { // "" has none
		note("admin: other machines that reach %s can probe Junction, and read its metrics, which name upstreams "+
			"and tools; let a firewall or a NetworkPolicy permit only your monitoring", *c.Admin)
	}
	r.Notes = append(r.Notes, c.withheld()...)
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		u := c.Upstreams[name]
		if !u.Off() {
			r.Notes = append(r.Notes, c.programNotes(name)...)
		}
		if mode := u.Auth.Mode.Row(); mode.Note != "" && !u.Off() && (len(c.Auth.APIKeys) > 0 || c.Auth.SignsIn()) {
			note("upstreams.%s: %s (auth.mode: %s)", name, mode.About(mode.Note, name), mode.Word)
		}
		if u.Auth.ClientID != "" && u.Auth.Issuer != "" && !u.Off() {
			note("upstreams.%s: PKCE with S256 is used even if %s does not list it, because auth.issuer and "+
				"auth.client_id are set; junction auth doctor shows whether it lists it", name, u.Auth.Issuer)
		}
		if text, advice := u.Sessionless(); text != "" && !u.Off() {
			note("upstreams.%s: %s", name, strings.TrimSuffix(text+"; "+advice, "; "))
		}
	}
	return r, nil
}

// withheld returns a note for each set of variables of this environment that look like keys and that commands
// do not get. Commands without the same variables share a note: most servers need none of them.
func (c *Config) withheld() (notes []string) {
	without := map[string][]string{} // the variables, and the upstreams
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		if u := c.Upstreams[name]; !u.Off() {
			variables := strings.Join(u.Withheld(), ", ")
			without[variables] = append(without[variables], name)
		}
	}
	delete(without, "")
	for _, variables := range slices.Sorted(maps.Keys(without)) {
		verb := "do"
		if len(without[variables]) == 1 {
			verb = "does"
		}
		notes = append(notes, fmt.Sprintf("upstreams: %s %s not get %s of this environment; if a server needs one, "+
			"name it in env or inherit_env", strings.Join(without[variables], ", "), verb, variables))
	}
	return notes
}

// RulePlaces returns the file and the line of each rule of a policy, by the name of the policy. It returns
// nil if the file cannot be read.
func RulePlaces(file string, getenv func(string) (string, bool)) map[string][]string {
	c, d, _, _ := load(file, getenv, nil) // a mistake elsewhere does not matter
	if c == nil || d == nil {
		return nil
	}
	places := map[string][]string{}
	for i, p := range c.Policies {
		for k := range p.Rules {
			line := d.line(fmt.Sprintf("policies[%d].rules[%d]", i, k))
			places[p.Name] = append(places[p.Name], fmt.Sprintf("%s:%d", file, line))
		}
	}
	return places
}

// Locate adds the file and the line to problems of a section of the file, such as policies, and
// conceals values that may be secret. It returns nil if the file cannot be read, or is "".
func Locate(file string, getenv func(string) (string, bool), section string, list []yamlread.Problem) Problems {
	if file == "" {
		return nil
	}
	c, d, _, _ := load(file, getenv, nil) // a mistake elsewhere does not matter
	if c == nil || d == nil {
		return nil
	}
	var ps Problems
	for _, p := range list {
		path := section + p.Path
		_, text := d.conceal(path, p.Text)
		ps = append(ps, Problem{File: d.File, Line: d.line(path), Path: path, Text: text})
	}
	return ps
}

// PrintProblems writes one line for each problem, mistakes first.
func PrintProblems(w io.Writer, problems, warnings Problems) {
	for _, p := range problems {
		fmt.Fprintln(w, prose.Tilde(p.String()))
	}
	for _, p := range warnings {
		fmt.Fprintf(w, "warning: %s\n", prose.Tilde(p.String()))
	}
}

// Self is the program name in a command that means the executable of Junction, wherever it is.
const Self = "junction"

// warnings checks for keys without effect, and for programs and folders of enabled commands that
// this machine does not have.
func (d *decoder) warnings(c *Config) Problems {
	var ps Problems
	warn := func(path, format string, args ...any) {
		if !d.broken(path) {
			ps = append(ps, d.warning(path, fmt.Sprintf(format, args...)))
		}
	}
	if at := files.Shared(d.File); d.File != "" && at != "" {
		warn("", "other users of this machine can write %s, and so change this file, which decides what Junction "+
			"runs and permits; run: chmod go-w %s", at, shell.Quote(at))
	}
	if text := ReadableEnvironment(d.File); d.File != "" && text != "" {
		ps = append(ps, d.warning("", text)) // a mistake elsewhere does not matter
	}
	c.warnTLS(warn)
	c.warnSignIn(warn)
	c.warnLimits(warn)
	c.warnStateful(warn)
	c.warnFolders(d, warn)
	c.warnNetwork(d.refs.getenv, files.Network, warn)
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		u, at := c.Upstreams[name], "upstreams."+name
		if file := u.Auth.PrivateKeyFile; file != "" && !u.Off() {
			if _, err := keyfile.Read(file); err != nil {
				warn(at+".auth.private_key_file", "%v; until then, Junction gets no token for the upstream", err)
			}
		}
		if u.TLS.Given() && !u.Off() {
			if _, err := u.TLS.Security(nil, time.Now()); err != nil {
				warn(at+".tls", "%v; until then, Junction does not connect to the upstream", err)
			}
		}
		if u.Program() == "" || u.Off() {
			continue
		}
		key, text := d.unstartable(c, name)
		c.warnFolder(d, name, warn)
		warnOneFile(at, &u, warn)
		if key != packKey {
			c.warnSandbox(at, &u, d, warn)
		}
		if text != "" {
			warn(at+"."+key, "%s", text)
		}
	}
	for _, ch := range d.confined {
		warn(ch.path, "%s", ch.text)
	}
	ps = append(ps, d.obstacles(c.Obstacles())...)
	if !d.broken("policies") {
		c.warnPolicies(d, warn)
	}
	ps.Sort()
	return ps
}

// warnOneFile warns of several processes that use one file of data.
func warnOneFile(at string, u *upstream.Config, warn func(path, format string, args ...any)) {
	const one = "for one process and one call at a time, write isolation: shared and concurrency: 1"
	if variable, known := u.OneFile(); known {
		warn(at, "several processes write the same file (%s), so that users overwrite each other's data; %s",
			variable, one)
	} else if variable != "" {
		warn(at, "each user has a process, and all processes use the file of %s: if they write it, users overwrite "+
			"each other's data; %s; if they only read it, write isolation: principal", variable, one)
	}
}

// warnSignIn warns about the section auth.
func (c *Config) warnSignIn(warn func(path, format string, args ...any)) {
	if len(c.Auth.TrustedProxies) > 0 && c.Auth.Open() {
		warn("auth.trusted_proxies", "has no effect: without authentication, requests through a proxy are refused; "+
			"add auth.api_keys or auth.oauth, or none: true if the proxy authenticates every request")
	}
	proxied := strings.HasPrefix(c.PublicURL, "https:") && !c.TLS.On()
	if c.Auth.OAuth != nil && proxied && len(c.Auth.TrustedProxies) == 0 {
		warn("auth.oauth", "there are no trusted_proxies, so that all people have the address of the proxy in front, "+
			"and share its limit of sign-ins; add auth.trusted_proxies: [ADDRESS/32]")
	}
	if c.Auth.OAuth != nil && c.Policies == nil {
		for i, p := range c.Auth.OAuth.IdentityProviders {
			if len(p.RequiredClaims)+len(p.EmailDomains) == 0 && isPublic(p.Issuer) {
				warn(fmt.Sprintf("auth.oauth.identity_providers[%d]", i), "everyone with an account at %s may "+
					"sign in, and use everything, because there are no policies; add email_domains or "+
					"required_claims, or policies", p.Issuer)
			}
		}
	}
	for i, k := range c.Auth.APIKeys {
		if !k.Expires.IsZero() && !time.Now().Before(k.Expires.Time) {
			warn(fmt.Sprintf("auth.api_keys[%d].expires", i),
				"is in the past: the key of %s is refused; remove the entry, or create another key", k.Name)
		}
		if k.Expiring(time.Now()) {
			warn(fmt.Sprintf("auth.api_keys[%d].expires", i), "is soon: the key of %s is refused from %s; create "+
				"another key of that name, and hand it out", k.Name, k.Expires)
		}
	}
	for _, p := range c.Auth.Warnings(c.PublicURL) {
		warn("auth."+p.Path, "%s", p.Text)
	}
}

// warning returns a warning about the key at a path.
func (d *decoder) warning(path, text string) Problem {
	_, text = d.conceal(path, text)
	return Problem{File: d.File, Line: d.line(path), Path: path, Text: text}
}

// obstacles returns problems of values that could be read, with their lines.
func (d *decoder) obstacles(list []Problem) (ps Problems) {
	for _, p := range list {
		section, _, _ := strings.Cut(p.Path, ".")
		if !d.broken(section) && !d.broken(p.Path) {
			ps = append(ps, d.warning(p.Path, p.Text))
		}
	}
	return ps
}

// publicIssuers are the beginnings of issuers that give everyone an account.
var publicIssuers = []string{"https://accounts.google.com", "https://appleid.apple.com", "https://gitlab.com",
	"https://login.microsoftonline.com/common", "https://login.microsoftonline.com/organizations",
	"https://login.microsoftonline.com/consumers"}

// isPublic reports whether an issuer gives everyone an account.
func isPublic(issuer string) bool {
	return slices.ContainsFunc(publicIssuers, func(p string) bool { return strings.HasPrefix(issuer+"/", p+"/") })
}

// warnPolicies warns of capabilities that are required but granted by no policy, and the reverse:
// most likely one of them is misspelled. It also warns of unknown names in policies, and adds the
// warnings of package policy.
func (c *Config) warnPolicies(d *decoder, warn func(path, format string, args ...any)) {
	held, required := c.Policies.Capabilities(), []string{}
	require := func(at, what string, list []string) {
		for i, s := range list {
			required = append(required, s)
			if _, ok := slices.BinarySearch(held, s); !ok {
				warn(fmt.Sprintf("%s.capabilities[%d]", at, i),
					"no policy gives the capability %s, so that no caller can use %s", s, what)
			}
		}
	}
	places := policy.Places{Users: c.Auth.SignsIn(), Issuers: c.Auth.Issuers(), Upstreams: c.Known()}
	for _, k := range c.Auth.APIKeys {
		places.Keys = append(places.Keys, k.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Endpoints)) {
		places.Surfaces = append(places.Surfaces, cmp.Or(c.Endpoints[name].Surface, name))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		u, at := c.Upstreams[name], "upstreams."+name
		require(at, "this upstream", u.Capabilities)
		for _, r := range u.Tools {
			require(at+".tools."+r.Glob, "these tools", r.Capabilities)
		}
	}
	for _, name := range c.packsOf(d) {
		at := "upstreams." + name + ".pack"
		for _, r := range requiredBy(c.Packs[name]) {
			required = append(required, r.capability)
			if _, ok := slices.BinarySearch(held, r.capability); !ok {
				warn(at, "no policy gives the capability %s, so that no caller can use the %s of the pack",
					r.capability, r.what)
			}
		}
	}
	for i, p := range c.Policies {
		at := fmt.Sprintf("policies[%d]", i)
		for k, s := range p.Capabilities {
			if !slices.Contains(required, s) {
				warn(fmt.Sprintf("%s.capabilities[%d]", at, k), "nothing requires the capability %s", s)
			}
		}
		for _, u := range p.Unmatched(places) {
			warn(at+u.Path, "%s", u.Text)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Endpoints)) {
		for _, u := range c.Endpoints[name].Match.Unmatched(places) {
			warn("endpoints."+name+u.Path, "%s", u.Text)
		}
	}
	if c.Policies.AllowsNothing(places) {
		warn(Policies, "no rule allows an item of the upstreams of this file, so that no client has a tool; add "+
			"or correct an allow rule")
	} else {
		c.warnKeys(warn)
	}
	for _, s := range c.Policies.Spreads(places.Keys, places.Upstreams) {
		p := s.Problem()
		warn("policies"+p.Path, "%s", p.Text)
	}
	for _, p := range c.Policies.Warnings(places.Upstreams) {
		warn("policies"+p.Path, "%s", p.Text)
	}
}

// warnKeys adds a warning for each name of API keys that no policy gives anything.
func (c *Config) warnKeys(warn func(path, format string, args ...any)) {
	for _, name := range c.Policies.LeftOut(c.keyNames(), c.Known()) {
		i := slices.IndexFunc(c.Auth.APIKeys, func(k auth.Key) bool { return k.Name == name })
		warn(fmt.Sprintf("auth.api_keys[%d]", i),
			"no policy gives the key %s a tool; name it in match.key of a policy", name)
	}
}

// keyNames returns the names of the API keys, in the order of the file.
func (c *Config) keyNames() (names []string) {
	for _, k := range c.Auth.APIKeys {
		names = append(names, k.Name)
	}
	return names
}

// Known returns all upstreams of the file for package policy, in the order of their names.
func (c *Config) Known() (list []policy.Known) {
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		list = append(list, policy.Known{Name: name, Begin: c.begin(name)})
	}
	return list
}

// begin returns the common prefix of the exposed names of the upstream's tools and prompts,
// including shortened names; "" if they have none.
func (c *Config) begin(upstream string) string {
	u := c.Upstreams[upstream]
	_, begin := c.Names.Expose(u.PrefixOr(upstream), "")
	if short, _ := c.Names.Expose(u.PrefixOr(upstream), strings.Repeat("x", 200)); !strings.HasPrefix(short, begin) {
		return ""
	}
	return begin
}
