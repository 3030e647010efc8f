// Package manifest reads manifests: the YAML files that describe the tools of a pack.
//
// manifest.go, tool.go, api.go and server.go have the keys of a file. kind.go has what a kind of tool is,
// and the file with the key of a kind, such as http.go, has the keys of its tools. Load finds the files,
// decode.go parses their YAML strictly, reference.go resolves ${VAR} and ${file:…}, and check.go
// validates the values. deciders.go keeps commands from changing the manifest. All mistakes are reported
// at once, each with its file, line and remedy (problem.go).
package manifest

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"junction/upstream/command"
	"junction/upstream/files"
	"junction/upstream/yamlread"
)

// Manifest is one file.
type Manifest struct {
	// Name is the name of the MCP server. Default: the name of the folder or the file.
	Name string `yaml:"name"`
	// Title and Instructions are shown to clients. Instructions tell a model how to use the pack.
	Title string `yaml:"title"`
	// Text for the model: when to use the pack.
	Instructions string `yaml:"instructions"`
	Version      string `yaml:"version"`
	// Keys of tools that do not have their own.
	Defaults Defaults `yaml:"defaults"`
	// The tools by name.
	//
	// A list whose elements have names is a mapping in the file; its order is kept.
	Tools []*Tool `yaml:"tools"`
	// OpenAPI documents by name.
	OpenAPI []*API `yaml:"openapi"`
	// MCP servers that Junction runs.
	//
	// They are offered to Junction, not to clients.
	Servers []*Server `yaml:"servers"`
	// Prompts and Resources are offered to users of clients.
	Prompts   []*Prompt   `yaml:"prompts"`
	Resources []*Resource `yaml:"resources"`

	File string `yaml:"-"` // its path as it was given
	Dir  string `yaml:"-"` // the absolute path of its folder

	files []string       // that references name
	wants []string       // the bodies of the references
	lines yamlread.Lines // of the keys, for At
}

// Defaults are values for tools that do not have their own.
type Defaults struct {
	Limits     `yaml:",inline"`
	Dir        Ref              `yaml:"dir"`
	Env        Variables        `yaml:"env"`
	InheritEnv command.Inherit  `yaml:"inherit_env"`
	Sandbox    *command.Sandbox `yaml:"sandbox"`
}

// Limits bound one tool. The tag measure says what a limit counts.
type Limits struct {
	// Of one call; default 30s.
	Timeout time.Duration `yaml:"timeout" measure:"time"`
	// Bytes of output of one call; default 1MiB; more is an error.
	MaxOutput Size `yaml:"max_output" measure:"bytes"`
	// Calls at the same time; default 4; others wait for at most the timeout.
	Concurrency int `yaml:"concurrency" measure:"calls"`
	// true cuts longer text in place of the error, and ends it with a marker. Default false.
	Cut *bool `yaml:"cut" measure:"form"`
	// How often a request is sent again, 0 to 5; default 2.
	//
	// Only a request that is safe to repeat, within timeout.
	Retries Retries `yaml:"retries" measure:"requests"`
}

// Cuts reports whether a longer output is cut.
func (l Limits) Cuts() bool { return l.Cut != nil && *l.Cut }

// The defaults of Limits.
const (
	DefaultTimeout     = 30 * time.Second
	DefaultMaxOutput   = Size(1 << 20)
	DefaultConcurrency = 4
	DefaultRetries     = 2
)

// or returns the limits; d completes them.
func (l Limits) or(d Limits) Limits {
	return Limits{Timeout: cmp.Or(l.Timeout, d.Timeout), MaxOutput: cmp.Or(l.MaxOutput, d.MaxOutput),
		Concurrency: cmp.Or(l.Concurrency, d.Concurrency), Cut: cmp.Or(l.Cut, d.Cut),
		Retries: cmp.Or(l.Retries, d.Retries)}
}

