package upstream

import (
	"cmp"
	"path/filepath"
	"time"

	"junction/upstream/client"
	"junction/upstream/stdio"
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
	c.Timeout = cmp.Or(c.Timeout, d.Timeout, time.Minute)
	c.MaxTimeout = cmp.Or(c.MaxTimeout, d.MaxTimeout, 10*time.Minute)
	connect := 20 * time.Second
	if len(c.Command) > 0 {
		// npx may install the package first, and an aborted installation stays broken
		connect = 2 * time.Minute
	}
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, d.ConnectTimeout, connect)
	c.Concurrency = cmp.Or(c.Concurrency, d.Concurrency, 32)
	links := 8
	if c.URL != "" {
		links = 256 // a session of a remote server costs less than a process
	}
	c.MaxLinks = cmp.Or(c.MaxLinks, links)
	return c
}

// connConfig returns the settings whose change requires another pool: those of the server and its
// connections, without those that concern only calls and names.
func (c Config) connConfig() Config {
	c.Enabled, c.Prefix, c.Expose, c.Tools, c.Instructions = nil, nil, ExposeAll, nil, false
	c.Concurrency, c.Timeout, c.MaxTimeout, c.Cache, c.Capabilities = 0, 0, 0, 0, nil
	c.Separate = false // a second API key must not restart every server
	return c
}

// environment returns the environment of a command of the entry.
func (c *Config) environment() stdio.Environment {
	return stdio.Environment{Own: c.Env, Inherit: c.InheritEnv, Reserved: c.Reserved}
}

// dialOptions returns the options for the connections of the pool, and sets its account.
func (p *pool) dialOptions() client.Options {
	c, o := &p.connConfig, &p.options
	if o.Memory != nil {
		p.account = o.Memory(p.name)
	}
	d := client.Options{
		Name: p.name, Command: o.resolve(c.Command), Env: c.environment(), Dir: c.Dir, Confine: p.confinement(),
		Watchdog: o.watchdog, URL: c.URL, Headers: c.Headers, Transport: c.Transport, Era: c.Era,
		ConnectTimeout: c.ConnectTimeout, Version: o.Version, MessageLimit: int(o.MessageLimit), Depth: o.Depth,
		Account: p.account, Observer: o.Observer, Log: p.log,
	}
	if p.signsIn() {
		d.Token = p.token
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
	private := ""
	if p.options.Sandboxes != "" {
		private = filepath.Join(p.options.Sandboxes, p.name)
	}
	return p.connConfig.Sandbox.Confinement(p.name, private, p.options.kernel())
}
