package plan

import (
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"junction/cmd/pack"
	"junction/cmd/pack/manifest"
	"junction/cmd/pack/web"
)

// inFolder returns an error about a document that the checksum of an installed pack does not cover,
// unless base_url decides about the host.
func inFolder(m *manifest.Pack) error {
	for _, one := range m.Manifests {
		for _, a := range one.OpenAPI {
			switch spec := a.Spec.Value(); {
			case a.Off(), fetchedFrom(a) != "":
			case a.Spec.Open() && a.BaseURL.Source == "":
				return unclear("%s", one.At(a.Path()+".spec", "depends on a reference that is not resolved before the "+
					"pack runs, so that the hosts of the document cannot be shown; write the path or the URL, or add "+
					"base_url"))
			case a.Spec.Open():
			default:
				if _, err := manifest.Inside(a.Dir, spec); err != nil {
					return unclear("%s", one.At(a.Path()+".spec", "cannot use the document %s: %v", a.Spec.Source, err))
				}
			}
		}
	}
	return nil
}

// api adds an OpenAPI document: the servers of its operations as the loader has chosen them.
func (p *Plan) api(served pack.API) {
	a := served.Source
	subject := "api " + a.Name
	document := a.Spec.Source
	switch {
	case fetchedFrom(a) != "":
		document += " (fetched at each start; its content may change)"
		p.URLs = append(p.URLs, fetchedFrom(a))
	case served.Loaded == nil:
		document += " (named by a variable)"
	}
	p.add(subject, "document", document)
	if served.Loaded != nil {
		for _, file := range served.Loaded.Files[min(1, len(served.Loaded.Files)):] {
			if relative, ok := manifest.Below(a.Dir, file); ok {
				file = filepath.ToSlash(relative)
			}
			p.add(subject, "reads", file)
		}
	}
	operations := "all"
	if len(a.Operations) > 0 {
		operations = strings.Join(a.Operations, ", ")
	}
	if len(a.Exclude) > 0 {
		operations += " except " + strings.Join(a.Exclude, ", ")
	}
	p.add(subject, "operations", operations)
	if a.AllowHTTP {
		p.add(subject, "sends", pack.PlainHTTP)
	}
	if served.Loaded != nil {
		p.servers(subject, served)
	} else {
		p.unread(subject, a)
	}
	for _, name := range slices.Sorted(maps.Keys(a.Headers)) {
		p.add(subject, "header", name+"="+a.Headers[name].Source)
	}
	for _, name := range slices.Sorted(maps.Keys(a.Auth)) {
		p.add(subject, "credential", name+"="+a.Auth[name].Source)
	}
}

// servers adds where the operations of a document go, with the number of operations by method.
func (p *Plan) servers(subject string, served pack.API) {
	all := map[string]map[string]int{}
	for _, o := range served.Loaded.Operations {
		if all[o.Server()] == nil {
			all[o.Server()] = map[string]int{}
		}
		all[o.Server()][o.Method]++
	}
	for _, server := range slices.Sorted(maps.Keys(all)) {
		var methods []string
		for _, method := range slices.Sorted(maps.Keys(all[server])) {
			methods = append(methods, fmt.Sprintf("%d %s", all[server][method], method))
		}
		p.host(server)
		if served.Source.BaseURL.Source != "" {
			server = served.Source.BaseURL.Source
		}
		p.add(subject, "sends to", fmt.Sprintf("%s (operations: %s)", server, strings.Join(methods, ", ")))
	}
}

// unread adds where the operations of a document may go that is not known before the pack runs.
func (p *Plan) unread(subject string, a *manifest.API) {
	if a.BaseURL.Source != "" {
		p.add(subject, "sends to", a.BaseURL.Source)
		p.host(a.BaseURL.Value())
		return
	}
	from := fetchedFrom(a)
	if from != "" && len(a.Auth)+len(a.Headers) > 0 { // credentials go to no other host
		p.add(subject, "sends to", from)
		return
	}
	where := "any host that the document names"
	if at, err := url.Parse(from); err == nil && from != "" {
		if where = "any public host that the document names"; web.OnThisMachine(at) {
			where = "any public host and any port of this machine that the document names"
		}
	}
	p.add(subject, "sends to", where)
	p.URLs = append(p.URLs, where)
}

// fetchedFrom returns the scheme and host of a document that is fetched; "" if the document is a file,
// or if a variable decides about the host.
func fetchedFrom(a *manifest.API) string {
	if host := hostOf(a.Spec.Value()); manifest.IsURL(a.Spec.Value()) && !strings.Contains(host, "${") {
		return host
	}
	return ""
}

// host adds the host of a URL to the plan.
func (p *Plan) host(text string) {
	if len(p.URLs) <= maxHosts*maxHosts {
		p.URLs = append(p.URLs, p.here(hostOf(text)))
	}
}

// hostOf returns scheme and host of a URL. References that are left in it may have any value, so that
// it returns the whole text if they are before the host.
func hostOf(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok || strings.Contains(scheme, "${") {
		return escaped(text)
	}
	end, inside := len(rest), false
	for i, c := range rest {
		switch {
		case strings.HasPrefix(rest[i:], "${"):
			inside = true
		case inside:
			inside = c != '}'
			continue
		}
		if !inside && strings.ContainsRune("/?#", c) {
			end = i
			break
		}
	}
	return escaped(scheme + "://" + strings.ToLower(rest[:end]))
}

// escaped returns a URL in ASCII, so that no letter of a host looks like another one.
func escaped(text string) string {
	quoted := strconv.QuoteToASCII(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}
