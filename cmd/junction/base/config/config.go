// Package config reads and validates the configuration file.
//
// Config lists the sections of the file. Load parses the YAML (yaml.go, scalar.go), expands
// references to variables and files (reference.go), validates the values (validate.go) and warns
// about the machine (check.go, check_sandbox.go). startable.go finds the upstreams that a start leaves out.
// deciding.go keeps confined commands from changing the files that decide about sandboxes. Every mistake
// has a line and a remedy (problem.go, hint.go).
// change.go follows a changed file, by the tags of its keys (effects.go), and both.go joins two files if a
// reload is refused in part. places.go has the default paths. pack.go turns an upstream with the key pack into
// a command, and pack_servers.go adds the servers of a pack. A proxy, and most commands, block an
// upstream with a mistake instead of rejecting the file (blocked.go).
package config

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"junction/auth"
	"junction/auth/authserver"
	"junction/policy"
	"junction/proxy"
	"junction/proxy/front"
	"junction/proxy/scope"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/files"
	"junction/upstream/prose"
)

// Config is the configuration file. Each section belongs to the package that it configures; the
// field comments are the reference of the file.
//
// Load sets the defaults of the fields of this package. It leaves missing fields of other packages'
// sections zero; their packages apply the defaults.
type Config struct {
	// Listen is the address for clients: host:port; port 0 takes a free port. An address outside
	// loopback needs authentication (Auth) and an https PublicURL. Default 127.0.0.1:8420.
	Listen string `yaml:"listen" change:"restart" members:"hot"`
	// PublicURL is the URL of the proxy for clients, without a path: https, or http on loopback. It
	// is never derived from a request. Load converts it to lower case and removes the default port.
	// Default: Listen.
	PublicURL string `yaml:"public_url" change:"call,waits" members:"hard"`
	// Admin is the address of /healthz, /readyz and /metrics, and of the commands that ask a running
	// proxy. On an address outside of loopback, other machines get only these three paths. Default
	// 127.0.0.1:8421; "" turns it off. Never nil after Load.
	Admin *string `yaml:"admin" change:"restart" members:"hot"`
	// Metrics measures calls and offers /metrics for Prometheus at Admin. Default true.
	Metrics bool `yaml:"metrics" change:"restart" members:"hot"`
	// AllowedOrigins are further Origin values accepted from browsers, in addition to those of
	// Listen. With authentication every loopback origin is accepted. Load converts them to lower
	// case, as browsers send them.
	AllowedOrigins []string `yaml:"allowed_origins" example:"[https://app.example.com]" change:"call,both" members:"hot"`
	// AllowedHosts are further Host values accepted, with or without a port. Load converts them to
	// lower case.
	AllowedHosts []string `yaml:"allowed_hosts" example:"[mcp.example.com]" change:"call,both" members:"hot"`
	// ShutdownGrace is how long in-flight calls may continue after a shutdown request. Default 10s.
	// Child processes have four more seconds to end.
	ShutdownGrace time.Duration `yaml:"shutdown_grace" change:"restart" members:"hot"`
	// DrainDelay is how long Junction goes on serving after a shutdown request while /readyz answers
	// 503, so that load balancers can take it out first. Default 0.
	DrainDelay time.Duration `yaml:"drain_delay" change:"restart" members:"hot"`

	Auth     Auth                `yaml:"auth" change:"inside" members:"hard"`
	Storage  Storage             `yaml:"storage" change:"restart" members:"hot"`
	Replicas Replicas            `yaml:"replicas" change:"restart" members:"hot"`
	Outbound Outbound            `yaml:"outbound" change:"restart" members:"hot"`
	Log      Log                 `yaml:"log" change:"restart" members:"hot"`
	Audit    Audit               `yaml:"audit" change:"call,waits" members:"hot"`
	Names    view.Names          `yaml:"names" change:"inside" members:"hard"`
	Limits   proxy.Limits        `yaml:"limits" change:"restart" members:"rolls"`
	Sessions front.Sessions      `yaml:"sessions" change:"restart" members:"hot"`
	Catalog  proxy.CatalogConfig `yaml:"catalog" change:"list,waits" members:"hot"`
	Defaults upstream.Defaults   `yaml:"defaults" change:"connection,waits" members:"hot"`
	// Upstreams are the MCP servers by their names. The name of an upstream stands before the names of its
	// tools.
	Upstreams map[string]upstream.Config `yaml:"upstreams" change:"inside" members:"rolls"`
	// Endpoints are more URLs by their names, each with some of the upstreams: web is /web/mcp.
	Endpoints map[string]scope.EndpointConfig `yaml:"endpoints" change:"inside" members:"rolls"`
	Policies  policy.Config                   `yaml:"policies" change:"list,both" members:"rolls"`
	// Pins is the file of the tool definitions that an operator has accepted with junction pins, an
	// absolute path. Pinned policies hide tools that are not in it.
	Pins string `yaml:"pins" change:"restart" members:"hot"`

	// Packs are the absolute paths of the packs of upstreams. Load replaces the key pack of an
	// upstream by a command that serves the pack.
	Packs map[string]string `yaml:"-"`
	// Writable are the paths that confined commands may change, besides those of Upstreams: the tools of
	// all packs, the servers of packs that are off, and what the other file of Both permits.
	Writable []string `yaml:"-"`

	// Both are the two files of a reload that was refused in part; nil if the configuration is that of one
	// file. Compile needs them. All other fields have what is in force.
	Both *Pair `yaml:"-"`
}

