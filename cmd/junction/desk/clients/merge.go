package clients

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"junction/upstream/loopback"
	"junction/upstream/shell"
)

// Known is a server by which program or URL it is, with all references replaced.
type Known struct {
	Name    string
	From    string // the file from which it was imported, as Merge.Origin returns it; "" if unknown
	Command []string
	Env     map[string]string
	Dir     string
	// Windows means that each folder of a client has a process of its own. An entry of the configuration may have it
	// although that of the client does not: junction offers it for a server that asks for the folders of its client.
	Windows bool
	URL     string
	Headers map[string]string
	// Unset are the variables without a value and a default that the server refers to, sorted: two servers may
	// differ in these alone.
	Unset []string
	open  []string // the places of values with such a variable: see fills

	Offers  func(tool string) bool // whether the entry of the configuration offers a tool; nil: all
	Enabled []string               // the only tools that it offers; nil means all others, too
}

// Inherit adds variables that the server gets from the environment under their own names: another client
// writes the same variable as a reference. Patterns of names are not compared.
func (k *Known) Inherit(names []string, getenv func(string) (string, bool)) {
	if k.Env == nil {
		k.Env = map[string]string{}
	}
	for _, name := range names {
		if _, own := k.Env[name]; !own && variableName.MatchString(name) {
			k.Env[name], _ = getenv(name)
			if k.Env[name] == "" {
				k.unset(name)
			}
		}
	}
}

func (k *Known) unset(names ...string) {
	k.Unset = append(k.Unset, names...)
	slices.Sort(k.Unset)
	k.Unset = slices.Compact(k.Unset)
}

// equal reports whether two servers are the same, whatever their names. Of an entry of the configuration and one of a
// client, k is that of the configuration.
func (k *Known) equal(o *Known) bool {
	return k.alike(o) && k.worksIn(o.Dir) && k.separates(o) && maps.Equal(k.Env, o.Env) &&
		maps.Equal(k.Headers, o.Headers) && slices.Equal(k.Unset, o.Unset)
}

// worksIn reports whether k works in a folder, which is that of a project, or "". An entry that gives each folder of a
// client a process of its own works in all of them.
func (k *Known) worksIn(dir string) bool { return k.Dir == dir || k.Windows && k.Dir == "" }

// separates reports whether k gives each folder a process of its own, if o does.
func (k *Known) separates(o *Known) bool { return k.Windows || !o.Windows }

// fills reports whether k is o with a value for each variable that has none here: junction setup asks for these
// values, and keeps them in files.
func (k *Known) fills(o *Known) bool {
	same := func(place, a, b string) bool { return a == b || slices.Contains(o.open, place) }
	values := func(kind string, a, b map[string]string) bool {
		for name, value := range a {
			has, ok := b[name]
			if !ok || !same(kind+name, value, has) {
				return false
			}
		}
		return len(a) == len(b)
	}
	if len(k.Command) != len(o.Command) {
		return false
	}
	for i := range k.Command {
		if !same(openWord(i), k.Command[i], o.Command[i]) {
			return false
		}
	}
	return len(o.open) > 0 && same(openURL, k.URL, o.URL) && k.worksIn(o.Dir) && k.separates(o) &&
		values(openEnv, k.Env, o.Env) && values(openHeader, k.Headers, o.Headers)
}

// Places of Known.open.
const openURL, openEnv, openHeader = "url", "env ", "header "

func openWord(i int) string { return fmt.Sprintf("command %d", i) }

// apart reports whether two servers work in different folders. An entry without a folder may be that of a
// server with one: people correct what was imported.
func (k *Known) apart(o *Known) bool { return k.Dir != "" && o.Dir != "" && k.Dir != o.Dir }

// alike reports whether two servers run the same command or have the same URL.
func (k *Known) alike(o *Known) bool { return slices.Equal(k.Command, o.Command) && k.URL == o.URL }

// conflicts reports whether the entry of a client runs the server in another way than k: in another
// folder, with other variables or headers, or with other values of them. A value that the client gets
// from elsewhere, such as an input, may be the same.
func (k *Known) conflicts(o *Known) bool {
	other := func(a, b map[string]string) bool {
		for name, value := range a {
			has, ok := b[name]
			if !ok || has != value && !strings.Contains(has, "${") && !strings.Contains(value, "${") {
				return true
			}
		}
		return len(a) != len(b)
	}
	return !k.worksIn(o.Dir) || !k.separates(o) || other(k.Env, o.Env) || other(k.Headers, o.Headers)
}

