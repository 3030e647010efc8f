package setup

import (
	"fmt"
	"path/filepath"
	"strings"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/desk/clients"
	"junction/upstream/prose"
)

// fixed returns the lines about the new servers that work in the folder of one project, or "": every agent reaches
// them, and gets the answers of that project.
func (i *importer) fixed() string {
	var folders []string
	names := map[string][]string{}
	for _, o := range i.outcomes {
		if o.Result != clients.New || !o.Server.Fixed() {
			continue
		}
		folder := o.Server.Folder()
		if len(names[folder]) == 0 {
			folders = append(folders, folder)
		}
		names[folder] = append(names[folder], o.Name)
	}
	var b strings.Builder
	for _, folder := range folders {
		works, them := "works", "it"
		if len(names[folder]) > 1 {
			works, them = "work", "them"
		}
		fmt.Fprintf(&b, "%s %s in %s, and every agent in every project can reach %s. ",
			strings.Join(names[folder], ", "), works, prose.OneLine(i.home.Short(folder)), them)
		fmt.Fprintf(&b, "For a URL of this project alone, add to %s: %s\n", prose.OneLine(i.home.Short(i.file)),
			i.endpoint(folder, names[folder]))
	}
	return b.String()
}

// endpoint returns the entry of an endpoint for a project, and the command that connects a client to it.
func (i *importer) endpoint(folder string, upstreams []string) string {
	name := strings.ToLower(clients.NameOf(filepath.Base(folder)))
	base := "http://127.0.0.1:8420"
	if own := ownURLs(i.editor.Config(), i.file); len(own) > 0 {
		base = strings.TrimSuffix(own[0], "/mcp")
	}
	return fmt.Sprintf("endpoints: { %s: { upstreams: [%s] } }; then run: %s", name, strings.Join(upstreams, ", "),
		config.Command(i.file, "connect", "CLIENT", "--project", folder, "--url", base+"/"+name+"/mcp"))
}
