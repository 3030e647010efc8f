// Package runfile records the addresses of a running junction, so that commands find it by the name
// of its configuration file. The records are files in the state directory, and so is the secret with
// which a command shows the process that both have the same user.
package runfile

import (
	"encoding/json"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"junction/cmd/junction/config"
	"junction/upstream/files"
)

// Place is where a running junction serves.
type Place struct {
	URL   string `json:"url"`             // of the merged endpoint, on this machine
	Admin string `json:"admin,omitempty"` // host and port of the admin address; "" if it is off
	PID   int    `json:"pid"`
	File  string `json:"file,omitempty"` // the configuration file; "" is the demo
}

// Note records the place of this process, which serves the configuration file; "" is the demo. If
// several processes serve a file, the record is that of the last one. The caller must call forget
// when it stops to serve. getenv is os.LookupEnv outside of tests.
//
// secret is that of the owner, which commands send to the admin address. It is in a file of its own
// that only the user of this process can read; see Secret.
func Note(getenv func(string) (string, bool), file string, p Place, secret string) (forget func(), err error) {
	record, err := recordOf(getenv, file)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(record), 0o700); err != nil {
		return nil, err
	}
	p.PID, p.File = os.Getpid(), file
	if abs, err := filepath.Abs(file); file != "" && err == nil {
		p.File = abs
	}
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	// The secret is first, so that a command that finds the place finds the secret, too.
	if err := files.Write(secretOf(record), []byte(secret)); err != nil {
		return nil, err
	}
	if err := files.Write(record, append(text, '\n')); err != nil {
		return nil, err
	}
	return func() {
		if now, ok := read(record); ok && now == p {
			os.Remove(record)
			os.Remove(secretOf(record))
		}
	}, nil
}

// Secret returns the secret of the owner of the running junction of this user whose record has just this
// admin address; "" if there is none. Another address with the same port may be that of another machine
// or user, who must not get the secret.
func Secret(admin string) string {
	list := all()
	i := slices.IndexFunc(list, func(p Place) bool { return p.Admin == admin })
	if i < 0 || admin == "" {
		return ""
	}
	record, err := recordOf(os.LookupEnv, list[i].File)
	if err != nil {
		return ""
	}
	text, err := files.Read(secretOf(record), maxSecret)
	if err != nil {
		return ""
	}
	return string(text)
}

// maxSecret is the most bytes of a secret.
const maxSecret = 1 << 10

// secretOf returns the file with the secret, beside a record.
func secretOf(record string) string { return strings.TrimSuffix(record, ".json") + ".secret" }

// Find returns the place of the running junction that serves a configuration file. It ignores the
// record of a process that has ended without removing it.
func Find(file string) (Place, bool) {
	record, err := recordOf(os.LookupEnv, file)
	if err != nil {
		return Place{}, false
	}
	p, ok := read(record)
	return p, ok && alive(p.PID)
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
		if abs, wrong := filepath.Abs(file); err == nil && wrong == nil && p.File != abs && os.SameFile(own, is) {
			return p, true
		}
	}
	return Place{}, false
}

// Background is a process that a command has started to serve a file, without a terminal.
type Background struct {
	PID int    `json:"pid"`
	Log string `json:"log"` // a file
}

// NoteBackground records that a process in the background serves a configuration file.
func NoteBackground(file string, b Background) error {
	record, err := backgroundOf(file)
	if err != nil {
		return err
	}
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	return files.Write(record, append(text, '\n'))
}

// InBackground returns the process in the background that serves a configuration file now.
func InBackground(file string) (Background, bool) {
	b, ok := LastBackground(file)
	p, running := Find(file)
	return b, ok && running && p.PID == b.PID
}

// LastBackground returns the process in the background that was started last for a configuration file.
// It may have ended.
func LastBackground(file string) (b Background, ok bool) {
	record, err := backgroundOf(file)
	if err != nil {
		return b, false
	}
	text, err := os.ReadFile(record)
	if err != nil || json.Unmarshal(text, &b) != nil {
		return Background{}, false
	}
	return b, true
}

// ForgetBackground removes the record of NoteBackground.
func ForgetBackground(file string) {
	if record, err := backgroundOf(file); err == nil {
		os.Remove(record)
	}
}

func backgroundOf(file string) (string, error) {
	record, err := recordOf(os.LookupEnv, file)
	return strings.TrimSuffix(record, ".json") + ".background", err
}

// Only returns the place of the running junction if exactly one runs for this user and state
// directory, with any configuration file.
func Only() (only Place, ok bool) {
	list := all()
	if len(list) != 1 {
		return Place{}, false
	}
	return list[0], true
}

// At returns the place of the junction of this user that listens on an address.
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
			if ip, wrong := netip.ParseAddr(host); wrong == nil && ip.IsUnspecified() {
				all = true
			}
			if err == nil && ownPort == port && (ownHost == host || all) {
				return p, true
			}
		}
	}
	return Place{}, false
}

// all returns the places of the running junctions of this user and state directory.
func all() (list []Place) {
	dir, err := config.StateDir(os.LookupEnv)
	if err != nil {
		return nil
	}
	records, _ := filepath.Glob(filepath.Join(dir, "junction", "running", "*.json")) // the pattern is valid
	for _, record := range records {
		if p, there := read(record); there && alive(p.PID) {
			list = append(list, p)
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

func recordOf(getenv func(string) (string, bool), file string) (string, error) {
	dir, err := config.StateDir(getenv)
	return filepath.Join(dir, "junction", "running", config.FolderOf(file)+".json"), err
}

func read(record string) (p Place, ok bool) {
	text, err := os.ReadFile(record)
	return p, err == nil && json.Unmarshal(text, &p) == nil && p.PID > 0 && p.URL != ""
}

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