// known returns what the entry stands for in this environment.
func (e *Entry) known(getenv func(string) (string, bool)) *Known {
	k := &Known{Env: map[string]string{}, Headers: map[string]string{}}
	expand := func(place string, v Value) string {
		if v.lacks(getenv) {
			k.open = append(k.open, place)
		}
		return v.Expand(getenv)
	}
	k.Dir, k.URL, k.Windows = e.Dir.Expand(getenv), expand(openURL, e.URL), e.Windows
	for i, v := range e.Command {
		k.Command = append(k.Command, expand(openWord(i), v))
	}
	for name, v := range e.Env {
		k.Env[name] = expand(openEnv+name, v)
	}
	k.Inherit(e.InheritEnv, getenv)
	for name, v := range e.Headers {
		k.Headers[name] = expand(openHeader+name, v)
	}
	for _, missing := range e.Missing(getenv) {
		k.unset(missing.Name)
	}
	return k
}

// A Result is what becomes of a server.
type Result string

const (
	New     Result = "new"     // an entry is added
	Same    Result = "same"    // it is another server that was found
	Present Result = "present" // the configuration has it
	Skipped Result = "skipped" // Junction cannot have it, or it is Junction
	Held    Result = "held"    // a project has it, and no project was named
	// Withdrawn: a person has removed it from the configuration, and has not named it since.
	Withdrawn Result = "removed"
)

// An Outcome is a server that was found, and what becomes of it.
type Outcome struct {
	Server *Server
	Result Result
	Name   string // of the entry in Junction's configuration; "" where there is none
	// Conflicts is true if the result is Present, and the client runs the server in another way. The
	// entry in the configuration may be that of another client.
	Conflicts bool
	Differs   bool     // the result is Present, and the entry has another command or URL
	Own       bool     // the server is Junction itself; the result is Skipped
	Wider     string   // tools that the entry of the result Present offers, and the client hides
	Notes     []string // for people, without secrets
}

// Note adds a note about a new server.
func (o *Outcome) Note(text string) {
	o.Notes = append(o.Notes, text)
	o.Server.Entry.Notes = append(o.Server.Entry.Notes, text)
}

// A Merge brings the servers of clients into a configuration.
type Merge struct {
	Existing []Known  // the entries of the configuration
	Own      []string // URLs of the endpoint of the configuration
	// Wrote reports whether junction connect has written the server, perhaps with another port. Nil means
	// that nothing is known.
	Wrote  func(*Server) bool
	Getenv func(string) (string, bool)
	// Origin returns where a server was found. With nil, an entry whose server has got another
	// command or URL since its import does not count as present.
	Origin func(*Server) string
	// Withdrawn reports whether a person has removed a server from the configuration that would get a name there,
	// and has not named it since. Nil means that nothing is known.
	Withdrawn func(s *Server, k *Known, name string) bool
	// Command returns a command line of junction about the configuration; nil for one without a file.
	Command func(words ...string) string
}

// instead returns the commands that replace an entry by the server of a client.
func (m *Merge) instead(name string, s *Server) string {
	command := m.Command
	if command == nil {
		command = func(words ...string) string { return shell.Join(append([]string{"junction"}, words...)...) }
	}
	add := []string{"import", "--write", name}
	if s.ofProject() {
		add = append(add, "--project", s.folder)
	}
	return command("remove", name) + "; " + command(add...)
}

// first returns the outcome whose entry is added for the server: its own, or that of an equal server.
func (o *Outcome) first(all []Outcome) *Outcome {
	for i := range all {
		if all[i].Result == New && all[i].Name == o.Name {
			return &all[i]
		}
	}
	return o
}

// is compares a server with the entry of a name.
func (m *Merge) is(name string, k *Known, compare func(*Known, *Known) bool) bool {
	return slices.ContainsFunc(m.Existing, func(e Known) bool { return e.Name == name && compare(&e, k) })
}

// wider returns the tools that the configuration offers and the entry of a client hides.
func (m *Merge) wider(e *Entry, name string) string {
	for i := range m.Existing {
		if k := &m.Existing[i]; k.Name == name && k.Offers != nil {
			return e.wider(k.Offers, k.Enabled)
		}
	}
	return ""
}

