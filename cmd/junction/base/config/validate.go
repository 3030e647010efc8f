package config

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"junction/auth/store"
	"junction/policy"
	"junction/proxy/search"
	"junction/upstream"
	"junction/upstream/loopback"
	"junction/upstream/prose"
	"junction/upstream/yamlread"
)

// validate adds to d the mistakes of values that are well-formed on their own. It opens no files
// and makes no lookups.
func (c *Config) validate(d *decoder) {
	d.check("public_url", c.publicURLProblem())
	c.validateAddresses(d)
	c.validateOpen(d)
	for _, p := range c.Auth.Validate() {
		if path := "auth." + p.Path; !d.wrong[yamlread.Above(path)] {
			d.check(path, p.Text)
		}
	}
	c.validateSignIn(d)
	c.validateTLS(d)
	c.validateReplicas(d)
	for i, o := range c.AllowedOrigins {
		d.check(fmt.Sprintf("allowed_origins[%d]", i), originProblem(o))
	}
	for i, h := range c.AllowedHosts {
		d.check(fmt.Sprintf("allowed_hosts[%d]", i), hostProblem(h))
	}
	if n := c.Names.MaxLength; n != 0 && (n < 16 || n > 128) {
		d.invalid("names.max_length", "%d is out of range; use 16 to 128", n)
	}
	if s := c.Names.Separator; d.has("names.separator") && !separator.MatchString(s) {
		d.invalid("names.separator", "must be 1 to 4 of A-Z, a-z, 0-9, _ and -")
	}
	if c.Upstreams == nil && !d.broken("upstreams") { // {} is what junction remove leaves
		d.invalid("upstreams", noUpstreams)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		c.validateUpstream(d, name)
	}
	c.validateNames(d)
	c.validateCaches(d)
	c.validateEndpoints(d)
	c.validatePolicies(d)
	c.validateBound(d)
	d.check("pins", pinsProblem(c.Pins))
	c.validateFolders(d)
	if c.DrainDelay > maxDrain {
		d.invalid("drain_delay", "is longer than %s; load balancers need some seconds, such as 10s", "10m")
	}
	c.validateAudit(d)
}

func (c *Config) validateAddresses(d *decoder) {
	// Values with mistakes must not be reported as missing, too.
	problem := c.ListenProblem(c.Listen, d.broken("auth.api_keys") || d.broken("auth.jwt") ||
		d.broken("auth.introspection") || d.broken("auth.oauth") || d.wrong["auth"], d.broken("public_url"))
	d.check("listen", problem)
	if *c.Admin == "" {
		return
	}
	host, port, _ := splitAddress(c.Listen, "127.0.0.1:8420")
	adminHost, adminPort, adminProblem := splitAddress(*c.Admin, "127.0.0.1:8421")
	if d.check("admin", adminProblem); problem != "" || adminProblem != "" {
		return
	}
	if port != 0 && port == adminPort && (host == adminHost || host.IsUnspecified() || adminHost.IsUnspecified()) {
		path, other := "admin", "listen"
		if !d.has(path) {
			path, other = other, path
		}
		d.invalid(path, "is the address of %s too; give one of them another port", other)
	}
}

// maxDrain limits drain_delay: a supervisor would kill the process before.
const maxDrain = 10 * time.Minute

// ListenProblem returns why the proxy must not listen on an address, or "". An address outside
// loopback needs authentication and encryption (https). givesKeys and givesURL mean that the file
// has keys and a public_url, even if they contain mistakes.
func (c *Config) ListenProblem(address string, givesKeys, givesURL bool) string {
	host, port, problem := splitAddress(address, "127.0.0.1:8420")
	if problem != "" || host.IsLoopback() {
		return problem
	}
	var missing []string
	if !c.Auth.Needed() && !givesKeys {
		missing = append(missing, "auth.api_keys or auth.oauth")
	}
	if !strings.HasPrefix(c.PublicURL, "https://") && !givesURL {
		missing = append(missing, "an https public_url")
	}
	if len(missing) == 0 {
		return ""
	}
	return fmt.Sprintf("listening elsewhere than on loopback needs %s; add what is missing, or use 127.0.0.1:%d "+
		"behind your own gateway or an ssh tunnel",
		strings.Join(missing, " and "), port)
}

