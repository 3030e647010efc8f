package manifest

import (
	"errors"
	"fmt"
	"mime"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"junction/cmd/pack/template"
	"junction/upstream/files"
)

// Ask is the key prompt of a tool: a request to the model of the client.
type Ask struct {
	Words     `yaml:",inline"`
	System    Plain  `yaml:"system"`
	Model     string `yaml:"model"`      // a hint, such as a part of a model's name
	MaxTokens int    `yaml:"max_tokens"` // of the answer. Default 1000
}

// PromptKind are tools that ask the model of the client.
var PromptKind = &Kind{Key: "prompt", Example: "prompt: { text: … }", Tools: "prompts", Shows: "questions to the model",
	Limits: acceptedLimits, New: func(*Tool) Action { return &Ask{} }}

// Check implements Action.
func (a *Ask) Check(c *Checker) {
	c.TextOrJSON(", which models write")
	if a.MaxTokens == 0 {
		a.MaxTokens = DefaultMaxTokens
	}
	c.d.words(c.path+".prompt", &a.Words)
}

// Uses implements Action.
func (a *Ask) Uses(note func(at string, names []string, optional bool)) {
	note(".prompt", a.Text.Names(), false)
	note(".prompt", a.System.Names(), false)
}

// DefaultMaxTokens is the default of Ask.MaxTokens.
const DefaultMaxTokens = 1000

// Words are a template: a text, or a file in the folder of the manifest. References are not
// replaced in them, so that no secret goes to a model.
type Words struct {
	Text Plain  `yaml:"text"`
	File string `yaml:"file"`
}

// Plain is a template without references.
type Plain struct {
	template.Template
	Source string
}

func (p *Plain) decode(d *decoder, path string, n *yaml.Node) {
	var t Text
	t.read(d, path, n)
	p.Source, p.Template = t.Source, t.Template
}

// words reads the file of a template.
func (d *decoder) words(path string, w *Words) {
	switch {
	case w.File != "" && w.Text.Source != "":
		d.bad(path, "has text and file; keep one")
	case w.File != "":
		text, err := d.companion(w.File)
		if err == nil && !utf8.Valid(text) {
			err = errors.New("it is not UTF-8 text")
		}
		if err != nil {
			d.bad(path+".file", "cannot use the file %s: %v", w.File, err)
			return
		}
		w.Text = Plain{template.Parse(string(text)), string(text)}
	case w.Text.Source == "":
		d.bad(path, "has no text; add text: …, or file: prompts/name.md")
	}
}

// companion reads a file in the folder of the manifest, and adds it to the watched files.
func (d *decoder) companion(name string) ([]byte, error) {
	d.refs.files = append(d.refs.files, inside(d.refs.dir, name))
	full, err := Inside(d.refs.dir, name)
	if err != nil {
		return nil, err
	}
	return d.refs.read(full, maxFile)
}

// Inside returns the real path of a file that is in the folder, through links as well.
func Inside(dir, name string) (string, error) {
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", files.Reason(err)
	}
	full, err := filepath.EvalSymlinks(inside(root, name))
	if err != nil {
		return "", errors.New("no such file")
	}
	if _, ok := Below(root, full); !ok {
		return "", errors.New("it is outside the folder of the manifest; copy it into the folder")
	}
	return full, nil
}

// Below returns a path relative to a folder. It returns false if the path leaves the folder.
func Below(dir, path string) (relative string, ok bool) {
	relative, err := filepath.Rel(dir, path)
	return relative, err == nil && filepath.IsLocal(relative)
}

// Prompt is a prompt that clients offer to their users.
type Prompt struct {
	Name        string     `yaml:"-"`
	Title       string     `yaml:"title"`
	Description string     `yaml:"description"`
	Parameters  Parameters `yaml:"parameters"`
	Words       `yaml:",inline"`
}

func (d *decoder) prompt(path string, p *Prompt) {
	if !toolName.MatchString(p.Name) {
		d.bad(path, "is no name for a prompt; use up to 64 letters, digits, _, - and .")
	}
	d.words(path, &p.Words)
	used := map[string]use{}
	for _, name := range p.Text.Names() {
		used[name] = use{}
	}
	d.compare(path, p.Parameters, used)
}

// Resource is a file that clients can read.
type Resource struct {
	Name        string `yaml:"-"`
	Title       string `yaml:"title"`
	Description string `yaml:"description"`
	File        string `yaml:"file"` // in the folder of the manifest
	Type        string `yaml:"type"` // the media type. Default: by the name of the file
	URI         string `yaml:"uri"`  // default pack:///NAME/FILE

	Dir string `yaml:"-"` // the folder of the manifest
}

// MaxResource limits the size of a resource.
const MaxResource = 16 << 20

func (d *decoder) resource(path, pack string, r *Resource) {
	if r.File == "" {
		d.bad(path, "has no file; add file: docs/name.md")
		return
	}
	d.refs.files = append(d.refs.files, inside(d.refs.dir, r.File))
	if full, err := Inside(r.Dir, r.File); err != nil {
		d.bad(path+".file", "cannot use the file %s: %v", r.File, err)
	} else if info, err := os.Stat(full); err != nil || !info.Mode().IsRegular() || info.Size() > MaxResource {
		d.bad(path+".file", "%s is no regular file of at most %d MiB; name another one", r.File, MaxResource>>20)
	}
	if r.Type == "" {
		r.Type = TypeOf(r.File)
	}
	if r.URI == "" {
		r.URI = fmt.Sprintf("pack:///%s/%s", pack, filepath.ToSlash(filepath.Clean(r.File)))
	}
	if !strings.Contains(r.URI, ":") || strings.ContainsAny(r.URI, " \t\r\n") {
		d.bad(path+".uri", "is no URI; write one such as docs:///guide")
	}
}

// TypeOf returns the media type for the name of a file.
func TypeOf(file string) string {
	switch ext := strings.ToLower(filepath.Ext(file)); ext {
	case ".md":
		return "text/markdown"
	case ".txt", "":
		return "text/plain"
	case ".yaml", ".yml":
		return "application/yaml"
	default:
		if kind, _, err := mime.ParseMediaType(mime.TypeByExtension(ext)); err == nil {
			return kind
		}
	}
	return "application/octet-stream"
}
