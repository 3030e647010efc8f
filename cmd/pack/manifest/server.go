package manifest

import (
	"maps"
	"regexp"
	"slices"

	"gopkg.in/yaml.v3"

	"junction/upstream/command"
	"junction/upstream/yamlread"
)

// Server is an MCP server that a pack brings along. Junction runs it as an upstream of its own, if the
// entry of the pack names it. It has either Command or URL.
type Server struct {
	Name        string `yaml:"-"`
	Description string `yaml:"description"`

	// Command is the program and its arguments. Its other keys are those of a tool with a command.
	Command    []Later          `yaml:"command"`
	Dir        Later            `yaml:"dir"`
	Env        map[string]Later `yaml:"env"`
	InheritEnv command.Inherit  `yaml:"inherit_env"`
	Sandbox    *command.Sandbox `yaml:"sandbox"`
	// URL is a remote server, and Headers are sent to it.
	URL     Later            `yaml:"url"`
	Headers map[string]Later `yaml:"headers"`

	WorkDir string `yaml:"-"` // the absolute path of Dir
}

// Later is a Ref whose references Junction resolves when it starts the server. junction-pack does not
// need their values.
type Later struct{ Ref }

func (l *Later) decode(d *decoder, path string, n *yaml.Node) {
	d.later(func() { l.Ref.decode(d, path, n) })
}

// later leaves the references as they are that f reads.
func (d *decoder) later(f func()) {
	before := d.refs.Options
	d.refs.Unresolved, d.refs.PackFiles = true, false
	f()
	d.refs.Options = before
}

// serverName is a name that leaves room for the name of the entry.
var serverName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,15}$`)

// server checks a server, and fills in its folder.
func (d *decoder) server(m *Manifest, s *Server) {
	at := "servers." + s.Name
	if !serverName.MatchString(s.Name) {
		d.bad(at, "is no name for a server; use up to 16 letters, digits, _ and -")
	}
	isCommand, isURL := d.Lines[at+".command"] > 0, d.Lines[at+".url"] > 0
	if isCommand == isURL {
		d.bad(at, "needs either command: [program, argument] or url: https://mcp.example.com/mcp")
		return
	}
	other := []string{"dir", "env", "inherit_env", "sandbox"}
	if isCommand {
		other = []string{"headers"}
	}
	for _, key := range other {
		if d.Lines[at+"."+key] > 0 {
			d.bad(at+"."+key, "is not for a server with %s; remove it",
				map[bool]string{true: "a command", false: "a url"}[isCommand])
		}
	}
	if isURL {
		if problem := AddressProblem(s.URL.Value(), false); problem != "" && !s.URL.Open() {
			d.bad(at+".url", "%s", problem)
		}
		for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
			d.header(at, name)
		}
		return
	}
	if len(s.Command) > 0 && s.Command[0].Source == "" {
		d.bad(at+".command[0]", "is empty; write the name of the program")
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		if !yamlread.IsVariable(name) {
			d.bad(at+".env."+name, "is no name of an environment variable; use letters, digits and _")
		}
	}
	d.later(func() { d.surroundings(at, nil, s.InheritEnv, s.Sandbox) })
	s.WorkDir = m.Dir
	if s.Dir.Source != "" {
		s.WorkDir = inside(m.Dir, s.Dir.Value())
	}
	if !s.Dir.Open() {
		d.folder(at+".dir", s.WorkDir)
	}
}

// Server returns the server of a manifest with the name, and the manifest; nil if there is none.
func (p *Pack) Server(name string) (*Manifest, *Server) {
	for _, m := range p.Manifests {
		for _, s := range m.Servers {
			if s.Name == name {
				return m, s
			}
		}
	}
	return nil, nil
}

// ServerNames returns the names of the servers of a pack, in the order of the manifests.
func (p *Pack) ServerNames() (names []string) {
	for _, m := range p.Manifests {
		for _, s := range m.Servers {
			names = append(names, s.Name)
		}
	}
	return names
}
