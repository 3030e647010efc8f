package config

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"junction/auth/store"
	"junction/cmd/pack"
	"junction/cmd/pack/manifest"
	"junction/upstream"
	"junction/upstream/prose"
)

// warnLimits warns where one time limit ends a call before another that the file or a pack gives.
func (c *Config) warnLimits(warn func(path, format string, args ...any)) {
	compare := func(timeout, max upstream.Limit) {
		if timeout.From == "" || timeout.From == max.From || timeout.Duration <= max.Duration {
			return
		}
		warn(timeout.From, "has no effect: max_timeout ends each call after %s; raise max_timeout", max)
	}
	timeout, max := upstream.Config{}.LimitsOf("", "", c.Defaults)
	compare(timeout, max)
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		u, at := c.Upstreams[name], "upstreams."+name
		if u.Off() {
			continue
		}
		if u.Timeout > 0 || u.MaxTimeout > 0 {
			compare(u.LimitsOf(name, "", c.Defaults))
		}
		for _, r := range u.Tools {
			if r.Timeout > 0 || r.MaxTimeout > 0 {
				compare(u.LimitsOf(name, r.Glob, c.Defaults))
			}
		}
		if c.Packs[name] != "" {
			c.warnPackLimits(name, func(format string, args ...any) { warn(at+".pack", format, args...) })
		}
	}
}

// warnPackLimits warns of the tools of a pack whose calls Junction ends before the pack does.
func (c *Config) warnPackLimits(name string, warn func(format string, args ...any)) {
	p, err := pack.Load(c.Packs[name], manifest.Options{Unresolved: true})
	if err != nil {
		return // packWarnings warns of it
	}
	type end struct {
		limit upstream.Limit
		key   string
	}
	ends, tools := map[end][]string{}, map[end]time.Duration{}
	for _, m := range p.Manifests {
		for _, t := range m.Tools {
			timeout, whole := c.Upstreams[name].LimitsOf(name, t.Name, c.Defaults)
			e := end{timeout, "timeout"}
			if whole.Duration <= timeout.Duration {
				e = end{whole, "max_timeout"}
			}
			if t.Timeout > e.limit.Duration {
				ends[e], tools[e] = append(ends[e], t.Name), max(tools[e], t.Timeout)
			}
		}
	}
	for e, names := range ends {
		warn("its timeout of %s for %s has no effect: Junction ends each call after %s; set upstreams.%s.%s: %s",
			prose.Duration(tools[e]), strings.Join(names, ", "), e.limit, name, e.key, prose.Duration(tools[e]))
	}
}

// warnNetwork warns of a SQLite file and an audit in a folder that other machines may use: the locks that keep
// a second Junction away, and the shared memory of SQLite, work on one machine. network is files.Network.
func (c *Config) warnNetwork(getenv func(string) (string, bool), network func(dir string) string,
	warn func(path, format string, args ...any)) {
	if file := c.Audit.File; file != "" && file != AuditStderr {
		if kind := network(filepath.Dir(file)); kind != "" {
			warn("audit.file", "%s is on a network file system (%s): if Junction runs on two machines, both write "+
				"this file, and junction audit verify finds wrong lines; name a file on a disk of this machine",
				file, kind)
		}
	}
	if c.Storage.Driver == store.Postgres || !c.Stores() {
		return
	}
	file, err := c.Storage.Place(getenv)
	if err != nil {
		return // the start reports it
	}
	if kind := network(filepath.Dir(file)); kind != "" {
		warn("storage.dsn", "%s is on a network file system (%s): if Junction runs on two machines, they damage the "+
			"stored sign-ins; name a file on a disk of this machine, or use driver: postgres", file, kind)
	}
}
