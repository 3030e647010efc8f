package config

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"junction/auth/fetch"
	"junction/upstream"
	"junction/upstream/sandbox"
	"junction/upstream/shell"
)

// MasterKeys is the environment variable with the master keys, used if there is no key file.
const MasterKeys = "JUNCTION_MASTER_KEYS"

// Place returns the DSN of the file, or the default.
func (c Storage) Place(getenv func(string) (string, bool)) (string, error) {
	if c.DSN != "" {
		return c.DSN, nil
	}
	dir, err := StateDir(getenv)
	if err != nil {
		return "", fmt.Errorf("there is no place for the sign-ins (storage.dsn): %w", err)
	}
	return filepath.Join(dir, "junction", "junction.db"), nil
}

// OwnStorage returns the DSN that a new configuration file needs, because another file of the user has the
// default: the user's own file, if there is one, or whichever has made the default database. It is "" if the
// new file may have the default.
func OwnStorage(file string, getenv func(string) (string, bool)) string {
	users, err := File("")
	path, pathErr := filepath.Abs(file)
	dir, dirErr := StateDir(getenv)
	if errors.Join(err, pathErr, dirErr) != nil || path == users {
		return ""
	}
	usual := filepath.Join(dir, "junction", "junction.db")
	for _, other := range []string{users, usual} {
		if _, err := os.Lstat(other); err == nil {
			base := filepath.Base(path)
			name := strings.TrimSuffix(base, filepath.Ext(base)) + "-" + FolderOf(path)[:8] + ".db"
			return filepath.Join(filepath.Dir(usual), name)
		}
	}
	return ""
}

// Keys returns the source of the master keys: a file, or, if file is "", the text of the
// environment variable.
func (c Storage) Keys(getenv func(string) (string, bool)) (file, text string, err error) {
	if c.KeyFile != "" {
		return c.KeyFile, "", nil
	}
	if text, given := getenv(MasterKeys); given {
		return "", text, nil
	}
	dir, err := StateDir(getenv)
	if err != nil {
		return "", "", fmt.Errorf("there is no place for the master key (storage.key_file): %w", err)
	}
	return filepath.Join(dir, "junction", "master.key"), "", nil
}

// Fetcher returns the client for URLs from untrusted sources.
func (c Outbound) Fetcher() (*fetch.Fetcher, error) {
	f := &fetch.Fetcher{Timeout: cmp.Or(c.Timeout, 5*time.Second)}
	for _, p := range c.AllowPrivate {
		f.AllowPrivate = append(f.AllowPrivate, p.Prefix)
	}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("outbound.ca_file: %w", err)
		}
		if f.RootCAs, err = x509.SystemCertPool(); err != nil {
			f.RootCAs = x509.NewCertPool()
		}
		if !f.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("outbound.ca_file: there is no certificate in it")
		}
	}
	return f, nil
}

// StateDir returns the folder for state that outlives a program (XDG Base Directory Specification).
func StateDir(getenv func(string) (string, bool)) (string, error) {
	if dir, ok := getenv("XDG_STATE_HOME"); ok && filepath.IsAbs(dir) {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".local", "state"), nil
}

// KeyDir returns the folder for the state that belongs to the key that seals session ids: the folder of
// the key, or the one of StateDir if the folder of the key cannot be written, as that of a mounted
// secret. It returns "" if there is none.
func KeyDir(file string, getenv func(string) (string, bool)) string {
	if file != "" && !readOnly(filepath.Dir(file)) {
		return filepath.Dir(file)
	}
	dir, err := StateDir(getenv)
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "junction")
}

// signIns names the database.
const signIns = "the sign-ins"

// stateFiles returns the state directory, and what Junction keeps in it. Other files in it are not of
// Junction. A new file of Junction there must be added.
func stateFiles(dir string) (list sandbox.Deciders) {
	if dir == "" {
		return nil
	}
	list = sandbox.Deciders{{What: "the keys and sign-ins of Junction", Path: dir}}
	database := filepath.Join(dir, "junction.db")
	for _, d := range []sandbox.Decider{
		{What: "the key of sessions", Path: "key"}, {What: "the master keys", Path: "master.key"},
		{What: signIns, Path: "junction.db"},
		{What: "what Junction changed in the files of clients", Path: "connections.json"},
		{What: "what setup did", Path: "setup", Inside: true},
		{What: "the files of services", Path: "service", Inside: true},
		{What: "your sign-ins at endpoints", Path: "signins", Inside: true},
		{What: "the secrets of running processes", Path: "running", Inside: true},
	} {
		d.Path = filepath.Join(dir, d.Path)
		list = append(list, d)
	}
	return append(append(list, besideDatabase(database)...), besideKey(dir)...)
}