// Auth is the file's auth section.
type Auth struct {
	auth.Config `yaml:",inline"`
	// OAuth configures the built-in authorization server. Default: none.
	OAuth *authserver.Config `yaml:"oauth" change:"restart"`
}

// SignsIn reports whether users can sign in, here or with another authorization server.
func (c *Auth) SignsIn() bool { return c.OAuth != nil || c.Config.SignsIn() }

// issuers returns the issuers of users, as match.issuer has them.
func (c *Auth) issuers() (list []string) {
	for _, i := range c.JWT {
		list = append(list, i.Issuer)
	}
	if c.Introspection != nil {
		list = append(list, c.Introspection.Issuer)
	}
	if c.OAuth != nil {
		for _, p := range c.OAuth.IdentityProviders {
			list = append(list, p.Issuer)
		}
	}
	return list
}

// several reports whether there can be more than one principal.
func (c *Auth) several() bool {
	other := func(k auth.Key) bool { return k.Name != c.APIKeys[0].Name }
	return c.SignsIn() || slices.ContainsFunc(c.APIKeys, other)
}

// SignInMode returns the mode of auth for a new upstream that requires a sign-in. It is AuthNone if
// there is more than one principal, and users cannot sign in here: then only the operator can decide
// whether all callers may act with one account.
func (c *Auth) SignInMode() upstream.AuthMode {
	switch {
	case !c.several():
		return upstream.SignInMode(upstream.OwnerOperator)
	case c.OAuth != nil:
		return upstream.SignInMode(upstream.OwnerSubject)
	}
	return upstream.SignInMode(upstream.OwnerNobody)
}

// separate sets for each upstream whether there can be more than one principal.
func (c *Config) separate() {
	for name, u := range c.Upstreams {
		u.Separate = c.Auth.several()
		c.Upstreams[name] = u
	}
}

// Needed reports whether a request must be authenticated.
func (c *Auth) Needed() bool { return c.OAuth != nil || c.Config.Needed() }

// Open reports whether no request must authenticate, and the file does not state that another program
// authenticates (none).
func (c *Auth) Open() bool { return !c.Needed() && !c.None }

// Storage is the file's storage section: where sign-ins are stored. It is used only if
// Config.Stores is true.
type Storage struct {
	Driver string `yaml:"driver"` // sqlite (a file, one process) or postgres (several processes). Default sqlite.
	// the path of the file, or the connection string for Postgres. Default: junction/junction.db in
	// the user's state directory.
	DSN string `yaml:"dsn"`
	// KeyFile contains the master keys that encrypt the stored data, one <id>:<base64 of 32 bytes>
	// per line; the first one encrypts. It is created if it does not exist. Default: the variable
	// JUNCTION_MASTER_KEYS, otherwise junction/master.key in the state directory.
	KeyFile string `yaml:"key_file"`
}

// Outbound is the file's outbound section: limits for connections to URLs that clients and other
// untrusted sources supply.
type Outbound struct {
	// private networks that connections are allowed to. Default: none.
	AllowPrivate []auth.CIDR   `yaml:"allow_private" example:"[10.0.0.0/8]"`
	CAFile       string        `yaml:"ca_file"` // further trusted certificate authorities, in PEM
	Timeout      time.Duration `yaml:"timeout"` // for one fetch. Default 5s.
}

// Log is the file's log section.
type Log struct {
	Level  slog.Level `yaml:"level"`  // the minimum level: debug, info, warn or error. Default info.
	Format LogFormat  `yaml:"format"` // text or json. Default text.
}

