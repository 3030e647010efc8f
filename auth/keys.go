package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"regexp"
	"strings"
	"time"
)

// An API key is jct_key_<id>_<secret><check>: 8 random characters that tell keys apart in a list,
// 43 that hold 256 bits, and the CRC-32 of all before it, by which we and those who search for
// leaked keys know a real one from a mistyped one without asking anybody. All are of base62: a
// double click takes in the whole key, and nothing in it means anything to a shell, a URL or a
// header.
const (
	keyPrefix = tokenPrefix + "key_"
	idSize    = 8
	// secretSize characters of 62 have log2(62^43) = 256.03 bits.
	secretSize = 43
	checkSize  = 6 // 62^6 > 2^32
	keySize    = len(keyPrefix) + idSize + 1 + secretSize + checkSize

	base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// Hash is the SHA-256 of a key. A key is random, so that nothing slower would make it harder to
// guess.
type Hash [sha256.Size]byte

const hashPrefix = "sha256:"

// UnmarshalText reads what String writes. Its error does not show the text, which may be a key by
// mistake.
func (h *Hash) UnmarshalText(text []byte) error {
	digits, ok := strings.CutPrefix(string(text), hashPrefix)
	if b, err := hex.DecodeString(digits); ok && err == nil && len(b) == len(h) {
		copy(h[:], b)
		return nil
	}
	return errors.New(`want "sha256:" and 64 hexadecimal digits, as junction keys create and junction keys hash print them`)
}

// String returns the hash as it is written into the file.
func (h Hash) String() string { return hashPrefix + hex.EncodeToString(h[:]) }

// NewKey returns a new key. It is a secret: only its hash is to be kept.
func NewKey() string {
	key := make([]byte, 0, keySize)
	key = append(key, keyPrefix...)
	key = appendRandom(key, idSize)
	key = append(key, '_')
	key = appendRandom(key, secretSize)
	return string(appendCheck(key, key))
}

// appendRandom appends n characters, each of which is as likely as any other.
func appendRandom(b []byte, n int) []byte {
	const fair = 256 - 256%len(base62)
	for n > 0 {
		var random [64]byte
		rand.Read(random[:]) // never fails, see crypto/rand
		for _, c := range random {
			if n > 0 && int(c) < fair {
				b = append(b, base62[int(c)%len(base62)])
				n--
			}
		}
	}
	return b
}

// appendCheck appends the check of what stands before it.
func appendCheck(b, before []byte) []byte {
	var check [checkSize]byte
	for sum, i := crc32.ChecksumIEEE(before), checkSize-1; i >= 0; i-- {
		check[i] = base62[sum%uint32(len(base62))]
		sum /= uint32(len(base62))
	}
	return append(b, check[:]...)
}

// ErrNoKey means that a text is not a key, or was not copied whole.
var ErrNoKey = errors.New("this is no key: a key is jct_key_ and 58 more characters, and one of them is missing or " +
	"mistyped")

// HashKey returns the hash of a key. The error is ErrNoKey.
func HashKey(key string) (Hash, error) {
	var whole [keySize]byte
	if len(key) != keySize || key[:len(keyPrefix)] != keyPrefix {
		return Hash{}, ErrNoKey
	}
	copy(whole[:], key)
	for i := len(keyPrefix); i < keySize; i++ {
		if between := i == len(keyPrefix)+idSize; between && whole[i] != '_' || !between && !alphanumeric(whole[i]) {
			return Hash{}, ErrNoKey
		}
	}
	const checked = keySize - checkSize
	var check [checkSize]byte
	if string(appendCheck(check[:0], whole[:checked])) != key[checked:] {
		return Hash{}, ErrNoKey
	}
	return sha256.Sum256(whole[:]), nil
}

// keyShaped is what looks like one of our keys, or like the start of one.
var keyShaped = regexp.MustCompile(`jct_key_[0-9A-Za-z]+(_[0-9A-Za-z]*)?`)

// HoldsKey reports whether a text has a key in it, or enough of one that it should not be shown.
func HoldsKey(text string) bool {
	for _, found := range keyShaped.FindAllString(text, -1) {
		if len(found) >= len(keyPrefix)+idSize+1+8 {
			return true
		}
	}
	return false
}

// tokenShaped is what looks like one of the tokens or codes that people's clients get, or like the
// start of one.
var tokenShaped = regexp.MustCompile(`(jct_(?:at|rt|ac)_)[0-9A-Za-z_-]+(?:\.[0-9A-Za-z_-]*)?`)

// Redact returns the text with a mark where keys, tokens and codes of ours are in it.
func Redact(text string) string {
	if !strings.Contains(text, tokenPrefix) {
		return text
	}
	return tokenShaped.ReplaceAllString(keyShaped.ReplaceAllLiteralString(text, keyPrefix+"…"), "${1}…")
}

// keyring is the Verifier of the keys of the file.
type keyring struct {
	keys map[Hash]*entry
	now  func() time.Time
}

// entry is a key of the file, with the ID of its principal.
type entry struct {
	Key
	id string
}

// Keys returns a Verifier that knows these keys and no others. Entries of one name are one
// principal, so that a key can be replaced while both are in use. Of entries with one hash, which
// Validate refuses, none is good: nobody could say whose it is. now is time.Now if it is nil.
//
// A key is looked up by its hash: how long that takes depends on the hash alone, of which nobody
// can choose even a byte without trying.
func Keys(list []Key, now func() time.Time) Verifier {
	if now == nil {
		now = time.Now
	}
	r := &keyring{keys: make(map[Hash]*entry, len(list)), now: now}
	for _, k := range list {
		if _, twice := r.keys[k.Hash]; twice {
			r.keys[k.Hash] = nil
			continue
		}
		r.keys[k.Hash] = &entry{k, "key:" + k.Name}
	}
	return r
}

var errUnknownKey = fmt.Errorf("%w: it is no key of this server", ErrInvalidToken)

// Verify is Verifier's. What is wrong with a key is told only to whoever has it: one that is not
// known gets the same answer, whatever is wrong with it.
func (r *keyring) Verify(_ context.Context, token string, from netip.Addr) (*Principal, error) {
	hash, err := HashKey(token)
	if err != nil {
		return nil, errUnknownKey
	}
	k := r.keys[hash]
	switch {
	case k == nil:
		return nil, errUnknownKey
	case k.expired(r.now()):
		return nil, fmt.Errorf("%w: the key expired at %s", ErrInvalidToken, k.Expires)
	case !k.from(from):
		return nil, fmt.Errorf("%w: the key is not for requests from this address", ErrInvalidToken)
	}
	return &Principal{Kind: KindKey, ID: k.id, Key: k.Name, Expires: k.Expires.Time, Address: from, hash: hash}, nil
}

// Still reports whether Verify would return the principal again. An expiry that has come nearer
// ends what was begun under the old one; one that has moved away changes nothing until then.
func (r *keyring) Still(p *Principal) bool {
	k := r.keys[p.hash]
	if p.Kind != KindKey || k == nil || k.Name != p.Key || k.expired(r.now()) || !k.from(p.Address) {
		return false
	}
	return k.Expires.IsZero() || !p.Expires.IsZero() && !k.Expires.Before(p.Expires)
}

func (k *Key) expired(now time.Time) bool { return !k.Expires.IsZero() && !now.Before(k.Expires.Time) }

func (k *Key) from(a netip.Addr) bool {
	if len(k.CIDRs) == 0 {
		return true
	}
	for _, c := range k.CIDRs {
		if c.Contains(a) {
			return true
		}
	}
	return false
}
