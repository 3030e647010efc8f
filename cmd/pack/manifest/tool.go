package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"mime"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"junction/upstream/command"
	"junction/upstream/prose"
	"junction/upstream/yamlread"
)

// Tool is one tool. It has exactly one of the keys of the kinds.
type Tool struct {
	Name        string `yaml:"-"`
	Title       string `yaml:"title"`
	Description string `yaml:"description"`
	// false hides the tool, unless the entry enables it. Default true.
	Enabled *bool `yaml:"enabled"`
	// The arguments by name: a JSON Schema, or only its description.
	Parameters Parameters `yaml:"parameters"`
	// read_only, destructive, idempotent, open_world: hints for clients.
	Annotations Annotations `yaml:"annotations"`
	Limits      `yaml:",inline"`
	// What Junction requires of callers.
	//
	// Junction learns it from the definition.
	Capabilities []string `yaml:"capabilities"`

	// The program and its arguments.
	//
	// With shell, it is the text of a script.
	Command Args `yaml:"-"`
	// command is a script for /bin/sh and the values of $1, $2 and so on.
	Shell bool `yaml:"shell"`
	// A template for the standard input; default empty.
	Stdin Text `yaml:"stdin"`
	// The working directory, relative to the folder of the manifest, which is the default.
	Dir Ref `yaml:"dir"`
	// Variables; their values may have placeholders.
	Env Variables `yaml:"env"`
	// Further variables of junction-pack's environment, as in Junction's configuration.
	InheritEnv command.Inherit `yaml:"inherit_env"`
	// The files and ports that the command may use, as in Junction's configuration.
	Sandbox *command.Sandbox `yaml:"sandbox"`
	// What exit statuses mean: { 1: ok, 2: the message for the model }.
	ExitCodes ExitCodes `yaml:"exit_codes"`

	// Kind is what the tool does, and Action the value of its key, which New of the kind has made. Both
	// are nil for a tool without such a key, which is a mistake.
	Kind   *Kind  `yaml:"-"`
	Action Action `yaml:"-"`
	// actions has an Action for each key of a kind that the tool has.
	actions []Action

	// text (default), json, or a media type such as image/png.
	Output Output `yaml:"output"`
	// With output: json: the JSON Schema of the output.
	OutputSchema Schema `yaml:"output_schema"`

	WorkDir string `yaml:"-"` // the absolute path of Dir
}

// Off reports whether the tool is turned off.
func (t *Tool) Off() bool { return t.Enabled != nil && !*t.Enabled }

// Runs reports whether the tool runs a program on this machine (Kind.Runs).
func (t *Tool) Runs() bool { return t.Kind != nil && t.Kind.Runs }

// Annotations are the hints of MCP about a tool. Absent ones are left to the kind of the tool.
type Annotations struct {
	ReadOnly    *bool `yaml:"read_only"`
	Destructive *bool `yaml:"destructive"`
	Idempotent  *bool `yaml:"idempotent"`
	OpenWorld   *bool `yaml:"open_world"`
}

// Or returns the hints; d completes them.
func (a Annotations) Or(d Annotations) Annotations {
	return Annotations{cmp.Or(a.ReadOnly, d.ReadOnly), cmp.Or(a.Destructive, d.Destructive),
		cmp.Or(a.Idempotent, d.Idempotent), cmp.Or(a.OpenWorld, d.OpenWorld)}
}

// Args are the words of a command. In the file, a list of texts; an element may also be a list, or
// a mapping {when, args}: see Arg.
type Args []Arg

// Arg is one argument, or a group of arguments. A group is left out if one of its placeholders has
// no value, or if the argument that When names is missing, false or empty.
type Arg struct {
	Text  Text
	Group Args // nil for one argument
	When  string
}

func (a *Args) decode(d *decoder, path string, n *yaml.Node) {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		d.bad(path, "must be a list with the program and its arguments, such as [grep, -n, --, \"{{text}}\"], not %s",
			kind(n))
		return
	}
	for i, e := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.Line(at, e)
		var arg Arg
		if e = d.Enter(e); e == nil {
			return
		}
		switch e.Kind {
		case yaml.SequenceNode:
			arg.Group.decode(d, at, e)
		case yaml.MappingNode:
			arg.conditional(d, at, e)
		default:
			arg.Text.read(d, at, e)
		}
		*a = append(*a, arg)
	}
}

