package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
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

// ID returns the first 8 hexadecimal digits of the hash, which tell the keys of one name apart in
// records. They say nothing about the key, which is random.
func (h Hash) ID() string { return hex.EncodeToString(h[:4]) }

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

// ErrMistyped means that a text has the form of a key, and is none.
var ErrMistyped = errors.New("the key is mistyped: its last 6 characters are check digits, and do not fit the " +
	"others; copy it again")

// HashKey returns the hash of a key. The error is ErrNoKey or ErrMistyped.
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
		return Hash{}, ErrMistyped
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

// keyring is the Verifier of the configured keys. It is immutable; a reload replaces it.
type keyring struct {
	keys    map[Hash]*entry
	revoked map[Hash]revokedKey // by earlier reloads and processes; at most maxRevoked
	now     func() time.Time
}

// entry is a configured key with the IDs of its principal and of itself.
type entry struct {
	Key
	principal, id string
}

// revokedKey is a key that a reload has removed. It serves records only.
type revokedKey struct {
	name string
	at   time.Time
}

// A RevokedKey is a key that an earlier process has seen revoked. It serves records only.
type RevokedKey struct {
	Name string
	Hash Hash
	At   time.Time
}

// KeyPrincipal returns the principal of the API keys of a name.
func KeyPrincipal(name string) string { return "key:" + name }

// maxRevoked limits the revoked keys that are remembered. The oldest are forgotten first.
const maxRevoked = 200

// newKeyring returns the keyring that replaces before, which may be nil. Entries with the same name are
// one principal, so that a key can be replaced while both are in use. Entries with the same hash, which
// Validate rejects, are all invalid. If now is nil, it is time.Now.
//
// A key is looked up by its hash. The time that takes tells an attacker nothing about valid keys.
func newKeyring(list []Key, before *keyring, now func() time.Time) *keyring {
	if now == nil {
		now = time.Now
	}
	r := &keyring{keys: make(map[Hash]*entry, len(list)), now: now}
	for _, k := range list {
		if _, twice := r.keys[k.Hash]; twice {
			r.keys[k.Hash] = nil
			continue
		}
		r.keys[k.Hash] = &entry{k, KeyPrincipal(k.Name), k.Hash.ID()}
	}
	if before == nil {
		return r
	}
	r.revoked = maps.Clone(before.revoked)
	for hash, k := range before.keys {
		if k != nil && r.revoked == nil {
			r.revoked = map[Hash]revokedKey{}
		}
		if k != nil {
			r.revoked[hash] = revokedKey{k.Name, r.now()}
		}
	}
	maps.DeleteFunc(r.revoked, func(h Hash, _ revokedKey) bool { _, configured := r.keys[h]; return configured })
	if excess := len(r.revoked) - maxRevoked; excess > 0 {
		oldest := slices.SortedFunc(maps.Keys(r.revoked), func(a, b Hash) int {
			return r.revoked[a].at.Compare(r.revoked[b].at)
		})
		for _, hash := range oldest[:excess] {
			delete(r.revoked, hash)
		}
	}
	return r
}

// keyError is the refusal of a key that is in the configuration, or was until a reload. Its sender
// has the whole key.
type keyError struct {
	error                // for the client
	name, id, why string // for the operator
}

func (e *keyError) Unwrap() error { return e.error }

// NotFromHere is why a valid key is refused that has cidrs.
const NotFromHere = "the key is not allowed from this address"

var errUnknownKey = fmt.Errorf("%w: this server does not know the key", ErrInvalidToken)

// Verify implements Verifier. The reason is told only to the holder of a known key; all unknown,
// malformed and revoked keys get the same answer.
func (r *keyring) Verify(_ context.Context, token string, from netip.Addr) (*Principal, error) {
	hash, err := HashKey(token)
	if err != nil {
		return nil, errUnknownKey
	}
	k := r.keys[hash]
	if was, revoked := r.revoked[hash]; revoked {
		return nil, &keyError{errUnknownKey, was.name, hash.ID(), "the key was revoked at " +
			was.at.UTC().Format(time.RFC3339)}
	}
	why := ""
	switch {
	case k == nil:
		return nil, errUnknownKey
	case k.expired(r.now()):
		why = "the key expired at " + k.Expires.String()
	case !k.from(from):
		why = NotFromHere
	}
	if why != "" {
		return nil, &keyError{fmt.Errorf("%w: %s", ErrInvalidToken, why), k.Name, k.id, why}
	}
	return &Principal{Kind: KindKey, ID: k.principal, Key: k.Name, KeyID: k.id, Expires: k.Expires.Time, Address: from,
		hash: hash, Endpoints: k.Endpoints}, nil
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
