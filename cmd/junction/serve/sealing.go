package serve

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"junction/auth/seal"
	"junction/cmd/junction/base/config"
)

// This file reads the key that seals the session ids of clients and the stored catalogs.

// sealing is the key for what outlives the process beside the storage.
type sealing struct {
	*console
	steady
	key  *seal.Key // of session ids, stored catalogs, and the messages of replicas
	dir  string    // the folder for the state that belongs to the key; "" if there is none
	file string    // with the key; "" if the key ends with the process
}

// Open reads the key.
func (s *sealing) Open(c *config.Config) (err error) {
	s.key, s.dir, err = s.readKey(c.Sessions.KeyFile)
	return err
}

// readKey reads the key that seals session ids and stored catalogs, and creates the key if it does
// not exist. dir is the folder for the state that belongs to the key (config.KeyDir). If the
// default folder cannot be used, the key lasts until the process ends and dir is "".
func (s *sealing) readKey(file string) (_ *seal.Key, dir string, err error) {
	named := file != ""
	if !named {
		dir, err := config.StateDir(s.getenv)
		if err != nil {
			s.log.Warn("sessions of legacy clients will not outlive this process: there is no place for the key "+
				"(sessions.key_file)", "error", err)
			return passingKey()
		}
		file = filepath.Join(dir, "junction", "key")
	}
	secret, err := loadKey(file)
	if err != nil && !named && !errors.Is(err, errKey) {
		s.log.Warn("sessions of legacy clients will not outlive this process: the key cannot be kept "+
			"(sessions.key_file)", "error", err)
		return passingKey()
	}
	if err != nil {
		return nil, "", fmt.Errorf("sessions.key_file: %w", err)
	}
	key, err := seal.NewKey(secret)
	s.file = file
	if dir = filepath.Dir(file); named {
		dir = config.KeyDir(file, s.getenv)
		err = errors.Join(err, os.MkdirAll(dir, 0o700))
	}
	return key, dir, err
}

// passingKey returns a key that is not stored.
func passingKey() (*seal.Key, string, error) {
	key, err := seal.NewKey(seal.NewSecret())
	return key, "", err
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
