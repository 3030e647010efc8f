// Package config reads and validates the configuration file.
//
// Config lists the sections of the file. Load (load.go) parses the YAML (yaml.go, scalar.go), expands
// references to variables and files (reference.go), validates the values (validate.go) and warns
// about the machine (check.go, check_sandbox.go). startable.go finds the upstreams that a start leaves out.
// deciding.go keeps confined commands from changing the files that decide about sandboxes. Every mistake
// has a line and a remedy (problem.go, hint.go). exec.go has the references to programs that print secrets.
// tls.go has the section tls.
// change.go follows a changed file, by the tags of its keys (effects.go), and both.go joins two files if a
// reload is refused in part. places.go has the default paths. pack.go turns an upstream with the key pack into
// a command, and pack_servers.go adds the servers of a pack. A proxy, and most commands, block an
// upstream with a mistake instead of rejecting the file (blocked.go). schema.go has the schema for editors, and
// editors.go writes it beside the file.
package config

import (
	"fmt"
	"log/slog"
	"maps"
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
	"junction/upstream/folder"
	"junction/upstream/prose"
)

// Config is the configuration file. Each section belongs to the package that it configures. The
// comment of a field with a key is for operators, word for word: go generate writes its first paragraph to
// config.example.yaml and to tables of READMEs, and the whole comment to the schema for editors.
//
// Load sets the defaults of the fields of this package; Admin is never nil then. It converts PublicURL,
// AllowedOrigins and AllowedHosts to lower case, and removes the default port of PublicURL. It leaves
// missing fields of other packages' sections zero; their packages apply the defaults.
type Config struct {
	// Where clients connect: http://127.0.0.1:8420/mcp; /mcp/memory is the upstream memory alone.
	// This address is plain HTTP, for this machine or for a reverse proxy that terminates TLS; see
	// tls for https. An address beyond loopback, such as 0.0.0.0:8420, needs keys or a sign-in
	// (auth) and an https public_url, and only that proxy may reach it. Default 127.0.0.1:8420.
	//
	// Port 0 takes a free port.
	Listen string `yaml:"listen" change:"restart" members:"hot"`
	// A further address with https, for the host of public_url, without a reverse proxy. It needs
	// keys or a sign-in (auth). Commands, and clients of this machine, use listen.
	TLS TLS `yaml:"tls" change:"restart" members:"hot"`
	// The URL at which clients reach Junction, without a path. Junction accepts the host and the
	// origin of this URL beside those of allowed_hosts and allowed_origins.
	//
	// https, or http on loopback. Junction never takes it from a request. Default: the address of
	// listen.
	PublicURL string `yaml:"public_url" change:"call,waits" members:"hard"`
	// Where /healthz, /readyz and /metrics are, and where junction doctor and junction why ask. ""
	// turns it off. On an address such as 0.0.0.0:8421, other machines get these three paths,
	// without credentials, and nothing else. Name the host in allowed_hosts if your monitoring uses
	// a public name. Default 127.0.0.1:8421.
	Admin *string `yaml:"admin" change:"restart" members:"hot"`
	// Measures calls, for Prometheus at http://127.0.0.1:8421/metrics. The environment variable
	// OTEL_EXPORTER_OTLP_ENDPOINT switches on traces, and metrics over OTLP. Default true.
	Metrics bool `yaml:"metrics" change:"restart" members:"hot"`
	// Further origins of pages whose requests Junction accepts. Browsers send the origin of the
	// page with a request. Without authentication, pages on another port of this machine need an
	// entry, too: MCP Inspector needs http://localhost:6274.
	//
	// With authentication, Junction accepts every origin on loopback.
	AllowedOrigins []string `yaml:"allowed_origins" example:"[https://app.example.com]" change:"call,both" members:"rolls"`
	// Further values of the header Host that Junction accepts, with or without a port. Every client
	// sends the host. Junction refuses requests with other hosts than its own.
	AllowedHosts []string `yaml:"allowed_hosts" example:"[mcp.example.com]" change:"call,both" members:"rolls"`
	// How long calls in flight may continue after Junction is told to stop. Default 10s.
	//
	// Child processes have four more seconds to end.
	ShutdownGrace time.Duration `yaml:"shutdown_grace" change:"restart" members:"rolls"`
	// How long Junction continues to serve requests after it is told to stop. In this time /readyz
	// answers 503, so that load balancers send no new requests. Then shutdown_grace begins. At most
	// 10m; by default there is no delay.
	DrainDelay time.Duration `yaml:"drain_delay" change:"restart" members:"rolls"`

	// Who may connect. With anything of this section except none and trusted_proxies, every request
	// needs a key (Authorization: Bearer jct_key_…) or the token of a sign-in. The client starts
	// the sign-in by itself. This file has only the hashes of keys; junction keys create makes a
	// key with its entry.
	Auth Auth `yaml:"auth" change:"inside" members:"hard"`
	// The storage of sign-ins (auth.oauth). Secrets in the storage are encrypted with the master
	// keys, which are kept elsewhere. Without these keys Junction cannot read the secrets.
	Storage Storage `yaml:"storage" change:"restart" members:"hot"`
	// Several processes behind a load balancer. They need no sticky sessions. They share the
	// storage (postgres), the master keys and the keys of sessions.key_file. A process that differs
	// in a key such as public_url or names is refused; most keys may differ during a rollout. See
	// cmd/junction/base/replicas/README.md.
	Replicas Replicas `yaml:"replicas" change:"restart" members:"hot"`
	// Limits for connections to addresses that clients and issuers have named. They are for
	// documents of clients, and for keys that an issuer has on another host than its own. The
	// certificates are also used for authorization servers.
	Outbound Outbound `yaml:"outbound" change:"restart" members:"rolls"`
	// The log, on standard error.
	Log Log `yaml:"log" change:"restart" members:"hot"`
	// The audit: a line of JSON for each call, each rejected request and each event. It has the
	// caller, the endpoint, the tool, the verdict, its rule and the outcome. Your own tools may
	// rename the file at any time. A slow or full disk delays no call: lines wait in memory, and
	// the file has the number of lost lines. Each line has the hash of the line before: junction
	// audit shows the lines, and junction audit verify finds changed and missing ones.
	Audit Audit `yaml:"audit" change:"call,waits" members:"rolls"`
	// The names that clients see instead of the upstreams' own names. The URI of a resource gets
	// the name of the upstream in front: mcp://memory/note:1, ui://demo/clock. A URI with https:
	// stays.
	Names view.Names `yaml:"names" change:"inside" members:"hard"`
	// Limits of one client, or of all clients together. Beyond a limit a request is refused or a
	// stream is ended. Callers share bodies, sessions, streams and requests: each gets at most half
	// of what the others leave. A caller is a principal; without authentication it is a program, by
	// its User-Agent.
	//
	// Behind a proxy that authenticates (auth.none), a caller is an IPv4 address or an IPv6 /64
	// network.
	Limits proxy.Limits `yaml:"limits" change:"restart" members:"rolls"`
	// The sessions of clients of the legacy era. They survive a restart of Junction, because a
	// session id is sealed with a key.
	Sessions front.Sessions `yaml:"sessions" change:"restart" members:"rolls"`
	// What the upstreams offer: how long lists stay, and when they are read again.
	Catalog proxy.CatalogConfig `yaml:"catalog" change:"list,waits" members:"rolls"`
	// Defaults for all upstreams.
	Defaults upstream.Defaults `yaml:"defaults" change:"connection,waits" members:"rolls"`
	// The MCP servers that clients reach through Junction. You choose the names. The name of an
	// upstream stands before the names of its tools: memory__read_graph. A name has 1 to 32 of A-Z,
	// a-z, 0-9, _ and -. MCP reserves server-card and ai-catalog.
	Upstreams map[string]upstream.Config `yaml:"upstreams" change:"inside" members:"rolls"`
	// More URLs, each with some of the upstreams: web is http://127.0.0.1:8420/web/mcp. Policies
	// match requests to this URL by its surface. The names mcp, oauth, account, server-card and
	// ai-catalog are not possible.
	Endpoints map[string]scope.EndpointConfig `yaml:"endpoints" change:"inside" members:"rolls"`
	// Which callers may use which items. Without this section all callers may use every item that
	// requires no capability. With this section, every item that no rule allows is denied and
	// hidden.
	//
	// Three layers: policies that match a caller, those that match only a surface, and those
	// without a match, which are for everybody. The first layer with a rule that applies decides.
	// In this layer a deny wins. Otherwise each policy contributes its first rule that applies, and
	// the strictest of these rules decides. So a caller's own allow lifts a deny for everybody,
	// unless the policy of that deny has enforced: true. The order of policies does not matter; the
	// order of the rules of a policy does.
	Policies policy.Config `yaml:"policies" change:"list,both" members:"rolls"`
	// The accepted tool definitions, for policies with pinned: true. junction pins lists the
	// current definitions of upstreams and the differences; junction pins accept writes this file.
	// The path is absolute. By default there is no file, and pinned policies hide every tool.
	Pins string `yaml:"pins" change:"restart" members:"hot"`

	// The folders that clients may name, for upstreams with isolation: folder. Beside these, clients
	// may name the folders that you permitted with junction folders allow.
	//
	// A folder is a statement of the client: every program that can call Junction can name every
	// permitted folder. The folders limit what a client names. They do not limit what a command
	// without sandbox reads.
	Folders Folders `yaml:"folders" change:"inside" members:"hot"`

	// Packs are the absolute paths of the packs of upstreams. Load replaces the key pack of an
	// upstream by a command that serves the pack.
	Packs map[string]string `yaml:"-"`
	// Writable are the paths that confined commands may change, besides those of Upstreams: the tools of
	// all packs, the servers of packs that are off, and what the other file of Both permits.
	Writable []string `yaml:"-"`

	// Own are the files that folders of clients must be apart from: those of Junction, and those of entries.
	Own []folder.Own `yaml:"-"`

	// Inputs are the other files whose content the configuration has.
	Inputs Inputs `yaml:"-"`

	// Origins are where secrets of upstreams are kept, by upstream: files, variables and programs.
	Origins map[string][]Origin `yaml:"-"`

	// Both are the two files of a reload that was refused in part; nil if the configuration is that of one
	// file. Compile needs them. All other fields have what is in force.
	Both *Pair `yaml:"-"`
}

