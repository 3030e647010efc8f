package clients

import (
	"bytes"
	"slices"

	"junction/cmd/junction/base/revision"
)

// A Connection is what Connect has written for a client.
type Connection struct {
	Client  *Client
	File    string // of the client
	URL     string
	Project string // the folder of the project whose file has the entry; "" for the user's
	KeyFile string // with the API key of the client; "" if it has none
}

// Words are the words of the command of junction that disconnects the client.
func (c Connection) Words() []string {
	words := []string{"disconnect", c.Client.ID}
	if c.Project != "" {
		words = append(words, "--project", c.Project)
	}
	return words
}

// Of returns the connections to the Junction of a configuration file.
func (r *Records) Of(config string) (connections []Connection, err error) {
	list, _, err := r.load()
	if err != nil {
		return nil, err
	}
	for _, rec := range list.Connections {
		if c, err := Lookup(rec.Client); err == nil && rec.Config == config {
			connections = append(connections, Connection{c, rec.File, rec.URL, rec.Project, rec.KeyFile})
		}
	}
	return connections, nil
}

// Moved returns the connections to the Junction of a configuration file whose entries have an address that is none
// of own. It reads the files of these clients only: an entry that a person has changed does not count, and neither
// does one whose address a person has given.
func (r *Records) Moved(config string, own []string) (connections []Connection, err error) {
	list, _, err := r.load()
	if err != nil {
		return nil, err
	}
	for _, rec := range list.Connections {
		c, err := Lookup(rec.Client)
		if err != nil || rec.Config != config || rec.Given || slices.Contains(own, rec.URL) {
			continue
		}
		if text, err := revision.Read(rec.File); err == nil && bytes.Contains(text, []byte(rec.URL)) {
			connections = append(connections, Connection{c, rec.File, rec.URL, rec.Project, rec.KeyFile})
		}
	}
	return connections, nil
}

// Needed reports whether a Disconnect would read these records: without them, it cannot put back the servers
// that Connect took out. Records that cannot be read may be needed.
func (r *Records) Needed() bool {
	list, _, err := r.load()
	return err != nil || len(list.Connections) > 0
}

// forgotten is the note about a file from which Disconnect has removed an entry that the records do not have:
// a backup may have the servers that Connect took out. backup is the newest one before this change.
func (o *Outfit) forgotten(backup string, done *Done) {
	if backup == "" {
		return
	}
	done.Notes = append(done.Notes, "Junction has no record of this connection ("+o.Home.Short(o.Records.File)+
		"), so that no server was put back. The newest backup of the file before this change is "+
		o.Home.Short(backup)+".")
}
