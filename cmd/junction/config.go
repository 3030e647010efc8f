package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"junction/auth"
	"junction/auth/facade"
	"junction/policy"
	"junction/proxy"
	"junction/upstream"
)

// Config is the file. Each section is of the package that it configures; the comments there are the manual.
//
// The fields of this package have their defaults after Load and Parse. The sections of other packages have not: what the file leaves out of them
// is zero, and their package fills it in.
type Config struct {
	// Listen is where clients connect: host:port; port 0 takes a free one. Elsewhere than on loopback only with Auth.APIKeys and an https PublicURL.
	// Default 127.0.0.1:8420.
	Listen string `yaml:"listen"`
	// PublicURL is how clients reach us, without a path: https, or http on loopback. It is never made from what a request says of itself. After Load in lower case
	// and without the default port. Default: Listen.
	PublicURL string `yaml:"public_url"`
	// Admin is where /healthz and /readyz are served, and what junction doctor and junction why ask, on loopback too. Default 127.0.0.1:8421; "" turns it off. Never nil after Load.
	Admin *string `yaml:"admin"`
	// AllowedOrigins are further Origin values accepted from browsers, beside those of Listen itself. In lower case after Load, as browsers send them.
	AllowedOrigins []string `yaml:"allowed_origins"`
	// AllowedHosts are further Host values accepted, with or without a port. In lower case after Load.
	AllowedHosts []string `yaml:"allowed_hosts"`
	// ShutdownGrace is how long calls in progress may go on after we are told to stop. Default 10s.
	ShutdownGrace time.Duration `yaml:"shutdown_grace"`

	Auth      AuthConfig                 `yaml:"auth"`
	Storage   StorageConfig              `yaml:"storage"`
	Outbound  OutboundConfig             `yaml:"outbound"`
	Log       LogConfig                  `yaml:"log"`
	Audit     AuditConfig                `yaml:"audit"`
	Names     proxy.Names                `yaml:"names"`
	Limits    proxy.Limits               `yaml:"limits"`
	Sessions  proxy.Sessions             `yaml:"sessions"`
	Catalog   proxy.CatalogConfig        `yaml:"catalog"`
	Defaults  upstream.Defaults          `yaml:"defaults"`
	Upstreams map[string]upstream.Config `yaml:"upstreams"`
	Endpoints map[string]proxy.Endpoint  `yaml:"endpoints"`
	Policies  policy.Config              `yaml:"policies"`
	// Pins is the file of the tool definitions that an operator has accepted with junction pins, an absolute path. Policies that are pinned go by it.
	Pins string `yaml:"pins"`
}

// AuthConfig is the file's auth section.
type AuthConfig struct {
	auth.Config `yaml:",inline"`
	// OAuth has people sign in with an identity provider, here. Default: nobody does.
	OAuth *facade.Config `yaml:"oauth"`
}

// SignsIn reports whether people can sign in, here or with somebody else.
func (c *AuthConfig) SignsIn() bool { return c.OAuth != nil || c.Config.SignsIn() }

// Needed reports whether a request must say who it comes from.
func (c *AuthConfig) Needed() bool { return c.OAuth != nil || c.Config.Needed() }

// StorageConfig is the file's storage section: where sign-ins are kept. Without auth.oauth there is nothing to keep.
type StorageConfig struct {
	Driver string `yaml:"driver"` // sqlite, a file for one process, or postgres, for several. Default sqlite.
	DSN    string `yaml:"dsn"`    // the file, or what Postgres is reached by. Default junction/junction.db in the state directory of the user.
	// KeyFile has the master keys that what is stored is sealed with, one <id>:<base64 of 32 bytes> in each line; the first seals. It is made if it does not exist.
	// Default: the variable JUNCTION_MASTER_KEYS, or else junction/master.key in the state directory.
	KeyFile string `yaml:"key_file"`
}