// Auth is the file's auth section.
type Auth struct {
	auth.Config `yaml:",inline"`
	// Users sign in with the organisation's identity provider, and clients get tokens of Junction.
	// All users of the provider may sign in; required_claims and email_domains restrict them, and
	// policies decide what each may use. It needs public_url. Register
	// <public_url>/oauth/callback/<id> at the provider. junction auth doctor compares the provider
	// with this file.
	OAuth *authserver.Config `yaml:"oauth" change:"restart" members:"hard"`
}

// SignsIn reports whether users can sign in, here or with another authorization server.
func (c *Auth) SignsIn() bool { return c.OAuth != nil || c.Config.SignsIn() }

// Issuers returns the issuers of users, as match.issuer has them.
func (c *Auth) Issuers() (list []string) {
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
	// sqlite is a file, for one process; postgres is for several. Default sqlite.
	Driver string `yaml:"driver"`
	// The path of the file, or the connection string for Postgres, such as ${DATABASE_URL}; by
	// default junction/junction.db in your state directory. Two files cannot share it: setup, add
	// and import write another one into the second file of a user.
	DSN string `yaml:"dsn"`
	// The master keys. Junction makes this file if it does not exist. By default the keys are in
	// JUNCTION_MASTER_KEYS, or in junction/master.key in your state directory.
	//
	// A line for each key, <id>:<base64 of 32 bytes>; the first key encrypts.
	KeyFile string `yaml:"key_file"`
}

