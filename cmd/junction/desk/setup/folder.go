package setup

import (
	"fmt"
	"io"
	"os"
	"strings"

	"junction/cmd/junction/desk/entries"
	"junction/upstream/prose"
)

// folderNotes returns the sentence about an entry that starts junction stdio because of the letters of a folder.
func (c *connector) folderNotes() []string {
	if !c.target.Bridged {
		return nil
	}
	folder := "your home folder"
	if c.project != "" {
		folder = "the folder of the project"
	}
	return []string{c.client.Name + " cannot send the letters of " + folder + " in a header, so that the entry " +
		"starts junction stdio, which says in which folder the client is."}
}

// folders returns the lines about the folders that clients may name, if a server works in these.
func (g *guide) folders() []string {
	e, err := entries.Read(io.Discard, g.file, false)
	if err != nil {
		return nil
	}
	c := e.Config()
	names := c.FolderEntries()
	if len(names) == 0 || len(c.Folders.Within) > 0 {
		return nil
	}
	has := c.MayName(g.file, os.LookupEnv)
	known := entries.Proposed(c, g.file, &g.home, has, nil)
	allow := g.command("folders", "allow", "FOLDER")
	for i, path := range known {
		known[i] = prose.OneLine(g.home.Short(path))
	}
	const most = 5
	if more := len(known) - most; more > 0 {
		known = append(known[:most], fmt.Sprintf("%d more", more))
	}
	works := "works"
	if len(names) > 1 {
		works = "work"
	}
	servers := strings.Join(names, ", ") + " " + works
	switch {
	case len(has) == 0 && len(known) > 0:
		return []string{fmt.Sprintf("%s in no folder yet. Permit those in which you work (%s): %s", servers,
			strings.Join(known, ", "), allow)}
	case len(has) == 0:
		return []string{fmt.Sprintf("%s in no folder yet. Permit those in which you work: %s", servers, allow)}
	case len(known) > 0:
		return []string{fmt.Sprintf("%s in permitted folders only. Not permitted yet: %s. Permit one: %s", servers,
			strings.Join(known, ", "), allow)}
	}
	return []string{fmt.Sprintf("%s in permitted folders only. Permit another one: %s", servers, allow)}
}
