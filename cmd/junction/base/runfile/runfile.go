// Package runfile records the addresses of a running junction, so that commands find it by the name
// of its configuration file. The records are files in the state directory, and so is the secret with
// which a command shows the process that both have the same user.
//
// A record has three states: a process serves, it has begun to end (Place.Ending), and it is gone. The
// record of a process that was killed stays; process.go tells that the process is another one now.
// failure.go has how a process has ended, and what goes on when a command changes nothing.
package runfile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"junction/cmd/junction/base/config"
	"junction/upstream/files"
)

// Place is where a running junction serves.
type Place struct {
	URL    string `json:"url"`                  // of the merged endpoint, on this machine
	Public string `json:"public_url,omitempty"` // of the merged endpoint, for others; "" if the file has none
	Admin  string `json:"admin,omitempty"`      // host and port of the admin address; "" if it is off
	Process
	File string `json:"file,omitempty"` // the configuration file; "" is the demo
	// Mistake is why the last good content of the file was in force when the process began to serve, and not
	// the content of the file; "" if the file was in force.
	Mistake string `json:"mistake,omitempty"`
	// Grace is how long the process takes at most to end.
	Grace time.Duration `json:"grace,omitempty"`
	// Until is the latest end of a process that has begun to end; otherwise zero.
	Until time.Time `json:"until,omitzero"`
}

// Ending reports whether the process has begun to end. It may still answer calls in flight, and has its
// addresses and files.
func (p Place) Ending() bool { return !p.Until.IsZero() }

// Serves returns the addresses of the merged endpoint, for people.
func (p Place) Serves() string { return Addresses(p.URL, p.Public) }

// Addresses returns the address of an endpoint on this machine and the public one, for people; public may be "".
func Addresses(url, public string) string {
	if public == "" || public == url {
		return url
	}
	return public + ", and on this machine at " + url
}

// Left is how long the process may need until its end, from now on. A clock that was set makes it no
// longer than the grace.
func (p Place) Left() time.Duration {
	grace := cmp.Or(p.Grace, defaultGrace)
	if left := time.Until(p.Until); p.Ending() && left > 0 && left < grace {
		return left
	}
	return grace
}

// defaultGrace is the time of a process whose record does not name it.
const defaultGrace = 30 * time.Second

// Record is the record of this process. The methods of a nil Record do nothing.
type Record struct {
	name  string
	place Place
	end   sync.Once
}

// Note records the place of this process, which serves the configuration file; "" is the demo. Each
// process has a record of its own, so that no process changes another one's record. getenv is
// os.LookupEnv outside of tests.
//
// secret is the owner's secret, which commands send to the admin address. It is in a file of its own
// that only the user of this process can read; see Secret.
func Note(getenv func(string) (string, bool), file string, p Place, secret string) (*Record, error) {
	records, err := recordsOf(getenv, file)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(records), 0o700); err != nil {
		return nil, err
	}
	p.Process, p.File = This(), file
	if abs, err := filepath.Abs(file); file != "" && err == nil {
		p.File = abs
	}
	for _, e := range list(records) {
		if !e.Alive() { // it was killed
			remove(e.record)
		}
	}
	r := &Record{name: records + "." + strconv.Itoa(p.PID) + ".json", place: p}
	// The secret is first, so that a command that finds the place finds the secret, too.
	if err := files.Write(secretOf(r.name), []byte(secret)); err != nil {
		return nil, err
	}
	if err := r.write(); err != nil {
		remove(r.name)
		return nil, err
	}
	return r, nil
}

// CanNote returns an error if Note could not record a process, such as on a full disk.
func CanNote(getenv func(string) (string, bool), file string) error {
	records, err := recordsOf(getenv, file)
	if err != nil {
		return err
	}
	err = os.MkdirAll(filepath.Dir(records), 0o700)
	name := records + ".check"
	if err == nil {
		err = files.Write(name, bytes.Repeat([]byte("\n"), 4<<10))
		os.Remove(name)
	}
	if err != nil {
		return fmt.Errorf("cannot write to %s, so that commands would not find the process: %w", filepath.Dir(records),
			files.Reason(err))
	}
	return nil
}

// End records that the process has begun to end. Only the first call does something. On a full disk, no
// record stays, so that none says that the process serves.
func (r *Record) End() {
	if r == nil {
		return
	}
	r.end.Do(func() {
		r.place.Until = time.Now().Add(cmp.Or(r.place.Grace, defaultGrace)).Round(0)
		if r.write() != nil {
			remove(r.name)
		}
	})
}

// Forget removes the record. The caller calls it when the process has given back its addresses and files.
func (r *Record) Forget() {
	if r != nil {
		remove(r.name)
	}
}

func (r *Record) write() error {
	text, err := json.Marshal(r.place)
	if err != nil {
		return err
	}
	return files.Write(r.name, append(text, '\n'))
}

func remove(record string) {
	os.Remove(record)
	os.Remove(secretOf(record))
}

