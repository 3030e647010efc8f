package config

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"junction/auth/fetch"
)

// MasterKeys is the variable that has the master keys where no file does.
const MasterKeys = "JUNCTION_MASTER_KEYS"

// Place is the DSN: the file's, or the default.
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

// Keys is where the master keys are: in a file, or, where that is "", in text, which is a
// variable's.
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

// Fetcher is what gets documents that strangers name.
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

// StateDir is where a program keeps what should outlive it (XDG Base Directory Specification).
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

// KeyDir returns the folder of the key; "" if there is no place for it.
func KeyDir(file string, getenv func(string) (string, bool)) string {
	if file != "" {
		return filepath.Dir(file)
	}
	dir, err := StateDir(getenv)
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "junction")
}

// Sandboxes returns the folder in which each command with a sandbox has one of its own, below dir,
// the folder of the key. Without that their folders end with the processes.
func Sandboxes(dir, file string) string {
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, "sandbox", FolderOf(file))
}

// FolderOf returns the name of the folder of what belongs to a configuration file.
func FolderOf(file string) string {
	path, err := filepath.Abs(file)
	if file == "" || err != nil {
		return "none"
	}
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:8])
}

// Trusting is for what the file itself names, wherever that is. It believes the certificates that
// the fetcher does.
func Trusting(f *fetch.Fetcher) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{RootCAs: f.RootCAs}
	return t
}
