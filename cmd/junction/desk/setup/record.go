package setup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/base/runfile"
	"junction/upstream/files"
)

// record is what setup did for one configuration file. It may contain secrets of that file, and is for
// its owner only.
type record struct {
	name   string // of the file with the record
	stored bool   // the file exists

	Config    string   `json:"config"`
	Known     bool     `json:"known"`   // Before and Created are set
	Created   bool     `json:"created"` // the configuration did not exist
	Folder    bool     `json:"folder"`  // neither did its folder
	Mixed     bool     `json:"mixed"`   // a person has changed it between two setups
	Before    []byte   `json:"before,omitempty"`
	After     []byte   `json:"after,omitempty"`
	Upstreams []string `json:"upstreams,omitempty"`
	Secrets   []string `json:"secrets,omitempty"`
	Variables []string `json:"variables,omitempty"` // SHA-256 of the lines that it added to the file with variables
	Service   bool     `json:"service,omitempty"`
	PID       int      `json:"pid,omitempty"` // of the process in the background
	Clients   []string `json:"clients,omitempty"`
	Earlier   []string `json:"earlier,omitempty"` // files of clients that were connected before the setup
	Backups   []backup `json:"backups,omitempty"`
	Links     links    `json:"links,omitzero"`
	Written   []string `json:"written,omitempty"` // SHA-256 of files as setup left them
	Stays     []string `json:"stays,omitempty"`   // backups of files of clients that an undo has made
}

// backup is a copy of a file that a step has made.
type backup struct {
	File string `json:"file"`
	Of   string `json:"of"`
}

// openRecord reads the record of a configuration file, or returns an empty one.
func openRecord(file string) (*record, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	state, err := config.StateDir(os.LookupEnv)
	if err != nil {
		return nil, fmt.Errorf("cannot find the folder for state: %w; set XDG_STATE_HOME", err)
	}
	r := &record{name: filepath.Join(state, "junction", "setup", config.FolderOf(file)+".json"), Config: file}
	text, err := revision.Read(r.name)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err, r.stored = json.Unmarshal(text, r), true
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s, which junction setup wrote: %w; move it away", r.name, err)
	}
	if b, ok := runfile.InBackground(file); ok && r.PID > 0 { // junction service restart
		r.PID = b.PID
	}
	return r, nil
}

// any reports whether there is something to undo.
func (r *record) any() bool {
	return r.wroteConfig() || r.Service || r.PID > 0 || len(r.Clients) > 0 || len(r.Variables) > 0 ||
		len(r.Links.Files) > 0
}

// wroteConfig reports whether setup has added servers to the configuration, or kept values for it.
func (r *record) wroteConfig() bool {
	return len(r.Upstreams)+len(r.Secrets) > 0 || r.After != nil && !bytes.Equal(r.Before, r.After)
}

func (r *record) save() error {
	err := os.MkdirAll(filepath.Dir(r.name), 0o700)
	if err == nil {
		var text []byte
		if text, err = json.MarshalIndent(r, "", "  "); err == nil {
			err = files.Write(r.name, append(text, '\n'))
		}
	}
	if err != nil {
		return fmt.Errorf("cannot write %s, which setup --undo needs: %w", r.name, files.Reason(err))
	}
	r.stored = true
	return nil
}

// begin notes what the configuration was before the first setup. before is nil if it did not exist.
func (r *record) begin(file string, before []byte) {
	if r.Known { // a second setup of the same file
		r.Mixed = r.Mixed || !bytes.Equal(before, r.After)
		return
	}
	_, err := os.Stat(filepath.Dir(file))
	r.Known, r.Created, r.Before = true, before == nil, before
	r.Folder = r.Folder || errors.Is(err, fs.ErrNotExist)
}

// wrote notes what an import wrote.
func (r *record) wrote(i *importer, added []string) {
	r.Upstreams = append(r.Upstreams, added...)
	r.Secrets = append(r.Secrets, i.secrets...)
	r.rewrote(i.backup)
}

// rewrote notes what the configuration is after a change, and its backup, or "".
func (r *record) rewrote(made string) {
	if made != "" {
		beside := filepath.Join(filepath.Dir(r.Config), filepath.Base(made)) // the undo may run in another folder
		r.Backups = append(r.Backups, backup{beside, r.Config})
	}
	if text, err := revision.Read(r.Config); err == nil {
		r.After = text
		r.Written = append(r.Written, sum(text)) // a later backup is a copy of it
	}
}

// connected notes a client that was connected.
func (r *record) connected(id string, result *connectJSON) {
	if !result.Changed {
		return
	}
	if !slices.Contains(r.Clients, id) {
		r.Clients = append(r.Clients, id)
	}
	if result.Backup != "" {
		r.Backups = append(r.Backups, backup{result.Backup, result.File})
	}
	if text, err := revision.Read(result.File); err == nil {
		r.Written = append(r.Written, sum(text))
	}
}

func sum(text []byte) string {
	s := sha256.Sum256(text)
	return hex.EncodeToString(s[:])
}
