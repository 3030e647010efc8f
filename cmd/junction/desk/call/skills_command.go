package call

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/upstream/definition"
	"junction/upstream/jsonrpc"
	"junction/upstream/prose"
	"junction/upstream/raw"
)

// metaUpstream is the member of the _meta of a skill that names its upstream.
const metaUpstream = "junction/upstream"

// skillsCommand is `junction skills`.
func skillsCommand(stdout io.Writer, file *string) *cobra.Command {
	f := clientFlags{file: file}
	list := func(cmd *cobra.Command, args []string) error {
		f.interactive(cmd, false)
		return f.connect(cmd.Context(), nil, func(ctx context.Context, e *endpoint) error {
			skills, err := e.skills(ctx, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if len(args) == 1 {
				skills = slices.DeleteFunc(skills, func(s listedSkill) bool {
					ok, _ := path.Match(args[0], s.name)
					return !ok && args[0] != s.URI
				})
			}
			return printSkills(stdout, f.output == "json", skills)
		})
	}
	cmd := &cobra.Command{
		Use:   "skills [GLOB]",
		Short: "List the skills of a running endpoint, or show or read one",
		Long: `List the skills of a running endpoint: folders of instructions for agents. ORIGIN is the upstream that
serves the skill. A skill is named by its name or by its URI.

The digests of a skill show that a file is the one that its server has listed. They do not show that the
skill is safe: read it before you let an agent use it.`,
		Example: `  junction skills
  junction skills show refunds --check
  junction skills read refunds
  junction skills read skill://docs/refunds/SKILL.md examples/mail.md`,
		Args: atMost("skills", "glob", 1),
		RunE: list,
	}
	var check bool
	show := &cobra.Command{
		Use: "show SKILL", Short: "Show the origin and the files of a skill, with their digests",
		Args: between(1, 1, "skills show needs the name or the URI of a skill"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.withSkill(cmd, args[0], func(ctx context.Context, e *endpoint, s listedSkill) error {
				return showSkill(ctx, stdout, e, s, f.output == "json", check)
			})
		},
	}
	show.Flags().BoolVar(&check, "check", false, "read all files and compare their digests (default: false)")
	read := &cobra.Command{
		Use: "read SKILL [FILE]", Short: "Print a file of a skill if its digest matches (default: SKILL.md)",
		Args: between(1, 2, "skills read needs the name or the URI of a skill, and then at most one file of it"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.withSkill(cmd, args[0], func(ctx context.Context, e *endpoint, s listedSkill) error {
				name := "SKILL.md"
				if len(args) == 2 {
					name = args[1]
				}
				content, err := e.skillFile(ctx, s, name)
				if err != nil {
					return err
				}
				if cli.IsTerminal(stdout) {
					content = []byte(cli.Harmless(string(content)))
				}
				_, err = stdout.Write(content)
				return err
			})
		},
	}
	all := &cobra.Command{Use: "list [GLOB]", Short: "List the skills", Args: cmd.Args, RunE: list}
	for _, c := range []*cobra.Command{cmd, all, show, read} {
		f.register(c)
	}
	cmd.AddCommand(all, show, read)
	return cmd
}

// atMost returns a check for at most n arguments.
func atMost(command, what string, n int) cobra.PositionalArgs {
	return between(0, n, command+" takes one "+what+"; quote it, or the shell replaces it with file names")
}

// between returns a check of the number of arguments.
func between(least, most int, message string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return cli.Usagef("%s", message)
		}
		return nil
	}
}

// listedSkill is a skill as the endpoint lists it.
type listedSkill struct {
	URI         string                     `json:"uri"`
	Resources   json.RawMessage            `json:"resources"`
	Meta        map[string]any             `json:"_meta"`
	Frontmatter map[string]json.RawMessage `json:"frontmatter"`

	name, description string
	files             []definition.SkillFile // none for a dynamic skill
	raw               json.RawMessage
}