// Outbound is the file's outbound section: limits for connections to URLs that clients and other
// untrusted sources supply.
type Outbound struct {
	// Private networks that Junction may connect to. Default: none.
	AllowPrivate []auth.CIDR `yaml:"allow_private" example:"[10.0.0.0/8]"`
	// Further trusted certificate authorities, in PEM. A relative path is relative to the folder of
	// this file.
	CAFile string `yaml:"ca_file" members:"hot"`
	// Of one fetch. Default 5s.
	Timeout time.Duration `yaml:"timeout"`
}

// Log is the file's log section.
type Log struct {
	// debug, info, warn or error. Default info.
	Level slog.Level `yaml:"level"`
	// text or json. Default text.
	Format LogFormat `yaml:"format"`
}

// Audit is the file's audit section: one line of JSON for each call, allowed or refused.
type Audit struct {
	// The file of the audit, or stderr; without this key there is no audit. A relative path is
	// relative to the folder of this file. If the file does not exist, Junction makes it so that
	// only its owner can read it. Each process needs its own file: {replica} in the name stands for
	// replicas.advertise.
	File string `yaml:"file" members:"hot"`
	// Write the arguments too, secrets included, not only their digest. Default false.
	Arguments bool `yaml:"arguments"`
	// Send each line as a log record over OTLP, too. The variables OTEL_EXPORTER_OTLP_* of the
	// environment name the receiver. Default false.
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

// Personal returns the names of the upstreams to which each subject has a credential of their own,
// sorted. It leaves out disabled upstreams.
func (c *Config) Personal() []string { return c.with(upstream.Config.Personal) }

// OperatorSignIns returns the names of the upstreams that the operator signs in to, sorted. It leaves
// out disabled upstreams.
func (c *Config) OperatorSignIns() []string { return c.with(upstream.Config.OperatorSignsIn) }

// Signs reports whether an upstream gets statements about its callers (identity).
func (c *Config) Signs() bool { return len(c.with(upstream.Config.Signs)) > 0 }

// Stores reports whether Junction needs its database.
func (c *Config) Stores() bool {
	stored := func(u upstream.Config) bool { return u.Auth.Mode.Row().Stores }
	return c.Auth.OAuth != nil || c.Replicas.On() || len(c.with(stored)) > 0
}

// StoringModes returns the words of the modes of credentials that need the database, and no section that
// needs it, too.
func StoringModes() (words []string) {
	for _, row := range upstream.Modes() {
		if row.Stores && row.Needs != upstream.SectionOAuth {
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
	case upstream.SectionCallers:
		return c.Auth.OAuth != nil || len(c.Auth.APIKeys) > 0
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
