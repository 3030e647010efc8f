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
	"slices"
	"strings"
	"time"
)

// An API key is jct_key_<id>_<secret><check>. The id is 8 random characters that tell keys apart in
// a list. The secret is 43 characters with 256 bits. The check is the CRC-32 of everything before
// it; it tells a real key from a mistyped one, also for secret scanners. All parts are base62: a
// double click selects the whole key, and shells, URLs and headers need no quoting.
const (
	keyPrefix = tokenPrefix + "key_"
	idSize    = 8
	// secretSize characters of 62 have log2(62^43) = 256.03 bits.
	secretSize = 43
	checkSize  = 6 // 62^6 > 2^32
	keySize    = len(keyPrefix) + idSize + 1 + secretSize + checkSize

	base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// Hash is the SHA-256 of a key. Keys are random, so that a slower hash would add nothing.
type Hash [sha256.Size]byte

const hashPrefix = "sha256:"

// UnmarshalText reads what String writes. Its error does not contain the text, which may be a key
// by mistake.
func (h *Hash) UnmarshalText(text []byte) error {
	digits, ok := strings.CutPrefix(string(text), hashPrefix)
	if b, err := hex.DecodeString(digits); ok && err == nil && len(b) == len(h) {
		copy(h[:], b)
		return nil
	}
	return errors.New(`want "sha256:" and 64 hexadecimal digits, as printed by junction keys create ` +
		"and junction keys hash")
}

// String formats the hash as in the configuration file.
func (h Hash) String() string { return hashPrefix + hex.EncodeToString(h[:]) }

// NewKey returns a new key. It is a secret; store only its hash.
func NewKey() string {
	key := make([]byte, 0, keySize)
	key = append(key, keyPrefix...)
	key = appendRandom(key, idSize)
	key = append(key, '_')
	key = appendRandom(key, secretSize)
	return string(appendCheck(key, key))
}

// appendRandom appends n uniformly random characters.
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

// appendCheck appends the check of before to b.
func appendCheck(b, before []byte) []byte {
	var check [checkSize]byte
	for sum, i := crc32.ChecksumIEEE(before), checkSize-1; i >= 0; i-- {
		check[i] = base62[sum%uint32(len(base62))]
		sum /= uint32(len(base62))
	}
	return append(b, check[:]...)
}

// ErrNoKey means that a text is not a complete key.
var ErrNoKey = errors.New("this is not a key; copy the whole of it: jct_key_ and 58 more characters")

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

// keyShaped matches API keys and beginnings of them.
var keyShaped = regexp.MustCompile(`jct_key_[0-9A-Za-z]+(_[0-9A-Za-z]*)?`)

// HoldsKey reports whether a text contains a key, or so much of one that it must not be shown.
func HoldsKey(text string) bool {
	for _, found := range keyShaped.FindAllString(text, -1) {
		if len(found) >= len(keyPrefix)+idSize+1+8 {
			return true
		}
	}
	return false
}

// tokenShaped matches the codes and tokens of OAuth clients, and beginnings of them.
var tokenShaped = regexp.MustCompile(`(jct_(?:at|rt|ac)_)[0-9A-Za-z_-]+(?:\.[0-9A-Za-z_-]*)?`)

// Redact replaces keys, tokens and codes of this server in a text.
func Redact(text string) string {
	if !strings.Contains(text, tokenPrefix) {
		return text
	}
	return tokenShaped.ReplaceAllString(keyShaped.ReplaceAllLiteralString(text, keyPrefix+"…"), "${1}…")
}

// keyring is the Verifier of the configured keys.
type keyring struct {
	keys map[Hash]*entry
	now  func() time.Time
}

// entry is a configured key with the ID of its principal.
type entry struct {
	Key
	id string
}

// Keys returns a Verifier of API keys. Entries with the same name are one principal, so that a key
// can be replaced while both are in use. Entries with the same hash, which Validate rejects, are
// all invalid. If now is nil, it is time.Now.
//
// A key is looked up by its hash. The time that takes tells an attacker nothing about valid keys.
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

var errUnknownKey = fmt.Errorf("%w: this server does not know the key", ErrInvalidToken)

// Verify implements Verifier. The reason is told only to the holder of a known key; all unknown or
// malformed keys get the same answer.
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
		return nil, fmt.Errorf("%w: the key is not allowed from this address", ErrInvalidToken)
	}
	return &Principal{Kind: KindKey, ID: k.id, Key: k.Name, Expires: k.Expires.Time, Address: from, hash: hash,
		Endpoints: k.Endpoints}, nil
}

// Still reports whether Verify would return the principal again. An earlier expiry than before ends
// it; a later one does not extend it.
func (r *keyring) Still(p *Principal) bool {
	k := r.keys[p.hash]
	if p.Kind != KindKey || k == nil || k.Name != p.Key || k.expired(r.now()) || !k.from(p.Address) ||
		!slices.Equal(k.Endpoints, p.Endpoints) {
		return false
	}
	return k.Expires.IsZero() || !p.Expires.IsZero() && !k.Expires.Before(p.Expires)
}

// ExpiryNotice is how long before its end the expiry of a key is announced.
const ExpiryNotice = 14 * 24 * time.Hour

// Expiring reports whether the key is valid and expires within ExpiryNotice.
func (k *Key) Expiring(now time.Time) bool {
	return !k.Expires.IsZero() && !k.expired(now) && k.Expires.Sub(now) <= ExpiryNotice
}

func (k *Key) expired(now time.Time) bool { return !k.Expires.IsZero() && !now.Before(k.Expires.Time) }

func (k *Key) from(a netip.Addr) bool {
	return len(k.CIDRs) == 0 || slices.ContainsFunc(k.CIDRs, func(c CIDR) bool { return c.Contains(a) })
}