// newListedSkill reads an entry.
func newListedSkill(entry json.RawMessage) (s listedSkill, err error) {
	o, err := raw.Parse(entry)
	if err != nil {
		return s, err
	}
	if problem := definition.CheckSkill(o); problem != "" {
		return s, errors.New(problem)
	}
	if err := json.Unmarshal(entry, &s); err != nil {
		return s, err
	}
	s.name, s.description, s.raw = stringOf(s.Frontmatter["name"]), stringOf(s.Frontmatter["description"]), entry
	s.files = slices.Collect(definition.SkillFiles(o))
	return s, nil
}

// origin returns the upstream of a skill; "" if the endpoint does not name it.
func (s listedSkill) origin() string {
	name, _ := s.Meta[metaUpstream].(string)
	return prose.Flat(name)
}

// folder returns the URI before the names of the files.
func (s listedSkill) folder() string { return strings.TrimSuffix(s.URI, "SKILL.md") }

// number returns the number of files for display.
func (s listedSkill) number() string {
	if len(s.files) == 0 {
		return "dynamic"
	}
	return fmt.Sprint(len(s.files))
}

func printSkills(w io.Writer, asJSON bool, skills []listedSkill) error {
	if asJSON {
		list := make([]json.RawMessage, len(skills))
		for i, s := range skills {
			list[i] = s.raw
		}
		return cli.PrintValue(w, map[string][]json.RawMessage{"skills": list})
	}
	return cli.List[listedSkill]{Of: skills, None: "no skills",
		Head: []any{"NAME", "ORIGIN", "FILES", "URI", "WHAT IT DOES"},
		Cells: func(s listedSkill) []any {
			return []any{prose.Flat(s.name), s.origin(), s.number(), prose.Flat(s.URI),
				prose.Cut(prose.Flat(s.description), linesOf(w)/2)}
		}}.Print(w, false)
}

// skills returns the skills of all pages. It writes to notes why it leaves out others.
func (e *endpoint) skills(ctx context.Context, notes io.Writer) ([]listedSkill, error) {
	entries, err := e.list(ctx, "skills/list", "skills")
	if refusal, ok := errors.AsType[*jsonrpc.Error](err); ok && refusal.Code == mcp.METHOD_NOT_FOUND {
		return nil, nil // the server has no skills, or does not know the extension
	} else if err != nil {
		return nil, err
	}
	skills := make([]listedSkill, 0, len(entries))
	for _, entry := range entries {
		s, err := newListedSkill(entry)
		if err != nil {
			fmt.Fprintf(notes, "left out a skill of %s that cannot be verified: %s\n", e.url, prose.Flat(err.Error()))
			continue
		}
		skills = append(skills, s)
	}
	return skills, nil
}

// withSkill connects, and calls use with the skill of that name or URI, as its server describes it now.
func (f *clientFlags) withSkill(cmd *cobra.Command, name string,
	use func(context.Context, *endpoint, listedSkill) error) error {
	f.interactive(cmd, true)
	return f.connect(cmd.Context(), nil, func(ctx context.Context, e *endpoint) error {
		uri := name
		if !strings.Contains(name, "://") {
			var err error
			if uri, err = e.skillURI(ctx, name); err != nil {
				return err
			}
		}
		result, err := e.answered(ctx, "skills/get", "", map[string]any{"uri": uri}, nil)
		if err != nil {
			return err
		}
		s, err := newListedSkill(membersOf(result)["skill"])
		if err != nil {
			return fmt.Errorf("%s returned a skill that cannot be verified: %w", e.url, err)
		} else if s.URI != uri {
			return fmt.Errorf("%s returned another skill: %s", e.url, prose.Quote(s.URI))
		}
		return use(ctx, e, s)
	})
}