// Audit is the file's audit section: one line of JSON for each call, allowed or refused.
type Audit struct {
	// the file that lines are appended to; created if it does not exist, readable only by its
	// owner. "stderr" is standard error. "" disables the audit. {replica} stands for
	// replicas.advertise: each process writes a file of its own.
	File      string `yaml:"file"`
	Arguments bool   `yaml:"arguments"` // record the arguments, which may be secret, and not only a digest
	// OTLP sends each line as a log record, too, to the receiver that the variables
	// OTEL_EXPORTER_OTLP_* name.
	OTLP bool `yaml:"otlp"`
}

// relative reports whether the file is relative to the folder of the configuration file. Other words
// are mistakes.
func (a Audit) relative() bool {
	return a.File != "" && a.File != AuditStderr && !filepath.IsAbs(a.File) && !strings.HasSuffix(a.File, "/") &&
		!strings.EqualFold(a.File, "stdout") && a.File != "-"
}

// AuditStderr is the value of Audit.File that means standard error.
const AuditStderr = "stderr"

// LogFormat is the format of the log: text or json.
type LogFormat string

// The formats of the log.
const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// Words returns the words of the file.
func (LogFormat) Words() []string { return []string{string(LogText), string(LogJSON)} }

// UnmarshalText rejects unknown formats.
func (f *LogFormat) UnmarshalText(text []byte) error {
	if !slices.Contains(f.Words(), string(text)) {
		return fmt.Errorf("%s is none of %s", prose.Quote(string(text)), strings.Join(f.Words(), ", "))
	}
	*f = LogFormat(text)
	return nil
}

// DefaultAdmin is the default of Config.Admin.
const DefaultAdmin = "127.0.0.1:8421"

// defaultConfig returns the defaults, without upstreams.
func defaultConfig() *Config {
	admin := DefaultAdmin
	return &Config{Listen: "127.0.0.1:8420", Admin: &admin, Metrics: true, ShutdownGrace: 10 * time.Second,
		Log: Log{Format: LogText}}
}

// maxFile limits the size of the file, far above that of a real configuration.
const maxFile = 1 << 20

// Load reads the file and expands its references with getenv (os.LookupEnv outside of tests). For
// the file name "" it returns the defaults, without upstreams.
//
// If the file has mistakes, the error is Problems: all of them, in the order of their lines.
// Warnings are returned with and without an error. They concern conditions outside the file that
// affect one upstream but not the start of the program.
func Load(file string, getenv func(string) (string, bool)) (*Config, Problems, error) {
	c, d, warnings, err := load(file, getenv)
	warnings = append(warnings, c.packWarnings(d)...)
	if err != nil {
		c = nil
	}
	return c, warnings, err
}

// load is Load, but returns the readable part of a file along with Problems. The decoder is nil
// without a file.
func load(file string, getenv func(string) (string, bool)) (*Config, *decoder, Problems, error) {
	if file == "" {
		return defaultConfig(), nil, nil, nil
	}
	text, err := readFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; name another file with --config, or create it with junction add", err)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	c, d := parse(file, text, getenv)
	return c, d, d.warnings(c), d.err()
}

func readFile(file string) ([]byte, error) {
	text, err := files.Read(file, maxFile)
	if errors.Is(err, files.ErrIrregular) {
		return nil, fmt.Errorf("read the configuration %s: %w; name a file, such as config.yaml", file, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read the configuration %s: %w", file, err)
	}
	return text, nil
}

// Parse is Load for text that is, or will become, the content of the file. If the text has mistakes,
// the error is Problems, and the Config has the readable part of the text.
func Parse(file string, text []byte, getenv func(string) (string, bool)) (*Config, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s would be larger than %d KiB", file, maxFile>>10)
	}
	c, d := parse(file, text, getenv)
	return c, d.err()
}

