package upstream

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"junction/upstream/client"
	"junction/upstream/prose"
	"junction/upstream/sandbox"
	"junction/upstream/stdio"
	"junction/upstream/yamlread"
)

// resolved is the configuration of one upstream: the entry with its defaults, and the entry itself.
type resolved struct {
	Config
	given Config
}

// resolve is called once for each entry and each state of the file.
func (c Config) resolve(d Defaults) resolved { return resolved{c.withDefaults(d), c} }

// withDefaults fills in the keys that the entry omits: from the defaults of the file, and then from
// those in the comments of Config.
func (c Config) withDefaults(d Defaults) Config {
	c.TimeoutGiven = c.Timeout > 0 || d.Timeout > 0
	c.MaxTimeout = cmp.Or(c.MaxTimeout, d.MaxTimeout, defaultMaxTimeout)
	c.Timeout = cmp.Or(c.Timeout, d.Timeout, c.silence())
	kind := c.Kind()
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, d.ConnectTimeout, kind.ConnectTimeout)
	c.Concurrency = cmp.Or(c.Concurrency, d.Concurrency, 32)
	if c.MaxLinks == 0 && (c.Isolation == IsolationFolder || c.keyed()) {
		c.MaxLinks = 32 // a person has many folders, and each user a process of a keyed command
	}
	c.MaxLinks = cmp.Or(c.MaxLinks, kind.MaxLinks)
	return c
}

// DefaultTimeout is the built-in limit on the silence of a server during a call.
const DefaultTimeout = time.Minute

const defaultMaxTimeout = 10 * time.Minute

// silence returns the built-in Timeout; MaxTimeout must be set.
func (c *Config) silence() time.Duration {
	if c.OwnLimits {
		return c.MaxTimeout
	}
	return DefaultTimeout
}

// limits are the time limits of a call. A silence limit that the file gives counts the silence of the
// call itself: only progress ends the silence. With the built-in limit, each sign of life of the
// server does.
type limits struct {
	timeout, max time.Duration
	given        bool // the file gives timeout
}

// toolLimits returns the limits of the calls of a tool, by the server's own name; "" for other calls.
// The config must have its defaults.
func (c *Config) toolLimits(tool string) limits {
	l := limits{c.Timeout, c.MaxTimeout, c.TimeoutGiven}
	if rule, ok := c.Tools.Match(tool); ok && tool != "" {
		l.given = l.given || rule.Timeout > 0
		l.timeout, l.max = cmp.Or(rule.Timeout, l.timeout), cmp.Or(rule.MaxTimeout, l.max)
	}
	return l
}

// Limit is a time limit and the key of the file that gives it; From is "" for a built-in limit.
type Limit struct {
	time.Duration
	From string
}

func (l Limit) String() string {
	if l.From == "" {
		return prose.Duration(l.Duration) + " (default)"
	}
	return prose.Duration(l.Duration) + " (" + l.From + ")"
}

// LimitsOf returns the time limits of the calls of a tool, by the server's own name ("" for other calls), and
// where they come from. name is the name of the upstream; the config is the one of the file, without defaults.
func (c Config) LimitsOf(name, tool string, d Defaults) (timeout, max Limit) {
	at := "upstreams." + name
	timeout, max = Limit{DefaultTimeout, ""}, Limit{defaultMaxTimeout, ""}
	set := func(l *Limit, value time.Duration, from string) {
		if value > 0 {
			*l = Limit{value, from}
		}
	}
	set(&max, d.MaxTimeout, "defaults.max_timeout")
	set(&max, c.MaxTimeout, at+".max_timeout")
	if c.OwnLimits {
		timeout = max
	}
	set(&timeout, d.Timeout, "defaults.timeout")
	set(&timeout, c.Timeout, at+".timeout")
	if r := c.ruleOf(tool); r != nil {
		set(&timeout, r.Timeout, at+".tools."+r.Glob+".timeout")
		set(&max, r.MaxTimeout, at+".tools."+r.Glob+".max_timeout")
	}
	return timeout, max
}

// ExplainLimits returns when a call of a tool ends, for people; see LimitsOf.
func (c Config) ExplainLimits(name, tool string, d Defaults) string {
	timeout, max := c.LimitsOf(name, tool, d)
	switch {
	case timeout.Duration >= max.Duration:
		return "a call ends after " + max.String()
	case timeout.From == "":
		return fmt.Sprintf("a call ends after %s without a sign of life, and after %s in any case", timeout, max)
	}
	return fmt.Sprintf("a call ends after %s without progress, and after %s in any case", timeout, max)
}

// connConfig returns the settings whose change requires another pool: those of the server and its
// connections, without those that concern only calls and names.
func (c Config) connConfig() Config {
	v := reflect.ValueOf(&c).Elem()
	for _, i := range withoutConnection {
		v.FieldByIndex(i).SetZero()
	}
	return c
}

