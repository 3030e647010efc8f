package entries

import (
	"context"
	"os"
	"slices"
	"strings"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/desk/clients"
	"junction/upstream/prose"
)

// Permit permits clients to name the folders in which new folder entries were found or typed: the person has
// agreed to these entries. It returns the folders, and a sentence about them; "" without such an entry. If
// folders.within of the file has the folders, the file decides.
func Permit(ctx context.Context, c *config.Config, file string, home *clients.Home, list ...*clients.Entry) (
	folders []string, text string) {
	windows := false
	var shown []string
	for _, e := range list {
		if windows = windows || e.Windows; !e.Windows || e.Named == "" || slices.Contains(folders, e.Named) {
			continue
		}
		folders, shown = append(folders, e.Named), append(shown, prose.OneLine(home.Short(e.Named)))
	}
	allow := config.Command(file, "folders", "allow", "FOLDER")
	switch {
	case !windows || len(c.Folders.Within) > 0:
		return nil, ""
	case len(folders) == 0:
		return nil, "Clients may name only folders that you permit: " + allow
	}
	if _, err := c.AllowFolders(ctx, file, os.LookupEnv, folders...); err != nil {
		return nil, "Clients may not name " + strings.Join(shown, ", ") + ": " +
			prose.OneLine(err.Error()) + ". To permit another folder: " + allow
	}
	return folders, "Clients may name " + strings.Join(shown, ", ") + " and the folders in it. To permit another " +
		"folder: " + allow
}
