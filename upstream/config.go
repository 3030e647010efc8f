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
)

// Config is one entry of the file's upstreams section: one MCP server. Either Command or URL is
// set, never both. The tag kind of a field is the key of the only kind of server that has the field.
type Config struct {
	// Command starts the server as a child process that speaks MCP over its standard input and
	// output: the program, then its arguments. No shell is involved. If the program does not exist,
	// the file is still valid: the upstream shows the reason and retries.
	Command []string `yaml:"command" example:"[npx, -y, some-package]" change:"connection,waits"`
	// Env is added to the environment of the child process. From Junction's own environment, the
	// process gets only variables such as HOME, PATH, the language, proxies, certificates and caches
	// (see environment.go of package stdio).
	Env map[string]string `yaml:"env" kind:"command" change:"connection,waits"`
	// InheritEnv lists more variables of Junction's environment that the child process gets: names,
	// globs such as AWS_*, or the word all. JUNCTION_* and variables that the file uses elsewhere,
	// as ${NAME}, must be named exactly.
	InheritEnv command.Inherit `yaml:"inherit_env" kind:"command" change:"connection,waits"`
	// Reserved are the variables that the file uses elsewhere. The reader of the file sets them.
	Reserved []string `yaml:"-" change:"connection"`
	// Dir is the working directory of the child process. Empty means that of Junction or, with
	// Sandbox, a private folder.
	Dir string `yaml:"dir" kind:"command" change:"connection,waits"`
	// Sandbox confines the child process. Default: it may do what the user of Junction may do.
	Sandbox *command.Sandbox `yaml:"sandbox" kind:"command" change:"connection,waits"`

	// URL is the address of a remote server, http or https. The host is sent as written here.
	URL string `yaml:"url" change:"connection,waits"`
	// Headers are sent with every HTTP request to URL, and to no other origin.
	Headers map[string]string `yaml:"headers" kind:"url,give a command its values in env" change:"connection,waits"`
	// Auth configures a sign-in (OAuth) to a remote server.
	Auth Auth `yaml:"auth" kind:"url" change:"inside"`
	// Transport of a remote server: auto (the default) detects it, http is Streamable HTTP, sse is
	// HTTP+SSE of 2024-11-05.
	Transport client.Transport `yaml:"transport" kind:"url" change:"connection,waits"`

	// Era is the era of the protocol: auto (the default) detects it, legacy is 2025-11-25 and older,
	// modern is 2026-07-28. both is auto for a command that may run twice: if the server is modern, a
	// second process of the legacy era takes the calls of legacy clients. For a url this is the default.
	// For a command, auto does so after a call failed because the server could not ask (second.go).
	Era client.Era `yaml:"era" change:"connection,waits"`
	// Enabled false disables the server; the entry stays in the file. Default true.
	Enabled *bool `yaml:"enabled" change:"list,both"`
	// Prefix is put before the names of this upstream's items. Default: the upstream's name. ""
	// exposes the names without a prefix.
	Prefix *string `yaml:"prefix" change:"list,both"`

	// Isolation decides which callers share one connection (for a command: one process): shared,
	// session or principal. Default: shared if there is one principal. If Separate is set, each
	// principal has a process of a command, and a session of a legacy remote server, of its own,
	// because such a server may show the state of one user to another.
	Isolation Isolation `yaml:"isolation" change:"connection,waits"`
	// TimeoutGiven states that the entry or the defaults of the file give Timeout; withDefaults sets it.
	TimeoutGiven bool `yaml:"-" change:"call"`
	// OwnLimits states that the server ends each call itself, so that the built-in Timeout does not
	// apply. The reader of the file sets it.
	OwnLimits bool `yaml:"-" change:"call"`
	// Separate states that there may be several principals. The reader of the file sets it.
	Separate bool `yaml:"-" change:"call"`
	// Questions decides which server requests (elicitation, sampling, roots) reach the client of a
	// call. A legacy server learns the capabilities of its client only when it is connected. true,
	// the default: one connection for all clients declares elicitation and sampling; if the client
	// of a call cannot answer, the server gets an error. false: the connection declares neither.
	// exact: one connection (process) for each set of client capabilities, with a catalog of its
	// own, for servers that offer different tools to different clients.
	Questions Questions `yaml:"questions" change:"connection,waits"`
	// IdleStop closes the connection (stops the process) after this long without a call; the
	// catalog stays served and the next call starts it again. Default: 15m for a connection of one
	// principal or session, never for the one that reads the catalog.
	IdleStop time.Duration `yaml:"idle_stop" change:"connection,waits"`
	// Stateful true declares that the server keeps state in its process or session between calls, such
	// as a browser or a shell. Of several replicas, one has this state for all callers that share it
	// (Isolation), and the others make their calls there. If that replica ends, the next call fails once,
	// with an error that tells that the state is lost. false declares that there is no such state.
	Stateful *bool `yaml:"stateful" example:"true" change:"call,waits"`
	// Warm opens the connection of a caller when the caller lists tools, so that the first call does
	// not wait for a process. Without room for one more connection it does nothing.
	Warm bool `yaml:"warm" change:"call,waits"`
	// MaxLinks limits the connections (processes) of this upstream. One principal has at most half
	// of them. Default 8 for a command, 256 for a url.
	MaxLinks int `yaml:"max_links" change:"connection,waits"`
	// Concurrency limits the calls in progress; others wait, and the callers take turns. If there are
	// several principals, each uses at most half of the slots that the others leave. Default:
	// defaults.concurrency.
	Concurrency int `yaml:"concurrency" change:"call,waits"`
	// Timeout ends a call after this much silence of that call; only progress resets it. Default:
	// defaults.timeout, or else 60s, which each sign of life of the server resets, such as a ping.
	Timeout time.Duration `yaml:"timeout" change:"call,waits"`
	// MaxTimeout ends a call even if it reports progress. Default: defaults.max_timeout.
	MaxTimeout time.Duration `yaml:"max_timeout" change:"call,waits"`
	// ConnectTimeout limits the start, the connection, the handshake and the first listing. Default:
	// defaults.connect_timeout.
	ConnectTimeout time.Duration `yaml:"connect_timeout" change:"connection,waits"`

	// Instructions true passes the server's instructions for the model to every client, with the
	// upstream's name, at most 2 KiB. They may become a part of a system prompt, so enable them only
	// for servers that you trust. Default false.
	Instructions bool `yaml:"instructions" change:"list,waits"`

	// Blocked is the reason why the upstream cannot be used as it is configured; "" if it can. Such
	// an upstream never starts, and shows the reason. The reader of the file sets it.
	Blocked string `yaml:"-" change:"connection"`

	// Confines means that the command confines commands itself, as junction-pack does. It gets the paths
	// that confined commands may change in the variable sandbox.Told, and another process when they
	// change. The reader of the file sets it.
	Confines bool     `yaml:"-" change:"connection"`
	deciders []string `change:"connection"` // these paths; Apply and Check of the Set set them

	// Cache is how long the result of a tool call is reused for the same call of the same caller.
	// It works only for tools that declare readOnlyHint: true and idempotentHint: true. Results are
	// dropped at a reload, and when the server announces a change of its lists. Default 0: never.
	Cache time.Duration `yaml:"cache" change:"call,waits"`

	// Capabilities are required to use anything of this upstream; a caller needs all of them.
	// Policies grant them.
	Capabilities []string `yaml:"capabilities" change:"list,both"`

	// Also is the entry of another file that must offer a tool, too; nil is the ordinary case. Only
	// Prefix, Expose and Tools of it count. The reader of the file sets it.
	Also *Config `yaml:"-" change:"list"`

	// Expose decides which tools are offered: all (the default) offers those that no rule disables,
	// listed offers only those that a rule of Tools names.
	Expose Expose `yaml:"expose" change:"list,both"`
	// Tools are rules by glob over the upstream's own tool names, in the order of the file; the
	// first match wins.
	Tools Rules `yaml:"tools" change:"list,both"`
}

