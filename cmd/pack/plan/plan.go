// Package plan lists everything that a pack would do, without doing it: programs, requests, variables
// of the environment, files and sandboxes. The loader of junction-pack reads the pack, as it does to
// serve it, so that a plan has what the loader would use, and a pack that the loader refuses has no
// plan. Nothing is fetched: a document with a URL is in the plan as unknown.
//
// plan.go has the tools of the manifests, folder.go the names of their folders, documents.go the tools of
// OpenAPI documents, and text.go shows and compares plans.
package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"junction/cmd/pack"
	"junction/cmd/pack/manifest"
	"junction/upstream/command"
	"junction/upstream/prose"
	"junction/upstream/shell"
)

// A Fact is one thing that a pack does or needs.
type Fact struct {
	Subject string `json:"subject"` // such as tool search
	Kind    string `json:"kind"`    // such as runs, sends, sandbox
	Detail  string `json:"detail"`
}

// Plan lists everything that a pack would do. All texts are in one line, and their control characters
// are escaped.
type Plan struct {
	Facts     []Fact   `json:"facts"`
	Programs  []string `json:"programs"`
	URLs      []string `json:"urls"`      // scheme and host; also words for hosts that are not known
	Variables []string `json:"variables"` // of the environment that the pack reads
	Files     []string `json:"files"`     // whose content the pack uses, through ${file:…}

	dir  string // of the manifest that is read
	own  bool   // the pack stays where it is
	size int
}

// The limits of a plan. A longer one could not be read before it is accepted.
const (
	maxFacts = 5000
	maxHosts = 100
	maxText  = 1 << 20
	maxTime  = 2 * time.Minute
)

// UnclearError means that a pack has no plan although the loader would accept the pack: it does
// something that cannot be shown.
type UnclearError struct{ reason string }

func (e *UnclearError) Error() string { return e.reason }

func unclear(format string, args ...any) error { return &UnclearError{fmt.Sprintf(format, args...)} }

// Of returns the plan of the pack in a folder that somebody else made and that a checksum protects.
// Everything that decides about a host must be in the folder.
func Of(ctx context.Context, dir string) (*Plan, error) { return planOf(ctx, dir, true) }

// OfOwn returns the plan of a pack of this machine. Its documents may be outside of its folder, or
// named by a variable. Its files may have secrets, so that their content does not appear.
func OfOwn(ctx context.Context, dir string) (*Plan, error) { return planOf(ctx, dir, false) }

func planOf(ctx context.Context, dir string, installed bool) (*Plan, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, maxTime, errTime)
	defer cancel()
	m, err := pack.Load(dir, manifest.Options{Unresolved: true, PackFiles: installed})
	if err != nil {
		return nil, err
	}
	if installed {
		if err := inFolder(m); err != nil {
			return nil, err
		}
	}
	served, err := pack.Preview(ctx, m)
	if err != nil {
		return nil, err
	}
	p := &Plan{Facts: []Fact{}, Programs: []string{}, URLs: []string{}, Variables: []string{}, Files: []string{}}
	p.own = !installed
	for _, one := range m.Manifests {
		if err := p.manifest(one, served); err != nil {
			return nil, err
		}
	}
	p.skills(served)
	for _, list := range []*[]string{&p.Programs, &p.URLs, &p.Variables, &p.Files} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
		for _, text := range *list {
			p.size += len(text)
		}
	}
	switch {
	case len(p.Facts) > maxFacts || p.size > maxText:
		return nil, unclear("its plan has more than %d lines or %d KiB, too much to read; make several packs", maxFacts,
			maxText>>10)
	case len(p.URLs) > maxHosts:
		return nil, unclear("it sends requests to more than %d hosts; choose operations, or make several packs",
			maxHosts)
	}
	return p, nil
}

var errTime = errors.New("its documents take more than two minutes to read; choose smaller ones")

func (p *Plan) manifest(m *manifest.Manifest, served *pack.Pack) error {
	p.dir = m.Dir
	for _, t := range m.Tools {
		if err := p.tool(t); err != nil {
			return err
		}
	}
	for _, a := range m.OpenAPI {
		i := slices.IndexFunc(served.APIs, func(s pack.API) bool { return s.Source == a })
		switch {
		case i >= 0:
			p.api(served.APIs[i])
		case a.Off():
			p.add("api "+a.Name+" (turned off)", "document", a.Spec.Source)
		default: // impossible: the loader has all others
			return unclear("cannot show the OpenAPI document %s", a.Name)
		}
	}
	for _, s := range m.Servers {
		p.server(s)
	}
	for _, prompt := range m.Prompts {
		p.add("prompt "+prompt.Name, "offers", cmp.Or(prompt.File, prompt.Text.Source))
	}
	for _, r := range m.Resources {
		p.add("resource "+r.Name, "offers", r.File)
	}
	for _, want := range m.Wants() {
		if file, ok := strings.CutPrefix(want, "file:"); ok {
			p.Files = append(p.Files, prose.Escaped(file))
		} else {
			p.Variables = append(p.Variables, prose.Escaped(want))
		}
	}
	return nil
}

