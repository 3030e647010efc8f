package upstream

import (
	"cmp"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"junction/upstream/client"
	"junction/upstream/command"
	"junction/upstream/transport"
	"junction/upstream/yamlread"
)

// Config is one entry of the file's upstreams section: one MCP server. Either Command or URL is
// set, never both. The tag kind of a field is the key of the only kind of server that has the field.
// The tag limit of a number makes it a row of Limits.
// The tag credential marks a key whose values are, or prove, credentials for the server (IsCredential).
type Config struct {
	// The program and its arguments. Junction starts it as a child process that speaks MCP over its
	// standard input and output. No shell is involved.
	//
	// If the program does not exist, the file is still valid: the upstream shows the reason, and
	// Junction tries again.
	Command []string `yaml:"command" example:"[npx, -y, some-package]" change:"connection,waits"`
	// The environment of the command, beside HOME, PATH, language, proxy and certificate settings,
	// and the caches of npm and uv. Only inherit_env passes on further variables of Junction.
	// ${user.key} stands for the key of the caller (auth.mode: user_key), who then has a process of
	// their own.
	Env map[string]string `yaml:"env" kind:"command" change:"connection,waits" credential:"true"`
	// Further variables of Junction that the command gets: exact names, globs such as AWS_*, or the
	// word all. JUNCTION_*, and variables that this file uses elsewhere, need their exact names.
	InheritEnv command.Inherit `yaml:"inherit_env" kind:"command" change:"connection,waits"`
	// Reserved are the variables that the file uses elsewhere. The reader of the file sets them.
	Reserved []string `yaml:"-" change:"connection"`
	// The working directory of the command; by default that of Junction. With sandbox, the default
	// is a private folder.
	Dir string `yaml:"dir" kind:"command" change:"connection,waits"`
	// Linux limits the command to these files and TCP ports, beside installed programs,
	// certificates and a private folder (see upstream/README.md). {} permits nothing more. Paths
	// are absolute and must exist. UDP is not limited.
	//
	// Without the section, the command may do what the user of Junction may do.
	Sandbox *command.Sandbox `yaml:"sandbox" kind:"command" change:"connection,waits"`

	// The address of a remote server, http or https. Junction sends the host as it stands here.
	URL string `yaml:"url" change:"connection,waits"`
	// Headers of every request to url. Junction sends them to no other origin.
	Headers map[string]string `yaml:"headers" kind:"url,give a command its values in env" change:"connection,waits" credential:"true"`
	// How the programs run that print secrets for this entry: ${exec: [program, argument]} in
	// headers, env and auth.client_secret.
	Exec Exec `yaml:"exec" change:"inside"`
	// Headers of clients that go on to url, by name: at most 8, and 4 KB in a request. They are words of the
	// client, not an identity. A call has those of its client, and headers do not stand in for one that
	// is missing. Other requests, such as those for lists, have the values of headers.
	ForwardHeaders []string `yaml:"forward_headers" json:",omitempty" kind:"url" example:"[X-Tenant]" change:"connection,waits"`
	// The credentials for a server, beside headers. A command can have user_key only.
	Auth Auth `yaml:"auth" change:"inside" credential:"true"`
	// Who calls, signed by Junction for a server of your own, in the header Junction-Identity of each
	// call. It needs public_url.
	Identity Identity `yaml:"identity" json:",omitzero" kind:"url" change:"inside"`
	// Certificates for the connection to url, beside those of the system.
	TLS TLS `yaml:"tls" kind:"url" change:"inside" credential:"true"`
	// auto finds out; http is Streamable HTTP, sse is HTTP+SSE of 2024-11-05. Default auto.
	Transport client.Transport `yaml:"transport" kind:"url" change:"connection,waits"`

	// auto: Junction asks the server. legacy: 2025-11-25 and older. modern: 2026-07-28. both: as
	// auto, but if the server is modern, a second process takes the calls of legacy clients,
	// because many servers can ask the user only there. For a url, auto does so, too. For a
	// command, auto does so after a tool has failed because the server could not ask. Default auto.
	Era client.Era `yaml:"era" change:"connection,waits"`
	// false keeps the entry and leaves the server out. Default true.
	Enabled *bool `yaml:"enabled" change:"list,both"`
	// Stands before the names of the server's items; by default the name of the upstream, "" for
	// bare names.
	Prefix *string `yaml:"prefix" change:"list,both"`

	// shared: one process for all users, for servers that keep no state of their callers. principal
	// or session: one for each user or client session. A modern client has no session: with session,
	// its calls share one for each folder in the header Junction-Folder. Default: principal if users
	// sign in or there are several API keys (for a url: if it has legacy sessions), otherwise shared.
	//
	// folder: one process for each user and each folder in which clients work. Junction tells the
	// server that folder as its root, and puts it in place of ${folder}. Only for a command.
	//
	// Without the key, a server cannot show the state of one user to another.
	Isolation Isolation `yaml:"isolation" change:"connection,waits"`
	// TimeoutGiven states that the entry or the defaults of the file give Timeout; withDefaults sets it.
	TimeoutGiven bool `yaml:"-" change:"call"`
	// OwnLimits states that the server ends each call itself, so that the built-in Timeout does not
	// apply. The reader of the file sets it.
	OwnLimits bool `yaml:"-" change:"call"`
	// Separate states that there may be several principals. The reader of the file sets it.
	Separate bool `yaml:"-" change:"call"`
	// true: one process for all clients, and another one while a person is asked; elicitation and
	// sampling reach the client of the call. false: neither is declared. exact: one process for each
	// set of client capabilities, for servers that offer different tools to different clients. It
	// includes era: both. Default true.
	//
	// A legacy server learns the capabilities of its client only when it is connected. With true,
	// it gets an error if the client of the call cannot answer.
	Questions Questions `yaml:"questions" change:"connection,waits"`
	// Stop the process after this time without a call, such as 10m. Default: never; 15m for the
	// process of one user.
	//
	// The tools stay listed, and the next call starts the process again.
	IdleStop time.Duration `yaml:"idle_stop" change:"connection,waits" limit:"server,one,none,time"`
	// With replicas: whether the server keeps something in its process (or in its session, for a
	// url) between calls, such as a browser or a shell. true: one replica has the process for all
	// callers that share it, and makes their calls. If that replica ends, the next call fails once,
	// and says that the state is lost. false: nothing is kept; junction check no longer asks.
	Stateful *bool `yaml:"stateful" example:"true" change:"call,waits"`
	// Start the process of a user when the user lists tools, so that the first call does not wait.
	// Default false.
	//
	// If max_links is reached, the process starts with the first call.
	Warm bool `yaml:"warm" change:"call,waits"`
	// The largest number of processes; one user has at most half of them. Default 8; 32 with
	// isolation: folder or a key of each caller; 256 for a url, where connections count.
	MaxLinks int `yaml:"max_links" change:"connection,waits" limit:"server,each,busy,connections"`
	// Calls in flight. Others wait, and users take turns. If there are several users, each one has
	// at most half of what the others leave. Default: defaults.concurrency.
	Concurrency int `yaml:"concurrency" change:"call,waits" limit:"server,each,busy,calls"`
	// Ends a call after this much silence of the call; only progress ends the silence. Without this
	// key, each sign of life of the server does, such as the answer to a ping. Default:
	// defaults.timeout.
	Timeout time.Duration `yaml:"timeout" change:"call,waits" limit:"call,one,timeout,time"`
	// The time limit of a whole call, also of one with progress. Default: defaults.max_timeout.
	MaxTimeout time.Duration `yaml:"max_timeout" change:"call,waits" limit:"call,one,timeout,time"`
	// The time limit of the start, the handshake and the first lists; 20s for a url. Default:
	// defaults.connect_timeout.
	ConnectTimeout time.Duration `yaml:"connect_timeout" change:"connection,waits" limit:"server,one,unavailable,time"`

	// Pass the server's instructions to the model on, at most 2 KiB. Set it for servers that you
	// trust. Default false.
	//
	// The instructions may become a part of the system prompt of a client.
	Instructions bool `yaml:"instructions" change:"list,waits"`

	// Blocked is the reason why the upstream cannot be used as it is configured; "" if it can. Such
	// an upstream never starts, and shows the reason. The reader of the file sets it.
	Blocked string `yaml:"-" change:"connection"`

	// Confines means that the command confines commands itself, as junction-pack does. It gets the paths
	// that confined commands may change in the variable sandbox.Told, and another process when they
	// change. The reader of the file sets it.
	Confines bool     `yaml:"-" change:"connection"`
	deciders []string `change:"connection"` // these paths; Apply and Check of the Set set them

	// Answer the same call of the same caller again for this time, at most 24h, without the server.
	// Only for tools that declare readOnlyHint: true and idempotentHint: true. By default never.
	//
	// A reload drops these answers, and so does a server that announces a change of its lists.
	Cache time.Duration `yaml:"cache" change:"call,waits" limit:"server,each,none,time"`

	// A caller needs all of these capabilities to use anything of the server; policies give
	// capabilities to callers.
	Capabilities []string `yaml:"capabilities" change:"list,both"`

	// Also is the entry of another file that must offer a tool, too; nil is the ordinary case. Only
	// Prefix, Expose and Tools of it count. The reader of the file sets it.
	Also *Config `yaml:"-" change:"list"`

	// all: all tools that no rule disables. listed: only those that a rule matches. Default all.
	Expose Expose `yaml:"expose" change:"list,both"`
	// Rules by glob over the server's own tool names. The first match wins.
	Tools Rules `yaml:"tools" change:"list,both"`
}

