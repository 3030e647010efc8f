package stored

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"junction/upstream/files"
)

// Key is an API key of a configuration file.
type Key struct {
	Hash, Name string
	// Restored is when an operator has confirmed that a revoked key is meant to be back; zero if nobody has.
	Restored time.Time
}

// Back is a key that was revoked, and is in the file again without a confirmation.
type Back struct {
	Key   int       // the index in the list of Follow
	Since time.Time // when the key was revoked
}

// Keys remembers which API keys a configuration file has lost, so that an old file that is put back is
// noticed, also after a restart. The file of it has names and hashes, and no secrets. One goroutine uses
// a Keys at a time.
type Keys struct {
	file string // "" keeps nothing
	has  keysText
}

// keysText is the content of the file.
type keysText struct {
	Known   map[string]string  `json:"keys"` // the names by hash, as the configuration was read last
	Revoked map[string]revoked `json:"revoked"`
}

type revoked struct {
	Name string    `json:"name"`
	At   time.Time `json:"at"`
}

const (
	maxRevoked  = 200     // of the keys that the configuration lacks; the oldest are forgotten first
	maxKeysText = 4 << 20 // bytes of the file
	// aheadOf is how far a confirmation may be in the future: a day without a time lasts to its end.
	aheadOf = 24 * time.Hour
)

// OpenKeys reads what is remembered of a configuration file. With dir "" it is forgotten at the end of the
// process. If the error is not nil, nothing is known yet, and the Keys can be used.
func OpenKeys(dir, name string) (*Keys, error) {
	k := &Keys{}
	if dir == "" {
		return k, nil
	}
	k.file = filepath.Join(dir, "api-keys", name)
	text, err := files.Read(k.file, maxKeysText)
	if err == nil {
		err = json.Unmarshal(text, &k.has)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	} else if err != nil {
		k.has = keysText{}
		err = fmt.Errorf("%s: %w", k.file, err)
	}
	return k, err
}

// Follow notes the keys of the file as it was read now. It returns those that were revoked before, and that
// no operator has confirmed since. A key is known by its hash. The error is about writing.
func (k *Keys) Follow(list []Key, now time.Time) (back []Back, err error) {
	next, back := k.followed(list, now)
	next.forget()
	before := k.has
	k.has = next
	return back, k.write(before)
}

// Back returns what Follow would return, and notes nothing.
func (k *Keys) Back(list []Key, now time.Time) []Back {
	_, back := k.followed(list, now)
	return back
}

// followed returns what is remembered after Follow, and the result of it.
func (k *Keys) followed(list []Key, now time.Time) (next keysText, back []Back) {
	now = now.UTC().Truncate(time.Second) // as a confirmation is written
	next = keysText{Known: map[string]string{}, Revoked: map[string]revoked{}}
	for _, key := range list {
		next.Known[key.Hash] = key.Name
	}
	for hash, r := range k.has.Revoked {
		next.Revoked[hash] = r
	}
	for hash, name := range k.has.Known {
		if _, there := next.Known[hash]; !there {
			next.Revoked[hash] = revoked{name, now}
		}
	}
	for i, key := range list {
		r, was := next.Revoked[key.Hash]
		switch {
		case !was:
		case !key.Restored.Before(r.At) && !key.Restored.After(now.Add(aheadOf)):
			delete(next.Revoked, key.Hash)
		default:
			back = append(back, Back{i, r.At})
		}
	}
	return next, back
}

// Gone is a key that was revoked, and is not in the file.
type Gone struct {
	Hash, Name string
	At         time.Time
}

// Gone returns the revoked keys that the file does not have, in no order.
func (k *Keys) Gone() (list []Gone) {
	for hash, r := range k.has.Revoked {
		if _, there := k.has.Known[hash]; !there {
			list = append(list, Gone{hash, r.Name, r.At})
		}
	}
	return list
}

// forget drops the oldest revoked keys that the configuration lacks, above the limit.
func (t *keysText) forget() {
	var gone []string
	for hash := range t.Revoked {
		if _, there := t.Known[hash]; !there {
			gone = append(gone, hash)
		}
	}
	slices.SortFunc(gone, func(a, b string) int {
		return cmp.Or(t.Revoked[a].At.Compare(t.Revoked[b].At), cmp.Compare(a, b))
	})
	for _, hash := range gone[:max(0, len(gone)-maxRevoked)] {
		delete(t.Revoked, hash)
	}
}

// write replaces the file if something has changed.
func (k *Keys) write(before keysText) error {
	text, err := json.Marshal(k.has)
	if was, other := json.Marshal(before); err != nil || other == nil && string(was) == string(text) || k.file == "" {
		return err
	}
	if len(k.has.Known)+len(k.has.Revoked) == 0 && len(before.Known)+len(before.Revoked) == 0 {
		return nil // most files have no keys
	}
	if err := os.MkdirAll(filepath.Dir(k.file), 0o700); err != nil {
		return err
	}
	return files.Write(k.file, text)
}