// conditional reads a group with a condition.
func (a *Arg) conditional(d *decoder, path string, n *yaml.Node) {
	if len(n.Content) > 0 && n.Content[0].Kind == yaml.MappingNode {
		d.bad(path, "must be text, not a mapping; put quotes around a placeholder, such as \"{{name}}\"")
		a.Group = Args{{}}
		return
	}
	for _, p := range d.pairs(path, n) {
		switch at := yamlread.Join(path, p.Key); p.Key {
		case "when":
			a.When = p.Value.Value
		case "args":
			a.Group.decode(d, at, p.Value)
		default:
			d.bad(at, "unknown key; write { when: parameter, args: [--flag] }, "+
				"or put quotes around a text that begins with {")
		}
	}
	if a.When == "" || len(a.Group) == 0 {
		d.bad(path, "is not complete; write { when: parameter, args: [--flag] }, "+
			"or put quotes around a text that begins with {")
		a.Group = append(a.Group, Arg{})
	}
}

// String returns the words as the file has them, with groups in brackets.
func (a Args) String() string {
	words := make([]string, len(a))
	for i, arg := range a {
		switch source := arg.Text.Source; {
		case arg.When != "":
			words[i] = "[if " + arg.When + ": " + arg.Group.String() + "]"
		case arg.Group != nil:
			words[i] = "[" + arg.Group.String() + "]"
		case source == "" || strings.ContainsAny(source, " \t\n[]\"'"):
			words[i] = strconv.Quote(source)
		default:
			words[i] = source
		}
	}
	return strings.Join(words, " ")
}

// Walk calls f for each argument, with the groups around it.
func (a Args) Walk(f func(path string, arg *Arg, optional bool)) { a.walk("", false, f) }

func (a Args) walk(path string, optional bool, f func(string, *Arg, bool)) {
	for i := range a {
		at := fmt.Sprintf("%s[%d]", path, i)
		f(at, &a[i], optional)
		if a[i].When != "" {
			at += ".args"
		}
		a[i].Group.walk(at, true, f)
	}
}

// ExitCodes maps an exit status to the word ok, or to a message for the model. Every other status
// except 0 is a failure.
type ExitCodes map[int]string

// ExitOK is the value of an exit status that is no failure.
const ExitOK = "ok"

func (c *ExitCodes) decode(d *decoder, path string, n *yaml.Node) {
	*c = ExitCodes{}
	for _, p := range d.pairs(path, n) {
		at := yamlread.Join(path, p.Key)
		code, err := strconv.Atoi(p.Key)
		switch {
		case err != nil || code < 0 || code > 255:
			d.bad(at, "is no exit status; write a number from 0 to 255, such as 1: ok")
		case p.Value.Kind != yaml.ScalarNode || p.Value.Value == "":
			d.bad(at, "must be ok, or a message for the model, not %s", kind(p.Value))
		default:
			(*c)[code] = p.Value.Value
		}
	}
}

// Output is the form of a result: text, json, or the media type of a file.
type Output string

// The forms of a result that are no media types.
const (
	OutputText Output = "text"
	OutputJSON Output = "json"
)

func (o *Output) decode(d *decoder, path string, n *yaml.Node) {
	*o = Output(n.Value)
	if _, _, err := mime.ParseMediaType(n.Value); *o != OutputText && *o != OutputJSON &&
		(err != nil || !strings.Contains(n.Value, "/")) {
		d.bad(path, "must be text, json, or a media type such as image/png or application/pdf, not %s",
			prose.Quote(n.Value))
	}
}

// isText reports whether a part of the output is of use.
func (o Output) isText() bool {
	return o == "" || o == OutputText || strings.HasPrefix(string(o), "text/")
}

// CutsOutput reports whether a longer output of the tool is cut. Other output than text never is.
func (t *Tool) CutsOutput() bool { return t.Cuts() && t.Output.isText() }

// Size is a number of bytes.
type Size int64

func (s *Size) decode(d *decoder, path string, n *yaml.Node) {
	digits, unit := n.Value, int64(1)
	for name, factor := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20} {
		if rest, ok := strings.CutSuffix(n.Value, name); ok {
			digits, unit = strings.TrimSpace(rest), factor
		}
	}
	v, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || v <= 0 || v*unit > maxSize {
		d.bad(path, "must be a size from 1 to 64MiB, such as 512, 64KiB or 16MiB, not %s", prose.Quote(n.Value))
		return
	}
	*s = Size(v * unit)
}

