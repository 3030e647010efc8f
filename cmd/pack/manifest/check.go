package manifest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"junction/proxy/schema"
	"junction/upstream/command"
	"junction/upstream/files"
	"junction/upstream/raw"
	"junction/upstream/yamlread"
)

var (
	toolName  = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
	paramName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)
)

// OutputFile is the placeholder for the path of a file that the command writes its output to.
const OutputFile = "output"

// check validates the values that could be read.
func (d *decoder) check(m *Manifest) {
	for _, s := range m.Servers {
		d.server(m, s)
	}
	if len(m.Tools)+len(m.OpenAPI)+len(m.Prompts)+len(m.Resources)+len(m.Servers) == 0 && len(d.Problems) == 0 &&
		!d.refs.skills {
		d.bad("", "has no tools; add tools: { name: { … } }, openapi: { name: { spec: openapi.yaml } }, or a folder "+
			"skills beside it")
	}
	for _, a := range m.OpenAPI {
		d.api(a)
	}
	for _, p := range m.Prompts {
		d.prompt("prompts."+p.Name, p)
	}
	for _, r := range m.Resources {
		d.resource("resources."+r.Name, m.Name, r)
	}
	for _, t := range m.Tools {
		d.tool("tools."+t.Name, t)
	}
}

// maxConcurrency is the largest number of calls of a tool at the same time.
const maxConcurrency = 100

func (d *decoder) tool(path string, t *Tool) {
	if !toolName.MatchString(t.Name) {
		d.bad(path, "is no name for a tool; use up to 64 letters, digits, _, - and .")
	}
	if strings.TrimSpace(t.Description) == "" {
		d.bad(path, "has no description; write what the tool does and when to use it, since models choose by it")
	}
	if t.Concurrency > maxConcurrency {
		d.bad(path+".concurrency", "must be at most %d", maxConcurrency)
	}
	d.capabilities(path, t.Capabilities)
	for _, p := range t.Parameters {
		d.parameter(path+".parameters."+p.Name, p)
		if p.Within != "" && !t.Runs() {
			d.bad(path+".parameters."+p.Name+".within", "is for %s only; remove it", d.refs.kinds.running())
		}
	}
	if t.OutputSchema != nil && t.Output != OutputJSON {
		d.bad(path+".output_schema", "needs output: json; add it, or remove the schema")
	}
	if at := path + ".cut"; d.Lines[at] > 0 && t.Cuts() && !t.Output.isText() {
		d.bad(at, "is for text only, because a part of other output is of no use; remove it, or output")
	}
	d.kinds(path, t)
	used, takes := t.uses()
	if t.Runs() {
		delete(used, OutputFile)
	}
	switch {
	case t.Kind == nil:
	case takes:
		d.compare(path, t.Parameters, used)
	case !d.mistaken(path + "." + t.Kind.Key):
		for _, p := range t.Parameters {
			d.bad(path+".parameters."+p.Name, "is not used, because %s take no arguments; remove it", t.Kind.Tools)
		}
	}
	for _, p := range t.Parameters {
		d.schema(path+".parameters."+p.Name, p.Schema)
	}
	if t.OutputSchema != nil {
		d.schema(path+".output_schema", t.OutputSchema)
	}
}

// maxCapabilities limits the capabilities of a tool, as Junction does.
const maxCapabilities = 16

var capability = regexp.MustCompile(`^[A-Za-z0-9._:/-]{1,64}$`)

// capabilities reports the words that are no capability of Junction.
func (d *decoder) capabilities(path string, list []string) {
	if len(list) > maxCapabilities {
		d.bad(path+".capabilities", "has more than %d capabilities; use fewer", maxCapabilities)
	}
	for i, s := range list {
		if !capability.MatchString(s) {
			d.bad(fmt.Sprintf("%s.capabilities[%d]", path, i),
				"a capability has 1 to 64 of A-Z, a-z, 0-9, ., _, :, / and -")
		}
	}
}

// schema reports a JSON Schema that cannot be used. A reference must stay within the schema, and
// clients get the schema as a part of a larger one, where # would be another place.
func (d *decoder) schema(path string, s []byte) {
	if bytes.Contains(s, []byte(`"$ref"`)) {
		d.bad(path, "has a $ref, which means another place in the definition of the tool; write the schema out")
		return
	}
	var v schema.Validator
	definition := fmt.Appendf(nil, `{"inputSchema":{"properties":{"x":%s}}}`, s)
	if _, err := v.Check(context.Background(), definition, raw.Object{}, nil, nil); err != nil {
		reason := strings.TrimPrefix(err.Error(), "its inputSchema ")
		d.bad(path, "is no JSON Schema (%s); correct it", reason)
	}
}