// skills adds the skills, which tell the agents of users what to do.
func (p *Plan) skills(served *pack.Pack) {
	list := served.Skills.List()
	for _, s := range list.Skills {
		subject := "skill " + s.Name
		p.add(subject, "instructs agents", s.Description)
		var names []string
		for _, f := range s.Files {
			names = append(names, strings.TrimPrefix(f.URI, strings.TrimSuffix(s.URI, "SKILL.md")))
		}
		p.add(subject, "files", strings.Join(names, ", "))
	}
	for _, problem := range list.Problems {
		p.add("skills", "left out", problem.Text)
	}
}

// add adds a fact; text that comes from the pack stays in one line.
func (p *Plan) add(subject, kind, detail string) {
	if len(p.Facts) > maxFacts || p.size > maxText {
		return
	}
	f := Fact{prose.Escaped(subject), kind, strings.TrimSpace(prose.Escaped(detail))}
	p.Facts = append(p.Facts, f)
	p.size += len(f.Subject) + len(f.Kind) + len(f.Detail)
}

// here returns a path with the folder of the manifest as ${PACK_DIR}. The pack may still move.
func (p *Plan) here(path string) string {
	if len(p.dir) < 2 {
		return path
	}
	return strings.ReplaceAll(path, p.dir, "${PACK_DIR}")
}

func (p *Plan) tool(t *manifest.Tool) error {
	subject := "tool " + t.Name
	if t.Off() {
		subject += " (turned off)"
	}
	kind := pack.KindOf(t)
	if kind == nil {
		return unclear("cannot show what the tool %s does: %s, which are the kinds of tools that this version of "+
			"junction knows; update junction", prose.Quote(t.Name), pack.KnownKinds())
	}
	kind.Plan(t, listing{p, subject})
	if len(t.Capabilities) > 0 {
		p.add(subject, "requires", strings.Join(t.Capabilities, ", "))
	}
	for _, parameter := range t.Parameters {
		if parameter.Within != "" {
			p.add(subject, "takes paths", parameter.Name+" inside "+p.here(parameter.Within))
		}
	}
	return nil
}

// listing is the plan of one tool.
type listing struct {
	*Plan
	subject string
}

func (l listing) Fact(kind, detail string)                    { l.add(l.subject, kind, detail) }
func (l listing) Texts(kind string, texts manifest.Variables) { l.texts(l.subject, kind, texts) }
func (l listing) URL(text string)                             { l.host(text) }
func (l listing) Host(text string)                            { l.URLs = append(l.URLs, prose.Escaped(text)) }
func (l listing) Program(path string)                         { l.Programs = append(l.Programs, prose.Escaped(path)) }
func (l listing) Variable(name string)                        { l.Variables = append(l.Variables, prose.Escaped(name)) }
func (l listing) Sandbox(t *manifest.Tool)                    { l.add(l.subject, "sandbox", l.here(box(t.Sandbox))) }
func (l listing) In(dir manifest.Ref, full string)            { l.in(l.subject, dir, full) }
func (l listing) Here(path string) string                     { return l.here(path) }

// server adds an MCP server of the pack. It runs if the entry names it.
func (p *Plan) server(s *manifest.Server) {
	subject := "server " + s.Name + " (off until the entry names it)"
	refs := func(kind string, all map[string]manifest.Later) {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			p.add(subject, kind, name+"="+all[name].Source)
		}
	}
	if s.URL.Source != "" {
		p.add(subject, "connects to", s.URL.Source)
		p.host(s.URL.Value())
		refs("header", s.Headers)
		return
	}
	words := make([]string, len(s.Command))
	for i, word := range s.Command {
		words[i] = word.Source
	}
	p.add(subject, "runs", shell.Join(words...))
	p.Programs = append(p.Programs, prose.Escaped(p.here(s.Command[0].Value())))
	p.in(subject, s.Dir.Ref, s.WorkDir)
	refs("variable", s.Env)
	if len(s.InheritEnv) > 0 {
		p.add(subject, "passes on", strings.Join(s.InheritEnv, ", "))
		for _, name := range s.InheritEnv {
			p.Variables = append(p.Variables, prose.Escaped(name))
		}
	}
	p.add(subject, "sandbox", p.here(box(s.Sandbox)))
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