// OutboundConfig is the file's outbound section: what we may connect to because a stranger named it.
type OutboundConfig struct {
	AllowPrivate []auth.CIDR   `yaml:"allow_private"` // networks that are not public, and may be connected to all the same. Default: none.
	CAFile       string        `yaml:"ca_file"`       // certificates that are believed beside those of the system, in PEM
	Timeout      time.Duration `yaml:"timeout"`       // of one fetch. Default 5s.
}

// LogConfig is the file's log section.
type LogConfig struct {
	Level  slog.Level `yaml:"level"`  // the least that is logged: debug, info, warn or error. Default info.
	Format LogFormat  `yaml:"format"` // text or json. Default text.
}

// AuditConfig is the file's audit section: one line of JSON for each call, and for each that was refused.
type AuditConfig struct {
	File      string `yaml:"file"`      // where lines are added; made if it does not exist, for us alone. "stderr" is standard error. "" is no audit.
	Arguments bool   `yaml:"arguments"` // the arguments too, whatever is in them, and not their digest alone
}

// auditStderr is the name that is no file.
const auditStderr = "stderr"

// LogFormat is a word of the file.
type LogFormat string

const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// UnmarshalText reads the word.
func (f *LogFormat) UnmarshalText(text []byte) error {
	switch w := LogFormat(text); w {
	case LogText, LogJSON:
		*f = w
		return nil
	}
	return fmt.Errorf("%s is none of text, json", show(string(text)))
}

// defaultAdmin is the admin address of a file that names none.
const defaultAdmin = "127.0.0.1:8421"

// defaultConfig is what an empty file would mean, were it allowed to have no upstreams.
func defaultConfig() *Config {
	admin := defaultAdmin
	return &Config{Listen: "127.0.0.1:8420", Admin: &admin, ShutdownGrace: 10 * time.Second, Log: LogConfig{Format: LogText}}
}

// maxFile bounds the file; a person's configuration is a hundredth of it.
const maxFile = 1 << 20

