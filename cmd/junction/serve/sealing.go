package serve

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"junction/auth/seal"
	"junction/cmd/junction/base/config"
)

// This file reads the keys that seal the session ids of clients and the stored catalogs.

// sealing is the key for what outlives the process beside the storage.
type sealing struct {
	*common
	steady
	key  *seal.Key // of session ids, stored catalogs, and the messages of replicas
	dir  string    // the folder for the state that belongs to the key; "" if there is none
	file string    // with the keys; "" if the key ends with the process
}

// Open reads the key.
func (s *sealing) Open(c *config.Config) (err error) {
	s.key, s.dir, err = s.readKey(c.Sessions.KeyFile)
	return err
}

// readKey reads the keys that seal session ids and stored catalogs, and creates a key if there is no
// file. dir is the folder for the state that belongs to the key (config.KeyDir). If the
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
	secrets, err := loadKeys(file)
	if _, bad := errors.AsType[badKeys](err); err != nil && !named && !bad {
		s.log.Warn("sessions of legacy clients will not outlive this process: the key cannot be kept "+
			"(sessions.key_file)", "error", err)
		return passingKey()
	}
	if err != nil {
		return nil, "", fmt.Errorf("sessions.key_file: %w", err)
	}
	key, err := seal.NewKey(secrets[0], secrets[1:]...)
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

// maxKeys is how many keys of sessions a file may have: each is tried for an id that none of them opens.
const maxKeys = 4

// badKeys is why the content of a key file cannot be used.
type badKeys string

func (b badKeys) Error() string { return string(b) }

// loadKeys reads a key file, and creates it with one key if it does not exist. Each line of the file has a
// key: the first one seals, and all of them open.
func loadKeys(file string) (secrets [][]byte, err error) {
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
			return [][]byte{secret}, nil
		}
	}
	text, readErr := os.ReadFile(file)
	if errors.Is(readErr, fs.ErrNotExist) {
		return nil, err
	} else if readErr != nil {
		return nil, readErr
	}
	return parseKeys(file, string(text))
}

// parseKeys returns the keys of the text of a key file.
func parseKeys(file, text string) (secrets [][]byte, err error) {
	bad := func(format string, args ...any) error { return badKeys(file + ": " + fmt.Sprintf(format, args...)) }
	lines := strings.Split(strings.TrimRight(text, " \t\r\n"), "\n")
	for i, line := range lines {
		if line = strings.TrimSpace(line); line == "" && len(lines) > 1 {
			continue
		}
		secret, err := base64.StdEncoding.DecodeString(line)
		same := func(other []byte) bool { return bytes.Equal(secret, other) }
		switch wrong := err != nil || len(secret) != seal.SecretSize; {
		case wrong && len(lines) == 1:
			return nil, bad("the file has no key; remove it, and Junction makes a new key")
		case wrong:
			return nil, bad("line %d is not the base64 of %d bytes; make a key with: openssl rand -base64 %[2]d", i+1,
				seal.SecretSize)
		case slices.ContainsFunc(secrets, same):
			return nil, bad("line %d has the key of an earlier line; remove one of the two lines", i+1)
		case len(secrets) == maxKeys:
			return nil, bad("the file has more than %d keys; remove the oldest ones", maxKeys)
		}
		secrets = append(secrets, secret)
	}
	return secrets, nil
}