// LoadForCommand is LoadServing for a command: a mistake in the entry of one upstream blocks only
// that upstream. It replaces Problems by an error that counts them. A variable that is not set is no
// mistake, except in the sections that all commands read, and in those of needs: the service has
// variables that the shell of an operator does not have.
func LoadForCommand(file string, needs ...string) (*Config, error) {
	c, d, _, err := load(file, os.LookupEnv)
	problems, ok := errors.AsType[Problems](err)
	if !ok {
		return c, err
	}
	needs = append(needs, "upstreams", "storage", "listen", "admin", "public_url", "audit", "pins", "outbound")
	needed := slices.DeleteFunc(slices.Clone(problems), func(p Problem) bool {
		section, _, _ := strings.Cut(p.Path, ".")
		return d.unresolved[p.Path] && !slices.Contains(needs, section)
	})
	rejecting := c.block(d, needed, false)
	if len(rejecting) == 0 {
		return c, nil
	}
	first := rejecting[0]
	if name := d.unset[first.Path]; name != "" && len(rejecting) == 1 {
		return nil, fmt.Errorf("%s:%d: %s needs the environment variable %s, which is not set in this shell; set it "+
			"to the value that the running junction has", file, first.Line, first.Path, name)
	}
	return nil, Unusable(file, needed)
}

// LoadKeys is LoadForCommand for commands that print line numbers: it also returns the line of each
// entry of auth.api_keys. A missing file is an error.
func LoadKeys(file string) (*Config, []int, error) {
	text, err := readFile(file)
	if err != nil {
		return nil, nil, err
	}
	c, d := parse(file, text, os.LookupEnv)
	if len(c.Rejecting(d.Problems)) > 0 {
		return nil, nil, Unusable(file, d.Problems)
	}
	lines := make([]int, len(c.Auth.APIKeys))
	for i := range lines {
		lines[i] = d.line(fmt.Sprintf("auth.api_keys[%d]", i))
	}
	return c, lines, nil
}

// Unusable returns the error of a command that cannot use the file because of its mistakes.
func Unusable(file string, ps Problems) error {
	return fmt.Errorf("%s has %s; %s shows them", file, prose.Count(len(ps), "mistake"),
		Command(file, "check"))
}

// parse returns the readable part of a text, and the decoder with its lines and mistakes. The file
// name is used in messages and as the base of relative paths in ${file:…}. all resolves the
// references of disabled upstreams, too.
func parse(file string, text []byte, getenv func(string) (string, bool)) (*Config, *decoder) {
	c, d := defaultConfig(), newDecoder(file, getenv)
	if d.decode(text, c) {
		c.lower()
		if c.Audit.relative() {
			c.Audit.File = beside(file, c.Audit.File)
		}
		d.usePacks(c)
		d.reserve(c)
		c.separate()
		c.validate(d)
		c.confine(d)
	}
	d.Problems.Sort()
	return c, d
}

// lower converts URLs, origins and hosts to the form in which they are compared.
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

// Personal returns the names of the upstreams to which each subject has a credential of their own,
// sorted. It leaves out disabled upstreams.
func (c *Config) Personal() []string { return c.with(upstream.Config.Personal) }

// OperatorSignIns returns the names of the upstreams that the operator signs in to, sorted. It leaves
// out disabled upstreams.
func (c *Config) OperatorSignIns() []string { return c.with(upstream.Config.OperatorSignsIn) }

// Stores reports whether Junction needs its database.
func (c *Config) Stores() bool {
	stored := func(u upstream.Config) bool { return u.Auth.Mode.Row().Stores }
	return c.Auth.OAuth != nil || c.Replicas.On() || len(c.with(stored)) > 0
}

// StoringModes returns the words of the modes of credentials that need the database, and no section that
// needs it, too.
func StoringModes() (words []string) {
	for _, row := range upstream.Modes() {
		if row.Stores && row.Needs == upstream.SectionNone {
			words = append(words, row.Word.String())
		}
	}
	return words
}

// Has reports whether the file has a section that a mode of credentials needs.
func (c *Config) Has(section upstream.Section) bool {
	switch section {
	case upstream.SectionNone:
		return true
	case upstream.SectionOAuth:
		return c.Auth.OAuth != nil
	}
	return false
}

// with returns the names of the enabled upstreams for which such is true, sorted.
func (c *Config) with(such func(upstream.Config) bool) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		if u := c.Upstreams[name]; such(u) && !u.Off() {
			names = append(names, name)
		}
	}
	return names
}

// Checksum returns the SHA-256 sum of the file, to detect changes. It is zero for the file name "".
func Checksum(file string) ([32]byte, error) {
	hash, _, err := Look(file)
	return hash, err
}

// Look is Checksum, and reports whether the file ends with the end of a line. One that does not may
// be a file that is still being written.
func Look(file string) (hash [32]byte, ends bool, err error) {
	if file == "" {
		return [32]byte{}, true, nil
	}
	text, err := readFile(file)
	if err != nil {
		return [32]byte{}, false, err
	}
	return sha256.Sum256(text), bytes.HasSuffix(text, []byte{'\n'}), nil
}
