package entries

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/desk/clients"
	"junction/cmd/junction/desk/registry"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/prose"
	"junction/upstream/shell"
)

// registryVariable is the environment variable with the URL of another registry.
const registryVariable = "JUNCTION_REGISTRY"

const registryUsage = "base `URL` of the registry (default: $" + registryVariable + ", or the official one)"

// openRegistry returns the client for the registry of --registry, of the environment, or the
// official one.
func openRegistry(flag string) (*registry.Client, error) {
	c, err := registry.New(cmp.Or(flag, os.Getenv(registryVariable), registry.Official))
	if err != nil {
		return nil, cli.Usagef("%w", err)
	}
	return c, nil
}

// searchCommand is `junction search`.
func searchCommand(stdout io.Writer, file *string) *cobra.Command {
	var base string
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "search WORDS",
		Short: "Search the MCP registry for servers",
		Long: "Search the MCP registry for servers that have all words in their name, title or description. The " +
			"official registry\n" +
			`looks for the longest word in names only.

The words in parentheses are the ways to run a server: remote (a URL), npm (npx), pypi (uvx) or oci (docker). Anyone
can publish a server: look at its source before you add it.`,
		Example: `  junction search weather
  junction add io.github.user/weather`,
		Args: func(_ *cobra.Command, args []string) error {
			if strings.TrimSpace(strings.Join(args, "")) == "" {
				return cli.Usagef("search needs a word")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return cli.Usagef("--limit is 1 or more")
			}
			c, err := openRegistry(base)
			if err != nil {
				return err
			}
			words := strings.Fields(strings.Join(args, " "))
			list, more, err := c.Search(cmd.Context(), words, limit)
			if err != nil {
				return err
			}
			text := foundText(cli.NewPage(stdout), *file, words, list, more)
			return cli.Print(stdout, asJSON, foundJSON(list, more), text)
		},
	}
	cmd.Flags().StringVar(&base, "registry", "", registryUsage)
	cmd.Flags().IntVar(&limit, "limit", 20, "the most servers to list")
	cli.JSONFlag(cmd, &asJSON)
	return cmd
}

func foundText(b *prose.Page, file string, words []string, list []*registry.Server, more bool) string {
	for _, s := range list {
		runs := strings.Join(s.Ways(), ", ")
		if runs == "" {
			runs = "not supported"
		}
		if s.Status == "deprecated" {
			runs += ", deprecated"
		}
		fmt.Fprintf(b, "%s  %s  (%s)\n", prose.Flat(s.Name), prose.Flat(s.Version), runs)
		if about := cmp.Or(prose.Flat(s.Description), prose.Flat(s.Title)); about != "" {
			b.Wrap("    ", "    ", prose.Cut(about, 300))
		}
		if s.Repository.URL != "" {
			fmt.Fprintf(b, "    %s\n", prose.Cut(prose.Flat(s.Repository.URL), 300))
		}
	}
	switch {
	case len(list) == 0:
		fmt.Fprintf(b, "No server found for %s.\n", prose.Flat(strings.Join(words, " ")))
	case more:
		b.WriteString("\nThere are more; use --limit, or more words.\n")
	default:
		fmt.Fprintf(b, "\nAdd one with: %s\n", config.Command(file, "add", "NAME"))
	}
	return b.String()
}

// serverJSON is an element of the output of --json.
type serverJSON struct {
	Name        string   `json:"name"`
	Title       string   `json:"title,omitempty"`
	Description string   `json:"description"`
	Version     string   `json:"version"`
	Status      string   `json:"status"`
	Repository  string   `json:"repository,omitempty"`
	Runs        []string `json:"runs"`
}

func foundJSON(list []*registry.Server, more bool) any {
	out := struct {
		Servers []serverJSON `json:"servers"`
		More    bool         `json:"more"`
	}{[]serverJSON{}, more}
	for _, s := range list {
		out.Servers = append(out.Servers, serverJSON{s.Name, s.Title, s.Description, s.Version,
			cmp.Or(s.Status, "active"),
			s.Repository.URL, append([]string{}, s.Ways()...)})
	}
	return out
}

