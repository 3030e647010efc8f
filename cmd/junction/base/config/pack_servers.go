package config

import (
	"fmt"
	"maps"
	"slices"

	"junction/cmd/pack/manifest"
	"junction/upstream"
	"junction/upstream/prose"
)

// useServers adds the servers of a pack that the entry at names, as upstreams of their own. Such an
// upstream has the name of the entry and of the server, NAME-SERVER, and the other keys of the entry:
// its rules, limits and capabilities. The sandbox of the entry replaces that of the manifest.
func (d *decoder) useServers(c *Config, name string) {
	at := "upstreams." + name
	servers, p := d.servers[at], d.manifests[name]
	if p == nil || d.broken(at+".servers") {
		return
	}
	for i, server := range servers {
		where := fmt.Sprintf("%s.servers[%d]", at, i)
		m, s := p.Server(server)
		full := name + "-" + server
		_, taken := c.Upstreams[full]
		switch {
		case s == nil:
			d.unresolved[where] = true // the manifest may have it later
			d.bad(where, "the pack has no server %s; %s", prose.Quote(server),
				prose.DidYouMean(p.ServerNames(), server, "junction packs show "+name+" shows all"))
		case slices.Contains(servers[:i], server):
			d.bad(where, "%s is named twice; keep one", server)
		case taken:
			d.bad(where, "would be the upstream %s, which the file has already; rename that one", full)
		case !word.MatchString(full):
			d.bad(where, "would be the upstream %s, whose name is too long; give this upstream a shorter name", full)
		default:
			u := c.Upstreams[name]
			d.serverOf(&u, name, where, m, s)
			c.Upstreams[full] = u
		}
	}
}

// serverOf turns the entry of a pack into the entry of one of its servers.
func (d *decoder) serverOf(u *upstream.Config, name, where string, m *manifest.Manifest, s *manifest.Server) {
	entry := *u
	u.OwnLimits, u.Confines, u.Command, u.Dir, u.Env, u.InheritEnv = false, false, nil, "", nil, nil
	if u.Prefix != nil && *u.Prefix != "" {
		prefix := *u.Prefix + "-" + s.Name
		u.Prefix = &prefix
	} else {
		u.Prefix = nil
	}
	refs := d.packRefs(&entry, m)
	value := func(r manifest.Ref) string {
		text, used, problems := refs.expand(r.Source)
		for _, ref := range used {
			if v := ref.variable(); v != "" {
				d.variables[v] = append(d.variables[v], where)
			}
			for _, at := range []string{"upstreams." + name, "upstreams." + name + "-" + s.Name} {
				d.secrets[at] = append(d.secrets[at], ref)
			}
		}
		for _, w := range problems {
			d.unresolved[where] = true
			d.bad(where, "%s: %s; a pack gets a variable only with env or inherit_env", s.Name, w)
		}
		return text
	}
	values := func(all map[string]manifest.Later) map[string]string {
		out := map[string]string{}
		for _, key := range slices.Sorted(maps.Keys(all)) {
			out[key] = value(all[key].Ref)
		}
		return out
	}
	if s.URL.Source != "" {
		u.URL, u.Headers, u.Sandbox = value(s.URL.Ref), values(s.Headers), nil
		return
	}
	for _, word := range s.Command {
		u.Command = append(u.Command, value(word.Ref))
	}
	u.Dir, u.Env, u.InheritEnv = s.WorkDir, values(s.Env), s.InheritEnv
	if u.Sandbox == nil && s.Sandbox != nil {
		box := *s.Sandbox
		for _, list := range []*[]string{&box.Read, &box.Write} {
			*list = slices.Clone(*list)
			for i, path := range *list {
				(*list)[i] = value(manifest.Ref{Source: path})
			}
		}
		u.Sandbox = &box
	}
}

// packRefs returns the expander for the manifest of a pack. References get the variables that the
// entry passes to the pack.
func (d *decoder) packRefs(entry *upstream.Config, m *manifest.Manifest) expander {
	refs := d.refs
	refs.dir = m.Dir
	refs.getenv = func(variable string) (string, bool) {
		if variable == "PACK_DIR" {
			return m.Dir, true
		}
		return entry.Variable(variable, d.refs.getenv)
	}
	return refs
}
