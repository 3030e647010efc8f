package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

// API is an OpenAPI document whose operations are tools.
type API struct {
	Name    string `yaml:"-"`
	Enabled *bool  `yaml:"enabled"` // default true
	// The document: a file in the folder of the manifest, or a URL.
	Spec Ref `yaml:"spec"`
	// The URL of the API; default: the first server of the document.
	BaseURL Ref `yaml:"base_url"`
	// true allows http for base_url of another machine. Others on its network can read the
	// requests.
	AllowHTTP bool `yaml:"allow_http"`
	// Operations chooses operations: by id, by tag:NAME, or by "METHOD /path"; each may be a glob.
	// Default: all. Exclude leaves out some of them in the same way.
	Operations []string `yaml:"operations"`
	Exclude    []string `yaml:"exclude"`
	// Text before the names of the tools.
	Prefix string `yaml:"prefix"`
	// Headers of every request.
	Headers map[string]Ref `yaml:"headers"`
	// Credentials by the name of the security scheme: a key, a token, or user:password.
	Auth map[string]Ref `yaml:"auth"`
	// Changes by id: name, title, description, annotations, capabilities.
	Tools  map[string]Change `yaml:"tools"`
	Limits `yaml:",inline"`

	// Capabilities are required for every operation. See Tool.Capabilities.
	Capabilities []string `yaml:"capabilities"`

	Only []string `yaml:"-"` // globs: if not nil, only operations with such names are tools
	Dir  string   `yaml:"-"` // the folder of the manifest
}

// Change is what a manifest changes of the tool of an operation.
type Change struct {
	Name        string      `yaml:"name"`
	Title       string      `yaml:"title"`
	Description string      `yaml:"description"`
	Annotations Annotations `yaml:"annotations"`
	// Capabilities are required in addition to those of the document.
	Capabilities []string `yaml:"capabilities"`
}

// Off reports whether the document is turned off.
func (a *API) Off() bool { return a.Enabled != nil && !*a.Enabled }

// IsURL reports whether a document is fetched.
func IsURL(spec string) bool {
	return strings.HasPrefix(spec, "https://") || strings.HasPrefix(spec, "http://")
}

// Path is the place of a document in the manifest.
func (a *API) Path() string { return "openapi." + a.Name }

// missing returns the mistakes about documents that do not exist. Package openapi finds them, too, but
// only if the manifests have no other mistakes.
func (m *Manifest) missing() (problems Problems) {
	for _, a := range m.OpenAPI {
		spec := a.Spec.Value()
		if a.Off() || a.Spec.open || spec == "" || IsURL(spec) {
			continue
		}
		file := inside(m.Dir, spec)
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, m.At(a.Path()+".spec",
				"cannot use the document %s: cannot read %s: no such file", a.Spec.Source, file))
		}
	}
	return problems
}

// namePrefix is what a tool's name may begin with.
var namePrefix = regexp.MustCompile(`^[A-Za-z0-9_.-]{0,32}$`)

func (d *decoder) api(a *API) {
	at := a.Path()
	switch {
	case a.Spec.Source == "" && d.Lines[at+".spec"] == 0:
		d.bad(at, "has no spec; add spec: openapi.yaml, or a URL")
	case !a.Spec.open && IsURL(a.Spec.Value()) && AddressProblem(a.Spec.Value(), false) != "":
		d.bad(at+".spec", "%s", AddressProblem(a.Spec.Value(), false))
	}
	problem := namedProblem(a.BaseURL.Value(), a.AllowHTTP)
	if a.BaseURL.Source != "" && problem != "" && !a.BaseURL.open {
		d.bad(at+".base_url", "%s", problem)
	}
	if !namePrefix.MatchString(a.Prefix) {
		d.bad(at+".prefix", "must be at most 32 letters, digits, _, - and .")
	}
	for key, list := range map[string][]string{"operations": a.Operations, "exclude": a.Exclude} {
		for i, glob := range list {
			if _, err := path.Match(glob, ""); err != nil || glob == "" {
				d.bad(fmt.Sprintf("%s.%s[%d]", at, key, i),
					"is no glob; write the id of an operation, such as getUser "+
						"or get*, tag:users, or \"GET /users/*\"")
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.Headers)) {
		d.header(at, name)
	}
	d.capabilities(at, a.Capabilities)
	for _, id := range slices.Sorted(maps.Keys(a.Tools)) {
		d.capabilities(at+".tools."+id, a.Tools[id].Capabilities)
		if c := a.Tools[id]; c.Name != "" && !toolName.MatchString(c.Name) {
			d.bad(at+".tools."+id+".name", "is no name for a tool; use up to 64 letters, digits, _, - and .")
		}
	}
}