// present returns the entry of the configuration that is a server, and whether it differs from it. An entry that
// differs counts if it was imported from there, or if it has the server's name and command or URL: people correct
// what was imported. It does not count if it is the server of another client that has the name, too.
func (m *Merge) present(s *Server, k *Known, servers []*Server) (name string, differs bool) {
	origin := ""
	if m.Origin != nil {
		origin = m.Origin(s)
	}
	var equal []*Known
	for i := range m.Existing {
		if m.Existing[i].equal(k) {
			equal = append(equal, &m.Existing[i])
		}
	}
	for _, better := range []func(*Known) bool{ // of twins, each client has its own
		func(e *Known) bool { return origin != "" && e.From == origin && e.named(k.Name) },
		func(e *Known) bool { return strings.EqualFold(e.Name, k.Name) },
		func(*Known) bool { return true },
	} {
		if n := slices.IndexFunc(equal, better); n >= 0 {
			return equal[n].Name, false
		}
	}
	if origin != "" {
		if e := m.imported(k, origin, servers); e != nil {
			return e.Name, !e.fills(k)
		}
	}
	for i := range m.Existing {
		e := &m.Existing[i]
		if s.ofProject() && e.apart(k) { // a server of another project
			continue
		}
		if strings.EqualFold(e.Name, k.Name) && e.alike(k) && !m.ofAnother(e, k, origin, servers) {
			return e.Name, true
		}
	}
	return "", false
}

var numbered = regexp.MustCompile(`-[0-9]+$`)

// named reports whether the entry has the name of a server, perhaps with the number of a twin.
func (k *Known) named(name string) bool {
	return strings.EqualFold(k.Name, name) || strings.EqualFold(numbered.ReplaceAllString(k.Name, ""), name)
}

// ofAnother reports whether an entry was imported from another place, where a server of its name is, and is not
// k.
func (m *Merge) ofAnother(e, k *Known, origin string, servers []*Server) bool {
	return e.From != origin && origin != "" && slices.ContainsFunc(servers, func(s *Server) bool {
		return s.Entry != nil && m.Origin(s) == e.From && e.named(NameOf(s.Name)) && !s.Entry.known(m.Getenv).equal(k)
	})
}

// imported returns the entry that was imported from a server of this name in the same file, and
// that is none of the servers there now. nil means that there is no such entry.
func (m *Merge) imported(k *Known, origin string, servers []*Server) *Known {
	for i := range m.Existing {
		e := &m.Existing[i]
		another := func(s *Server) bool { return s.Entry != nil && e.equal(s.Entry.known(m.Getenv)) }
		if e.From == origin && e.named(k.Name) && e.worksIn(k.Dir) && !slices.ContainsFunc(servers, another) {
			return e
		}
	}
	return nil
}

// isOwn reports whether the server is this Junction: by its URL, also as an argument of a program
// such as mcp-remote, or by its program.
func (m *Merge) isOwn(k *Known) bool {
	for _, address := range append([]string{k.URL}, k.Command...) {
		if isOwnAddress(address, m.Own) {
			return true
		}
	}
	if len(k.Command) < 2 {
		return false
	}
	program := strings.TrimSuffix(strings.ToLower(filepath.Base(strings.ReplaceAll(k.Command[0], `\`, "/"))), ".exe")
	return program == "junction" && k.Command[1] == "stdio"
}

// isOwnAddress reports whether a URL leads to one of the endpoints in own.
func isOwnAddress(address string, own []string) bool {
	return slices.ContainsFunc(own, func(o string) bool { return hostOf(o) != "" && hostOf(o) == hostOf(address) })
}

// hostOf returns host and port of an http URL, and one name for all those of this machine.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return ""
	}
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if ip, err := netip.ParseAddr(host); loopback.Host(host) || err == nil && ip.IsUnspecified() {
		host = "localhost"
	}
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return host + ":" + port
}

const maxName = 32 // of an upstream

var notInName = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// NameOf returns the name of a server as that of an upstream, which has other rules.
func NameOf(name string) string {
	name = strings.Trim(notInName.ReplaceAllString(name, "-"), "-")
	if len(name) > maxName {
		name = strings.TrimRight(name[:maxName], "-")
	}
	if name == "" {
		return "server"
	}
	return name
}

// free returns name, or name with the first suffix that makes it one that is not taken.
func free(name string, taken map[string]bool) string {
	out := name
	for i := 2; taken[strings.ToLower(out)]; i++ {
		suffix := fmt.Sprintf("-%d", i)
		out = name[:min(len(name), maxName-len(suffix))] + suffix
	}
	return out
}