// IsCredential reports whether a key of an entry has credentials, with all keys below it. A mistake there blocks the
// upstream also while Junction runs: the server must not get the old credential any more.
func IsCredential(key string) bool {
	index := yamlread.Keys(reflect.TypeFor[Config]())[key]
	return index != nil && reflect.TypeFor[Config]().FieldByIndex(index).Tag.Get("credential") != ""
}

// Example returns the type in YAML.
func (Config) Example() string {
	return "{ command: [npx, -y, some-package] }"
}

// Auth is the auth section of an upstream.
type Auth struct {
	// none, the default, sends only headers. oauth: junction login signs in, for all users.
	// oauth_user: each user signs in. client_credentials: Junction has a client of its own.
	// user_key: each caller has a key of their own.
	//
	// With oauth the operator signs in once, and all callers use the tokens of the operator. With
	// oauth_user each user signs in to the server in the browser, and has connections of their own.
	// It needs auth.oauth. Callers who are no signed-in users, such as API keys, do not see the
	// upstream. With client_credentials Junction gets one token for all callers, with client_id, and
	// one of client_secret, private_key_file and cert_file, at issuer, and renews it. With user_key
	// each user gives a key of the server on a page, and the operator sets the keys of API keys
	// (junction users key). A command gets the key in env, where ${user.key} stands.
	Mode AuthMode `yaml:"mode" change:"connection,neither"`
	// The header that carries the key. Default Authorization, with the scheme Bearer.
	Header string `yaml:"header" json:",omitempty" example:"X-API-Key" change:"connection,waits"`
	// The word before the key in header. Default: none; Bearer without header.
	Scheme string `yaml:"scheme" json:",omitempty" example:"Token" change:"connection,waits"`
	// The scopes to ask the authorization server for. Default: the scopes that the server names.
	Scopes []string `yaml:"scopes" change:"connection,waits"`
	// Junction's client at issuer. By default Junction identifies itself by a document, or
	// registers. It needs issuer.
	//
	// Junction sends it to no other authorization server.
	ClientID string `yaml:"client_id" change:"connection,waits"`
	// The secret of client_id. Junction sends it to no other authorization server than issuer.
	ClientSecret string `yaml:"client_secret" secret:"true" change:"connection,waits"`
	// The file with the private key of client_id, in PEM: Junction signs each request for a token
	// instead of sending client_secret (private_key_jwt). Only the user of Junction may be able to
	// read it. A relative path is relative to the folder of this file.
	//
	// The key is one of RSA (RS256, PS256), P-256 (ES256), P-384, P-521 or Ed25519. Junction reads
	// the file again for each request. Further keys in the file are published, and do not sign.
	PrivateKeyFile string `yaml:"private_key_file" file:"key" json:",omitempty" example:"/etc/junction/reports.pem" change:"connection,waits"`
	// The name of the key at the authorization server (kid). Default: the thumbprint of the key
	// (RFC 7638), which is also its name in the keys that Junction publishes.
	KeyID string `yaml:"key_id" json:",omitempty" change:"connection,waits"`
	// To whom a request is signed (aud): issuer, or token_endpoint for servers that do not accept
	// their issuer, such as Entra ID. Default issuer.
	AssertionAudience AssertionAudience `yaml:"assertion_audience" json:",omitempty" change:"connection,waits"`
	// The file with the certificate of client_id, in PEM, with key_file: Junction shows it to the
	// authorization server instead of sending client_secret (tls_client_auth). A relative path is
	// relative to the folder of this file.
	//
	// Junction reads both files again for each request. The section tls has the certificate for the
	// server itself, which may be the same one.
	CertFile string `yaml:"cert_file" file:"certificate" json:",omitempty" example:"/etc/junction/books.pem" change:"connection,waits"`
	// The key of cert_file, in PEM and without a password. Only the user of Junction may be able to
	// read it.
	KeyFile string `yaml:"key_file" file:"key" json:",omitempty" example:"/etc/junction/books-key.pem" change:"connection,waits"`
	// The only authorization server to use. By default the server names it.
	Issuer string `yaml:"issuer" change:"connection,waits"`
	// Only for an authorization server with two hosts: users sign in at the first, and the second
	// (token_endpoint) gets the result. Name both only if they belong to the same service. By
	// default both have one host, unless the first names the second in its own metadata, or the
	// answers of the authorization server name it (RFC 9207).
	AuthorizationEndpoint string `yaml:"authorization_endpoint" change:"connection,waits"`
	// The second host, with authorization_endpoint.
	TokenEndpoint string `yaml:"token_endpoint" change:"connection,waits"`
	// The resource indicator (RFC 8707) instead of the server's: a URI, such as the App ID URI at
	// Entra ID, or none. It needs client_id and issuer.
	Resource string `yaml:"resource" json:",omitempty" example:"api://11111111-2222-3333-4444-555555555555" change:"connection,waits"`
	// The parameter audience of a token request with client_credentials, which some authorization
	// servers require.
	Audience string `yaml:"audience" json:",omitempty" change:"connection,waits"`
	// Added to the authorization request. Google gives no refresh token without these.
	Params map[string]string `yaml:"params" json:",omitempty" change:"connection,waits"`
}

