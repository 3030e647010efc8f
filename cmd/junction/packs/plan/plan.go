// Package plan lists everything that a pack would run, without running it: programs, requests,
// variables of the environment, files and sandboxes. It reads the manifests and the OpenAPI
// documents beside them, and fetches nothing.
package plan

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"junction/cmd/junction-pack/manifest"
	"junction/cmd/junction/prose"
	"junction/upstream/command"
	"junction/upstream/files"
)

// A Fact is one thing that a pack does or needs.
type Fact struct {
	Subject string `json:"subject"` // such as tool search
	Kind    string `json:"kind"`    // such as runs, sends, sandbox
	Detail  string `json:"detail"`
}

// Plan lists everything that a pack would do.
type Plan struct {
	Facts     []Fact   `json:"facts"`
	Programs  []string `json:"programs"`
	URLs      []string `json:"urls"`
	Variables []string `json:"variables"` // of the environment that the pack reads
	Files     []string `json:"files"`     // whose content the pack uses, through ${file:…}
}

// Of returns the plan of the pack in a folder.
func Of(dir string) (*Plan, error) {
	m, err := manifest.Load(dir, manifest.Options{Unresolved: true})
	if err != nil {
		return nil, err
	}
	p := &Plan{Facts: []Fact{}, Programs: []string{}, URLs: []string{}, Variables: []string{}, Files: []string{}}
	for _, one := range m.Manifests {
		for _, t := range one.Tools {
			p.tool(t)
		}
		for _, a := range one.OpenAPI {
			p.api(a)
		}
		for _, r := range one.Resources {
			p.add("resource "+r.Name, "offers", r.File)
		}
		for _, want := range one.Wants() {
			if file, ok := strings.CutPrefix(want, "file:"); ok {
				p.Files = append(p.Files, file)
			} else {
				p.Variables = append(p.Variables, want)
			}
		}
	}
	for _, list := range []*[]string{&p.Programs, &p.URLs, &p.Variables, &p.Files} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return p, nil
}

// add adds a fact; text that comes from the pack stays in one line.
func (p *Plan) add(subject, kind, detail string) {
	p.Facts = append(p.Facts, Fact{prose.Flat(subject), kind, strings.TrimSpace(prose.Flat(detail))})
}

func (p *Plan) tool(t *manifest.Tool) {
	subject := "tool " + t.Name
	if t.Off() {
		subject += " (turned off)"
	}
	switch {
	case t.HTTP != nil:
		p.add(subject, "sends", t.HTTP.Method+" "+t.HTTP.URL.Source)
		p.URLs = append(p.URLs, hostOf(t.HTTP.URL.Source))
		p.texts(subject, "header", t.HTTP.Headers)
		p.texts(subject, "query", t.HTTP.Query)
		return
	case t.Prompt != nil:
		p.add(subject, "asks the model", cmp.Or(t.Prompt.File, t.Prompt.Text.Source))
		return
	}
	p.Programs = append(p.Programs, program(t))
	if t.Shell {
		p.add(subject, "runs a script", t.Command.String())
	} else {
		p.add(subject, "runs", t.Command.String())
	}
	if t.Dir.Source != "" {
		p.add(subject, "in", t.Dir.Source)
	}
	if t.Stdin.Source != "" {
		p.add(subject, "gives it", t.Stdin.Source)
	}
	p.texts(subject, "variable", t.Env)
	if len(t.InheritEnv) > 0 {
		p.add(subject, "passes on", strings.Join(t.InheritEnv, ", "))
		p.Variables = append(p.Variables, t.InheritEnv...)
	}
	p.add(subject, "sandbox", box(t.Sandbox))
}

// program returns the program of a command.
func program(t *manifest.Tool) string {
	if t.Shell {
		return "/bin/sh"
	}
	return prose.Flat(t.Command[0].Text.Source)
}

func (p *Plan) texts(subject, kind string, texts manifest.Variables) {
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		p.add(subject, kind, name+"="+texts[name].Source)
	}
}

// box describes the sandbox of a command.
func box(s *command.Sandbox) string {
	if s == nil {
		return "none of its own"
	}
	tcp := "no TCP"
	switch {
	case s.TCP.All():
		tcp = "all TCP"
	case len(s.TCP.List) > 0:
		tcp = fmt.Sprintf("TCP to the ports %v", s.TCP.List)
	}
	text := fmt.Sprintf("reads %s, changes %s, %s", paths(s.Read), paths(s.Write), tcp)
	if s.Require {
		return text + ", required"
	}
	return text
}

func paths(list []string) string {
	if len(list) == 0 {
		return "nothing more"
	}
	return strings.Join(list, " and ")
}

func (p *Plan) api(a *manifest.API) {
	subject := "api " + a.Name
	if a.Off() {
		subject += " (turned off)"
	}
	document := a.Spec.Source
	if manifest.IsURL(document) {
		p.URLs = append(p.URLs, hostOf(document))
		document += " (fetched at each start; its content may change)"
	}
	p.add(subject, "document", document)
	operations := "all"
	if len(a.Operations) > 0 {
		operations = strings.Join(a.Operations, ", ")
	}
	if len(a.Exclude) > 0 {
		operations += " except " + strings.Join(a.Exclude, ", ")
	}
	p.add(subject, "operations", operations)
	servers := []string{a.BaseURL.Source}
	if a.BaseURL.Source == "" {
		servers = serversOf(a)
	}
	for _, s := range servers {
		p.add(subject, "sends to", s)
		p.URLs = append(p.URLs, hostOf(s))
	}
	for _, name := range slices.Sorted(maps.Keys(a.Headers)) {
		p.add(subject, "header", name+"="+a.Headers[name].Source)
	}
	for _, name := range slices.Sorted(maps.Keys(a.Auth)) {
		p.add(subject, "credential", name+"="+a.Auth[name].Source)
	}
}