// Secret returns the secret of the owner of the running junction of this user whose record has just this
// admin address; "" if there is none. Another address with the same port may belong to another machine
// or user, who must not get the secret.
func Secret(admin string) string {
	for _, e := range all() {
		if e.Admin == admin && admin != "" {
			text, err := files.Read(secretOf(e.record), maxSecret)
			if err == nil {
				return string(text)
			}
		}
	}
	return ""
}

// maxSecret is the most bytes of a secret.
const maxSecret = 1 << 10

// secretOf returns the file with the secret, beside a record.
func secretOf(record string) string { return strings.TrimSuffix(record, ".json") + ".secret" }

// Find returns the place of the running junction that serves a configuration file; of several, the one that
// has started last. It ignores a process that has begun to end, and the record of one that was
// killed.
func Find(file string) (Place, bool) {
	p, ok := Present(file)
	return p, ok && !p.Ending()
}

// Present is Find, and returns a process that has begun to end if no other one serves the file.
func Present(file string) (found Place, ok bool) {
	records, err := recordsOf(os.LookupEnv, file)
	if err != nil {
		return Place{}, false
	}
	for _, e := range living(records) {
		better := found.Ending() && !e.Ending() || found.Ending() == e.Ending() && e.age() >= found.age()
		if !ok || better {
			found, ok = e.Place, true
		}
	}
	return found, ok
}

// Endings returns the processes of this user that have begun to end.
func Endings() (endings []Place) {
	for _, e := range all() {
		if e.Ending() {
			endings = append(endings, e.Place)
		}
	}
	return endings
}

// ByOtherPath returns the place of the running junction of this user that serves the same file by another
// path.
func ByOtherPath(file string) (Place, bool) {
	own, err := os.Stat(file)
	if err != nil {
		return Place{}, false
	}
	for _, p := range all() {
		is, err := os.Stat(p.File)
		abs, absErr := filepath.Abs(file)
		if err == nil && absErr == nil && p.File != abs && !p.Ending() && os.SameFile(own, is) {
			return p.Place, true
		}
	}
	return Place{}, false
}

// Only returns the place of the running junction if exactly one runs for this user and state
// directory, with any configuration file.
func Only() (only Place, ok bool) {
	list := all()
	if len(list) != 1 {
		return Place{}, false
	}
	return list[0].Place, true
}

// At returns the place of the junction of this user that listens on an address, also if it is ending.
func At(address string) (Place, bool) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "0" {
		return Place{}, false
	}
	for _, p := range all() {
		u, err := url.Parse(p.URL)
		if err != nil {
			continue
		}
		for _, own := range []string{u.Host, p.Admin} {
			ownHost, ownPort, err := net.SplitHostPort(own)
			all := ownHost == "127.0.0.1" || host == "" // which the record also has for all addresses
			if ip, notIP := netip.ParseAddr(host); notIP == nil && ip.IsUnspecified() {
				all = true
			}
			if err == nil && ownPort == port && (ownHost == host || all) {
				return p.Place, true
			}
		}
	}
	return Place{}, false
}

// entry is a record with the name of its file.
type entry struct {
	record string
	Place
}

// all returns the running junctions of this user and state directory.
func all() []entry {
	dir, err := config.StateDir(os.LookupEnv)
	if err != nil {
		return nil
	}
	return living(filepath.Join(dir, "junction", "running") + string(filepath.Separator))
}

// living returns the records of running processes whose names have a beginning.
func living(beginning string) []entry {
	return slices.DeleteFunc(list(beginning), func(e entry) bool { return !e.Alive() })
}

// list returns the records whose names have a beginning. It ignores files that are no records.
func list(beginning string) (list []entry) {
	dir, first := filepath.Split(beginning)
	names, _ := os.ReadDir(dir) // without the folder, nothing runs
	for _, n := range names {
		if name := n.Name(); strings.HasPrefix(name, first) && strings.HasSuffix(name, ".json") {
			if p, ok := read(filepath.Join(dir, name)); ok {
				list = append(list, entry{filepath.Join(dir, name), p})
			}
		}
	}
	return list
}

// User names the user of the operating system who runs this process. Without a name, as in a container, it
// is the number.
func User() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return strconv.Itoa(os.Getuid())
}

// recordsOf returns the beginning of the names of the records of a configuration file.
func recordsOf(getenv func(string) (string, bool), file string) (string, error) {
	dir, err := config.StateDir(getenv)
	return filepath.Join(dir, "junction", "running", config.FolderOf(file)), err
}

func read(record string) (p Place, ok bool) {
	text, err := files.Read(record, maxRecord)
	return p, err == nil && json.Unmarshal(text, &p) == nil && p.PID > 0 && p.URL != ""
}

// maxRecord is the most bytes of a record.
const maxRecord = 64 << 10

// URL returns the URL of the merged endpoint on this machine, for a listen address.
func URL(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return ""
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port) + "/mcp"
}