// Secret returns the value of a key of the section that holds a secret (the tag secret); nil for other keys.
func (a *Auth) Secret(key string) *string {
	v := reflect.ValueOf(a).Elem()
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.Tag.Get("yaml") == key && f.Tag.Get("secret") != "" {
			return v.Field(i).Addr().Interface().(*string)
		}
	}
	return nil
}

// SecretKeys returns the keys of the section that hold secrets.
func (Auth) SecretKeys() (keys []string) {
	for i := range reflect.TypeFor[Auth]().NumField() {
		if f := reflect.TypeFor[Auth]().Field(i); f.Tag.Get("secret") != "" {
			keys = append(keys, f.Tag.Get("yaml"))
		}
	}
	return keys
}

// Files returns the keys of the section that name a file, and are set.
func (a *Auth) Files() (list []AuthFile) {
	v := reflect.ValueOf(a).Elem()
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if what := f.Tag.Get("file"); what != "" && v.Field(i).String() != "" {
			list = append(list, AuthFile{f.Tag.Get("yaml"), what, v.Field(i).Addr().Interface().(*string)})
		}
	}
	return list
}

// AuthFile is a key of the section auth that names a file.
type AuthFile struct {
	Key  string
	What string // the file has: key or certificate
	Path *string
}

// Certificate returns the files of the certificate of the client; nil if there is none.
func (a *Auth) Certificate() *Pair {
	if a.CertFile == "" {
		return nil
	}
	return &Pair{"auth", a.CertFile, a.KeyFile}
}

