// Package config reads and validates the configuration file.
//
// Config lists the sections of the file. Load parses the YAML (yaml.go, scalar.go), expands
// references to variables and files (reference.go), validates the values (validate.go) and warns
// about the machine (check.go, check_sandbox.go). Every mistake has a line and a remedy (problem.go,
// hint.go). places.go has the default paths.
package config

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"junction/auth"
	"junction/auth/authserver"
	"junction/cmd/junction/prose"
	"junction/policy"
	"junction/proxy"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/oauth"
)

// Config is the file. Each section is of the package that it configures; the comments there are the
// manual.
//
// The fields of this package have their defaults after Load. The sections of other packages have
// not: what the file leaves out of them is zero, and their package fills it in.
type Config struct {
	// Listen is where clients connect: host:port; port 0 takes a free one. Elsewhere than on
	// loopback only where Auth has who may connect, and with an https PublicURL. Default
	// 127.0.0.1:8420.
	Listen string `yaml:"listen"`
	// PublicURL is how clients reach us, without a path: https, or http on loopback. It is never
	// made from what a request says of itself. After Load in lower case and without the default
	// port. Default: Listen.
	PublicURL string `yaml:"public_url"`
	// Admin is where /healthz and /readyz are served, and what junction doctor and junction why
	// ask, on loopback too. Default 127.0.0.1:8421; "" turns it off. Never nil after Load.
	Admin *string `yaml:"admin"`
	// AllowedOrigins are further Origin values accepted from browsers, beside those of Listen
	// itself. With authentication every origin on loopback is accepted. In lower case after Load,
	// as browsers send them.
	AllowedOrigins []string `yaml:"allowed_origins"`
	// AllowedHosts are further Host values accepted, with or without a port. In lower case after
	// Load.
	AllowedHosts []string `yaml:"allowed_hosts"`
	// ShutdownGrace is how long calls in progress may go on after we are told to stop. Default 10s.
	// Child processes have four seconds more to end.
	ShutdownGrace time.Duration `yaml:"shutdown_grace"`

	Auth      Auth                       `yaml:"auth"`
	Storage   Storage                    `yaml:"storage"`
	Outbound  Outbound                   `yaml:"outbound"`
	Log       Log                        `yaml:"log"`
	Audit     Audit                      `yaml:"audit"`
	Names     view.Names                 `yaml:"names"`
	Limits    proxy.Limits               `yaml:"limits"`
	Sessions  proxy.Sessions             `yaml:"sessions"`
	Catalog   proxy.CatalogConfig        `yaml:"catalog"`
	Defaults  upstream.Defaults          `yaml:"defaults"`
	Upstreams map[string]upstream.Config `yaml:"upstreams"`
	Endpoints map[string]proxy.Endpoint  `yaml:"endpoints"`
	Policies  policy.Config              `yaml:"policies"`
	// Pins is the file of the tool definitions that an operator has accepted with junction pins, an
	// absolute path. Policies that are pinned go by it.
	Pins string `yaml:"pins"`
}

// Auth is the file's auth section.
type Auth struct {
	auth.Config `yaml:",inline"`
	// OAuth has people sign in with an identity provider, here. Default: nobody does.
	OAuth *authserver.Config `yaml:"oauth"`
}

// SignsIn reports whether people can sign in, here or with somebody else.
func (c *Auth) SignsIn() bool { return c.OAuth != nil || c.Config.SignsIn() }

// several reports whether there can be more than one principal.
func (c *Auth) several() bool {
	for _, k := range c.APIKeys {
		if k.Name != c.APIKeys[0].Name {
			return true
		}
	}
	return c.SignsIn()
}

// separate tells each upstream whether there can be more than one principal.
func (c *Config) separate() {
	for name, u := range c.Upstreams {
		u.Separate = c.Auth.several()
		c.Upstreams[name] = u
	}
}

