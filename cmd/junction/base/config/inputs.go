package config

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"

	"junction/upstream/files"
)

// Inputs are the files that references of a configuration name: absolute paths, and the SHA-256 sum of the
// content that was read. The sum of a file that could not be read is zero.
type Inputs map[string][32]byte

// note notes what was read of a file. The last reading counts.
func (i Inputs) note(file string, text []byte, err error) {
	if i[file] = [32]byte{}; err == nil {
		i[file] = sha256.Sum256(text)
	}
}

// Again returns the inputs with the content that the files have now, whether it differs, and whether a file has
// gone: perhaps it is being replaced.
func (i Inputs) Again() (now Inputs, differ, gone bool) {
	now = Inputs{}
	for file, before := range i {
		text, err := files.Read(file, maxReferencedFile)
		now.note(file, text, err)
		gone = gone || err != nil && before != [32]byte{}
	}
	return now, !maps.Equal(now, i), gone
}

// Stated returns a copy of the configuration without what follows from the rest, and from the content of other files,
// for a comparison of what two files say.
func (c *Config) Stated() Config {
	stated := *c
	stated.Own, stated.Inputs, stated.Origins = nil, nil, nil
	return stated
}

// keyFiles completes the paths of keys and certificates of upstreams, and notes what the files of TLS have.
func (d *decoder) keyFiles(c *Config) {
	for name, u := range c.Upstreams {
		for _, file := range u.Auth.Files() {
			*file.Path = beside(d.File, *file.Path)
		}
		sum := sha256.New()
		for _, file := range u.TLS.Files() {
			*file = beside(d.File, *file)
			text, err := files.Read(*file, maxReferencedFile)
			d.refs.named.note(*file, text, err)
			content := d.refs.named[*file]
			_, _ = sum.Write(content[:])
		}
		if len(u.TLS.Files()) > 0 {
			u.TLS.Sum = hex.EncodeToString(sum.Sum(nil))
		}
		c.Upstreams[name] = u
	}
}
