package clients

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
	"reflect"
	"slices"

	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/desk/clients/format"
	"junction/upstream/files"
	"junction/upstream/shell"
)

// Records is a file that remembers what Connect changed. It may hold secrets of the servers that
// were taken out, and is for its owner only.
type Records struct {
	File string
}

// Has reports whether Connect has changed the file of a place.
func (r *Records) Has(p Place) (bool, error) {
	rec, err := r.find(p)
	return rec != nil, err
}

// A Record is what Connect did to one file.
type Record struct {
	Client  string    `json:"client"`
	File    string    `json:"file"`
	Name    string    `json:"name"`    // of the entry
	Config  string    `json:"config"`  // the configuration file of the Junction of the entry; "" if unknown
	URL     string    `json:"url"`     // in the entry
	Given   bool      `json:"given"`   // see Target
	Created bool      `json:"created"` // the file did not exist
	Folder  bool      `json:"folder"`  // neither did its folder in a project
	Command bool      `json:"command"` // the client's own command changed it
	Backup  string    `json:"backup"`  // of the file as it was
	Before  string    `json:"before"`  // SHA-256 of the file as it was
	After   string    `json:"after"`   // and as Connect left it
	Changes []change  `json:"changes"` // in their order
	Removed []Removed `json:"removed,omitempty"`
	Project string    `json:"project,omitempty"`  // the folder of the project whose file it is
	Input   string    `json:"input,omitempty"`    // the ID of the input of VS Code that was added
	Inputs  bool      `json:"inputs,omitempty"`   // the list of inputs, too
	KeyFile string    `json:"key_file,omitempty"` // with the API key, in the folder of Records
	KeySum  string    `json:"key_sum,omitempty"`  // SHA-256 of the key as Connect wrote it; "" if it did not
}

// Removed is a server that Connect took out of a file.
type Removed struct {
	Name   string         `json:"name"`
	Fields map[string]any `json:"fields"`
	Block  string         `json:"block,omitempty"` // as the file had it
}

// has reports whether Connect took out a server of that name.
func (r *Record) has(name string) bool {
	return slices.ContainsFunc(r.Removed, func(removed Removed) bool { return removed.Name == name })
}

// isOf reports whether Connect was run for the Junction of a target: it has the same configuration file,
// or the same address.
func (r *Record) isOf(t Target) bool {
	return r.Config == "" || r.Config == t.Config || isOwnAddress(r.URL, t.Own)
}

// An OtherError means that a file has the entry of another Junction.
type OtherError struct {
	URL  string // in the entry
	Undo string // the command that disconnects the client from that Junction
}

// Error implements error.
func (e *OtherError) Error() string {
	return fmt.Sprintf("is connected to another Junction (%s); run first: %s", e.URL, e.Undo)
}

// other returns the error for a target that is another Junction than that of r.
func (r *Record) other(p Place) error {
	words := []string{"disconnect", p.Client.ID}
	if p.Scope == Project {
		words = append(words, "--project", p.folder)
	}
	return &OtherError{r.URL, shell.Junction(r.Config, words...)}
}

// A Lost is a server that cannot be put back.
type Lost struct {
	Removed
	Err error
}

// stale reports whether a person has undone what Connect did: the entry of Junction is gone from text,
// and a server that Connect took out is there.
func (r *Record) stale(p Place, text []byte) bool {
	servers, err := p.Client.format.Servers(text, p.servers(text))
	if err != nil {
		return false
	}
	has := fieldsOf(servers)
	if _, own := has[r.Name]; own {
		return false
	}
	back := func(s Removed) bool { _, there := has[s.Name]; return there }
	return len(r.Removed) == 0 || slices.ContainsFunc(r.Removed, back)
}

func sum(text []byte) string {
	s := sha256.Sum256(text)
	return hex.EncodeToString(s[:])
}

// seal notes what the file was, and each state of it up to the last.
func (r *Record) seal(states ...[]byte) {
	r.Before, r.After = sum(states[0]), sum(states[len(states)-1])
	r.Changes = nil
	for i, after := range states[1:] {
		if before := states[i]; !bytes.Equal(before, after) {
			r.Changes = append(r.Changes, diff(before, after))
		}
	}
}

// undo takes all changes back, the last one first.
func (r *Record) undo(text []byte) (out []byte, ok bool) {
	for _, c := range slices.Backward(r.Changes) {
		if text, ok = c.undo(text); !ok {
			return nil, false
		}
	}
	return text, true
}