// maxDocument bounds the size of a document that is read for its servers.
const maxDocument = 16 << 20

// serversOf returns all servers that a document beside the manifest names, and the documents to
// which it refers: a path or an operation may have servers of its own.
func serversOf(a *manifest.API) []string {
	const unknown = "the servers of the document"
	if manifest.IsURL(a.Spec.Source) || strings.Contains(a.Spec.Source, "${") {
		return []string{unknown}
	}
	d := documents{dir: a.Dir, read: map[string]bool{}, servers: map[string]bool{}}
	if d.add(a.Spec.Source) != nil || len(d.servers) == 0 {
		return []string{unknown}
	}
	return slices.Sorted(maps.Keys(d.servers))
}

// documents collects the servers of OpenAPI documents.
type documents struct {
	dir     string
	read    map[string]bool // by the path of the file
	servers map[string]bool
}

// maxDocuments is the number of documents that junction-pack reads.
const maxDocuments = 64

// add reads a file, relative to the folder of the manifest.
func (d *documents) add(name string) error {
	full, err := manifest.Inside(d.dir, name)
	if err != nil || d.read[full] {
		return err
	}
	if d.read[full] = true; len(d.read) > maxDocuments {
		return errors.New("there are too many documents")
	}
	text, err := files.Read(full, maxDocument)
	if err != nil {
		return err
	}
	var document any
	if err := yaml.NewDecoder(bytes.NewReader(text)).Decode(&document); err != nil {
		return err
	}
	return d.walk(path.Dir(name), document)
}

// walk looks for servers, and for references to other files, which are relative to the folder.
func (d *documents) walk(folder string, v any) (err error) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			err = errors.Join(err, d.walk(folder, e))
		}
	case map[string]any:
		for key, e := range v {
			ref, isText := e.(string)
			switch list, isList := e.([]any); {
			case isList && strings.EqualFold(key, "servers"): // encoding/json ignores case
				for _, s := range list {
					d.server(s)
				}
			case isText && key == "$ref":
				if file, _, _ := strings.Cut(ref, "#"); file != "" {
					err = errors.Join(err, d.add(path.Join(folder, file)))
				}
			}
			err = errors.Join(err, d.walk(folder, e))
		}
	}
	return err
}

// server adds the URL of a server, with the defaults of its variables.
func (d *documents) server(v any) {
	variables := map[string]any{}
	for _, all := range members(v, "variables") {
		object, _ := all.(map[string]any)
		maps.Copy(variables, object)
	}
	for _, u := range members(v, "url") {
		url, _ := u.(string)
		for name, v := range variables {
			for _, value := range members(v, "default") {
				url = strings.ReplaceAll(url, "{"+name+"}", fmt.Sprint(value))
			}
		}
		d.servers[url] = true
	}
}

// members returns the members of an object that have a name in any letter case. Readers of JSON
// differ in which of them they use, so the plan shows all.
func members(v any, name string) (all []any) {
	object, _ := v.(map[string]any)
	for key, value := range object {
		if strings.EqualFold(key, name) {
			all = append(all, value)
		}
	}
	return all
}

// hostOf returns scheme and host of a URL.
func hostOf(url string) string {
	if scheme, rest, ok := strings.Cut(url, "://"); ok {
		host, _, _ := strings.Cut(rest, "/")
		return prose.Flat(scheme + "://" + host)
	}
	return prose.Flat(url)
}

// Text returns the plan for display.
func (p *Plan) Text() string {
	var b bytes.Buffer
	subject := ""
	for _, f := range p.Facts {
		if f.Subject != subject {
			subject = f.Subject
			fmt.Fprintln(&b, subject)
		}
		fmt.Fprintf(&b, "  %-14s %s\n", f.Kind, f.Detail)
	}
	b.WriteByte('\n')
	for _, l := range []struct {
		what string
		list []string
	}{{"Programs", p.Programs}, {"URLs", p.URLs}, {"Variables of the environment", p.Variables},
		{"Content of files", p.Files}} {
		text := "none"
		if len(l.list) > 0 {
			text = strings.Join(l.list, ", ")
		}
		fmt.Fprintf(&b, "%s: %s\n", l.what, prose.Flat(text))
	}
	return b.String()
}

// Change is a difference between two plans.
type Change struct {
	Now bool `json:"now"` // the fact is one of the new plan
	Fact
}

// Diff returns the facts of p that next lacks, and the facts of next that p lacks.
func (p *Plan) Diff(next *Plan) (changes []Change) {
	for _, f := range p.all() {
		if !slices.Contains(next.all(), f) {
			changes = append(changes, Change{false, f})
		}
	}
	for _, f := range next.all() {
		if !slices.Contains(p.all(), f) {
			changes = append(changes, Change{true, f})
		}
	}
	slices.SortStableFunc(changes, func(a, b Change) int { return cmp.Compare(a.Subject, b.Subject) })
	return changes
}

// all returns the facts, and the variables and files as facts.
func (p *Plan) all() []Fact {
	all := slices.Clone(p.Facts)
	for _, v := range p.Variables {
		all = append(all, Fact{"environment", "reads", v})
	}
	for _, v := range p.Files {
		all = append(all, Fact{"files", "reads", v})
	}
	return all
}

// Print returns changes for display, one in a line.
func Print(changes []Change) string {
	var b strings.Builder
	for _, c := range changes {
		sign := "-"
		if c.Now {
			sign = "+"
		}
		fmt.Fprintf(&b, "%s %s %s: %s\n", sign, c.Subject, c.Kind, c.Detail)
	}
	return b.String()
}
