package setup

import (
	"fmt"
	"path/filepath"
	"strings"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/ops/admin"
	"junction/upstream/prose"
)

// Moved returns a fault of the clients that connect has given an address which the Junction of a configuration
// file does not have any more, because listen or public_url was changed. What cannot be read has none.
func Moved(file string) []admin.ClientFault {
	path, err := filepath.Abs(file)
	if err != nil {
		return nil
	}
	c, err := config.LoadForCommand(path)
	if err != nil {
		return nil
	}
	own, err := records()
	if err != nil {
		return nil
	}
	urls := ownURLs(c, path)
	moved, err := own.Moved(path, urls)
	if err != nil || len(moved) == 0 || len(urls) == 0 || strings.HasSuffix(urls[0], ":0/mcp") {
		return nil
	}
	const most = 3 // commands for files of projects
	var labels, commands, projects []string
	for _, m := range moved {
		label := m.Client.Name
		if m.Project == "" {
			commands = []string{config.Command(file, "connect", "--all")}
		} else {
			label += " in " + m.Project
			projects = append(projects, config.Command(file, "connect", m.Client.ID, "--project", m.Project))
		}
		labels = append(labels, label)
	}
	commands = append(commands, projects[:min(len(projects), most)]...)
	has := "has"
	if len(moved) > 1 {
		has = "have"
	}
	return []admin.ClientFault{{
		Text: fmt.Sprintf("%s %s another address of this Junction than %s: %s", prose.Count(len(moved), "client"), has,
			urls[0], strings.Join(labels, ", ")),
		Advice: "run: " + strings.Join(commands, "; "),
	}}
}

// ClientFaults returns the faults of the clients of this user for junction doctor.
func ClientFaults(file string) []admin.ClientFault { return append(KeyFaults(file), Moved(file)...) }