// maxSize is the largest Size. A result is held in memory several times.
const maxSize = 64 << 20

// Retries is a number of retries. The zero value is a missing one.
type Retries struct {
	Count int
	given bool
}

// maxRetries is the largest number of retries.
const maxRetries = 5

func (r *Retries) decode(d *decoder, path string, n *yaml.Node) {
	count, err := strconv.Atoi(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || count < 0 || count > maxRetries {
		d.bad(path, "must be a whole number from 0 to %d, not %s", maxRetries, prose.Quote(n.Value))
		return
	}
	*r = Retries{count, true}
}

// Schema is a JSON Schema; nil if it is missing.
type Schema json.RawMessage

func (s *Schema) decode(d *decoder, path string, n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		d.bad(path, "must be a JSON Schema, such as { type: object }, not %s", kind(n))
		return
	}
	*s = Schema(d.json(path, n))
}

// Parameters are the arguments of a tool, in their order.
type Parameters []*Parameter

// Parameter is one argument. In the file, a JSON Schema with three keys more, or its description.
type Parameter struct {
	Name     string
	Schema   json.RawMessage
	Required bool
	Default  any // of the schema; nil if there is none
	// LeadingDash lets the value begin with - where a program could take it for an option.
	LeadingDash bool
	// Within is the folder that the value, a path, must be inside; "" if the value is no path.
	Within string
	open   bool // Within has references that were left as they are
}

// Named returns the parameter with the name, or nil.
func (ps Parameters) Named(name string) *Parameter {
	if i := slices.IndexFunc(ps, func(p *Parameter) bool { return p.Name == name }); i >= 0 {
		return ps[i]
	}
	return nil
}

// WithDefaults returns the arguments of a call, with the defaults of those that are missing.
func (ps Parameters) WithDefaults(arguments map[string]any) map[string]any {
	all := make(map[string]any, len(ps))
	for _, p := range ps {
		if v := arguments[p.Name]; v != nil {
			all[p.Name] = v
		} else if p.Default != nil {
			all[p.Name] = p.Default
		}
	}
	return all
}

func (p *Parameter) decode(d *decoder, path string, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode {
		schema := map[string]string{"type": "string", "description": n.Value}
		if yamlread.Empty(n) {
			delete(schema, "description")
		}
		p.Schema, _ = json.Marshal(schema)
		return
	}
	schema := &yaml.Node{Kind: yaml.MappingNode, Line: n.Line}
	typed := false
	for _, e := range d.pairs(path, n) {
		at := yamlread.Join(path, e.Key)
		switch {
		case e.Key == "required" && e.Value.Kind == yaml.ScalarNode:
			d.read(at, e.Value, &p.Required)
		case e.Key == "leading_dash":
			d.read(at, e.Value, &p.LeadingDash)
		case e.Key == "within":
			var r Ref
			d.read(at, e.Value, &r)
			p.Within, p.open = inside(d.refs.dir, r.text), r.open
		case !slices.Contains(keywords, e.Key) && !strings.HasPrefix(e.Key, "x-"):
			d.unknown(at, e.Key, append([]string{"leading_dash", "required", "within"}, keywords...))
		default:
			typed = typed || slices.Contains(typing, e.Key)
			schema.Content = append(schema.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: e.Key},
				e.Value)
		}
	}
	if !typed {
		schema.Content = append(schema.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "type"},
			&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "string"})
	}
	p.Schema = d.json(path, schema)
	var has struct{ Default any }
	r := json.NewDecoder(bytes.NewReader(p.Schema))
	r.UseNumber()
	if r.Decode(&has) == nil {
		p.Default = has.Default
	}
}

// typing are the keywords that make the default type string superfluous.
var typing = []string{"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"}

// keywords are those of JSON Schema 2020-12 that a parameter may have.
var keywords = []string{
	"additionalProperties", "allOf", "anyOf", "const", "contains", "contentEncoding", "contentMediaType", "default",
	"dependentRequired", "deprecated", "description", "else", "enum", "examples", "exclusiveMaximum",
	"exclusiveMinimum", "format", "if", "items", "maxContains", "maxItems", "maxLength", "maxProperties", "maximum",
	"minContains", "minItems", "minLength", "minProperties", "minimum", "multipleOf", "not", "oneOf", "pattern",
	"patternProperties", "prefixItems", "properties", "propertyNames", "readOnly", "required", "then", "title",
	"type", "uniqueItems", "writeOnly",
}
