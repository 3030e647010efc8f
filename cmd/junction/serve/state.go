package serve

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"junction/auth/seal"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/base/stored"
	"junction/cmd/junction/ops/diagnose"
)

// This file manages the state that outlives a process: the key that seals session ids, the stored
// catalogs of the upstreams, and the folders of sandboxes. It also records where this process serves.

// key reads the key that seals session ids and stored catalogs, and creates the key if it does not
// exist. dir is the folder for the state that belongs to the key (config.KeyDir). If the default folder
// cannot be used, the key lasts until the process ends and dir is "".
func (p *program) key(file string) (_ *seal.Key, dir string, err error) {
	named := file != ""
	if !named {
		dir, err := config.StateDir(p.getenv)
		if err != nil {
			p.log.Warn("sessions of legacy clients will not outlive this process: there is no place for the key "+
				"(sessions.key_file)", "error", err)
			return passingKey()
		}
		file = filepath.Join(dir, "junction", "key")
	}
	secret, err := loadKey(file)
	if err != nil && !named && !errors.Is(err, errKey) {
		p.log.Warn("sessions of legacy clients will not outlive this process: the key cannot be kept "+
			"(sessions.key_file)", "error", err)
		return passingKey()
	}
	if err != nil {
		return nil, "", fmt.Errorf("sessions.key_file: %w", err)
	}
	key, err := seal.NewKey(secret)
	if dir = filepath.Dir(file); named {
		dir = config.KeyDir(file, p.getenv)
		err = errors.Join(err, os.MkdirAll(dir, 0o700))
	}
	return key, dir, err
}

// passingKey returns a key that is not stored.
func passingKey() (*seal.Key, string, error) {
	key, err := seal.NewKey(seal.NewSecret())
	return key, "", err
}

// openCatalogs opens the folder of the stored catalogs, below dir. Each configuration file has its
// own folder.
func (p *program) openCatalogs(key *seal.Key, dir string) {
	if dir == "" {
		return
	}
	catalogs, err := stored.Open(filepath.Join(dir, "catalogs", config.FolderOf(p.file)), key, p.log)
	if err != nil {
		p.log.Warn("catalogs are not stored: after a restart, tools are missing until their server has started",
			"error", err)
		return
	}
	p.catalogs = catalogs
}

// announce records where the proxy serves, for commands. The record stays until forget.
func (p *program) announce() {
	if p.storeGood(); p.inner {
		return
	}
	place := runfile.Place{URL: runfile.URL(p.public.Addr().String()), Grace: p.longestEnd()}
	if p.admin != nil {
		place.Admin = adminHere(p.admin.Addr())
	}
	if mistake := p.reloadError.Load(); mistake != nil {
		place.Mistake = *mistake
	}
	note, err := runfile.Note(p.getenv, p.file, place, string(p.owner))
	if err != nil {
		p.log.Warn("commands find this process only at the addresses of the file", "error", err)
	}
	p.note.Store(note)
	if p.served != nil {
		p.served()
	}
}

// recordEnd records that this process ends, from stopping on. The caller calls end when nothing is served.
func (p *program) recordEnd(stopping context.Context) (end func()) {
	stop := context.AfterFunc(stopping, func() { p.note.Load().End() })
	return func() {
		stop()
		p.note.Load().End()
	}
}

// longestEnd is how long this process takes at most from a shutdown request to its end.
func (p *program) longestEnd() time.Duration {
	c := p.inForce() // no reload changes them
	return c.DrainDelay + c.ShutdownGrace + 10*time.Second
}

// readFile notes at the start which content the configuration file had.
func (p *program) readFile(hash [32]byte) {
	p.hash, p.begun = hash, time.Now()
	p.loadedHash.Store(&hash)
}

// process describes this process for junction status.
func (p *program) process() diagnose.Process {
	variables, _ := p.getenv(config.ServiceVariables)
	return diagnose.Process{
		Variables: variables,
		URL:       runfile.URL(p.public.Addr().String()), Started: p.begun, LastCall: p.calls.LastOf,
		Installed: p.installed.other,
		Read: func() string {
			if hash := p.loadedHash.Load(); hash != nil && p.file != "" {
				return hex.EncodeToString(hash[:])
			}
			return ""
		},
	}
}

// cleanCatalogs removes the stored catalogs of upstreams that are no longer configured.
func (p *program) cleanCatalogs(c *config.Config) {
	if p.catalogs == nil {
		return
	}
	var entries []string
	for name, u := range c.Upstreams {
		entries = append(entries, u.Entry(name))
	}
	p.catalogs.Keep(entries)
}

var errKey = errors.New("the file has no key; remove it, and Junction makes a new key")

// loadKey reads a key file and creates it if it does not exist.
func loadKey(file string) ([]byte, error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, err
	}
	secret := seal.NewSecret()
	made := base64.StdEncoding.EncodeToString(secret) + "\n"
	// Link makes the complete file appear in one step. If two processes create the key at once, the
	// first link wins and both use its key.
	temp, err := os.CreateTemp(filepath.Dir(file), ".key-*")
	if err == nil {
		defer os.Remove(temp.Name())
		_, err = temp.WriteString(made)
		err = errors.Join(err, temp.Close())
		if err == nil {
			err = os.Link(temp.Name(), file)
		}
		if err == nil {
			return secret, nil
		}
	}
	text, readErr := os.ReadFile(file)
	if errors.Is(readErr, fs.ErrNotExist) {
		return nil, err
	} else if readErr != nil {
		return nil, readErr
	}
	secret, err = base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(secret) != seal.SecretSize {
		return nil, fmt.Errorf("%s: %w", file, errKey)
	}
	return secret, nil
}