// validateOpen rejects a public server without authentication unless the file states it
// (auth.none). It reports nothing if these keys have other mistakes or ListenProblem has reported
// one.
func (c *Config) validateOpen(d *decoder) {
	broken := d.wrong["auth"] || c.Auth.APIKeys != nil && len(c.Auth.APIKeys) == 0 || c.publicURLProblem() != ""
	for _, key := range []string{"api_keys", "jwt", "introspection", "oauth", "none"} {
		broken = broken || d.broken("auth."+key)
	}
	switch host, _, problem := splitAddress(c.Listen, "127.0.0.1:8420"); {
	case broken || problem == "" && !host.IsLoopback():
	case c.Auth.None && c.Auth.Needed():
		d.invalid("auth.none", "contradicts the rest of auth, which authenticates requests; remove none")
	case strings.HasPrefix(c.PublicURL, "https://") && !c.Auth.None && !c.Auth.Needed():
		d.invalid("public_url", "needs authentication: everybody who reaches the URL could use every tool; "+
			"add auth.api_keys or auth.oauth, or auth: { none: true } if the proxy in front authenticates every "+
			"request")
	}
}

// splitAddress parses an address to listen on, and returns a problem if it is not valid. Without a
// host, the host is the unspecified address.
func splitAddress(address, example string) (host netip.Addr, port uint16, problem string) {
	name, p, err := net.SplitHostPort(address)
	if err != nil {
		return netip.Addr{}, 0, "must be host:port, such as " + example + " or [::1]" +
			example[strings.IndexByte(example, ':'):]
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return netip.Addr{}, 0, "must be a port from 0 to 65535, such as " + example
	}
	switch name {
	case "localhost":
		name = "127.0.0.1"
	case "":
		name = "::"
	}
	// A name other than localhost is not resolved: its address may change after this check.
	if host, err = netip.ParseAddr(name); err != nil {
		return netip.Addr{}, 0, "must be an IP address or localhost before the port, such as " + example +
			"; what another name means may change"
	}
	return host.Unmap(), uint16(n), ""
}

// publicURLProblem returns the mistake in public_url, or "".
func (c *Config) publicURLProblem() string {
	if c.PublicURL == "" {
		return ""
	}
	u, err := url.Parse(c.PublicURL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || hostProblem(u.Host) != "" ||
		u.User != nil:
		return "must be the URL that clients reach the server by, such as https://mcp.example.com"
	case u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return "ends after host and port, since the endpoints have their paths; write " + u.Scheme + "://" + u.Host
	case u.Scheme == "http" && !loopback.Host(u.Hostname()):
		return "must be https: keys and answers would cross the network for all to read; http is for loopback alone"
	}
	return ""
}

func originProblem(o string) string {
	switch u, err := url.Parse(o); {
	case o == "*" || o == "null":
		return "would let any web page in; name each origin, such as https://app.example.com"
	case err != nil || u.Scheme == "" || u.Host == "" || strings.ContainsAny(o, "* "):
		return "must be an origin, such as https://app.example.com"
	case u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil || u.ForceQuery:
		return "an origin ends after host and port; write " + u.Scheme + "://" + u.Host
	case u.Scheme == "https" && u.Port() == "443" || u.Scheme == "http" && u.Port() == "80":
		return "browsers leave out the default port; write " + u.Scheme + "://" +
			strings.TrimSuffix(u.Host, ":"+u.Port())
	}
	return ""
}

func hostProblem(h string) string {
	if h == "*" {
		return "would switch the check off; name each host, such as mcp.example.com"
	}
	if u, err := url.Parse("http://" + h); err != nil || h == "" || u.Host != h || u.Hostname() == "" ||
		strings.ContainsAny(h, "* ") {
		return "must be a host, such as mcp.example.com or mcp.example.com:8443"
	}
	return ""
}

