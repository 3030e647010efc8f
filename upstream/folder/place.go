package folder

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
)

// A Place is a folder that a Guard has permitted and opened. Two Places are equal only if they are the
// same folder under the same path: a folder that was removed and made again is another Place.
type Place struct {
	path string
	id   identity
}

// An identity is what the file system knows a folder by. Numbers of files are used again, so the time at
// which the folder was made, and where the system has one a number for each use, belong to it.
type identity struct {
	device, file uint64
	born         int64  // nanoseconds; 0 if the file system does not keep it
	use          string // "" if the system has none
}

// A node is a file as the system numbers it, as long as it exists.
type node struct{ device, file uint64 }

// Path returns the absolute path, without links below the permitted folder.
func (p Place) Path() string { return p.path }

// Key returns a text of letters and digits that is equal for equal Places.
func (p Place) Key() string {
	h := sha256.New()
	id := p.id
	for _, part := range []string{number(id.device), number(id.file), number(uint64(id.born)), id.use, p.path} {
		h.Write([]byte(number(uint64(len(part)))))
		h.Write([]byte(part))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// number returns the eight bytes of n.
func number(n uint64) string {
	var b [8]byte
	for i := range b {
		b[i] = byte(n >> (8 * i))
	}
	return string(b[:])
}

// opened is a folder that was opened without following a link.
type opened struct {
	dir  *os.File
	id   identity
	path []node // the folders that were passed, from the root of the file system to the folder
}
