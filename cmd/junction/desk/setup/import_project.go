package setup

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/desk/clients"
	"junction/upstream/prose"
)

// This file is about the new servers that work in the folder of one project: every agent reaches them, and gets the
// answers of that project. Such a project can have an endpoint of its own.

// project is a folder with new servers that work there.
type project struct {
	folder    string
	upstreams []string
	endpoint  string // the name of its endpoint
}

// projects returns the folders of new servers that work there, in the order of the servers.
func (i *importer) projects() (list []*project) {
	taken := map[string]bool{}
	for name := range i.editor.Config().Endpoints {
		taken[name] = !slices.Contains(i.added, name)
	}
	for _, o := range i.outcomes {
		if o.Result != clients.New || !o.Server.Fixed() {
			continue
		}
		folder := o.Server.Folder()
		n := slices.IndexFunc(list, func(p *project) bool { return p.folder == folder })
		if n < 0 {
			n = len(list)
			name := strings.ToLower(clients.NameOf(filepath.Base(folder)))
			free := name
			for k := 2; taken[free]; k++ {
				free = fmt.Sprintf("%s-%d", name, k)
			}
			taken[free] = true
			list = append(list, &project{folder: folder, endpoint: free})
		}
		list[n].upstreams = append(list[n].upstreams, o.Name)
	}
	return list
}

// reach says that every agent reaches the servers of a project, without a full stop.
func (i *importer) reach(p *project) string {
	works, them := "works", "it"
	if len(p.upstreams) > 1 {
		works, them = "work", "them"
	}
	return fmt.Sprintf("%s %s in %s, and every agent in every project can reach %s", strings.Join(p.upstreams, ", "),
		works, prose.OneLine(i.home.Short(p.folder)), them)
}

// url returns the URL of the endpoint of a project.
func (i *importer) url(p *project) string {
	base := "http://127.0.0.1:8420"
	if own := ownURLs(i.editor.Config(), i.file); len(own) > 0 {
		base = strings.TrimSuffix(own[0], "/mcp")
	}
	return base + "/" + p.endpoint + "/mcp"
}

// connect returns the command that connects a client to the endpoint of a project.
func (i *importer) connect(p *project) string {
	return i.command("connect", "CLIENT", "--project", p.folder, "--url", i.url(p))
}

// offer asks whether each project gets an endpoint. Without a terminal nothing is asked.
func (i *importer) offer(cmd *cobra.Command) error {
	if i.yes || i.json || !cli.CanAsk(cmd) {
		return nil
	}
	for _, p := range i.projects() {
		agreed, err := cli.QuestionsOf(cmd).YesNo(fmt.Sprintf("%s. Add an endpoint for this project alone (%s)?",
			i.reach(p), i.url(p)), false)
		if err != nil {
			return err
		}
		if agreed {
			i.agreed = append(i.agreed, p.folder)
		}
	}
	return nil
}

// withEndpoints adds the endpoints of the projects for which the person has agreed to a text of the file.
func (i *importer) withEndpoints(text []byte) (_ []byte, err error) {
	i.added = nil
	for _, p := range i.projects() {
		if !slices.Contains(i.agreed, p.folder) {
			continue
		}
		if text, err = i.editor.WithEndpoint(text, p.endpoint, p.upstreams); err != nil {
			return nil, err
		}
		i.added = append(i.added, p.endpoint)
	}
	return text, nil
}

// fixed returns the lines about the projects of the new servers, or "".
func (i *importer) fixed() string {
	var b strings.Builder
	for _, p := range i.projects() {
		if slices.Contains(i.added, p.endpoint) {
			fmt.Fprintf(&b, "%s. %s has them alone. To connect a client of this project: %s\n", i.reach(p), i.url(p),
				i.connect(p))
			continue
		}
		fmt.Fprintf(&b, "%s. For a URL of this project alone, add to %s: endpoints: { %s: { upstreams: [%s] } }; "+
			"then run: %s\n", i.reach(p), prose.OneLine(i.home.Short(i.file)), p.endpoint,
			strings.Join(p.upstreams, ", "), i.connect(p))
	}
	return b.String()
}
