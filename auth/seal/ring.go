package seal

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
)

// Ring is the master keys of a store, in their order: the first one seals, every one opens, so that
// a key is replaced by putting a new one in front, sealing everything again, and taking the old one
// away. It is immutable, and may be used by several goroutines at once.
type Ring struct {
	ids  []string
	keys []*Key
}

// maxID is the longest id of a key; its length is one byte of what is sealed.
const maxID = 32

// ParseRing reads <id>:<base64 of 32 bytes>[,<id>:<base64>…], the form of JUNCTION_MASTER_KEYS and
// of a key file; line breaks separate as commas do. The error never holds any of the text but ids.
func ParseRing(text string) (*Ring, error) {
	r := &Ring{}
	for i, entry := range strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == '\n' || c == '\r' }) {
		id, secret, found := strings.Cut(strings.TrimSpace(entry), ":")
		if !found || !isID(id) {
			return nil, fmt.Errorf("master key %d: want <id>:<base64 of %d bytes>, with an id of 1 to %d letters, "+
				"digits, - or _", i+1, SecretSize, maxID)
		}
		if r.index(id) >= 0 {
			return nil, fmt.Errorf("master key %s is there twice; a new key needs a new id", id)
		}
		plain, err := unbase64(strings.TrimSpace(secret))
		if err != nil || len(plain) != SecretSize {
			return nil, fmt.Errorf("master key %s is not the base64 of %d bytes; make one with: openssl rand "+
				"-base64 %d", id, SecretSize, SecretSize)
		}
		key, err := NewKey(plain)
		if err != nil {
			return nil, fmt.Errorf("master key %s: %w", id, err)
		}
		r.ids, r.keys = append(r.ids, id), append(r.keys, key)
	}
	if len(r.ids) == 0 {
		return nil, errors.New("there is no master key")
	}
	return r, nil
}

// LoadRing reads the ring of a file, and makes the file, with one new key and for its owner alone,
// where there is none. made reports that: without that file what is sealed from then on is lost, so
// that somebody has to be told to keep a copy.
func LoadRing(file string) (ring *Ring, made bool, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		made = true
		text = []byte(NewEntry(time.Now(), nil) + "\n")
		err = create(file, text)
	}
	if err != nil {
		return nil, false, err
	}
	ring, err = ParseRing(string(text))
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", file, err)
	}
	return ring, made, nil
}

// NewEntry returns a new key as ParseRing reads it, with an id that is none of others. It is a
// secret.
func NewEntry(now time.Time, others []string) string {
	return KeyID(now, others) + ":" + base64.StdEncoding.EncodeToString(NewSecret())
}

// KeyID returns an id for a key that is made now: one that is none of others.
func KeyID(now time.Time, others []string) string {
	day := "k" + now.UTC().Format("20060102")
	id := day
	for n := 2; slices.Contains(others, id); n++ {
		id = fmt.Sprintf("%s-%d", day, n)
	}
	return id
}

// create writes a file that is not there yet, and is on the disk when it returns.
func create(file string, text []byte) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

func isID(id string) bool {
	for i := range len(id) {
		if c := id[i]; !(c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '-' || c == '_') {
			return false
		}
	}
	return id != "" && len(id) <= maxID
}

// unbase64 reads both alphabets, with padding and without: whatever tool made the key.
func unbase64(s string) ([]byte, error) {
	s = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(s, "="))
	return base64.RawStdEncoding.Strict().DecodeString(s)
}

func (r *Ring) index(id string) int {
	for i, other := range r.ids {
		if other == id {
			return i
		}
	}
	return -1
}

// IDs returns the ids of the keys in their order. They are no secret.
func (r *Ring) IDs() []string { return append([]string(nil), r.ids...) }

// Secrets returns a secret of 32 bytes for a purpose from each key, the first key's first: to make
// MACs with that one, and to accept those of all.
func (r *Ring) Secrets(purpose string) ([][]byte, error) {
	var all [][]byte
	for _, key := range r.keys {
		secret, err := hkdf.Key(sha256.New, key.secret, nil, "junction secret "+purpose, SecretSize)
		if err != nil {
			return nil, fmt.Errorf("derive a secret: %w", err)
		}
		all = append(all, secret)
	}
	return all, nil
}

// Vault seals values that have a place: one that is found in another place than it was sealed for
// does not open. It is immutable, and may be used by several goroutines at once.
type Vault struct {
	ids   []string
	boxes []*Box
}

// Vault returns the vault for a purpose. It is meant to be made once and kept.
func (r *Ring) Vault(purpose string) (*Vault, error) {
	v := &Vault{ids: r.ids}
	for _, key := range r.keys {
		box, err := key.Box(purpose)
		if err != nil {
			return nil, err
		}
		v.boxes = append(v.boxes, box)
	}
	return v, nil
}

// ringFormat is the first byte of what a Vault seals. The length of the key's id follows, the id,
// the nonce and the sealed text.
const ringFormat = 2

// Seal returns plain sealed with the first key, for a place such as table|row|column. It says
// nothing about plain but its length.
func (v *Vault) Seal(plain []byte, place string) []byte {
	head := append([]byte{ringFormat, byte(len(v.ids[0]))}, v.ids[0]...)
	return append(head, v.boxes[0].aead.Seal(nil, nil, plain, append(head[:len(head):len(head)], place...))...)
}

// Open returns what was sealed with any of the keys for the place. The error wraps ErrInvalid;
// where the key is not in the ring it names its id.
func (v *Vault) Open(sealed []byte, place string) ([]byte, error) {
	id, head, ok := sealedWith(sealed)
	if !ok {
		return nil, ErrInvalid
	}
	for i := range v.ids {
		if v.ids[i] != id {
			continue
		}
		plain, err := v.boxes[i].aead.Open(nil, nil, sealed[head:], append(sealed[:head:head], place...))
		if err != nil {
			return nil, ErrInvalid
		}
		return plain, nil
	}
	return nil, fmt.Errorf("%w: there is no master key %q", ErrInvalid, id)
}

// Current reports whether a value is sealed with the first key.
func (v *Vault) Current(sealed []byte) bool {
	id, _, ok := sealedWith(sealed)
	return ok && id == v.ids[0]
}

// sealedWith returns the id of the key that something is sealed with, and how long the head is that
// says so.
func sealedWith(sealed []byte) (id string, head int, ok bool) {
	if len(sealed) < 2 || sealed[0] != ringFormat {
		return "", 0, false
	}
	head = 2 + int(sealed[1])
	if len(sealed) < head || !isID(string(sealed[2:head])) {
		return "", 0, false
	}
	return string(sealed[2:head]), head, true
}

// RingOf returns a ring of one key, which is made of random bytes that somebody else keeps.
func RingOf(id string, secret [SecretSize]byte) (*Ring, error) {
	key, err := NewKey(secret[:])
	if err != nil {
		return nil, err
	}
	if !isID(id) {
		return nil, fmt.Errorf("%q is no id of a key", id)
	}
	return &Ring{ids: []string{id}, keys: []*Key{key}}, nil
}
