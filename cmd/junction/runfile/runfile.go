// Package runfile records the addresses of a running junction, so that commands find it by the name
// of its configuration file. The records are files in the state directory.
package runfile

import (
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"junction/cmd/junction/config"
	"junction/upstream/files"
)

// Place is where a running junction serves.
type Place struct {
	URL   string `json:"url"`             // of the merged endpoint, on this machine
	Admin string `json:"admin,omitempty"` // host and port of the admin address; "" if it is off
	PID   int    `json:"pid"`
}

// Note records the place of this process, which serves the configuration file; "" is the demo. If
// several processes serve a file, the record is that of the last one. The caller must call forget
// when it stops to serve. getenv is os.LookupEnv outside of tests.
func Note(getenv func(string) (string, bool), file string, p Place) (forget func(), err error) {
	record, err := recordOf(getenv, file)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(record), 0o700); err != nil {
		return nil, err
	}
	p.PID = os.Getpid()
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	if err := files.Write(record, append(text, '\n')); err != nil {
		return nil, err
	}
	return func() {
		if now, ok := read(record); ok && now == p {
			os.Remove(record)
		}
	}, nil
}

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

// Only returns the place of the running junction if exactly one runs for this user and state
// directory, with any configuration file.
func Only() (only Place, ok bool) {
	dir, err := config.StateDir(os.LookupEnv)
	if err != nil {
		return Place{}, false
	}
	records, _ := filepath.Glob(filepath.Join(dir, "junction", "running", "*.json")) // the pattern is valid
	for _, record := range records {
		p, there := read(record)
		switch {
		case !there || !alive(p.PID):
		case ok:
			return Place{}, false
		default:
			only, ok = p, true
		}
	}
	return only, ok
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