// The forms of names.separator, and of the names of endpoints and surfaces.
var (
	separator = regexp.MustCompile(`^[A-Za-z0-9_-]{1,4}$`)
	word      = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_-]{0,31}$`)
)

// validateUpstream reports the mistakes that package upstream finds in an entry.
func (c *Config) validateUpstream(d *decoder, name string) {
	u, at := c.Upstreams[name], "upstreams."+name
	// A command or a url with mistakes must not be reported as missing, too.
	u.Assume(func(key string) bool { return d.broken(at + "." + key) })
	unread := d.broken(at + ".auth") // an unknown mode must not be reported as a missing one, too
	for _, p := range u.Validate(name) {
		if unread && p.Path == "auth" {
			continue
		}
		path := at
		if p.Path != "" {
			path += "." + p.Path
		}
		d.check(path, p.Text)
	}
	c.validateFolder(d, name)
	for _, twice := range folded(inOrder(d, at+".headers", u.Headers)) {
		d.invalid(at+".headers."+twice[1], "is the header %s (line %d) again; keep one", twice[0],
			d.line(at+".headers."+twice[0]))
	}
}

// validateNames reports upstreams and tools whose names clients or people could not tell apart.
func (c *Config) validateNames(d *decoder) {
	names := inOrder(d, "upstreams", c.Upstreams)
	for _, twice := range folded(names) {
		d.invalid("upstreams."+twice[1], "differs from %s (line %d) only in upper and lower case; give one of them "+
			"another name", twice[0], d.line("upstreams."+twice[0]))
	}
	// Compare prefixes and the tools that the file names. Other names are known only when the
	// servers have listed their tools.
	sep := c.Names.Separator
	if sep == "" {
		sep = "__"
	}
	prefixes, tools, globs := map[string]string{}, map[string]string{}, map[string]string{}
	for _, name := range names {
		u := c.Upstreams[name]
		if u.Off() {
			continue
		}
		prefix := u.PrefixOr(name)
		if other, ok := prefixes[prefix]; ok && prefix != "" {
			d.invalid("upstreams."+name+".prefix",
				"%s is the prefix of the upstream %s already (line %d); give one of them another prefix",
				prose.Quote(prefix), other, d.line("upstreams."+other+".prefix"))
			continue // each of its tools would repeat the same mistake
		}
		prefixes[prefix] = name
		for _, r := range u.Tools {
			exposed := r.As
			if exposed == "" || r.Off() {
				continue
			}
			if prefix != "" {
				exposed = prefix + sep + exposed
			}
			if c.searches() && search.Own(exposed) {
				d.invalid("upstreams."+name+".tools."+r.Glob+".as",
					"%s is the name of a tool of Junction, which catalog: search lists; "+
						"give this tool another name", exposed)
			}
			if other, ok := tools[exposed]; ok && other != name {
				d.invalid("upstreams."+name+".tools."+r.Glob+".as",
					"clients would see %s twice, here and from the upstream %s (line %d); give one of them another "+
						"name", exposed, other, d.line("upstreams."+other+".tools."+globs[exposed]+".as"))
			}
			tools[exposed], globs[exposed] = name, r.Glob
		}
	}
}

// validateCaches reports caches that have no effect because Junction does not know its users.
func (c *Config) validateCaches(d *decoder) {
	if !c.Auth.None {
		return
	}
	for _, name := range inOrder(d, "upstreams", c.Upstreams) {
		u, at := c.Upstreams[name], "upstreams."+name
		const why = "has no effect with auth.none, because Junction does not know the users; remove the key"
		if u.Cache > 0 {
			d.invalid(at+".cache", why)
		}
		for _, r := range u.Tools {
			if r.Cache != nil && *r.Cache > 0 {
				d.invalid(at+".tools."+r.Glob+".cache", why)
			}
		}
	}
}

// searches reports whether some clients see a catalog with search.
func (c *Config) searches() bool {
	for _, e := range c.Endpoints {
		if e.Catalog == policy.CatalogSearch {
			return true
		}
	}
	return slices.ContainsFunc(c.Policies, func(e policy.Entry) bool { return e.Catalog == policy.CatalogSearch })
}

// folded returns the pairs of keys that differ only in case, the earlier one first.
func folded(keys []string) [][2]string {
	var twice [][2]string
	first := map[string]string{}
	for _, k := range keys {
		low := strings.ToLower(k)
		if other, ok := first[low]; ok {
			twice = append(twice, [2]string{other, k})
			continue
		}
		first[low] = k
	}
	return twice
}

func (c *Config) validateEndpoints(d *decoder) {
	for _, name := range inOrder(d, "endpoints", c.Endpoints) {
		e, at := c.Endpoints[name], "endpoints."+name
		switch {
		case name == "mcp":
			d.invalid(at, "/mcp/mcp would be the endpoint of an upstream called mcp; choose another name")
		case name == "oauth" || name == "account":
			d.invalid(at, "the paths below /%s/ are pages of the sign-in; choose another name", name)
		case upstream.Reserved(name):
			d.invalid(at, "MCP reserves %s for the URL of a document about the server; choose another name", name)
		case !word.MatchString(name):
			d.invalid(at, "the name of an endpoint has 1 to 32 of A-Z, a-z, 0-9, _ and -, and does not begin with -")
		}
		if e.Surface != "" && !word.MatchString(e.Surface) {
			d.invalid(at+".surface", "must be 1 to 32 of A-Z, a-z, 0-9, _ and -, such as web")
		}
		for _, p := range policy.ValidateAlways(e.Catalog, e.Always) {
			d.check(at+p.Path, p.Text)
		}
		if e.Upstreams != nil && len(e.Upstreams) == 0 {
			d.invalid(at+".upstreams", "is an empty list; name an upstream, or remove the key if all are meant")
		}
		for i, u := range e.Upstreams {
			path := fmt.Sprintf("%s.upstreams[%d]", at, i)
			if _, there := c.Upstreams[u]; !there {
				problem := "there is no upstream " + prose.Quote(u)
				if near := prose.Closest(slices.Sorted(maps.Keys(c.Upstreams)), u); len(near) > 0 {
					problem += "; did you mean " + near[0] + "?"
				}
				d.check(path, problem)
			} else if slices.Contains(e.Upstreams[:i], u) {
				d.invalid(path, "%s is named twice; keep one", u)
			}
		}
	}
}

// validatePolicies reports the mistakes that package policy finds. It leaves out those about values
// that the decoder could not read.
func (c *Config) validatePolicies(d *decoder) {
	const at = "policies"
	if d.has(at) && len(c.Policies) == 0 && !d.broken(at) {
		d.invalid(at, "has no policy, so that no caller could use anything; write one, or remove the key to let "+
			"everybody in use everything")
	}
	for _, p := range c.Policies.Validate() {
		if path := at + p.Path; !d.broken(path) && !d.within(path) {
			d.invalid(path, "%s", p.Text)
		}
	}
}

// validateSignIn adds to d the mistakes in auth.oauth and in settings that need it.
func (c *Config) validateSignIn(d *decoder) {
	if len(c.Auth.ScopeCapabilities) > 0 && !c.Auth.SignsIn() && !d.broken("auth.jwt") &&
		!d.broken("auth.introspection") && !d.broken("auth.oauth") {
		d.check("auth.scope_capabilities", "has no effect without sign-in: keys have no scopes")
	}
	if c.Auth.OAuth != nil {
		for _, p := range c.Auth.OAuth.Validate() {
			if path := "auth.oauth." + p.Path; !d.wrong[yamlread.Above(path)] {
				d.check(path, p.Text)
			}
		}
		if c.PublicURL == "" && !d.broken("public_url") {
			d.check("auth.oauth", "needs public_url: it is in every token, and in what you register at the provider; "+
				"http://localhost:8420 does on this machine")
		}
	}
	for _, name := range inOrder(d, "upstreams", c.Upstreams) {
		if c.Upstreams[name].Signs() && c.PublicURL == "" && !d.broken("public_url") {
			d.check("upstreams."+name+".identity", "needs public_url: it names Junction in each statement (iss), and "+
				"the server reads the keys there")
		}
		mode := c.Upstreams[name].Auth.Mode.Row()
		broken := slices.ContainsFunc(strings.Split(string(mode.Needs), " or "), d.broken)
		switch at := "upstreams." + name + ".auth.mode"; {
		case !c.Has(mode.Needs) && !broken && !d.wrong["auth"]:
			d.check(at, fmt.Sprintf("needs %s: %s", mode.Needs, mode.NeedsFor))
		case name == "mcp" && mode.Owner == upstream.OwnerSubject:
			d.check(at, "cannot be for an upstream called mcp, whose page /connect/mcp is that of an endpoint; "+
				"choose another name")
		}
	}
	c.validateStorage(d)
}

// validateStorage adds to d the mistakes in storage and outbound.
func (c *Config) validateStorage(d *decoder) {
	switch s := c.Storage; {
	case s.Driver != "" && s.Driver != store.SQLite && s.Driver != store.Postgres:
		d.check("storage.driver", prose.Quote(s.Driver)+" is none of sqlite, postgres")
	case s.Driver == store.Postgres && s.DSN == "":
		d.check("storage.dsn", "is missing; Postgres is reached by a URL, such as ${DATABASE_URL}")
	case s.Driver != store.Postgres && s.DSN != "" && (!filepath.IsAbs(s.DSN) || strings.Contains(s.DSN, "://")):
		d.check("storage.dsn", "must be the absolute path of a file, such as /var/lib/junction/junction.db")
	}
	if f := c.Storage.KeyFile; f != "" && !filepath.IsAbs(f) {
		d.check("storage.key_file", "must be an absolute path, such as /var/lib/junction/master.key")
	}
	for i, p := range c.Outbound.AllowPrivate {
		if p.IsValid() && p.Bits() == 0 {
			d.check(fmt.Sprintf("outbound.allow_private[%d]", i),
				"would have strangers send us anywhere; name the networks that you mean")
		}
	}
}

// validateAudit adds to d the mistakes in the section audit.
func (c *Config) validateAudit(d *decoder) {
	if !d.broken("audit.file") && !d.broken("replicas") && !d.broken("replicas.advertise") {
		var problem string
		c.Audit.File, problem = c.Replicas.named(c.Audit.File)
		d.check("audit.file", problem)
	}
	switch file := c.Audit.File; {
	case d.broken("audit.file"):
	case file == "" && (d.has("audit.file") || d.has("audit.arguments") || d.has("audit.otlp")):
		d.invalid("audit", "needs a file, such as file: audit.jsonl, or file: stderr; remove the "+
			"section to write no audit")
	case strings.HasSuffix(file, "/"):
		d.invalid("audit.file", "is a folder; name a file in it, such as %saudit.jsonl", file)
	case strings.EqualFold(file, "stdout") || file == "-":
		d.invalid("audit.file", "standard output is for people; write stderr, or a file")
	}
}

func pinsProblem(file string) string {
	if file != "" && !filepath.IsAbs(file) {
		return "must be an absolute path, such as /var/lib/junction/pins.json: the proxy and junction pins may run " +
			"in different folders"
	}
	return ""
}

// inOrder returns the keys of m, the mapping at path, in the order of the file.
func inOrder[T any](d *decoder, path string, m map[string]T) []string {
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		return cmp.Or(cmp.Compare(d.line(yamlread.Join(path, a)), d.line(yamlread.Join(path, b))), cmp.Compare(a, b))
	})
}