// Example returns the type in YAML.
func (Config) Example() string {
	return "{ command: [npx, -y, some-package] }"
}

// Auth is the auth section of an upstream.
type Auth struct {
	// Mode is none (the default), oauth or oauth_user.
	//
	// With oauth the operator signs in once, with junction login, and all callers use the tokens of
	// the operator. With oauth_user each user signs in to the server in the browser, and has
	// connections of their own. This needs auth.oauth. Callers who are no signed-in users, such as
	// API keys, do not see the upstream.
	Mode AuthMode `yaml:"mode" change:"connection,neither"`
	// Scopes are the scopes to request from the authorization server. Default: those that the server
	// names.
	Scopes []string `yaml:"scopes" change:"connection,waits"`
	// ClientID and ClientSecret are those of Junction at Issuer, and are sent to no other
	// authorization server. Default: Junction identifies itself by its client metadata document, or
	// registers.
	ClientID     string `yaml:"client_id" change:"connection,waits"`
	ClientSecret string `yaml:"client_secret" change:"connection,waits"`
	// Issuer is the only authorization server to use. Default: the one that the server names.
	Issuer string `yaml:"issuer" change:"connection,waits"`
	// AuthorizationEndpoint and TokenEndpoint are the only endpoints to use. They are needed if the
	// two have different origins, the origin of the first does not name the second, and the answers of
	// the authorization server do not name it (RFC 9207). Default: those of its metadata.
	AuthorizationEndpoint string `yaml:"authorization_endpoint" change:"connection,waits"`
	TokenEndpoint         string `yaml:"token_endpoint" change:"connection,waits"`
	// Resource is the resource indicator (RFC 8707) to send instead of the server's: a URI, or none for
	// no indicator. It needs ClientID and Issuer. Default: the resource that the server names.
	Resource string `yaml:"resource" json:",omitempty" example:"api://11111111-2222-3333-4444-555555555555" change:"connection,waits"`
	// Params are added to the authorization request, such as access_type: offline.
	Params map[string]string `yaml:"params" json:",omitempty" change:"connection,waits"`
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

// SharedByUsers reports whether several principals use one connection because the file says so.
func (c Config) SharedByUsers() bool {
	return c.Separate && c.Isolation != IsolationUnset && !c.Isolation.OfCallers() && !c.Personal()
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
	Timeout    time.Duration `yaml:"timeout"`     // of silence in a call. Default 60s.
	MaxTimeout time.Duration `yaml:"max_timeout"` // of a whole call. Default 10m.
	// of starting, handshake and first listing. Default 20s for a url, 2m for a command.
	ConnectTimeout time.Duration `yaml:"connect_timeout"`
	Concurrency    int           `yaml:"concurrency"` // calls in flight per upstream. Default 32.
}

// Rule contains the settings for the tools that match one glob.
type Rule struct {
	// Enabled false hides the matching tools. Default true. If it is true, it also enables tools that
	// a pack has turned off.
	Enabled *bool `yaml:"enabled"`
	// Capabilities are required for the matching tools, in addition to those of the upstream.
	Capabilities []string `yaml:"capabilities"`
	// As renames the tool. The key must be the name of one tool, no glob. The prefix is put before
	// the new name.
	As string `yaml:"as"`
	// Cache replaces that of the upstream for the matching tools; 0s turns it off.
	Cache *time.Duration `yaml:"cache"`
	// Timeout and MaxTimeout replace those of the upstream for the matching tools.
	Timeout    time.Duration `yaml:"timeout"`
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
