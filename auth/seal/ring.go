package seal

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
)

// Ring holds the master keys of a store. The first key seals, and every key opens. To replace a
// key, put the new one in front, reseal everything, and remove the old one. A Ring is immutable,
// and may be used by several goroutines.
type Ring struct {
	ids  []string
	keys []*Key
}

// maxID is the longest id of a key; its length is stored in one byte.
const maxID = 32

// ParseRing parses <id>:<base64 of 32 bytes>[,<id>:<base64>…], the form of JUNCTION_MASTER_KEYS and
// of a key file; line breaks separate like commas. Its error contains no secret.
func ParseRing(text string) (*Ring, error) {
	r := &Ring{}
	for i, entry := range strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == '\n' || c == '\r' }) {
		id, secret, found := strings.Cut(strings.TrimSpace(entry), ":")
		if !found || !isID(id) {
			return nil, fmt.Errorf("master key %d: want <id>:<base64 of %d bytes>, with an id of 1 to %d letters, "+
				"digits, - or _", i+1, SecretSize, maxID)
		}
		if slices.Contains(r.ids, id) {
			return nil, fmt.Errorf("master key %s occurs twice; give each key its own id", id)
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
		return nil, errors.New("no master key given")
	}
	return r, nil
}

// LoadRing reads a key file. If there is none, it creates one with a new key, readable by its
// owner, and made is true: tell the operator to keep a copy, without which sealed data is lost.
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

// NewEntry returns a new key in the form of ParseRing, with an id that is not among others. It is
// secret.
func NewEntry(now time.Time, others []string) string {
	return KeyID(now, others) + ":" + base64.StdEncoding.EncodeToString(NewSecret())
}

// KeyID returns an id for a key made now that is not among others.
func KeyID(now time.Time, others []string) string {
	day := "k" + now.UTC().Format("20060102")
	id := day
	for n := 2; slices.Contains(others, id); n++ {
		id = fmt.Sprintf("%s-%d", day, n)
	}
	return id
}

// create writes a new file, and syncs it to the disk. A file that cannot be written is removed: half a key
// would prevent every later start.
func create(file string, text []byte) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		os.Remove(file)
	}
	return err
}

func isID(id string) bool {
	for i := range len(id) {
		if c := id[i]; !(c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '-' || c == '_') {
			return false
		}
	}
	return id != "" && len(id) <= maxID
}

// unbase64 decodes both alphabets, with or without padding.
func unbase64(s string) ([]byte, error) {
	s = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(s, "="))
	return base64.RawStdEncoding.Strict().DecodeString(s)
}

// IDs returns the ids of the keys in order. They are not secret.
func (r *Ring) IDs() []string { return slices.Clone(r.ids) }

// Prints returns the id and the fingerprint of each key, in order. A fingerprint tells keys of one id apart,
// and nothing else about them: it is an HMAC of a constant, with the key.
func (r *Ring) Prints() (all []string) {
	for i, secret := range r.Secrets("fingerprint") {
		all = append(all, r.ids[i]+":"+hex.EncodeToString(secret[:8]))
	}
	return all
}

// Secrets returns a secret of 32 bytes for a purpose from each key, in order: make MACs with the
// first, and accept seals of all.
func (r *Ring) Secrets(purpose string) (all [][]byte) {
	for _, key := range r.keys {
		all = append(all, key.Secret(purpose))
	}
	return all
}

// MAC makes and checks message authentication codes (HMAC-SHA-256) of texts. It is immutable, and
// may be used by several goroutines.
type MAC struct {
	ids     []string
	secrets [][]byte
}

// MAC returns the MAC for a purpose. Keep it, since making it takes time.
func (r *Ring) MAC(purpose string) *MAC { return &MAC{r.ids, r.Secrets(purpose)} }

// macFormat is the first byte of a code. The length of the key id, the id and the HMAC follow.
const macFormat = 3

// Sum returns the code of a text, made with the first key.
func (m *MAC) Sum(text []byte) []byte {
	head := append([]byte{macFormat, byte(len(m.ids[0]))}, m.ids[0]...)
	return append(head, sum(m.secrets[0], head, text)...)
}

func sum(secret, head, text []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write(head)
	h.Write(text)
	return h.Sum(nil)
}

// Verify returns nil if any of the keys made the code for the text. The error wraps ErrInvalid; it
// names the key id if that is not in the ring.
func (m *MAC) Verify(code, text []byte) error {
	id, head, ok := madeWith(macFormat, code)
	if !ok {
		return ErrInvalid
	}
	i := slices.Index(m.ids, id)
	if i < 0 {
		return fmt.Errorf("%w: the ring has no master key %q", ErrInvalid, id)
	}
	if !hmac.Equal(code[head:], sum(m.secrets[i], code[:head], text)) {
		return ErrInvalid
	}
	return nil
}

// Current reports whether a code is made with the first key.
func (m *MAC) Current(code []byte) bool {
	id, _, ok := madeWith(macFormat, code)
	return ok && id == m.ids[0]
}

// Vault seals values for a place; in another place they do not open. It is immutable, and may be
// used by several goroutines.
type Vault struct {
	ids   []string
	boxes []*Box
}

// Vault returns the vault for a purpose. Keep it, since making it takes time.
func (r *Ring) Vault(purpose string) *Vault {
	v := &Vault{ids: r.ids}
	for _, key := range r.keys {
		v.boxes = append(v.boxes, key.Box(purpose))
	}
	return v
}

// ringFormat is the first byte of a Vault's output. The length of the key id, the id, the nonce and
// the ciphertext follow.
const ringFormat = 2

// Seal seals plain with the first key, for a place such as table|row|column. The result reveals
// only the length of plain.
func (v *Vault) Seal(plain []byte, place string) []byte {
	head := append([]byte{ringFormat, byte(len(v.ids[0]))}, v.ids[0]...)
	return append(head, v.boxes[0].aeads[0].Seal(nil, nil, plain, append(head[:len(head):len(head)], place...))...)
}

// Open opens a value that was sealed for the place with any of the keys. The error wraps
// ErrInvalid; it names the key id if that is not in the ring.
func (v *Vault) Open(sealed []byte, place string) ([]byte, error) {
	id, head, ok := madeWith(ringFormat, sealed)
	if !ok {
		return nil, ErrInvalid
	}
	i := slices.Index(v.ids, id)
	if i < 0 {
		return nil, fmt.Errorf("%w: the ring has no master key %q", ErrInvalid, id)
	}
	plain, err := v.boxes[i].aeads[0].Open(nil, nil, sealed[head:], append(sealed[:head:head], place...))
	if err != nil {
		return nil, ErrInvalid
	}
	return plain, nil
}

// Current reports whether a value is sealed with the first key.
func (v *Vault) Current(sealed []byte) bool {
	id, _, ok := madeWith(ringFormat, sealed)
	return ok && id == v.ids[0]
}

// madeWith returns the key id of a value that a Vault or a MAC has made, and the length of the head
// that contains it.
func madeWith(format byte, value []byte) (id string, head int, ok bool) {
	if len(value) < 2 || value[0] != format {
		return "", 0, false
	}
	head = 2 + int(value[1])
	if len(value) < head || !isID(string(value[2:head])) {
		return "", 0, false
	}
	return string(value[2:head]), head, true
}

// RingOf returns a ring of one key made of random bytes that the caller keeps. The id must be one of
// ParseRing.
func RingOf(id string, secret [SecretSize]byte) *Ring {
	return &Ring{ids: []string{id}, keys: []*Key{{[][]byte{slices.Clone(secret[:])}}}}
}
