package serve

import (
	"fmt"
	"time"

	"junction/auth"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/stored"
	"junction/upstream/yamlread"
)

// This file notices API keys that were revoked, and that an old configuration file brings back. The file
// decides who may connect, on each machine alike, so such a key is accepted. It is a warning until an
// operator revokes the key again, or confirms it in the file.

// openKeys reads which keys the configuration file had at the last start. dir is as in openCatalogs.
func (p *program) openKeys(dir string) {
	if p.inner || p.file == "" {
		return
	}
	keys, err := stored.OpenKeys(dir, config.FolderOf(p.file))
	if err != nil {
		p.log.Warn("revoked API keys are forgotten: an old file that is put back brings them back without a warning",
			"error", err)
	}
	p.keys = keys
}

// followKeys notes the keys of the file as it was read, and returns a warning for each key that was revoked
// and is in it again.
func (p *program) followKeys(c *config.Config) config.Problems {
	if p.keys == nil {
		return nil
	}
	var list []stored.Key
	var of []int // the indexes in the file
	for i, k := range c.Auth.APIKeys {
		if k.Hash != (auth.Hash{}) { // the placeholder of an unreadable one
			list = append(list, stored.Key{Hash: k.Hash.String(), Name: k.Name, Restored: k.Restored.Time})
			of = append(of, i)
		}
	}
	now := time.Now()
	back, err := p.keys.Follow(list, now)
	if err != nil {
		p.log.Warn("revoked API keys are forgotten at the end of this process: they cannot be kept", "error", err)
	}
	p.back = map[auth.Hash]time.Time{}
	var warnings []yamlread.Problem
	for _, b := range back {
		k := c.Auth.APIKeys[of[b.Key]]
		p.back[k.Hash] = b.Since
		warnings = append(warnings, yamlread.Problem{
			Path: fmt.Sprintf(".api_keys[%d].%s", of[b.Key], config.Restored),
			Text: fmt.Sprintf("the key %s (%s) was revoked at %s, and is accepted again, because this file has it "+
				"again; if that is not meant, run: %s; if it is, add to its entry: %s: %s", k.Name, k.Hash.ID(),
				b.Since.Format(time.RFC3339), config.Command(p.file, "keys", "revoke", k.Name, "--hash", k.Hash.ID()),
				config.Restored, auth.Moment{Time: now}),
		})
	}
	return config.Locate(p.file, p.getenv, "auth", warnings)
}