// skillURI returns the URI of the listed skill of a name. Several skills may have one name.
func (e *endpoint) skillURI(ctx context.Context, name string) (string, error) {
	skills, err := e.skills(ctx, io.Discard)
	if err != nil {
		return "", err
	}
	var found, names []string
	for _, s := range skills {
		if names = append(names, s.name); s.name == name {
			found = append(found, s.URI)
		}
	}
	switch len(found) {
	case 0:
		slices.Sort(names)
		return "", fmt.Errorf("no skill %s at %s; %s", prose.Quote(name), e.url,
			prose.DidYouMean(slices.Compact(names), name, "junction skills lists what there is"))
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("several skills have the name %s; name one by its URI: %s", prose.Quote(name),
		strings.Join(found, ", "))
}

// skillFile reads a file of a skill, and compares its digest and size.
func (e *endpoint) skillFile(ctx context.Context, s listedSkill, name string) ([]byte, error) {
	uri := name
	if !strings.Contains(name, "://") {
		uri = s.folder() + name
	}
	i := slices.IndexFunc(s.files, func(f definition.SkillFile) bool { return f.URI == uri })
	if i < 0 && len(s.files) > 0 {
		return nil, fmt.Errorf("the skill %s has no file %s; junction skills show lists its files", prose.Quote(s.name),
			prose.Quote(name))
	}
	result, err := e.answered(ctx, mcp.MethodResourcesRead, uri, map[string]any{"uri": uri}, nil)
	if err != nil {
		return nil, err
	}
	content, err := contentOf(result)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", prose.Quote(uri), err)
	}
	if i < 0 { // a dynamic skill has no digests
		return content, nil
	}
	sum := sha256.Sum256(content)
	digest, want := "sha256:"+hex.EncodeToString(sum[:]), s.files[i]
	if digest != want.Digest || int64(len(content)) != want.Size {
		return nil, fmt.Errorf("%s does not match the skill: it has %d bytes and %s, the skill lists %d bytes and %s; "+
			"try again, and if the error stays, report it to the owner of the server", prose.Quote(uri),
			len(content), digest, want.Size, want.Digest)
	}
	return content, nil
}

// contentOf returns the bytes of a result of resources/read with one content.
func contentOf(result json.RawMessage) ([]byte, error) {
	var r struct {
		Contents []struct {
			Text *string
			Blob *string
		}
	}
	switch err := json.Unmarshal(result, &r); {
	case err != nil || len(r.Contents) != 1:
		return nil, errors.New("the answer is not the content of one file")
	case r.Contents[0].Text != nil:
		return []byte(*r.Contents[0].Text), nil
	case r.Contents[0].Blob != nil:
		return base64.StdEncoding.DecodeString(*r.Contents[0].Blob)
	}
	return nil, errors.New("the answer has neither text nor blob")
}

// showSkill prints a skill. With check, it reads all files first; a file that does not match is an
// error after the skill was printed.
func showSkill(ctx context.Context, w io.Writer, e *endpoint, s listedSkill, asJSON, check bool) error {
	faults := map[string]error{}
	if check {
		for _, file := range s.files {
			if _, err := e.skillFile(ctx, s, file.URI); err != nil {
				if ctx.Err() != nil {
					return err
				}
				faults[file.URI] = err
			}
		}
	}
	var err error
	if asJSON {
		err = PrintJSON(w, s.raw)
	} else {
		err = cli.Table(w, func(row func(...any)) {
			row("name", prose.Flat(s.name))
			row("uri", prose.Flat(s.URI))
			if s.origin() != "" {
				row("origin", s.origin())
			}
			row("about", prose.Flat(s.description))
			if len(s.files) == 0 {
				row("files", "dynamic: without a list and digests")
			}
			for _, file := range s.files {
				state := "not checked"
				if check {
					state = "matches"
				}
				if faults[file.URI] != nil {
					state = "DOES NOT MATCH"
				}
				name := prose.Flat(strings.TrimPrefix(file.URI, s.folder()))
				row("file", name, cli.Size(int(file.Size)), file.Digest, state)
			}
		})
	}
	if err != nil || len(faults) == 0 {
		return err
	}
	for _, file := range s.files {
		if faults[file.URI] != nil {
			return fmt.Errorf("%s cannot be verified: %w", prose.Count(len(faults), "file"), faults[file.URI])
		}
	}
	return nil
}