// Options configure how Load resolves references.
type Options struct {
	// kinds are what tools can do.
	kinds Kinds
	// Unresolved leaves references as they are. Such a manifest can be shown, but its tools must
	// not be called.
	Unresolved bool
	// PackFiles resolves the references to files in the folder of the manifest nevertheless.
	PackFiles bool
	// Enable are globs of tools that are offered although the manifest has enabled: false.
	Enable []string
	// Getenv looks up the variables of references; nil for those of this process.
	Getenv func(name string) (value string, ok bool)
	// skills means that the folder has skills.
	skills bool
	// Unset returns the mistake about a variable that Getenv does not have; nil for the usual words.
	Unset func(name string) string
}

// Pack is all manifests of a file or folder.
type Pack struct {
	Manifests []*Manifest // in the order of their files; never empty
	Dir       string      // the folder, with the skills of the pack; "" if one manifest was read
	Warnings  Problems    // conditions outside the files, such as a program that is missing
}

// At returns a mistake at a key, for mistakes that are found after Load.
func (m *Manifest) At(path, format string, args ...any) Problem {
	return Problem{File: m.File, Line: m.lines.At(path), Path: path, Text: fmt.Sprintf(format, args...)}
}

// Files returns the other files that the manifest depends on.
func (m *Manifest) Files() []string { return m.files }