// Carrier returns the header that carries the credential.
func (a *Auth) Carrier() transport.Carrier {
	return transport.Carrier{Header: a.Header, Scheme: a.Scheme}
}

// keys returns the keys of the section that are set, except mode.
func (a *Auth) keys() (keys []string) {
	v := reflect.ValueOf(*a)
	for i := range v.NumField() {
		key := v.Type().Field(i).Tag.Get("yaml")
		empty := v.Field(i).IsZero()
		if kind := v.Field(i).Kind(); kind == reflect.Slice || kind == reflect.Map {
			empty = v.Field(i).Len() == 0
		}
		if key != "mode" && !empty {
			keys = append(keys, key)
		}
	}
	return keys
}

// Personal reports whether each subject has connections of their own, with the subject's own
// credential.
func (c Config) Personal() bool { return c.Auth.Mode.Row().Owner == OwnerSubject }

// OperatorSignsIn reports whether all callers use the tokens that the operator got by signing in.
func (c Config) OperatorSignsIn() bool {
	row := c.Auth.Mode.Row()
	return row.SignIn && row.Owner == OwnerOperator
}

// Sessionless returns what isolation means for clients without a session, and how their windows get processes of
// their own; "" if isolation does not separate sessions. The second text is "" for a remote server.
func (c Config) Sessionless() (text, advice string) {
	if !c.Isolation.OfSession() {
		return "", ""
	}
	shared := "connection"
	if c.Kind().Process {
		shared, advice = "process", "to separate windows by their roots, too, set isolation: folder"
	}
	return "clients of MCP 2026-07-28, such as Claude Code and Copilot CLI, have no session: windows of one " +
		"principal share one " + shared + " for each folder in the header Junction-Folder, and one without " +
		"the header (isolation: session)", advice
}

// Off reports whether the entry is disabled.
func (c Config) Off() bool { return c.Enabled != nil && !*c.Enabled }

// PrefixOr returns the prefix of the names of the items: Prefix, or by default the upstream's name.
func (c Config) PrefixOr(name string) string {
	if c.Prefix != nil {
		return *c.Prefix
	}
	return name
}