// withoutConnection are the fields of Config whose change leaves the connections as they are (the tag
// change). So a second API key, which sets Separate, does not restart every server.
var withoutConnection = fieldsWithoutConnection(reflect.TypeFor[Config]())

func fieldsWithoutConnection(t reflect.Type) (fields [][]int) {
	for i := range t.NumField() {
		switch change, _, _ := yamlread.ChangeOf(t.Field(i)); change.Cost {
		case yamlread.CostCall, yamlread.CostList:
			fields = append(fields, []int{i})
		case yamlread.CostInside:
			for _, below := range fieldsWithoutConnection(t.Field(i).Type) {
				fields = append(fields, append([]int{i}, below...))
			}
		}
	}
	return fields
}

// Variable returns an environment variable as a command of the entry gets it. getenv looks up the
// variables of this process.
func (c *Config) Variable(name string, getenv func(string) (string, bool)) (value string, ok bool) {
	if value, ok = c.Env[name]; ok {
		return value, true
	}
	environment := c.environment()
	if value, ok = getenv(name); !ok || !environment.Passes(name, value) {
		return "", false
	}
	return value, true
}

// environment returns the environment of a command of the entry.
func (c *Config) environment() stdio.Environment {
	return stdio.Environment{Own: c.Env, Inherit: c.InheritEnv, Reserved: c.Reserved}
}

// dialOptions returns the options for the connections of the pool, and sets its account.
func (p *pool) dialOptions() client.Options {
	c, o := &p.connConfig, &p.options
	if o.Memory != nil && p.lists.account == nil { // links call it concurrently
		p.lists.account = o.Memory(p.name)
	}
	env := c.environment()
	if c.Confines {
		env.Own = maps.Clone(env.Own)
		if env.Own == nil {
			env.Own = map[string]string{}
		}
		env.Own[sandbox.Told] = sandbox.Tell(c.deciders)
	}
	d := client.Options{
		Name: p.name, Command: o.resolve(c.Command), Env: env, Dir: c.Dir, Confine: p.confinement(),
		Watchdog: o.watchdog, URL: c.URL, Headers: c.Headers, Forward: c.ForwardHeaders, Transport: c.Transport,
		Era:            c.Era,
		ConnectTimeout: c.ConnectTimeout, Version: o.Version, MessageLimit: int(o.MessageLimit), Depth: o.Depth,
		Account: p.lists.account, Observer: o.Observer, Log: p.log, Clean: p.withoutSecrets,
		Again: func(reason error) {
			text := describe(p.shown(reason))
			p.exited.Store(&text)
		},
	}
	if pool := c.securePool(o.Roots); pool != nil {
		d.Pool = pool
	}
	if p.credentialed() {
		d.Token, d.Carrier = p.token, c.Auth.Carrier()
	}
	return d
}

// resolve replaces the program name "junction" in a command by Options.Self.
func (o Options) resolve(command []string) []string {
	if o.Self != "" && len(command) > 0 && command[0] == "junction" {
		return append([]string{o.Self}, command[1:]...)
	}
	return command
}

// confinement returns the sandbox of the entry; nil if it has none.
func (p *pool) confinement() *stdio.Confinement {
	if p.connConfig.Sandbox == nil {
		return nil
	}
	private := privateFolder(p.options.Sandboxes, p.name)
	if p.user != "" {
		private = privateFolderOf(p.options.Sandboxes, p.name, p.user)
	}
	return p.connConfig.Sandbox.Confinement(p.name, private, p.options.kernel(),
		p.options.writable)
}

// privateFolder returns the private folder of a command; "" if it has one for each process.
func privateFolder(sandboxes, name string) string {
	if sandboxes == "" {
		return ""
	}
	return filepath.Join(sandboxes, name)
}

// privateFolderOf returns the private folder of a command that runs for one user alone, and for no user the folder
// above it; "" as in privateFolder. The name of an upstream has no dot, so it is in no folder of another process.
func privateFolderOf(sandboxes, name, user string) string {
	if sandboxes == "" {
		return ""
	}
	above := privateFolder(sandboxes, name+".users")
	if user == "" {
		return above
	}
	sum := sha256.Sum256([]byte(user))
	return filepath.Join(above, hex.EncodeToString(sum[:16]))
}

// Writable returns the paths that the confined commands of a file may change, also those of upstreams
// that are off: what they have changed stays. sandboxes is Options.Sandboxes.
func Writable(configs map[string]Config, sandboxes string) (paths []string) {
	for name, c := range configs {
		if c.Sandbox == nil {
			continue
		}
		if paths = append(paths, c.Sandbox.Write...); sandboxes != "" {
			paths = append(paths, privateFolder(sandboxes, name))
		}
		if sandboxes != "" && c.keyed() {
			paths = append(paths, privateFolderOf(sandboxes, name, ""))
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}