// Load reads the file and expands its references with getenv (os.LookupEnv, but for tests). With the file name "" it returns the defaults, without
// upstreams.
//
// The error is Problems if the file can be read and has mistakes: all of them, in the order of their lines. Warnings come in either case: they are
// of things outside the file that hinder an upstream and not the program.
func Load(file string, getenv func(string) (string, bool)) (*Config, Warnings, error) {
	if file == "" {
		return defaultConfig(), nil, nil
	}
	text, err := readBounded(file, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("read the configuration %s: %w; name a file that exists with --config", file, err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the configuration %s: %w", file, err)
	}
	c, d := parse(file, text, getenv)
	warnings := d.warnings(c)
	if len(d.problems) > 0 {
		return nil, warnings, d.problems
	}
	return c, warnings, nil
}

// loadForCommand is Load for a command that does something else than to show mistakes.
func loadForCommand(file string) (*Config, error) {
	c, _, err := Load(file, os.LookupEnv)
	if problems, ok := errors.AsType[Problems](err); ok {
		return nil, mistaken(file, problems)
	}
	return c, err
}

// mistaken is the error of a command that a file with mistakes is of no use to.
func mistaken(file string, problems Problems) error {
	return fmt.Errorf("%s has %s; junction check --config %s shows them", file, count(len(problems), "mistake"), file)
}

// Parse is Load for a text at hand. The name of the file is for messages, and ${file:…} is relative to its folder; it opens no other files, and
// does not look for programs. The error is Problems.
func Parse(file string, text []byte, getenv func(string) (string, bool)) (*Config, error) {
	c, d := parse(file, text, getenv)
	if len(d.problems) > 0 {
		return nil, d.problems
	}
	return c, nil
}

// parse returns what could be understood, and the decoder that knows the lines and the mistakes.
func parse(file string, text []byte, getenv func(string) (string, bool)) (*Config, *decoder) {
	c := defaultConfig()
	d := newDecoder(file, getenv)
	if d.decode(text, c) {
		c.lower()
		c.validate(d)
	}
	d.problems.sort()
	return c, d
}

// readBounded returns the content of a regular file of at most limit bytes. Anything else might block or never end.
func readBounded(file string, limit int64) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, reason(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, reason(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, reason(err)
	}
	if int64(len(text)) > limit {
		return nil, fmt.Errorf("it is larger than %d KiB", limit>>10)
	}
	return text, nil
}

// reason is err without the operation and the path, which the message around it names.
func reason(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// lower brings URLs, origins and hosts to the form in which they are compared.
func (c *Config) lower() {
	c.PublicURL = strings.TrimSuffix(strings.ToLower(c.PublicURL), "/")
	for scheme, port := range map[string]string{"https://": ":443", "http://": ":80"} {
		if strings.HasPrefix(c.PublicURL, scheme) {
			c.PublicURL = strings.TrimSuffix(c.PublicURL, port)
		}
	}
	for _, l := range [][]string{c.AllowedOrigins, c.AllowedHosts} {
		for i := range l {
			l[i] = strings.ToLower(l[i])
		}
	}
}

// validate adds to d what is wrong with values that are well formed each. It opens and looks up nothing.
func (c *Config) validate(d *decoder) {
	d.check("public_url", c.publicURLProblem())
	c.validateAddresses(d)
	for _, p := range c.Auth.Validate() {
		if path := "auth." + p.Path; !d.wrong[above(path)] {
			d.check(path, p.Text)
		}
	}
	c.validateSignIn(d)
	for i, o := range c.AllowedOrigins {
		d.check(fmt.Sprintf("allowed_origins[%d]", i), originProblem(o))
	}
	for i, h := range c.AllowedHosts {
		d.check(fmt.Sprintf("allowed_hosts[%d]", i), hostProblem(h))
	}
	if n := c.Names.MaxLength; n != 0 && (n < 16 || n > 128) {
		d.invalid("names.max_length", "%d is out of range; want 16 to 128", n)
	}
	if s := c.Names.Separator; d.has("names.separator") && !separator(s) {
		d.invalid("names.separator", "want 1 to 4 of A-Z, a-z, 0-9, _ and -")
	}
	if len(c.Upstreams) == 0 && !d.broken("upstreams") {
		d.invalid("upstreams", "needs at least one entry, such as demo: { command: [junction, demo] }")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		c.validateUpstream(d, name)
	}
	c.validateNames(d)
	c.validateEndpoints(d)
	c.validatePolicies(d)
	d.check("pins", pinsProblem(c.Pins))
	c.validateAudit(d)
}

func (c *Config) validateEndpoints(d *decoder) {
	for _, name := range inOrder(d, "endpoints", c.Endpoints) {
		at := "endpoints." + name
		if name == "mcp" {
			d.invalid(at, "/mcp/mcp would be the endpoint of an upstream called mcp; choose another name")
		} else if !word(name) {
			d.invalid(at, "the name of an endpoint has 1 to 32 of A-Z, a-z, 0-9, _ and -, and does not begin with -")
		}
		if s := c.Endpoints[name].Surface; s != "" && !word(s) {
			d.invalid(at+".surface", "want 1 to 32 of A-Z, a-z, 0-9, _ and -, such as web")
		}
		if list := c.Endpoints[name].Upstreams; list != nil && len(list) == 0 {
			d.invalid(at+".upstreams", "is an empty list; name an upstream, or remove the key if all are meant")
		}
		for i, u := range c.Endpoints[name].Upstreams {
			if _, there := c.Upstreams[u]; !there {
				problem := "there is no upstream " + show(u)
				if near := closest(slices.Sorted(maps.Keys(c.Upstreams)), u); len(near) > 0 {
					problem += "; did you mean " + near[0] + "?"
				}
				d.invalid(fmt.Sprintf("%s.upstreams[%d]", at, i), "%s", problem)
			} else if slices.Contains(c.Endpoints[name].Upstreams[:i], u) {
				d.invalid(fmt.Sprintf("%s.upstreams[%d]", at, i), "%s is named twice; keep one", u)
			}
		}
	}
}

// word reports whether s can be the name of an endpoint or of a surface.
func word(s string) bool {
	return len(s) >= 1 && len(s) <= 32 && s[0] != '-' && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

func (c *Config) validateAddresses(d *decoder) {
	// What is there and cannot be understood must not be reported as missing on top.
	problem := c.listenProblem(c.Listen, d.broken("auth.api_keys") || d.broken("auth.jwt") || d.broken("auth.introspection") || d.broken("auth.oauth") || d.wrong["auth"], d.broken("public_url"))
	d.check("listen", problem)
	if *c.Admin == "" {
		return
	}
	host, port, _ := splitAddress(c.Listen, "127.0.0.1:8420")
	adminHost, adminPort, adminProblem := splitAddress(*c.Admin, "127.0.0.1:8421")
	if adminProblem == "" && !adminHost.IsLoopback() {
		adminProblem = "is for this machine alone; use 127.0.0.1:" + strconv.Itoa(int(adminPort))
	}
	if d.check("admin", adminProblem); problem != "" || adminProblem != "" {
		return
	}
	if port != 0 && port == adminPort && (host == adminHost || host.IsUnspecified()) {
		path, other := "admin", "listen"
		if !d.has(path) {
			path, other = other, path
		}
		d.invalid(path, "is the address of %s too; give one of them another port", other)
	}
}

// listenProblem says what is wrong with listening on an address, if anything is. Beyond loopback strangers reach it: each must say who it is, and nobody on the way
// may read that. The last two arguments say that the file gives keys, and a public_url, whatever is wrong with them.
func (c *Config) listenProblem(address string, givesKeys, givesURL bool) string {
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
	return fmt.Sprintf("listening elsewhere than on loopback needs %s; add what is missing, or use 127.0.0.1:%d behind your own gateway or an ssh tunnel",
		strings.Join(missing, " and "), port)
}

// splitAddress takes an address apart and says what is wrong with it as one to listen on, if anything is. Without a host it is that of all addresses.
func splitAddress(address, example string) (host netip.Addr, port uint16, problem string) {
	name, p, err := net.SplitHostPort(address)
	if err != nil {
		return netip.Addr{}, 0, "want host:port, such as " + example + " or [::1]" + example[strings.IndexByte(example, ':'):]
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return netip.Addr{}, 0, "want a port from 0 to 65535, such as " + example
	}
	switch name {
	case "localhost":
		name = "127.0.0.1"
	case "":
		name = "::"
	}
	// A name other than localhost is not looked up: what it means may change after this check.
	if host, err = netip.ParseAddr(name); err != nil {
		return netip.Addr{}, 0, "want an IP address or localhost before the port, such as " + example + "; what another name means may change"
	}
	return host.Unmap(), uint16(n), ""
}

// publicURLProblem says what is wrong with public_url, if anything is.
func (c *Config) publicURLProblem() string {
	if c.PublicURL == "" {
		return ""
	}
	u, err := url.Parse(c.PublicURL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || hostProblem(u.Host) != "" || u.User != nil:
		return "want the URL that clients reach the server by, such as https://mcp.example.com"
	case u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return "ends after host and port, since the endpoints have their paths; write " + u.Scheme + "://" + u.Host
	case u.Scheme == "http" && !loopbackHost(u.Hostname()):
		return "want https: keys and answers would cross the network for all to read; http is for loopback alone"
	}
	return ""
}

// loopbackHost reports whether the host of a URL is this machine.
func loopbackHost(name string) bool {
	ip, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

func originProblem(o string) string {
	switch u, err := url.Parse(o); {
	case o == "*" || o == "null":
		return "would let any web page in; name each origin, such as https://app.example.com"
	case err != nil || u.Scheme == "" || u.Host == "" || strings.ContainsAny(o, "* "):
		return "want an origin, such as https://app.example.com"
	case u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil || u.ForceQuery:
		return "an origin ends after host and port; write " + u.Scheme + "://" + u.Host
	case u.Scheme == "https" && u.Port() == "443" || u.Scheme == "http" && u.Port() == "80":
		return "browsers leave out the default port; write " + u.Scheme + "://" + strings.TrimSuffix(u.Host, ":"+u.Port())
	}
	return ""
}

func hostProblem(h string) string {
	if h == "*" {
		return "would switch the check off; name each host, such as mcp.example.com"
	}
	if u, err := url.Parse("http://" + h); err != nil || h == "" || u.Host != h || u.Hostname() == "" || strings.ContainsAny(h, "* ") {
		return "want a host, such as mcp.example.com or mcp.example.com:8443"
	}
	return ""
}

func separator(s string) bool {
	return len(s) >= 1 && len(s) <= 4 && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

// validateUpstream asks the package that the entry is for.
func (c *Config) validateUpstream(d *decoder, name string) {
	u, at := c.Upstreams[name], "upstreams."+name
	// Where a command or a url is there and cannot be understood, it must not be reported as missing on top.
	if d.broken(at+".command") && (len(u.Command) == 0 || u.Command[0] == "") {
		u.Command = append([]string{"unknown"}, u.Command[min(1, len(u.Command)):]...)
	}
	if d.broken(at+".url") && u.URL == "" {
		u.URL = "http://unknown.invalid"
	}
	for _, p := range u.Validate(name) {
		path := at
		if p.Path != "" {
			path += "." + p.Path
		}
		d.check(path, p.Text)
	}
	for _, twice := range folded(inOrder(d, at+".headers", u.Headers)) {
		d.invalid(at+".headers."+twice[1], "is the header %s again; keep one", twice[0])
	}
}

// validateNames finds entries that would be one to a client, or to a person.
func (c *Config) validateNames(d *decoder) {
	names := inOrder(d, "upstreams", c.Upstreams)
	for _, twice := range folded(names) {
		d.invalid("upstreams."+twice[1], "differs from %s only in upper and lower case; give one of them another name", twice[0])
	}
	// What a client will certainly see: prefixes, and the tools that the file itself names. The rest is known only when the servers have listed.
	sep := c.Names.Separator
	if sep == "" {
		sep = "__"
	}
	prefixes, tools := map[string]string{}, map[string]string{}
	for _, name := range names {
		u := c.Upstreams[name]
		if u.Off() {
			continue
		}
		prefix := u.PrefixOr(name)
		if other, ok := prefixes[prefix]; ok && prefix != "" {
			d.invalid("upstreams."+name+".prefix", "%s is the prefix of the upstream %s already; give one of them another prefix", show(prefix), other)
			continue // each of its tools would be the same mistake
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
			if other, ok := tools[exposed]; ok && other != name {
				d.invalid("upstreams."+name+".tools."+r.Glob+".as", "clients would see %s twice, here and from the upstream %s; give one of them another name",
					exposed, other)
			}
			tools[exposed] = name
		}
	}
}

// validatePolicies asks the package. What it says of a value in which the walk found mistakes would be about a stand-in, and waits until they are gone.
func (c *Config) validatePolicies(d *decoder) {
	const at = "policies"
	if d.has(at) && len(c.Policies) == 0 && !d.broken(at) {
		d.invalid(at, "has no policy, so that nobody could use anything; write one, or remove the key to let everybody in use everything")
	}
	for _, p := range c.Policies.Validate() {
		if path := at + p.Path; !d.broken(path) && !d.within(path) {
			d.invalid(path, "%s", p.Text)
		}
	}
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

// inOrder returns the keys of m, which the file gives at path, in the order of the file.
func inOrder[T any](d *decoder, path string, m map[string]T) []string {
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		return cmp.Or(cmp.Compare(d.line(join(path, a)), d.line(join(path, b))), cmp.Compare(a, b))
	})
}