// Wants returns the references of the manifest, sorted: the names of variables, and the paths of
// files with file: before them.
func (m *Manifest) Wants() []string {
	var all []string
	for _, body := range m.wants {
		name, _, _ := strings.Cut(strings.TrimPrefix(body, "env:"), ":-")
		if strings.HasPrefix(body, "file:") {
			name = body
		}
		all = append(all, name)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// maxFile limits the size of a manifest.
const maxFile = 1 << 20

// Load reads a manifest, or all manifests of a folder: pack.yaml and files that end in .pack.yaml.
// If files have mistakes, the error is Problems: all of them.
func Load(at string, kinds Kinds, o Options) (*Pack, error) {
	o.kinds = kinds
	list, err := Files(at)
	if err != nil {
		return nil, err
	}
	var pack Pack
	if info, err := os.Stat(at); err == nil && info.IsDir() {
		pack.Dir, o.skills = at, hasSkills(at)
	}
	var decoders []*decoder
	names := map[string]string{}
	left := int64(maxFiles)
	unique := func(d *decoder, path, name, is, format string) {
		if other, twice := names[name]; twice {
			d.bad(path, format, other)
		}
		names[name] = is
	}
	for _, file := range list {
		text, err := files.Read(file, maxFile)
		if err != nil {
			return nil, fmt.Errorf("cannot read the manifest %s: %w", file, err)
		}
		m, d := parse(file, text, o, &left)
		for _, t := range m.Tools {
			unique(d, "tools."+t.Name, "tool "+t.Name, file, "is also a tool of %s; rename one of them")
		}
		for _, s := range m.Servers {
			unique(d, "servers."+s.Name, "server "+s.Name, file, "is also a server of %s; rename one of them")
		}
		for _, p := range m.Prompts {
			unique(d, "prompts."+p.Name, "prompt "+p.Name, file, "is also a prompt of %s; rename one of them")
		}
		for _, r := range m.Resources {
			unique(d, "resources."+r.Name, "resource "+r.URI, r.Name, "has the same URI as %s; set uri")
		}
		pack.Manifests = append(pack.Manifests, m)
		pack.Warnings = append(pack.Warnings, d.warnings...)
		decoders = append(decoders, d)
	}
	pack.confine(at, decoders)
	if slices.ContainsFunc(decoders, func(d *decoder) bool { return len(d.Problems) > 0 }) {
		var problems Problems
		for i, d := range decoders {
			d.Problems = append(d.Problems, pack.Manifests[i].missing()...)
			d.Problems.Sort()
			problems = append(problems, d.Problems...)
		}
		return nil, problems
	}
	pack.enable(o.Enable)
	return &pack, nil
}

// enable turns tools on. A glob that matches no tool of a manifest is for the operations of the
// documents that are turned off.
func (p *Pack) enable(globs []string) {
	used := map[string]bool{}
	for _, m := range p.Manifests {
		for _, t := range m.Tools {
			for _, glob := range globs {
				if MatchesName(glob, t.Name) {
					used[glob], t.Enabled = true, nil
				}
			}
		}
	}
	left := slices.DeleteFunc(slices.Clone(globs), func(glob string) bool { return used[glob] })
	for _, m := range p.Manifests {
		for _, a := range m.OpenAPI {
			if a.Off() && len(left) > 0 {
				a.Enabled, a.Only = nil, left
			}
		}
	}
}

// MatchesName reports whether a tool has the name, or one that matches the glob.
func MatchesName(glob, name string) bool {
	ok, _ := path.Match(glob, name)
	return ok || glob == name
}

// Files returns the manifests of a file or a folder, sorted.
func Files(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w; name a manifest or a folder with pack.yaml", path,
			files.Reason(err))
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the folder %s: %w", path, files.Reason(err))
	}
	var list []string
	for _, e := range entries {
		if IsManifest(e.Name()) && !e.IsDir() {
			list = append(list, filepath.Join(path, e.Name()))
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("the folder %s has no pack.yaml and no file that ends in .pack.yaml; "+
			"junction-pack init makes one", path)
	}
	slices.Sort(list)
	return list, nil
}

// IsManifest reports whether a file of a folder is a manifest, by its name.
func IsManifest(name string) bool {
	name, yaml := strings.CutSuffix(name, ".yaml")
	if !yaml {
		name, yaml = strings.CutSuffix(name, ".yml")
	}
	return yaml && (name == "pack" || strings.HasSuffix(name, ".pack"))
}

// parse reads the text of a manifest. The problems of the decoder are not sorted.
// left are the bytes that the files which it names may have.
func parse(file string, text []byte, o Options, left *int64) (*Manifest, *decoder) {
	m := &Manifest{File: file}
	d := newDecoder(file, o)
	d.refs.left = left
	m.Dir = d.refs.dir
	if d.decode(text, m) {
		d.complete(m) // checks also what tools inherit
		d.check(m)
	}
	m.files, m.wants, m.lines = d.refs.files, d.refs.wants, d.Lines
	return m, d
}

// complete fills in the defaults.
func (d *decoder) complete(m *Manifest) {
	if m.Name == "" {
		base := filepath.Base(d.File)
		if m.Name = strings.TrimSuffix(strings.TrimSuffix(base, filepath.Ext(base)), ".pack"); m.Name == "pack" {
			m.Name = filepath.Base(m.Dir)
		}
	}
	d.surroundings("defaults", m.Defaults.Env, m.Defaults.InheritEnv, m.Defaults.Sandbox)
	limits := m.Defaults.Limits.or(Limits{Timeout: DefaultTimeout, MaxOutput: DefaultMaxOutput,
		Concurrency: DefaultConcurrency, Retries: Retries{Count: DefaultRetries, given: true}})
	for _, a := range m.OpenAPI {
		a.Limits, a.Dir = a.Limits.or(limits), m.Dir
	}
	for _, r := range m.Resources {
		r.Dir = m.Dir
	}
	for _, t := range m.Tools {
		d.surroundings("tools."+t.Name, t.Env, t.InheritEnv, t.Sandbox)
		t.Limits = t.Limits.or(limits)
		t.Env = t.Env.or(m.Defaults.Env)
		if t.Dir.text == "" {
			t.Dir = m.Defaults.Dir
		}
		if t.InheritEnv == nil {
			t.InheritEnv = m.Defaults.InheritEnv
		}
		if t.Sandbox == nil {
			t.Sandbox = m.Defaults.Sandbox
		}
		t.WorkDir = m.Dir
		if t.Dir.text != "" {
			t.WorkDir = inside(m.Dir, t.Dir.text)
		}
	}
}

// SkillsFolder is the folder of a pack with its skills.
const SkillsFolder = "skills"

func hasSkills(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, SkillsFolder))
	return err == nil && info.IsDir()
}

// inside returns the path, which is relative to the folder unless it is absolute.
func inside(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}
