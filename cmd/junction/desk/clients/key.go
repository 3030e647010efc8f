package clients

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/desk/clients/format"
	"junction/upstream/files"
)

// KeyVariable is the environment variable that holds the API key for Junction.
const KeyVariable = "JUNCTION_KEY"

// A KeyWay is how a client gets the API key for Junction. No way writes the key into a file of a client.
type KeyWay int

const (
	// ByVariable: the client starts in a shell, and reads KeyVariable there.
	ByVariable KeyWay = iota
	// ByInput: the client asks for the key, and keeps it encrypted. It may start from the desktop, where a
	// program does not see the variables of a shell.
	ByInput
	// ByFile: the client may start from the desktop, and cannot ask. It starts junction stdio, which reads
	// a file that only the user can read.
	ByFile
)

// String returns the word for the output in JSON.
func (w KeyWay) String() string { return [...]string{"variable", "input", "file"}[w] }

// KeyWay returns how the client gets the key with an entry in a file of a scope. The file of a project is
// for all who have the project, so that it does not name a file of one user.
func (c *Client) KeyWay(scope Scope) KeyWay {
	if scope == Project && c.key == ByFile {
		return ByVariable
	}
	return c.key
}

// StartsCommands reports whether the client reads no URLs: it starts junction stdio.
func (c *Client) StartsCommands() bool { return c.entry == nil }

// Commanded reports whether the entry for a target starts junction stdio.
func (c *Client) Commanded(t Target) bool {
	return c.StartsCommands() || t.KeyFile != "" || t.Key && !c.reads || t.Bridged
}

// entryFor returns the entry of Junction.
func (c *Client) entryFor(t Target) format.Object {
	if c.Commanded(t) {
		return c.withEnv(c.command(t), t)
	}
	return t.form.withFolder(c.entry(t))
}

// KeyFile returns the file in which Connect keeps the API key of a client for the server of a URL. The name
// has the origin of the URL and a hash of it, so that another server never gets the key.
func (r *Records) KeyFile(c *Client, address string) string {
	origin := address
	if u, err := url.Parse(address); err == nil {
		origin = strings.ToLower(u.Scheme + "://" + u.Host)
	}
	const distinct = 8 // digits of a hash: two origins may have the same letters
	readable := strings.Trim(notInFileName.ReplaceAllString(origin, "-"), "-.")
	return filepath.Join(r.keys(), c.ID+"."+readable+"."+sum([]byte(origin))[:distinct])
}

// OfKeyFile returns the id of the client for which Connect has made a file with an API key; "" for another file.
func OfKeyFile(file string) string {
	id, rest, _ := strings.Cut(filepath.Base(file), ".")
	dir := filepath.Dir(file)
	if rest == "" || filepath.Base(dir) != keysFolder || filepath.Base(filepath.Dir(dir)) != "junction" ||
		!slices.Contains(IDs(), id) {
		return ""
	}
	return id
}

// keys is the folder with the API keys of clients.
func (r *Records) keys() string { return filepath.Join(filepath.Dir(r.File), keysFolder) }

// keysFolder is the name of the folder with the keys of clients, in the state directory.
const keysFolder = "keys"

// storeKey writes an API key to a file that only its owner can read. It follows no link.
func (r *Records) storeKey(file, key string) error {
	if err := os.MkdirAll(r.keys(), 0o700); err != nil {
		return &revision.Error{File: r.keys(), Err: files.Reason(err)}
	}
	info, err := os.Lstat(file)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return &revision.Error{File: file, Err: errors.New("is not a regular file; remove it")}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return &revision.Error{File: file, Err: files.Reason(err)}
	}
	if err := files.WriteSync(file, []byte(key)); err != nil { // a new file, with a mode of its own
		return &revision.Error{File: file, Err: files.Reason(err)}
	}
	return nil
}

// noteKey notes the file of the API key in the new record of a connection.
func (o *Outfit) noteKey(t Target, last, rec *Record) {
	if filepath.Dir(t.KeyFile) != o.Records.keys() { // a file of a person
		return
	}
	rec.KeyFile = t.KeyFile
	if t.Secret != "" {
		rec.KeySum = sum([]byte(t.Secret))
	} else if last != nil && last.KeyFile == rec.KeyFile {
		rec.KeySum = last.KeySum
	}
}

// writeKey writes the API key of a target, if it has one. undo makes the file what it was before.
func (o *Outfit) writeKey(t Target, done *Done) (undo func() error, err error) {
	if t.Secret == "" {
		return func() error { return nil }, nil
	}
	before, readErr := revision.Read(t.KeyFile)
	if err := o.Records.storeKey(t.KeyFile, t.Secret); err != nil {
		return nil, err
	}
	done.Stored = readErr != nil || string(before) != t.Secret
	return func() error {
		if readErr != nil {
			return os.Remove(t.KeyFile)
		}
		return o.Records.storeKey(t.KeyFile, string(before))
	}, nil
}

// keepKey writes the API key for a client whose entry is already there: the key may have been replaced.
func (o *Outfit) keepKey(p Place, t Target, last *Record, done *Done) error {
	if t.Secret == "" {
		return nil
	}
	if last == nil { // a person has written the entry
		_, err := o.writeKey(t, done)
		return err
	}
	o.noteKey(t, last, last)
	if err := o.Records.put(p, last); err != nil {
		return err
	}
	_, err := o.writeKey(t, done)
	return err
}

// forget removes what is remembered of a place, and the API key that was kept for it.
func (o *Outfit) forget(p Place, last *Record, done *Done) error {
	if err := o.Records.put(p, nil); err != nil {
		return err
	}
	return o.dropKey(last, done)
}

// dropKey removes the API key that Connect has kept for a connection that has ended. A key that is used by
// another connection, or was changed by a person, stays; the latter is noted.
func (o *Outfit) dropKey(last *Record, done *Done) error {
	if last == nil || last.KeyFile == "" {
		return nil
	}
	list, _, err := o.Records.load()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(list.Connections, func(r *Record) bool { return r.KeyFile == last.KeyFile }) {
		return nil
	}
	text, err := revision.Read(last.KeyFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil || sum(text) != last.KeySum:
		done.Notes = append(done.Notes, "The API key in "+o.Home.Short(last.KeyFile)+" stays, because the file has "+
			"changed since; delete it if no client uses it.")
		return nil
	default:
		if err := os.Remove(last.KeyFile); err != nil {
			return &revision.Error{File: o.Home.Short(last.KeyFile), Err: files.Reason(err)}
		}
	}
	os.Remove(o.Records.keys()) // if it is empty
	return nil
}

// literalKey is an API key as it is written.
var literalKey = regexp.MustCompile(`\bjct_key_[A-Za-z0-9_]{16,}`)

// LiteralKey returns the API key that the entry of Junction in a file contains; "" if there is none.
func (o *Outfit) LiteralKey(p Place, t Target) string {
	servers, err := o.Home.read(p)
	if err != nil {
		return ""
	}
	for _, s := range servers {
		if s.Name == t.Name && t.is(s, o.Home) {
			return literalKey.FindString(format.Literal(s.fields))
		}
	}
	return ""
}