// registryName is the form of the names in a registry.
var registryName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]*/[A-Za-z0-9][A-Za-z0-9._-]*$`)

// nameOf returns the name of an upstream for a name of the registry: its last part.
func nameOf(registryName string) string { return clients.NameOf(path.Base(registryName)) }

// programs are the programs that run packages.
var programs = map[string]string{registry.NPM: "npx", registry.PyPI: "uvx", registry.OCI: "docker"}

// fromRegistry returns the entry for a server of the registry, and notes for the user.
func (a *adder) fromRegistry(ctx context.Context, name string, h clients.Home) (*clients.Entry, []string, error) {
	c, err := openRegistry(a.registry)
	if err != nil {
		return nil, nil, err
	}
	s, err := c.Get(ctx, a.server)
	if errors.Is(err, registry.ErrNotFound) {
		hint := ""
		if mayBeHost(a.server) {
			add := shell.Join("junction", "add", name, withScheme(a.server))
			hint = "; for the server at this address, write: " + add
		}
		return nil, nil, fmt.Errorf("the registry has no server %s; look for it with: %s%s", a.server,
			shell.Join("junction", "search", nameOf(a.server)), hint)
	}
	if err != nil {
		return nil, nil, err
	}
	way, notes, err := a.way(s)
	if err != nil {
		return nil, nil, err
	}
	e, err := s.Entry(h, name, way, registry.Given{Env: a.given.Env, Headers: a.given.Headers, Values: a.values})
	if err != nil {
		return nil, nil, fmt.Errorf("cannot add %s: %w", name, err)
	}
	if s.Status == "deprecated" {
		notes = append(notes, "The registry says that the server is deprecated.")
	}
	kind := kindOf(way)
	switch row := upstream.AuthMode(a.given.Auth).Row(); {
	case !kind.HTTP && !row.Has(kind):
		return nil, nil, cli.Usagef("%s is for a URL; this server is run by %s", a.authFlag(), way)
	case !row.Has(kind):
		return nil, nil, cli.Usagef("%s is for a command; %s is a URL", a.authFlag(), name)
	}
	if a.given.Dir != "" && !kind.Process {
		return nil, nil, cli.Usagef("--cwd is for a command; %s is a URL", name)
	}
	if a.given.Dir != "" {
		dir := a.given.Dir
		if !filepath.IsAbs(dir) && !strings.HasPrefix(dir, "~/") && !strings.HasPrefix(dir, "${") {
			if dir, err = filepath.Abs(dir); err != nil {
				return nil, nil, err
			}
		}
		e.Dir = h.Typed("", dir)
	}
	e.Off, e.Auth = a.given.Off, a.given.Auth
	return e, notes, nil
}

// kindOf returns the kind of the server that one of the ways of the registry gives.
func kindOf(way string) *client.ServerKind {
	if way == registry.Remotely {
		return client.Remote
	}
	return client.Command
}

// way chooses how to run the server: the way of --via, or the first one whose program is installed.
func (a *adder) way(s *registry.Server) (way string, notes []string, err error) {
	ways := s.Ways()
	if len(ways) == 0 {
		return "", nil, fmt.Errorf("%s has no package or URL that Junction can use", s.Name)
	}
	if a.via != "" {
		if !slices.Contains(ways, a.via) {
			return "", nil, fmt.Errorf("%s cannot be run by %s; it can be run by %s", s.Name, prose.Quote(a.via),
				strings.Join(ways, ", "))
		}
		return a.via, nil, nil
	}
	way = ways[0]
	for _, w := range ways {
		if _, err := exec.LookPath(programs[w]); w == registry.Remotely || err == nil {
			way = w
			break
		}
	}
	if others := slices.DeleteFunc(ways, func(w string) bool { return w == way }); len(others) > 0 {
		notes = append(notes, fmt.Sprintf("It is run by %s; --via can be %s, too.", way, strings.Join(others, " or ")))
	}
	return way, notes, nil
}
