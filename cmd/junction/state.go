package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"junction/auth/seal"
)

// This file has the place for what outlives a process, and the key that is kept there and seals the ids of sessions.

// key reads the key that seals session ids, and makes it where there is none. Without a place of the user's for it, sessions end with the process.
func (p *program) key(file string) (*seal.Key, error) {
	named := file != ""
	if !named {
		dir, err := stateDir(p.getenv)
		if err != nil {
			p.log.Warn("sessions of legacy clients will not outlive this process: there is no place for the key (sessions.key_file)", "error", err)
			return seal.NewKey(seal.NewSecret())
		}
		file = filepath.Join(dir, "junction", "key")
	}
	secret, err := loadKey(file)
	if err != nil && !named && !errors.Is(err, errKey) {
		p.log.Warn("sessions of legacy clients will not outlive this process: the key cannot be kept (sessions.key_file)", "error", err)
		return seal.NewKey(seal.NewSecret())
	}
	if err != nil {
		return nil, fmt.Errorf("sessions.key_file: %w", err)
	}
	return seal.NewKey(secret)
}

var errKey = errors.New("it holds no key; remove it, and a new one is made")

// loadKey reads a key file, or makes it.
func loadKey(file string) ([]byte, error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, err
	}
	secret := seal.NewSecret()
	made := base64.StdEncoding.EncodeToString(secret) + "\n"
	// The key appears whole or not at all, also when two of us make it at once: who links first wins.
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

// stateDir is where a program keeps what should outlive it (XDG Base Directory Specification).
func stateDir(getenv func(string) (string, bool)) (string, error) {
	if dir, ok := getenv("XDG_STATE_HOME"); ok && filepath.IsAbs(dir) {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".local", "state"), nil
}