func (d *decoder) parameter(path string, p *Parameter) {
	switch {
	case !paramName.MatchString(p.Name):
		d.bad(path, "is no name for a parameter; use letters, digits, _ and -, beginning with a letter")
	case p.Name == OutputFile:
		d.bad(path, "is the name of the file for the output of a command; choose another name")
	}
	if p.Within != "" && !p.open {
		d.folder(path+".within", p.Within)
	}
}

// folder checks that a folder exists.
func (d *decoder) folder(path, dir string) {
	if info, err := os.Stat(dir); err != nil {
		d.bad(path, "cannot use the folder %s: %v; create it, or name another one", dir, files.Reason(err))
	} else if !info.IsDir() {
		d.bad(path, "%s is no folder; name a folder", dir)
	}
}

// surroundings checks the environment and the sandbox of commands, and resolves the references of
// the sandbox.
func (d *decoder) surroundings(path string, env Variables, inherit command.Inherit, box *command.Sandbox) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		at := path + ".env." + name
		if !yamlread.IsVariable(name) {
			d.bad(at, "is no name of an environment variable; use letters, digits and _")
		}
		if names := env[name].Names(); command.Decides(name) && len(names) > 0 {
			d.bad(at, "must not depend on {{%s}}, because it decides which programs run; write a fixed value", names[0])
		}
	}
	bad := func(key, format string, args ...any) { d.bad(path+"."+key, format, args...) }
	inherit.Validate(bad)
	if box == nil {
		return
	}
	open := false
	for key, list := range map[string][]string{"read": box.Read, "write": box.Write} {
		for i := range list {
			out, left, mistakes := d.refs.expand(list[i])
			open = open || left
			for _, w := range mistakes {
				d.bad(fmt.Sprintf("%s.sandbox.%s[%d]", path, key, i), "%s", w)
			}
			list[i] = out
		}
	}
	if !open {
		if box.Validate(bad); box.OnlyReadsFolder() {
			bad("sandbox.read", "a pack has no folder of a client; remove that entry")
		}
	}
}

// mistaken reports whether a mistake at a key was reported.
func (d *decoder) mistaken(path string) bool {
	return slices.ContainsFunc(d.Problems, func(p Problem) bool { return p.Path == path })
}

// use is where the values of a tool have a placeholder.
type use struct {
	at       string // the path of the last value that has it, within the tool
	optional bool   // the call is possible without a value, because only optional parts have it
}

// uses returns the placeholders of the tool, and whether it has a text that arguments can be put into.
func (t *Tool) uses() (all map[string]use, takes bool) {
	all = map[string]use{}
	note := func(at string, names []string, optional bool) {
		takes = true
		for _, name := range names {
			before, known := all[name]
			all[name] = use{at, optional && (before.optional || !known)}
		}
	}
	for _, action := range t.actions {
		action.Uses(note)
	}
	for variable, v := range t.Env { // a variable is left out if its placeholder has no value
		note(".env."+variable, v.Names(), true)
	}
	if t.Stdin.Source != "" {
		note(".stdin", t.Stdin.Names(), false)
	}
	return all, takes
}

// WritesFile reports whether the command writes its output to the file {{output}}.
func (t *Tool) WritesFile() bool {
	used, _ := t.uses()
	_, writes := used[OutputFile]
	return writes
}

// compare compares placeholders with parameters, and finds out which of the parameters are required.
func (d *decoder) compare(path string, parameters Parameters, used map[string]use) {
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if p := parameters.Named(name); p != nil {
			p.Required = p.Required || !used[name].optional && p.Default == nil
		} else {
			d.bad(path+used[name].at, "uses {{%s}}, which is no parameter; add parameters: { %s: what it is }, "+
				"or write \\{{%s}} for the text itself", name, name, name)
		}
	}
	for _, p := range parameters {
		if _, ok := used[p.Name]; !ok {
			d.bad(path+".parameters."+p.Name, "is not used; write {{%s}} where the value belongs, or remove it", p.Name)
		}
	}
}

// InputSchema returns the JSON Schema of the arguments.
func (t *Tool) InputSchema() []byte {
	var properties, required []string
	for _, p := range t.Parameters {
		properties = append(properties, fmt.Sprintf("%q:%s", p.Name, p.Schema))
		if p.Required {
			required = append(required, strconv.Quote(p.Name))
		}
	}
	return fmt.Appendf(nil, `{"type":"object","properties":{%s},"required":[%s],"additionalProperties":false}`,
		strings.Join(properties, ","), strings.Join(required, ","))
}