// Needed reports whether a request must say who it comes from.
func (c *Auth) Needed() bool { return c.OAuth != nil || c.Config.Needed() }

// Storage is the file's storage section: where sign-ins are kept. Without auth.oauth there is
// nothing to keep.
type Storage struct {
	Driver string `yaml:"driver"` // sqlite, a file for one process, or postgres, for several. Default sqlite.
	// the file, or what Postgres is reached by. Default junction/junction.db in the state directory
	// of the user.
	DSN string `yaml:"dsn"`
	// KeyFile has the master keys that what is stored is sealed with, one <id>:<base64 of 32 bytes>
	// in each line; the first seals. It is made if it does not exist. Default: the variable
	// JUNCTION_MASTER_KEYS, or else junction/master.key in the state directory.
	KeyFile string `yaml:"key_file"`
}

// Outbound is the file's outbound section: what we may connect to because a stranger named
// it.
type Outbound struct {
	// networks that are not public, and may be connected to all the same. Default: none.
	AllowPrivate []auth.CIDR   `yaml:"allow_private"`
	CAFile       string        `yaml:"ca_file"` // certificates that are believed beside those of the system, in PEM
	Timeout      time.Duration `yaml:"timeout"` // of one fetch. Default 5s.
}

// Log is the file's log section.
type Log struct {
	Level  slog.Level `yaml:"level"`  // the least that is logged: debug, info, warn or error. Default info.
	Format LogFormat  `yaml:"format"` // text or json. Default text.
}

// Audit is the file's audit section: one line of JSON for each call, and for each that was
// refused.
type Audit struct {
	// where lines are added; made if it does not exist, for us alone. "stderr" is standard error.
	// "" is no audit.
	File      string `yaml:"file"`
	Arguments bool   `yaml:"arguments"` // the arguments too, whatever is in them, and not their digest alone
}

// AuditStderr is the name that is no file.
const AuditStderr = "stderr"

// LogFormat is a word of the file.
type LogFormat string

// The formats of the log.
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
	return fmt.Errorf("%s is none of text, json", prose.Quote(string(text)))
}

// DefaultAdmin is the admin address of a file that names none.
const DefaultAdmin = "127.0.0.1:8421"

// defaultConfig is what an empty file would mean, were it allowed to have no upstreams.
func defaultConfig() *Config {
	admin := DefaultAdmin
	return &Config{Listen: "127.0.0.1:8420", Admin: &admin, ShutdownGrace: 10 * time.Second, Log: Log{Format: LogText}}
}

// maxFile bounds the file; a person's configuration is a hundredth of it.
const maxFile = 1 << 20

// Load reads the file and expands its references with getenv (os.LookupEnv, but for tests). With
// the file name "" it returns the defaults, without upstreams.
//
// The error is Problems if the file can be read and has mistakes: all of them, in the order of
// their lines. Warnings come in either case: they are of things outside the file that hinder an
// upstream and not the program.
func Load(file string, getenv func(string) (string, bool)) (*Config, Warnings, error) {
	c, _, warnings, err := load(file, getenv)
	if err != nil {
		c = nil
	}
	return c, warnings, err
}

// load is Load, and returns what could be understood of a file with Problems.
func load(file string, getenv func(string) (string, bool)) (*Config, *decoder, Warnings, error) {
	if file == "" {
		return defaultConfig(), nil, nil, nil
	}
	text, err := readBounded(file, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil, fmt.Errorf("read the configuration %s: %w; name a file that exists with --config", file, err)
	}
	if err != nil {
		return nil, nil, nil, fmt.Errorf("read the configuration %s: %w", file, err)
	}
	c, d := parse(file, text, getenv)
	warnings := d.warnings(c)
	if len(d.problems) > 0 {
		return c, d, warnings, d.problems
	}
	return c, d, warnings, nil
}