// besideDatabase returns the files that SQLite and the store keep beside a database.
func besideDatabase(file string) (list sandbox.Deciders) {
	for _, end := range []string{"-journal", "-wal", "-shm", ".lease"} {
		list = append(list, sandbox.Decider{What: signIns, Path: file + end})
	}
	return list
}

// besideKey returns what Junction keeps in the folder of the key that seals session ids.
func besideKey(dir string) sandbox.Deciders {
	return sandbox.Deciders{
		{What: "the deleted sessions", Path: filepath.Join(dir, "ended-sessions")},
		{What: "the folders that clients may name", Path: filepath.Join(dir, foldersDir), Inside: true},
		{What: "the revoked API keys", Path: filepath.Join(dir, "api-keys"), Inside: true},
		{What: "the certificates of TLS", Path: certificateDir(dir), Inside: true},
		{What: "the catalogs of upstreams", Path: filepath.Join(dir, "catalogs"), Inside: true},
		{What: "the private folders of commands", Path: filepath.Join(dir, "sandbox"), Inside: true},
	}
}

// certificateDir returns the folder of the certificates that Junction orders, below the folder of the key.
func certificateDir(dir string) string { return filepath.Join(dir, "certificates") }

// OrderedDir returns the folder of the certificates that Junction orders for a configuration. It returns "" if
// Junction orders none, or if there is no folder.
func OrderedDir(c *Config, getenv func(string) (string, bool)) string {
	dir := KeyDir(c.Sessions.KeyFile, getenv)
	if c.TLS.ACME == nil || dir == "" {
		return ""
	}
	return certificateDir(dir)
}

// readOnly reports whether no file can be created in a folder.
func readOnly(dir string) bool {
	f, err := os.CreateTemp(dir, ".writable-*")
	if err == nil {
		f.Close()
		os.Remove(f.Name())
	}
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)
}

// unwritable reports whether this process cannot append to a file, or create it.
func unwritable(file string) bool {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return readOnly(filepath.Dir(file))
	}
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		f.Close()
	}
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)
}

// Sandboxes returns the parent folder of the sandbox folders of commands, below dir, the folder of
// the key. If dir is "", the result is "", and the folders are deleted when the processes end.
func Sandboxes(dir, file string) string {
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, "sandbox", FolderOf(file))
}

// FolderOf returns the name of the state folder of a configuration file.
func FolderOf(file string) string {
	path, err := filepath.Abs(file)
	if file == "" || err != nil {
		return "none"
	}
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:8])
}

// Trusting returns a transport for URLs from the configuration file, at any address. It trusts the
// same certificates as the fetcher.
func Trusting(f *fetch.Fetcher) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{RootCAs: f.RootCAs}
	t.MaxResponseHeaderBytes = 64 << 10 // a challenge is kept, and its scopes are stored
	return t
}

// Start returns the command line that serves a configuration file.
func Start(file string) string { return Command(file) }

// Command returns a command line about a configuration file: words are the command and its arguments.
// It names the file unless commands use the file anyway.
func Command(file string, words ...string) string {
	return shell.Junction(Named(file), words...)
}

// CommandOf is Command with another first word, such as the path of this program.
func CommandOf(program, file string, words ...string) string {
	return shell.Program(program, Named(file), words...)
}

// EnvironmentEnd is the end of the name of the file with the variables of a service, after that of its
// configuration file.
const EnvironmentEnd = ".environment"

// ServiceVariables is that of package upstream.
const ServiceVariables = upstream.ServiceVariables

// ToSet says where a person sets a variable that Junction lacks. file has the variables of a service of the user,
// as in ServiceVariables; with "", no service is known.
func ToSet(file string) string {
	if file == "" {
		return "where junction starts and restart it"
	}
	return "in " + file + " and run " + Command(strings.TrimSuffix(file, EnvironmentEnd), "service", "restart")
}

// Named returns the configuration file for --config of a command, or "" if commands use the file anyway.
func Named(file string) string {
	if own, err := File(""); err == nil && own == file {
		return ""
	}
	return file
}

// File returns the configuration file of a command: that of --config, or, if it is "",
// junction/config.yaml in the user's folder for configurations.
func File(flag string) (string, error) {
	if flag != "" {
		return flag, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("cannot find the folder for configurations: %w; name a file with --config", err)
	}
	return filepath.Join(dir, "junction", "config.yaml"), nil
}

// UserFile returns the configuration file of the user, or "" if there is none.
func UserFile() string {
	file, err := File("")
	if err != nil {
		return ""
	}
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return file
}

// LastGood returns the file in which a service keeps the last content of a configuration file that was in force.
func LastGood(getenv func(string) (string, bool), file string) (string, error) {
	dir, err := StateDir(getenv)
	return filepath.Join(dir, "junction", "service", FolderOf(file)+".yaml"), err
}
