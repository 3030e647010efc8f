package config

import (
	"crypto/sha256"
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
