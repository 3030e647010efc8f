package setup

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