// Offers reports whether the tool with that name, the upstream's own, is offered to clients. It
// returns the rule for the tool; the zero value if there is none. With Also, both entries must offer it
// with one name, and the rule has the capabilities of both.
func (c Config) Offers(tool string) (rule Rule, offered bool) {
	rule, ruled := c.Tools.Match(tool)
	offered = !rule.Off() && (ruled || !c.Expose.OnlyNamed())
	if c.Also != nil {
		also, too := c.Also.Offers(tool)
		offered = offered && too && cmp.Or(rule.As, tool) == cmp.Or(also.As, tool)
		rule.Capabilities = slices.Concat(rule.Capabilities, also.Capabilities)
	}
	return rule, offered
}

// EnabledTools returns the globs of the rules that enable tools explicitly. A pack offers such tools
// although they are turned off there.
func (c Config) EnabledTools() (globs []string) {
	for _, g := range c.Tools {
		if g.Rule.Enabled != nil && *g.Rule.Enabled {
			globs = append(globs, g.Glob)
		}
	}
	return globs
}

// CacheOf returns how long a result of the tool, by the upstream's own name, is reused; 0 if never.
func (c Config) CacheOf(tool string) time.Duration {
	if rule, ok := c.Tools.Match(tool); ok && rule.Cache != nil {
		return *rule.Cache
	}
	return c.Cache
}

// Defaults is the section of the file with the values for keys that an upstream's entry omits.
type Defaults struct {
	// Of silence in a call. Default 60s.
	Timeout time.Duration `yaml:"timeout"`
	// Of a whole call. Default 10m.
	MaxTimeout time.Duration `yaml:"max_timeout"`
	// Of the start and the first lists; 2m for a command, which npx may have to install. Default
	// 20s.
	ConnectTimeout time.Duration `yaml:"connect_timeout"`
	// Calls in flight of one upstream. Default 32.
	Concurrency int `yaml:"concurrency"`
}

// Rule contains the settings for the tools that match one glob.
type Rule struct {
	// false hides the matching tools. true also enables tools that the manifest of a pack turns
	// off. Default true.
	Enabled *bool `yaml:"enabled"`
	// Needed for the matching tools, in addition to the capabilities of the upstream.
	Capabilities []string `yaml:"capabilities"`
	// The new name of the tool, behind the prefix. The key must be the name of one tool, no glob.
	As string `yaml:"as"`
	// As cache of the upstream, for the matching tools; 0s turns it off.
	Cache *time.Duration `yaml:"cache"`
	// As timeout of the upstream, for the matching tools.
	Timeout time.Duration `yaml:"timeout"`
	// As max_timeout of the upstream, for the matching tools.
	MaxTimeout time.Duration `yaml:"max_timeout"`
}

// Example returns the type in YAML.
func (Rule) Example() string {
	return "{ enabled: false }"
}

// Off reports whether the matching tools are left out.
func (r Rule) Off() bool { return r.Enabled != nil && !*r.Enabled }

// Rules keeps the order in which the file gives the globs.
type Rules []GlobRule

// GlobRule is a Rule and the glob (as path.Match reads it) that it is for.
type GlobRule struct {
	Glob string
	Rule
}

// Match returns the first rule whose glob matches the tool name, and false when there is none.
func (r Rules) Match(name string) (Rule, bool) {
	for _, g := range r {
		if ok, _ := path.Match(g.Glob, name); ok || g.Glob == name {
			return g.Rule, true
		}
	}
	return Rule{}, false
}

// UnmarshalYAML reads the mapping in its order.
func (r *Rules) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: must be a mapping from glob to rule", n.Line)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		g := GlobRule{Glob: n.Content[i].Value}
		if err := n.Content[i+1].Decode(&g.Rule); err != nil {
			return err
		}
		*r = append(*r, g)
	}
	return nil
}

// Size is a number of bytes; the file writes it as 512, 64KiB, 16MiB or 1GiB.
type Size int64

// String returns the size in the largest unit that divides it.
func (s Size) String() string { return transport.FormatSize(int64(s)) }

// UnmarshalYAML reads a number with an optional unit.
func (s *Size) UnmarshalYAML(n *yaml.Node) error {
	digits, unit := n.Value, int64(1)
	for name, factor := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if rest, ok := strings.CutSuffix(n.Value, name); ok {
			digits, unit = strings.TrimSpace(rest), factor
		}
	}
	v, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || v < 0 || v > (1<<62)/unit {
		return fmt.Errorf("line %d: %q is no size; write 512, 64KiB or 16MiB", n.Line, n.Value)
	}
	*s = Size(v * unit)
	return nil
}
