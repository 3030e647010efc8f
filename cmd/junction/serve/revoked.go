package serve

import (
	"fmt"
	"os"
	"time"

	"junction/auth"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/stored"
	"junction/upstream/yamlread"
)

// This file notices API keys that were revoked, and that an old configuration file brings back. The file
// decides who may connect, on each machine alike, so such a key is accepted. It is a warning until an
// operator revokes the key again, or confirms it in the file.

// revoked are the API keys that the file has, and those that it has lost.
type revoked struct {
	*common
	steady
	keys     *stored.Keys            // nil if they are not followed. Owned by Open, then by reloadLoop
	back     map[auth.Hash]time.Time // when the keys of the file that are back were revoked; owned like keys
	contents *contents
	sealing  *sealing
}

// Open reads which keys the file had at the last start, and warns of those that are back.
func (r *revoked) Open(c *config.Config) error {
	if r.openKeys(); r.keys != nil {
		if back := r.follow(c); len(back) > 0 {
			r.contents.add(back)
		}
	}
	return nil
}

// openKeys reads which keys the file had at the last start.
func (r *revoked) openKeys() {
	if r.inner || r.file == "" {
		return
	}
	keys, err := stored.OpenKeys(r.sealing.dir, config.FolderOf(r.file))
	if err != nil {
		r.log.Warn("revoked API keys are forgotten: an old file that is put back brings them back without a warning",
			"error", err)
	}
	r.keys = keys
}

// gone returns the revoked keys that the file does not have, for the records of rejected requests.
func (r *revoked) gone() (list []auth.RevokedKey) {
	if r.keys == nil {
		return nil
	}
	for _, k := range r.keys.Gone() {
		var hash auth.Hash
		if hash.UnmarshalText([]byte(k.Hash)) == nil {
			list = append(list, auth.RevokedKey{Name: k.Name, Hash: hash, At: k.At})
		}
	}
	return list
}

// follow notes the keys of the file as it was read, and returns a warning for each key that was revoked
// and is in it again.
func (r *revoked) follow(c *config.Config) config.Problems {
	if r.keys == nil {
		return nil
	}
	list, of := keysOf(c)
	now := time.Now()
	back, err := r.keys.Follow(list, now)
	if err != nil {
		r.log.Warn("revoked API keys are forgotten at the end of this process: they cannot be kept", "error", err)
	}
	r.back = map[auth.Hash]time.Time{}
	for _, b := range back {
		r.back[c.Auth.APIKeys[of[b.Key]].Hash] = b.Since
	}
	return r.warnings(c, r.file, back, of, now)
}

// revokedOf returns a function that reports whether an API key was revoked, by what is remembered of a file, and was
// not in the file again when a process has read it last. c is a configuration of the file.
func revokedOf(c *config.Config, file string, getenv func(string) (string, bool)) func(auth.Key) bool {
	keys, err := stored.OpenKeys(config.KeyDir(c.Sessions.KeyFile, getenv), config.FolderOf(file))
	if err != nil { // Open says so
		return func(auth.Key) bool { return false }
	}
	gone := map[string]bool{}
	for _, k := range keys.Gone() {
		gone[k.Hash] = true
	}
	return func(k auth.Key) bool { return gone[k.Hash.String()] }
}

// keysOf returns the API keys of a configuration, and the index of each in the file.
func keysOf(c *config.Config) (list []stored.Key, of []int) {
	for i, k := range c.Auth.APIKeys {
		if k.Hash != (auth.Hash{}) { // the placeholder of an unreadable one
			list = append(list, stored.Key{Hash: k.Hash.String(), Name: k.Name, Restored: k.Restored.Time})
			of = append(of, i)
		}
	}
	return list, of
}

// revived returns the warnings that a start with a file would give of revoked API keys that are in it again, once it
// has the name of served. The error means that what is remembered of that file cannot be read.
func revived(c *config.Config, file, served string) (config.Problems, error) {
	keys, err := stored.OpenKeys(config.KeyDir(c.Sessions.KeyFile, os.LookupEnv), config.FolderOf(served))
	if err != nil {
		return nil, err
	}
	r := &revoked{common: &common{options: options{file: served, getenv: os.LookupEnv}}}
	list, of := keysOf(c)
	now := time.Now()
	return r.warnings(c, file, keys.Back(list, now), of, now), nil
}

// warnings returns a warning for each key that is back. of has the indexes in the file that has the content.
func (r *revoked) warnings(c *config.Config, file string, back []stored.Back, of []int, now time.Time) config.Problems {
	var list []yamlread.Problem
	for _, b := range back {
		k := c.Auth.APIKeys[of[b.Key]]
		list = append(list, yamlread.Problem{
			Path: fmt.Sprintf(".api_keys[%d].%s", of[b.Key], config.Restored),
			Text: fmt.Sprintf("the key %s (%s) was revoked at %s, and is accepted again, because this file has it "+
				"again; if that is not meant, run: %s; if it is, add to its entry: %s: %s", k.Name, k.Hash.ID(),
				b.Since.Format(time.RFC3339), config.Command(r.file, "keys", "revoke", k.Name, "--hash", k.Hash.ID()),
				config.Restored, auth.Moment{Time: now}),
		})
	}
	return config.Locate(file, r.getenv, "auth", list)
}