// Parse is Load for a text that is, or is to become, the content of the file. It also resolves the
// references of disabled upstreams, as far as possible. The error is Problems if the text has
// mistakes, beside what could be understood.
func Parse(file string, text []byte, getenv func(string) (string, bool)) (*Config, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s would be larger than %d KiB", file, maxFile>>10)
	}
	c, d := defaultConfig(), newDecoder(file, getenv)
	d.all = true
	d.parse(text, c)
	if len(d.problems) > 0 {
		return c, d.problems
	}
	return c, nil
}

// LoadForCommand is Load for a command that does something else than to show mistakes.
func LoadForCommand(file string) (*Config, error) {
	c, _, err := Load(file, os.LookupEnv)
	if problems, ok := errors.AsType[Problems](err); ok {
		return nil, problems.Of(file)
	}
	return c, err
}

// LoadKeys is LoadForCommand for a command that names lines: it also returns the line of each entry
// of auth.api_keys. A missing file is an error.
func LoadKeys(file string) (*Config, []int, error) {
	text, err := readBounded(file, maxFile)
	if err != nil {
		return nil, nil, fmt.Errorf("read the configuration %s: %w", file, err)
	}
	c, d := parse(file, text, os.LookupEnv)
	if len(d.problems) > 0 {
		return nil, nil, d.problems.Of(file)
	}
	lines := make([]int, len(c.Auth.APIKeys))
	for i := range lines {
		lines[i] = d.line(fmt.Sprintf("auth.api_keys[%d]", i))
	}
	return c, lines, nil
}

// Of returns the error of a command that cannot use a file with these mistakes.
func (ps Problems) Of(file string) error {
	return fmt.Errorf("%s has %s; junction check --config %s shows them", file, prose.Count(len(ps), "mistake"), file)
}

// parse returns what could be understood of a text, and the decoder that knows the lines and the
// mistakes. The name of the file is for messages, and ${file:…} is relative to its folder.
func parse(file string, text []byte, getenv func(string) (string, bool)) (*Config, *decoder) {
	c, d := defaultConfig(), newDecoder(file, getenv)
	d.parse(text, c)
	return c, d
}

func (d *decoder) parse(text []byte, c *Config) {
	if d.decode(text, c) {
		c.lower()
		d.reserve(c)
		c.separate()
		c.validate(d)
	}
	d.problems.sort()
}

// readBounded returns the content of a regular file of at most limit bytes. Anything else might
// block or never end.
func readBounded(file string, limit int64) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, Reason(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, Reason(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, Reason(err)
	}
	if int64(len(text)) > limit {
		return nil, fmt.Errorf("it is larger than %d KiB", limit>>10)
	}
	return text, nil
}

// Reason is err without the operation and the path, which the message around it names.
func Reason(err error) error {
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

// Personal returns the upstreams that people sign in to.
func (c *Config) Personal() map[string]oauth.Upstream {
	return c.signIns(upstream.Config.Personal)
}

// OperatorSignIns returns the upstreams that the operator signs in to.
func (c *Config) OperatorSignIns() map[string]oauth.Upstream {
	return c.signIns(upstream.Config.OperatorSignsIn)
}

func (c *Config) signIns(such func(upstream.Config) bool) map[string]oauth.Upstream {
	all := map[string]oauth.Upstream{}
	for name, u := range c.Upstreams {
		if such(u) && !u.Off() {
			all[name] = oauth.Upstream{
				URL: u.URL, Scopes: u.Auth.Scopes, ClientID: u.Auth.ClientID, ClientSecret: u.Auth.ClientSecret, Shared: u.OperatorSignsIn(),
			}
		}
	}
	return all
}

// Checksum tells whether the file is the one that we know.
func Checksum(file string) ([32]byte, error) {
	if file == "" {
		return [32]byte{}, nil
	}
	text, err := readBounded(file, maxFile)
	if err != nil {
		return [32]byte{}, fmt.Errorf("read the configuration %s: %w", file, err)
	}
	return sha256.Sum256(text), nil
}
