package config

import (
	"errors"
	"slices"
	"strings"

	"junction/auth"
)

// This file is about the API keys that a file has lost and that is otherwise not in force: a revocation does not
// wait until somebody corrects a mistake elsewhere.

// WithoutLost returns the configuration c without the API keys that a file lacks, and these keys. file has the
// readable part of the file, and err is nil or Problems, as LoadServing returns them. Nothing else of the file
// counts: no key is added. WithoutLost does not change c.
func (c *Config) WithoutLost(file *Config, err error) (*Config, []auth.Key) {
	if !file.listsKeys(err) {
		return c, nil
	}
	lost := func(k auth.Key) bool {
		return k.Hash != (auth.Hash{}) && !slices.ContainsFunc(file.Auth.APIKeys, func(o auth.Key) bool {
			// the entry without a readable hash may be that of the key
			return o.Hash == k.Hash || o.Hash == (auth.Hash{}) && (o.Name == k.Name || o.Name == "")
		})
	}
	return c.WithoutKeys(lost)
}

// listsKeys reports whether the readable part of a file has all entries of its auth.api_keys. A file without a
// readable section auth is not one whose keys are all revoked.
func (c *Config) listsKeys(err error) bool {
	problems, ok := errors.AsType[Problems](err)
	if c == nil || err != nil && !ok || !c.Auth.Needed() {
		return false
	}
	for _, p := range problems {
		section := p.Path == "" || p.Path == "auth" || p.Path == "auth.api_keys"
		if section || len(c.Auth.APIKeys) == 0 && strings.HasPrefix(p.Path, "auth.") {
			return false
		}
	}
	return true
}

// WithoutKeys returns the configuration without some API keys, and these keys. It authenticates as before, and does
// not change c.
func (c *Config) WithoutKeys(lost func(auth.Key) bool) (*Config, []auth.Key) {
	if !slices.ContainsFunc(c.Auth.APIKeys, lost) {
		return c, nil
	}
	r, list := *c, []auth.Key(nil)
	r.Auth.APIKeys = nil
	for _, k := range c.Auth.APIKeys {
		if lost(k) {
			list = append(list, k)
		} else {
			r.Auth.APIKeys = append(r.Auth.APIKeys, k)
		}
	}
	r.Auth.authenticates(c.Auth.Needed())
	return &r, list
}

// authenticates makes a section that lets nobody in of one that would let everybody in, if requests must
// authenticate.
func (c *Auth) authenticates(must bool) {
	if must && !c.Needed() {
		c.APIKeys = []auth.Key{{Name: "nobody"}} // no key has the hash of zeros
	}
}