// restore returns text as it was before Connect. Where the text has changed since, the change of
// Connect alone is undone. Servers that cannot be put back stay out, and are returned.
func (r *Record) restore(p Place, text []byte) ([]byte, []Lost, error) {
	if text == nil {
		return nil, nil, nil
	}
	if out, ok := r.undo(text); ok && (sum(out) == r.Before || r.undone(p, text, out)) {
		return out, nil, nil
	}
	return r.rebuild(p, text)
}

// undone reports whether out is text without the entry of Junction and with the servers that were
// removed, and otherwise the same.
func (r *Record) undone(p Place, text, out []byte) bool {
	was, err := p.Client.format.Servers(text, p.servers(text))
	is, isErr := p.Client.format.Servers(out, p.servers(out))
	if err != nil || isErr != nil {
		return false
	}
	want := fieldsOf(was)
	delete(want, r.Name)
	for _, s := range r.Removed {
		if _, twice := want[s.Name]; twice {
			return false
		}
		want[s.Name] = s.Fields
	}
	return equalTrees(want, fieldsOf(is)) && r.sameInputs(text, out)
}

// fieldsOf returns the values of servers by their names.
func fieldsOf(servers []format.Server) map[string]map[string]any {
	all := map[string]map[string]any{}
	for _, s := range servers {
		all[s.Name] = s.Fields
	}
	return all
}

// rebuild takes the entry of Junction out, and adds the servers that were removed.
func (r *Record) rebuild(p Place, text []byte) (out []byte, lost []Lost, err error) {
	f, keys := p.Client.format, p.servers(text)
	servers, err := f.Servers(text, keys)
	if err != nil {
		return nil, nil, err
	}
	has := fieldsOf(servers)
	if _, own := has[r.Name]; own {
		if text, err = f.Remove(text, keys, r.Name); err != nil {
			return nil, nil, err
		}
	}
	if text, err = r.withoutInput(text); err != nil {
		return nil, nil, err
	}
	for _, s := range r.Removed {
		if _, there := has[s.Name]; there {
			continue
		}
		more, err := f.Restore(text, keys, s.Name, s.Block)
		if err != nil {
			lost = append(lost, Lost{s, err})
			continue
		}
		text = more
	}
	return text, lost, nil
}

// equalTrees compares decoded values, whatever types the decoders have for numbers and lists.
func equalTrees(a, b any) bool {
	x, err := json.Marshal(a)
	y, otherErr := json.Marshal(b)
	return err == nil && otherErr == nil && bytes.Equal(x, y) || reflect.DeepEqual(a, b)
}

type recordsFile struct {
	Connections []*Record `json:"connections"`
}

func (r *Records) load() (*recordsFile, []byte, error) {
	text, err := revision.Read(r.File)
	if errors.Is(err, fs.ErrNotExist) {
		return &recordsFile{}, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", r.File, err)
	}
	list := &recordsFile{}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(list); err != nil {
		return nil, nil, fmt.Errorf("%s is not what junction connect wrote: %w; remove it", r.File, err)
	}
	return list, text, nil
}

// Wrote returns a function that reports whether Connect has written a server. Records that cannot be
// read have none.
func (r *Records) Wrote() func(*Server) bool {
	list, _, err := r.load()
	return func(s *Server) bool {
		return err == nil && slices.ContainsFunc(list.Connections, func(rec *Record) bool {
			return rec.Client == s.Client.ID && rec.File == s.File && rec.Name == s.Name && s.Scope == User
		})
	}
}

// find returns what is remembered of a place, or nil.
func (r *Records) find(p Place) (*Record, error) {
	list, _, err := r.load()
	if err != nil {
		return nil, err
	}
	for _, rec := range list.Connections {
		if rec.Client == p.Client.ID && rec.File == p.File {
			return rec, nil
		}
	}
	return nil, nil
}

// put replaces what is remembered of a place; nil forgets it.
func (r *Records) put(p Place, rec *Record) error {
	list, old, err := r.load()
	if err != nil {
		return err
	}
	n := len(list.Connections)
	list.Connections = slices.DeleteFunc(list.Connections, func(other *Record) bool {
		return other.Client == p.Client.ID && other.File == p.File
	})
	if rec != nil {
		list.Connections = append(list.Connections, rec)
	} else if len(list.Connections) == n {
		return nil
	}
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	if err = os.MkdirAll(filepath.Dir(r.File), 0o700); err == nil {
		_, err = revision.Replace(r.File, old, text, false)
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", r.File, files.Reason(err))
	}
	return nil
}
